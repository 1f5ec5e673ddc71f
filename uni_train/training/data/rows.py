"""Rows of JSONL, CSV and Parquet files and of captioned images by number, and what happens to bad ones.

Nothing is read ahead of time but line starts, Parquet footers and CSV files. A Parquet file is read one row group at a
time, and the last groups are kept. So small groups (100 rows) suit random access best.
"""

from __future__ import annotations

import csv
import io
import os
import random
from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import (
    LINE_BYTES,
    Unreadable,
    decoded,
    image_suffixes,
    open_file,
    parquet_footer,
    parse_json,
    read_group,
    read_text,
    read_unpacked,
    reason,
    rows_of,
)
from uni_train.models.base import Example, SkillMissing
from uni_train.models.pictures import decode_picture, read_image
from uni_train.training.data.folders import ARCHIVES, FORMS, Content, content, suffix_of

T = TypeVar("T")
KEPT_BYTES = 2**30  # of Parquet row groups, uncompressed, in each process


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
                raise BadRow(str(error)) from None
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


class RowFile(Protocol):
    """Rows by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Row:
        """Raises BadRow where there is no row that can be read."""
        ...

    def where(self, index: int) -> str:
        """File and number of a row: "train.jsonl, line 7"."""
        ...


def open_rows(path: str | Sequence[str], folder: Path | None = None, held_out: bool = False) -> Joined:
    """The rows of .jsonl, .csv or .parquet files and of folders.

    Of a folder the first that there is: metadata.jsonl, metadata.csv and items.jsonl; Parquet; other JSONL and CSV;
    images with a .txt or .caption file each. Subfolders count. Of a folder with splits only that for training is read.

    Args:
        folder: where image paths start from; None: beside each file.
        held_out: of a folder with splits the validation or test split is read in place of that for training.

    Raises:
        UserError: a file is missing, empty, damaged or of another kind; a folder has no rows.
    """
    opened: list[RowFile] = []
    files: list[Path] = []
    remarks: list[str] = []
    for place in map(Path, [path] if isinstance(path, str) else path):
        if not place.exists():
            raise UserError(f"{place}: no such file", "Check the path of the training data.")
        there = content(place, held_out) if place.is_dir() else Content([place])
        opened += [_open_file(file, folder or file.parent) for file in there.rows]
        opened += [CaptionedImages(place, there.images, there.captions)] if there.images else []
        files += there.rows or [place]
        remarks += there.remarks
    rows = Joined(opened, files, remarks)
    if not len(rows):
        raise UserError(
            f"{path if isinstance(path, str) else ', '.join(path)}: there are no rows",
            "Give a file with training data.",
        )
    return rows


def _open_file(file: Path, folder: Path) -> RowFile:
    kinds: dict[str, Callable[[Path, Path], RowFile]] = {".jsonl": JsonLines, ".parquet": ParquetFile, ".csv": CsvFile}
    if (kind := kinds.get(suffix_of(file))) is not None:
        return kind(file, folder)
    if file.suffix.lower() in ARCHIVES:
        raise UserError(f"{file} is an archive", "Unpack it, and give the folder.")
    raise UserError(f"{file}: training data must be .jsonl, .csv or .parquet, or a folder", FORMS)


class Joined:
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


class Chosen:
    """Some rows of others, in a given order."""

    def __init__(self, rows: RowFile, chosen: Sequence[int]) -> None:
        self.rows, self.chosen = rows, array("q", chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: int) -> Row:
        return self.rows[self.chosen[index]]

    def where(self, index: int) -> str:
        return self.rows.where(self.chosen[index])


class JsonLines:
    """One JSON object a line; empty lines do not count."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self._starts, self._numbers = array("q"), array("q")
        position = 0
        self._unpacked = read_unpacked(path) if path.suffix.lower() == ".gz" else None
        with self._open() as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
                if len(line) > LINE_BYTES:
                    raise UserError(f"{path}, line {number}: more than {LINE_BYTES >> 20} MiB", "Give one row a line.")
                if line.strip():
                    self._starts.append(position)
                    self._numbers.append(number)
                position += len(line)

    def _open(self) -> IO[bytes]:
        return open_file(self.path) if self._unpacked is None else io.BytesIO(self._unpacked)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Row:
        with self._open() as file:
            file.seek(self._starts[index])
            line = file.readline()
        try:
            values = parse_json(line, self.path, self._numbers[index])
        except ValueError as error:
            raise BadRow(f"is not a JSON object ({reason(error)})") from None
        if not isinstance(values, dict):
            raise BadRow("is not a JSON object")
        return Row(values, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, line {self._numbers[index]}"


class CsvFile:
    """One row a line below a line of names; fields in quotes may have line breaks."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        reader = csv.DictReader(io.StringIO(decoded(read_unpacked(path), path), newline=""))
        try:
            self._rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: not CSV ({error})", "Save it as CSV again.") from None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        _, values = self._rows[index]
        if None in values:
            raise BadRow("has more fields than the first line names: put texts with commas in quotes")
        return Row({key: None if missing(text, cell=True) else text for key, text in values.items()}, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, line {self._rows[index][0]}"


class CaptionedImages:
    """Images as rows of `image` and `caption`.

    Args:
        captions: the files with captions, by the image without its suffix.

    Raises:
        UserError: no image has a caption, or two images share one.
    """

    def __init__(self, folder: Path, images: Sequence[Path], captions: Mapping[Path, Path]) -> None:
        self.images, self.captions = images, captions
        stems = Counter(image.with_suffix("") for image in images)
        without = [image for image in images if image.with_suffix("") not in captions]
        self._missing = f"{len(without)} of {len(images)} images have none"
        if len(without) == len(images):
            raise UserError(
                f"{folder} has {len(without)} images without captions; the first is {without[0].name}",
                f"Write each caption beside its image ({without[0].stem}.txt), or all in metadata.jsonl.",
            )
        if clash := [image for image in images if stems[image.with_suffix("")] > 1]:
            names, caption = f"{clash[0].name} and {clash[1].name}", captions.get(clash[0].with_suffix(""), clash[0])
            raise UserError(f"{clash[0].parent}: {names} share {caption.stem}.txt", "Rename one of them.")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Row:
        image = self.images[index]
        caption = self.captions.get(image.with_suffix(""))
        if caption is None:
            raise BadRow(f"has no caption {image.stem}.txt; {self._missing}")
        try:
            return Row({"image": image.name, "caption": read_text(caption).strip()}, image.parent)
        except (Unreadable, OSError) as error:
            raise BadRow(f"{caption.name}: {reason(error)}") from None

    def where(self, index: int) -> str:
        return str(self.images[index])


class ParquetFile:
    """The rows of one Parquet file, a row group at a time. encoded: whether they hold bytes, as of images."""

    def __init__(self, path: Path, folder: Path) -> None:
        import pyarrow as pa

        self.path, self.folder = path, folder
        try:
            metadata = parquet_footer(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is no Parquet file that can be read ({error})", "Copy it again.") from error
        self._ends = list(accumulate(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.encoded = any(c.physical_type == "BYTE_ARRAY" and c.logical_type.type != "STRING" for c in columns)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Row:
        group = bisect_right(self._ends, index)
        at = index - (self._ends[group - 1] if group else 0)
        try:
            (row,) = rows_of(self.path, [_groups.get(self.path, group).slice(at, 1)])
        except Unreadable as error:
            raise BadRow(reason(error)) from None
        return Row(row, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, row {index + 1}"


class _Groups:
    """The row groups that were read last, of all files together."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, int], Any] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, group: int) -> Any:
        """A pyarrow table. Raises UserError for a damaged file."""
        import pyarrow as pa

        key = (path, group)
        table = self._kept.get(key)
        if table is not None:
            self._kept.move_to_end(key)
            return table
        try:
            table = read_group(path, group)
        except Unreadable as error:
            raise UserError(f"{path}, row group {group + 1}: {error.reason}", "Make smaller row groups.") from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: row group {group + 1} is damaged ({error})", "Copy the file again.") from error
        self._kept[key] = table
        self._bytes += table.nbytes
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._bytes -= old.nbytes
        return table


_groups = _Groups()


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
