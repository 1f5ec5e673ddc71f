"""Labels of people: a file of verdicts on samples, one a line, which several people may have given.

    id,setting,rater,label            CSV with a header; or JSON lines with the same keys
    math1-3,normal,ann,pass

    id       of a case of the benchmark
    label    pass or fail, yes or no, true or false, 1 or 0, or a grade in [0, 1]
    setting  the benchmark's first one where nothing is said; k: which draw, 0
    rater    who said it; one person, where nobody is named
    check    of one rubric or dimension; empty: of the whole answer
    images   files beside the labels, a;b in CSV; text: the answer's words
    note     read by nobody

Only id and label must be there. Without images and text the sample is one of the evaluation that `calibrate` is given.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.reading_limits import (
    IMAGE_BYTES,
    open_image,
    parse_json,
    read_bytes,
    read_lines,
    read_text,
    reason,
    rgb,
)
from uni_train.errors import UserError, did_you_mean, nearest
from uni_train.eval.benchmark import Ask, Benchmark, Case, Sample

COLUMNS = ("id", "label", "setting", "k", "rater", "check", "images", "text", "note")
_WORDS = {"pass": 1.0, "yes": 1.0, "true": 1.0, "fail": 0.0, "no": 0.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class Label:
    """What one person says of a sample, or of one check of it. where: "FILE, line 7". value: in [0, 1]."""

    where: str
    rater: str
    check: str
    value: float


@dataclass(frozen=True, slots=True)
class Labelled:
    """A sample and what people say of it. identity: (case, setting, k). parts: its answer, where the file gives it."""

    case: Case
    identity: tuple[str, str, int]
    parts: tuple[str | bytes, ...]
    labels: tuple[Label, ...]

    def sample(self, stored: Mapping[tuple[str, str, int], Sample]) -> Sample:
        """The labelled sample: of the file, else of those stored. Raises UserError, which names the line."""
        case, setting, k = self.identity
        if self.parts:
            sample = Sample(Ask(self.case, setting, k, 0), prompt=self.case.prompt, parts=self.parts)
            return sample if sample.images else replace(sample, thought=sample.text)  # a thought may be what is judged
        found = stored.get(self.identity)
        if found is None:
            raise UserError(
                f"{self.labels[0].where}: there is no sample of {case} ({setting}, k={k}) to judge",
                "Give the --checkpoint whose samples people labelled, or a column images or text.",
            )
        return found


def read_labels(path: Path, benchmark: Benchmark) -> list[Labelled]:
    """The labelled samples, in the order of the file.

    Raises:
        UserError: names the file, and the line where there is one: a missing or unknown column, an id, setting or draw
            that the benchmark does not have, a label that is no verdict, an image that cannot be read, a person who
            labels the same twice.
    """
    path = Path(path)
    cases = {case.id: case for case in benchmark.cases()}
    found: dict[tuple[Any, ...], list[Label]] = defaultdict(list)
    about: dict[tuple[Any, ...], tuple[Case, tuple[str, str, int], tuple[str | bytes, ...]]] = {}
    for where, row in _rows(path):
        case = cases.get(row["id"])
        if case is None:
            close = nearest(row["id"][:200], cases) or next(iter(cases))
            raise UserError(f"{where}: {benchmark.name} has no case {row['id'][:200]!r}", f"The nearest is {close}.")
        setting = row.get("setting") or benchmark.settings[0]
        if setting not in benchmark.settings:
            hint = did_you_mean(setting[:200], benchmark.settings, "settings")
            raise UserError(f"{where}: {benchmark.name} has no setting {setting[:200]!r}", hint)
        if not re.fullmatch(r"\d{0,6}", row.get("k") or ""):
            raise UserError(f"{where}: k is {row['k'][:20]}, which is no draw", "Draws are numbered 0, 1, 2, ...")
        identity = (case.id, setting, int(row.get("k") or 0))
        key = (*identity, row.get("images") or "", row.get("text") or "")
        if key not in about:
            about[key] = (case, identity, _parts(path.parent, row, where))
        label = Label(where, row.get("rater") or "", row.get("check") or "", _value(row["label"], where))
        for other in found[key]:
            if (other.rater, other.check) == (label.rater, label.check):
                who = f"{label.rater or 'nobody by name'} has labelled it before"
                line = other.where.rpartition(", ")[2]
                raise UserError(f"{where}: {who}, in {line}", "Keep one of the two, or name both people as rater.")
        found[key].append(label)
    if not found:
        raise UserError(f"{path} holds no labels", "Give one a line, below a header with id and label.")
    return [Labelled(*about[key], tuple(labels)) for key, labels in found.items()]


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """("FILE, line 7", row of known columns as texts)."""
    try:
        for number, row in _json_lines(path) if path.suffix in (".jsonl", ".json") else _csv(path):
            where = f"{path}, line {number}"
            _expect_columns(where, row, ("id", "label"))
            yield where, row
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}", "Give a file of labels as --labels.") from error


def _csv(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        names = reader.fieldnames or ()
        _expect_columns(str(path), names, ("id", "label"))
        if len(set(names)) < len(names):
            raise UserError(f"{path}: a column is there twice", f"It has: {', '.join(names)}.")
        for row in reader:
            if None in row or None in row.values():
                raise UserError(
                    f"{path}, line {reader.line_num}: not as many cells as the header has columns",
                    'A cell that holds a comma stands between "double quotes".',
                )
            yield reader.line_num, {name: cell.strip() for name, cell in row.items()}
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: no CSV ({error})", "Save it as CSV in UTF-8.") from error


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in read_lines(path):
        row = parse_json(line, path, number)
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: not a JSON object", 'Write {"id": "...", "label": "pass"}.')
        where = f"{path}, line {number}"
        yield number, {name: _text(name, value, where) for name, value in row.items() if value is not None}


def _text(name: str, value: Any, where: str) -> str:
    if name == "images" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ";".join(value)
    if isinstance(value, list | dict):
        raise UserError(f"{where}: {name[:60]!r} is no text or number", 'Images may be a list: ["a.png", "b.png"].')
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expect_columns(where: str, names: Sequence[str] | Mapping[str, Any], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise UserError(f"{where}: there is no {name}", f"It has: {', '.join(map(str, names))[:300] or 'nothing'}.")
    for name in names:
        if name not in COLUMNS:
            shown = str(name)[:60]
            raise UserError(f"{where}: there is no column {shown!r} of labels", did_you_mean(shown, COLUMNS, "columns"))


def _value(text: str, where: str) -> float:
    word = text.lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(
            f"{where}: {text[:60]!r} is no verdict", "Write pass or fail, yes or no, or a grade from 0 to 1."
        )
    return value


def _parts(folder: Path, row: Mapping[str, str], where: str) -> tuple[str | bytes, ...]:
    parts: list[str | bytes] = [row["text"]] if row.get("text") else []
    for name in filter(None, (row.get("images") or "").split(";")):
        path = folder / name.strip()
        try:
            image = read_bytes(path, IMAGE_BYTES)
            with open_image(image, path) as opened:
                rgb(opened)
        except (OSError, DataError) as error:
            hint = "Give an image; paths start at the folder of the labels."
            raise UserError(f"{where}: {path}: {reason(error)}", hint) from error
        parts.append(image)
    return tuple(parts)
