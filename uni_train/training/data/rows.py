"""Rows of files and folders by number, and what happens to bad ones. Each kind of file is a module in `files/`."""

from __future__ import annotations

import os
import random
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import image_suffixes, parse_json
from uni_train.core.registry import Registry
from uni_train.models.base import Example, SkillMissing
from uni_train.models.pictures import decode_picture, read_image

T = TypeVar("T")
KEPT_BYTES = 2**30  # of Parquet row groups, uncompressed, in each process
ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"}
FORMS = "Give a file of rows, or a folder of images with captions; docs/training.md shows all forms."


class BadRow(Exception):
    """This row cannot be trained on; the message says why, without file and number. hint: what to do, if known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(slots=True)
class Row:
    """One row: its values, and the folder that its image paths start from.

    Attributes:
        read: the keys that its form has looked up.
        turns: while the row is checked: options -> how often `choose` had them; else None.
    """

    values: Mapping[str, Any]
    folder: Path
    read: set[str] = field(default_factory=set)
    turns: Counter[tuple[Any, ...]] | None = None
    _images: dict[bytes | str, np.ndarray] = field(default_factory=dict)

    def find(self, *keys: str) -> tuple[str, Any] | None:
        """The first of `keys` that has a value, and the value."""
        for key in keys:
            self.read.add(key)
            if not missing(value := self.values.get(key)):
                return key, value
        return None

    def first(self, *keys: str) -> tuple[str, Any]:
        """As `find`. Raises BadRow with the keys of the row if none has a value."""
        if (found := self.find(*keys)) is not None:
            return found
        if empty := [key for key in keys if self.values.get(key) is not None]:
            raise BadRow(f"{empty[0]} is empty")
        there = ", ".join(str(key)[:40] for key, value in self.values.items() if not missing(value))
        wanted = " or ".join(filter(None, (", ".join(keys[:-1]), keys[-1])))
        raise BadRow(f"has no {wanted}; its keys: {there[:400] or 'none'}")

    def get(self, key: str) -> Any:
        """The value of `key`. Raises BadRow if there is none."""
        return self.first(key)[1]

    def text(self, key: str) -> str:
        """A text that is not empty. Raises BadRow otherwise."""
        return text_of(self.get(key), key)

    def images(self, *keys: str) -> tuple[np.ndarray, ...]:
        """The image or images of the first of `keys` that has any, each as `image`; none where none has."""
        key, given = self.find(*keys) or ("", [])
        if not isinstance(given, list):
            return (self.image(given, key),)
        return tuple(self.image(entry, f"image {i} of {key}") for i, entry in enumerate(given, start=1))

    def choose(self, options: Sequence[T], random_: random.Random) -> T:
        """One of `options` by the generator; while the row is checked, each in its turn."""
        if self.turns is None:
            return random_.choice(options)
        self.turns[tuple(options)] += 1
        return options[self.turns[tuple(options)] % len(options)]

    def image(self, value: Any, key: str) -> np.ndarray:
        """uint8 [H, W, 3] from encoded bytes, a {"bytes": ...} of the datasets library, or a path below `folder`.

        It may be a list of one. Pixels are returned as they are. Each image is decoded once a row.

        Raises:
            BadRow: no image, a damaged one, or one that is too large.
        """
        if isinstance(value, list) and len(value) != 1:
            raise BadRow(f"{key} has {len(value)} images, but one is drawn")
        value = next(_parts(value))
        if isinstance(value, np.ndarray):
            return value
        if not isinstance(value, bytes | str):
            raise BadRow(f"{key} is neither the bytes of an image nor a path")
        if isinstance(value, str) and not os.path.isfile(self.folder / value):
            name = value if len(value) <= 80 else f"{value[:30]}...{value[-30:]} ({len(value):,} characters)"
            raise BadRow(f"{key}: {self.folder / name}: no such file")  # base64 is not printed whole
        if value not in self._images:
            try:
                read = decode_picture(value, key) if isinstance(value, bytes) else read_image(self.folder / value)
            except UserError as error:
                raise BadRow(error.message) from None
            self._images[value] = read
        return self._images[value]

    def expect_all_read(self) -> None:
        """Raises BadRow for an image, a conversation, a video or audio that the form has not looked up."""
        paths = [candidate for key in self.read for candidate in _parts(self.values.get(key)) if _is_path(candidate)]
        for key, value in self.values.items():
            if key in self.read or missing(value):
                continue
            kinds = ("video or audio" if key in _MEDIA else self._kind(part, paths) for part in _parts(value))
            if kind := next(filter(None, kinds), None):
                hint = "Drop that key, or rename it to one that docs/training.md lists for what it holds."
                raise BadRow(f"its key {str(key)[:40]} holds {kind}, which is not read", hint)

    def _kind(self, part: Any, paths: Sequence[str]) -> str | None:
        """What of an example a value is, if any. `paths`: of images that are read; a path may repeat the end of one."""
        if isinstance(part, Mapping):
            return "a conversation" if {"from", "value"} <= part.keys() or {"role", "content"} <= part.keys() else None
        if isinstance(part, bytes):
            with suppress(BadRow):
                self.image(part, "")
                return "an image"
        elif _is_path(part):  # beside encoded images it may only say where they come from
            alike = any(f"/{path}".endswith(f"/{part}") or f"/{part}".endswith(f"/{path}") for path in paths)
            return "an image" if (not alike if paths else os.path.isfile(self.folder / part)) else None
        return None


_MEDIA = {"video", "videos", "audio", "audios"}
_NO_CELL = {"NaN", "nan", "None", "null"}


def missing(value: Any, cell: bool = False) -> bool:
    """Whether a value is none: None, NaN, a blank text, a list of such, a null image of the datasets library.

    cell: of a CSV file, where NaN and None are words.
    """
    if isinstance(value, str):
        return not value.strip() or (cell and value.strip() in _NO_CELL)
    if isinstance(value, Mapping):
        return value.keys() <= {"bytes", "path"} and not any(value.values())
    if isinstance(value, list):
        return all(not isinstance(part, list) and missing(part) for part in value)
    return value is None or (isinstance(value, float) and value != value)  # NaN alone is not itself


def _parts(value: Any) -> Iterator[Any]:
    """The single values of a list, of lists in it; of an image of the datasets library its bytes or path."""
    if isinstance(value, list):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, Mapping) and value.keys() & {"bytes", "path"}:
        yield value["bytes"] if value.get("bytes") is not None else value.get("path")
    else:
        yield value


def _is_path(value: Any) -> bool:
    """Whether a value names an image file; an address on the web says where one comes from."""
    return isinstance(value, str) and os.path.splitext(value)[1].lower() in image_suffixes() and "://" not in value


def text_of(value: Any, key: str) -> str:
    """`value` as a text that is not empty. Raises BadRow otherwise."""
    if not isinstance(value, str):
        raise BadRow(f"{key} is no text")
    if not value.strip():
        raise BadRow(f"{key} is empty")
    return value


def caption_of(row: Row, keys: Sequence[str], random_: random.Random) -> str:
    """A text of the first of `keys`: itself, or one of a list or of an object {name: text}, by the generator.

    `captions` may hold the object as JSON text, as BAGEL's data does. Raises BadRow where there is no text.
    """
    key, value = row.first(*keys)
    if key == "captions" and isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = parse_json(value, key)
        except ValueError:
            raise BadRow("captions is not JSON") from None
    if not isinstance(value, Mapping | list):
        return text_of(value, key)
    named = value.items() if isinstance(value, Mapping) else enumerate(value, start=1)
    texts = [text_of(text, f"{key.removesuffix('s')} {name}") for name, text in named if text is not None]
    if not texts:
        raise BadRow(f"has no {key}")
    return row.choose(texts, random_)


# --- files ------------------------------------------------------------------------------------------------------------


class RowFile:
    """Rows by number. Each kind of file is one, made from its path and from the folder that image paths start from.

    Attributes:
        images: of a folder of captioned images, whose names are a part of the data.
        remarks: on what is not read.
    """

    images: Sequence[Path] = ()
    remarks: Sequence[str] = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Row:
        """Raises BadRow where there is no row that can be read."""
        raise NotImplementedError

    def where(self, index: int) -> str:
        """File and number of a row: "train.jsonl, line 7"."""
        raise NotImplementedError

    def named(self, index: int) -> Iterator[Path]:
        """The files that a row names, at any depth of it; none of a bad row."""
        with suppress(BadRow):
            row = self[index]
            values: list[Any] = [row.values]
            while values:
                value = values.pop()
                if isinstance(value, Mapping | list):
                    values += value.values() if isinstance(value, Mapping) else value
                elif isinstance(value, str) and os.path.isfile(row.folder / value):
                    yield row.folder / value


FILES: Registry[Callable[..., Any]] = Registry("kind of file", "uni_train.training.data.files.*")
"""Kinds of files by their suffix, and "folder"; each is imported when one is opened."""


def open_rows(path: str | Sequence[str], folder: Path | None = None, held_out: bool = False) -> Joined:
    """The rows of .jsonl, .json, .csv, .parquet or .tar files, of folders and of data sets of the Hub.

    Of a folder the first that there is: metadata.jsonl, .csv or .json and items.jsonl; Parquet; other JSONL and CSV;
    images with a .txt or .caption file each; tar; other JSON arrays. Subfolders count. Of a folder with splits only
    that for training is read.

    Args:
        folder: where image paths start from; None: beside each file.
        held_out: of a folder with splits the validation or test split is read in place of that for training.

    Raises:
        UserError: a file is missing, empty, damaged or of another kind; a folder has no rows.
    """
    opened: list[RowFile] = []
    files: list[Path] = []
    remarks: list[str] = []
    for given in [path] if isinstance(path, str) else path:
        place = Path(given)
        if given.startswith("hf:"):
            from uni_train.core.hub_data import local_data

            place = local_data(given)
        if not place.exists():
            raise UserError(f"{place}: no such file", "Check the path of the training data.")
        folder_rows = FILES.get("folder") if place.is_dir() else None
        there = folder_rows(place, folder, held_out) if folder_rows else Joined([file_rows(place, folder)], [place])
        opened += there.parts
        files += there.files
        remarks += [*there.remarks, *(remark for part in there.parts for remark in part.remarks)]
    rows = Joined(opened, files, remarks)
    if not len(rows):
        raise UserError(
            f"{path if isinstance(path, str) else ', '.join(path)}: there are no rows",
            "Give a file with training data.",
        )
    return rows


def file_rows(file: Path, folder: Path | None = None) -> RowFile:
    """The rows of one file. Raises UserError: it is damaged or of another kind."""
    if (suffix := suffix_of(file)[1:]) in FILES.names():
        return FILES.get(suffix)(file, folder or file.parent)
    if file.suffix.lower() in ARCHIVES:
        raise UserError(f"{file} is an archive", "Unpack it, and give the folder; a .tar without compression is read.")
    raise UserError(f"{file}: training data must be .jsonl, .json, .csv, .parquet or .tar, or a folder", FORMS)


def suffix_of(file: Path) -> str:
    """ ".jsonl" of a.JSONL and of a.jsonl.gz."""
    return Path(re.sub(r"(?<!\.tar)\.gz$", "", file.name.lower())).suffix


def few(files: Sequence[Path]) -> str:
    """The first of some files, and how many there are more."""
    return f"{files[0]} and {len(files) - 1} more" if len(files) > 1 else str(files[0])


class Joined(RowFile):
    """Several as one. files: of rows, or folders of images; remarks: on what else lies in their folders."""

    def __init__(self, parts: Sequence[RowFile], files: Sequence[Path] = (), remarks: Sequence[str] = ()) -> None:
        self.parts, self.files, self.remarks = parts, files, remarks
        self._ends = list(accumulate(len(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Row:
        part, at = self.place(index)
        return part[at]

    def where(self, index: int) -> str:
        part, at = self.place(index)
        return part.where(at)

    def place(self, index: int) -> tuple[RowFile, int]:
        """The file of a row, and the row's number there."""
        part = bisect_right(self._ends, index)
        return self.parts[part], index - (self._ends[part - 1] if part else 0)


class Chosen(RowFile):
    """Some rows of others, in a given order."""

    def __init__(self, rows: RowFile, chosen: Sequence[int]) -> None:
        self.rows, self.chosen = rows, array("q", chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: int) -> Row:
        return self.rows[self.chosen[index]]

    def where(self, index: int) -> str:
        return self.rows.where(self.chosen[index])


# --- examples ---------------------------------------------------------------------------------------------------------

CHECKED = 10_000
"""Rows of a source that are read before the first update; a bad one behind them is met when it is drawn."""
Parse = Callable[[Row, random.Random], Example]
"""A row as an example; which caption or step of it is taken comes from the generator. Raises BadRow."""


class Rows:
    """Examples made from rows: a source of `uni_train.training.steps`.

    Args:
        bad: "error" ends the training at the first bad row; "skip" takes the next good one in its place.
        tokens: counts an example's tokens; one with more than `most_tokens` is a bad row.

    Attributes:
        skipped: the bad rows met so far, where they are -> what is wrong.
    """

    def __init__(
        self,
        rows: RowFile,
        parse: Parse,
        bad: Literal["error", "skip"],
        tokens: Callable[[Example], int],
        most_tokens: int,
    ) -> None:
        self.rows, self.parse, self.bad, self.tokens, self.most_tokens = rows, parse, bad, tokens, most_tokens
        self.skipped: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        """File and number of a row."""
        return self.rows.where(index)

    def draw(self, index: int, random_: random.Random) -> Example:
        """The example of one row.

        Raises:
            UserError: the row is bad (`bad="error"`), or all rows are.
        """
        for step in range(len(self)):
            at = (index + step) % len(self)
            try:
                return self._example(self.rows[at], random_)
            except BadRow as error:
                self._skip(at, error)
        where, reason = next(iter(self.skipped.items()))
        raise UserError(f"all {len(self)} rows are bad; {where}: {reason}", "Check the form and the path of the data.")

    def check(self) -> None:
        """Raises UserError before anything is trained: one of the first `CHECKED` rows is bad in one of its choices."""
        for index in range(min(len(self), CHECKED) if self.bad == "error" else 0):
            random_ = random.Random(index)
            try:
                row = self.rows[index]
                row.turns = Counter()
                self._example(row, random_)
                while any(times < len(options) for options, times in row.turns.items()):
                    self._example(row, random_)
            except BadRow as error:
                self._skip(index, error)

    def _skip(self, index: int, error: BadRow) -> None:
        if self.bad == "error":
            hint = "Correct the row, or leave out all bad ones with data.bad_rows=skip."
            raise UserError(f"{self.rows.where(index)}: {error}", error.hint or hint) from None
        self.skipped[self.rows.where(index)] = str(error)

    def _example(self, row: Row, random_: random.Random) -> Example:
        example = self.parse(row, random_)
        row.expect_all_read()
        try:
            tokens = self.tokens(example)
        except SkillMissing:
            raise
        except UserError as error:  # what the model cannot be trained on, e.g. an editor on a row without an image
            raise BadRow(error.message, error.hint) from None
        if tokens > self.most_tokens:
            raise BadRow(f"has {tokens} tokens, more than the {self.most_tokens} that an example may have")
        return example
