"""The published files of UFO, read from a folder (Hub `yzzyu/UFO`, splits mcq and open).

    FOLDER/mcq*.jsonl or mcq*.parquet, open*.jsonl or open*.parquet      (also in FOLDER/data, as the Hub lays them out)

A row: id, category, task, question_type, input_images (a list), question, choice_a to choice_d (texts or images; null
in open questions), answer, text_cue, cue_image (or null), solution. An image is a path relative to its file, bytes, or
{"bytes", "path"} as Parquet files of the Hub have it. Rows of our own have `facts` too. Nothing of it is ever shipped:
it is CC BY-NC 4.0.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_gen.errors import DataError, nearest
from data_gen.jsonl import read_objects
from eval.benchmarks.ufo.names import KINDS, PAPER_TASKS, REGIMES, TASKS
from eval.images import Image, StoredImage, digest_of

LETTERS = ("A", "B", "C", "D")
NEEDED = ("id", "task", "question", "answer")
SUFFIXES = (".jsonl", ".parquet")
HOW_TO_GET = (
    "Get it with `hf download yzzyu/UFO --repo-type dataset --local-dir FOLDER` (CC BY-NC 4.0; `hf auth login` first "
    "where its page asks for consent) and name the folder: "
    "--data ufo=FOLDER; it needs mcq*.jsonl or mcq*.parquet, open*.jsonl or open*.parquet"
)
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
            for where, raw in _objects(path):
                row = _row(where, raw, kind, path.parent)
                if (kind, row.id) in place_of:
                    raise DataError(f"{where}: the id {row.id} was used in {place_of[kind, row.id]}; ids must differ")
                place_of[kind, row.id] = where
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


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place for errors, object)."""
    if path.suffix == ".jsonl":
        for number, found in read_objects(path):
            yield f"{path}, line {number}", found
        return
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=64):
            for found in batch.to_pylist():
                number += 1
                yield f"{path}, row {number}", found
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no Parquet file that can be read: download it again") from error


def _row(where: str, raw: Mapping[str, Any], kind: str, folder: Path) -> Row:
    for key in NEEDED:
        if key not in raw:
            raise DataError(f'{where}: no "{key}"; its keys are {", ".join(raw)}')
        if isinstance(raw[key], bool) or not isinstance(raw[key], str | int | float) or not str(raw[key]).strip():
            raise DataError(f'{where}: "{key}" is {_shown(raw[key])}; expected some text')
    task, part = _task(where, str(raw["task"]))
    _check_regime(where, raw.get("category"), task)
    images = raw.get("input_images")
    if images is None:
        images = []
    if not isinstance(images, list):
        raise DataError(f'{where}: "input_images" is {_shown(images)}; expected a list of images')
    choices = _choices(where, raw, folder) if kind == "mcq" else {}
    answer = str(raw["answer"]).strip()
    facts = raw.get("facts") or {}
    if not isinstance(facts, dict):
        raise DataError(f'{where}: "facts" is {_shown(facts)}; expected an object')
    return Row(
        id=str(raw["id"]).strip(),
        kind=kind,
        task=task,
        question=str(raw["question"]).strip(),
        answer=_letter(where, answer, choices) if kind == "mcq" else answer,
        images=tuple(_image(f'{where}: "input_images" {at}', one, folder) for at, one in enumerate(images, 1)),
        choices=choices,
        text_cue=_text(where, raw, "text_cue"),
        cue_image=None if raw.get("cue_image") is None else _image(f'{where}: "cue_image"', raw["cue_image"], folder),
        solution=_text(where, raw, "solution"),
        part=part,
        facts=facts,
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


def _choices(where: str, raw: Mapping[str, Any], folder: Path) -> dict[str, str | Image]:
    found: dict[str, str | Image] = {}
    for letter in LETTERS:
        key = f"choice_{letter.lower()}"
        value = raw.get(key)
        if value is None or value == "":
            continue
        if isinstance(value, dict | bytes) or (isinstance(value, str) and _IMAGE_NAME.fullmatch(value.strip())):
            found[letter] = _image(f'{where}: "{key}"', value, folder)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f'{where}: "{key}" is {_shown(value)}; expected a text or an image')
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


def _image(where: str, value: Any, folder: Path) -> Image:
    """The encoded image, that of a file to be read again. DataError: no such file, or nothing that can be decoded."""
    from PIL import Image as PIL

    path = None
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        path = folder / value.strip()
        try:
            value = path.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {path} cannot be read ({error.strerror or error})") from error
    if not isinstance(value, bytes) or not value:
        raise DataError(f"{where} is {_shown(value)}; expected an image: a path, or bytes")
    try:
        with PIL.open(io.BytesIO(value)) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, PIL.DecompressionBombError) as error:
        raise DataError(f"{where} is no image that can be read") from error
    return value if path is None else StoredImage(path.read_bytes, digest_of(value))


def _text(where: str, raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f'{where}: "{key}" is {_shown(value)}; expected text or null')
    return value.strip()


def _shown(value: Any) -> str:
    return json.dumps(value, default=lambda one: f"a {type(one).__name__}", ensure_ascii=False)[:60]
