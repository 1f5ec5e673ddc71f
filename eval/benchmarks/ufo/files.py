"""The published files of UFO, read from a folder (Hub `yzzyu/UFO`, splits mcq and open).

    FOLDER/mcq*.jsonl or mcq*.parquet, open*.jsonl or open*.parquet      (also in FOLDER/data, as the Hub lays them out)

A row: id, category, task, question_type, input_images (a list), question, choice_a to choice_d (texts or images; null
in open questions), answer, text_cue, cue_image (or null), solution. An image is a path relative to its file, bytes, or
{"bytes", "path"} as Parquet files of the Hub have it. Rows of our own have `facts` too. Nothing of it is ever shipped:
it is CC BY-NC 4.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError, nearest
from uni_train.data_gen.jsonl import read_objects
from uni_train.data_gen.reading_limits import Unreadable, open_image, rgb
from uni_train.errors import UserError
from uni_train.eval.benchmarks.ufo.names import KINDS, PAPER_TASKS, REGIMES, TASKS
from uni_train.eval.images import Image, StoredImage, digest_of, of_file
from uni_train.eval.published_rows import PublishedRow, TextOrNumber, read_row, shown

LETTERS = ("A", "B", "C", "D")
SUFFIXES = (".jsonl", ".parquet")
HUB = "yzzyu/UFO"
HOW_TO_GET = (
    f"data.ufo=hf://{HUB} downloads it (CC BY-NC 4.0); or name its folder: data.ufo=FOLDER; it needs mcq*.jsonl or "
    "mcq*.parquet, open*.jsonl or open*.parquet"
)
_BATCH = 32  # rows of Parquet that are read together
_IMAGE_NAME = re.compile(r"[^\n]{1,400}\.(?:png|jpe?g|webp|bmp|gif)", re.IGNORECASE)
# Other spellings of a task, without blanks, hyphens and underscores.
_ALIASES = {
    "chemical": "chemistry", "multitable": "multi_table", "multiview": "multi_view", "hybridization": "hybridisation",
    "exotoego": "exo_to_ego", "exo2ego": "exo_to_ego", "geometry": "geometric", "logic": "logical",
    "physical": "physics",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One question, checked.

    kind: "mcq" or "open". task: one of TASKS. images: encoded, shown with the question. choices: letter -> a text or
    an encoded image; empty for open questions. answer: the letter, or words. cue_image: encoded. part: the rest of the
    published task's name ("inpainting_a": "a"). facts: of our own rows.
    """

    id: str
    kind: str
    task: str
    question: str
    answer: str
    images: tuple[Image, ...] = ()
    choices: Mapping[str, str | Image] = field(default_factory=dict)
    text_cue: str = ""
    cue_image: Image | None = None
    solution: str = ""
    part: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Published(PublishedRow):
    """A row as it is published. Choices and images are checked by themselves, for a choice may be an image."""

    id: TextOrNumber
    task: TextOrNumber
    question: TextOrNumber
    answer: TextOrNumber
    category: Any = None
    input_images: list[Any] | None = None
    cue_image: Any = None
    text_cue: str | None = None
    solution: str | None = None
    facts: dict[str, Any] | None = None


def read_folder(folder: Path, kinds: tuple[str, ...] = KINDS) -> list[Row]:
    """All rows, questions with choices first.

    Raises:
        DataError: no such folder or files (how to get them), or a row that does not fit: the file, its line (of Parquet
            the row) and the key are named.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder. {HOW_TO_GET}")
    files = {kind: _files(folder, kind) for kind in kinds}
    if not any(files.values()):
        raise DataError(f"{folder} has no files of UFO. {HOW_TO_GET}")
    rows: list[Row] = []
    place_of: dict[tuple[str, str], str] = {}
    for kind, paths in files.items():
        for path in paths:
            before = len(rows)
            for place, raw in _objects(path):
                row = _row(place, raw, kind)
                if (kind, row.id) in place_of:
                    before_it = place_of[kind, row.id]
                    raise DataError(f"{place.where}: the id {row.id} was used in {before_it}; ids must differ")
                place_of[kind, row.id] = place.where
                rows.append(row)
            if len(rows) == before:
                raise DataError(f"{path} has no rows")
    return rows


def _files(folder: Path, kind: str) -> list[Path]:
    for place in (folder, folder / "data"):
        found = sorted(path for path in place.glob(f"{kind}*") if path.suffix in SUFFIXES and path.is_file())
        if found:
            return found
    return []


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row stands. where: for errors. batch: of Parquet, the row group, the batch in it and the row in that."""

    where: str
    path: Path
    batch: tuple[int, int, int] | None = None


def _objects(path: Path) -> Iterator[tuple[_Place, dict[str, Any]]]:
    if path.suffix == ".jsonl":
        for number, found in read_objects(path):
            yield _Place(f"{path}, line {number}", path), found
        return
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for group in range(file.num_row_groups):
            for batch_number, batch in enumerate(file.iter_batches(batch_size=_BATCH, row_groups=[group])):
                for index, found in enumerate(batch.to_pylist()):
                    number += 1
                    yield _Place(f"{path}, row {number}", path, (group, batch_number, index)), found
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no Parquet file that can be read: download it again") from error


@lru_cache(maxsize=6)  # the columns that hold images
def _column(path: Path, group: int, batch_number: int, key: str) -> list[Any]:
    """One column of a batch of Parquet, which holds all images of its rows."""
    from pyarrow import parquet

    batches = parquet.ParquetFile(path).iter_batches(batch_size=_BATCH, row_groups=[group], columns=[key])
    return next(batch for number, batch in enumerate(batches) if number == batch_number).column(0).to_pylist()


def _of_parquet(path: Path, batch: tuple[int, int, int], key: str, at: int | None, digest: str) -> bytes:
    """An image of a Parquet file, read again. Raises UserError where the file is not what it was."""
    import pyarrow as pa

    try:
        value = _column(path, batch[0], batch[1], key)[batch[2]]
        value = value if at is None else value[at]
        data = value["bytes"] if isinstance(value, dict) else value
    except (OSError, pa.ArrowException, LookupError, StopIteration, TypeError) as error:
        raise UserError(f"{path}: an image that was there cannot be read again ({error})") from error
    if not isinstance(data, bytes) or digest_of(data) != digest:
        raise UserError(f"{path} has changed since it was opened", "Run the same command again.")
    return data


def _row(place: _Place, raw: Mapping[str, Any], kind: str) -> Row:
    where = place.where
    row = read_row(Published, where, raw)
    task, part = _task(where, row.task)
    _check_regime(where, row.category, task)
    choices = _choices(place, raw) if kind == "mcq" else {}
    answer = row.answer.strip()
    return Row(
        id=row.id.strip(),
        kind=kind,
        task=task,
        question=row.question.strip(),
        answer=_letter(where, answer, choices) if kind == "mcq" else answer,
        images=tuple(_image(place, "input_images", one, at) for at, one in enumerate(row.input_images or ())),
        choices=choices,
        text_cue=(row.text_cue or "").strip(),
        cue_image=None if row.cue_image is None else _image(place, "cue_image", row.cue_image),
        solution=(row.solution or "").strip(),
        part=part,
        facts=row.facts or {},
    )


def _task(where: str, name: str) -> tuple[str, str]:
    """The task, and what is left of the name: "Inpainting_A" -> ("inpainting", "a")."""
    plain = re.sub(r"[\s_-]+", "", name.casefold())
    known = {task.replace("_", ""): task for task in TASKS} | _ALIASES
    for spelling in sorted(known, key=len, reverse=True):
        if plain.startswith(spelling):
            return known[spelling], plain.removeprefix(spelling)
    raise DataError(f'{where}: "task" is "{name}", which UFO does not have: {nearest(name, PAPER_TASKS)}')


def _check_regime(where: str, category: Any, task: str) -> None:
    """Names that we do not know are let pass; one of another regime is a mistake."""
    said = [regime for regime in REGIMES if regime in str(category).casefold()]
    if said and said != [TASKS[task]]:
        raise DataError(f'{where}: "category" is "{category}", but {task} is of state {TASKS[task]}')


def _choices(place: _Place, raw: Mapping[str, Any]) -> dict[str, str | Image]:
    where = place.where
    found: dict[str, str | Image] = {}
    for letter in LETTERS:
        key = f"choice_{letter.lower()}"
        value = raw.get(key)
        if value is None or value == "":
            continue
        if isinstance(value, dict | bytes) or (isinstance(value, str) and _IMAGE_NAME.fullmatch(value.strip())):
            found[letter] = _image(place, key, value)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f'{where}: "{key}" is {shown(value)}; expected a text or an image')
        else:
            found[letter] = str(value).strip()
    if len(found) < 2:
        raise DataError(f'{where}: {len(found)} of "choice_a" to "choice_d" are given; expected at least two')
    return found


def _letter(where: str, answer: str, choices: Mapping[str, str | Image]) -> str:
    found = re.fullmatch(r"\W*([A-Da-d])(?:\W*|[).:,]\s.*)", answer, re.DOTALL)
    if found is None or found[1].upper() not in choices:
        raise DataError(f'{where}: "answer" is "{answer[:40]}"; expected the letter of a choice: {", ".join(choices)}')
    return found[1].upper()


def _image(place: _Place, key: str, value: Any, at: int | None = None) -> Image:
    """The encoded image, which is read again when it is asked for; at: which of a list.

    Raises DataError: no such file, or nothing that can be decoded.
    """
    where = f'{place.where}: "{key}"' + ("" if at is None else f" {at + 1}")
    path = None
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        path = place.path.parent / value.strip()
        try:
            value = path.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {path} cannot be read ({error.strerror or error})") from error
    if not isinstance(value, bytes) or not value:
        raise DataError(f"{where} is {shown(value)}; expected an image: a path, or bytes")
    try:
        with open_image(value, where) as image:
            rgb(image)
    except Unreadable as error:
        raise DataError(f"{where} is no image that can be read: {error.reason}") from error
    digest = digest_of(value)
    if path is not None:
        return of_file(path, digest)
    # JSON holds no bytes: these are of Parquet.
    assert place.batch is not None
    return StoredImage(partial(_of_parquet, place.path, place.batch, key, at, digest), digest)
