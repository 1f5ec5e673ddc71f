"""A folder of answers in the place of a model: images and texts that somebody has already.

Where an answer lies, the first that applies (in BENCHMARK/ below the folder, where there is one):

1. manifest.jsonl or manifest.csv, a row an answer: id, setting, image or images, text, thought, prompt, k.
2. The files of the benchmark's own code, as `Benchmark.submission` writes them.
3. A single *.json file with rows (UEval: id, text_answer, image_answer).
4. SETTING/ID.png or ID.png (WISE's layout); 00000/samples/0000.png, by the number of question and draw (GenEval's).

Rows and images without a setting belong to the first setting that is asked. A setting without any answer is not asked;
a question without one counts as not right.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.data_gen.reading_limits import image_suffixes, parse_json, read_json, read_lines, read_text
from uni_train.errors import UserError
from uni_train.eval.sample import GENERATED, Ask, Case, Sample, Scored
from uni_train.eval.submission import file_name
from uni_train.files import below
from uni_train.folders import files_below
from uni_train.models.identity import ModelIdentity, hash_file
from uni_train.models.pictures import decode_picture, decode_png, encode_png

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Benchmark
    from uni_train.eval.calls import Counts
    from uni_train.eval.store import Skill

MANIFESTS = ("manifest.jsonl", "manifest.csv")
_SHOWN = 5  # names in a message

Row = Mapping[str, Any]
Key = tuple[str, str, int]
"""Id, setting, draw."""


def holds_answers(folder: Path) -> bool:
    """Whether a path is a folder of answers: it has a manifest, or images or rows and nothing of a model."""
    if not folder.is_dir():
        return False
    files = files_below(folder)
    names = {path.name for path in files}
    if not names.isdisjoint(MANIFESTS):
        return True
    if names & {"config.yaml", "config.json", "model_index.json", "llm_config.json", "evaluation.json"}:
        return False
    kinds = {path.suffix.lower() for path in files}
    return not kinds & {".safetensors", ".bin", ".pt"} and bool(kinds & {*image_suffixes(), ".jsonl", ".json"})


class FolderAnswers:
    """Samples of a folder, as `StoredModel` gives those of a model; `respond` replaces that of the benchmark.

    Args:
        settings: that are asked; empty: all. say: called with a line for what is missing and what belongs to nothing.
    """

    think_batch = draw_batch = 64
    damaged: Sequence[str] = ()

    def __init__(self, folder: Path, settings: Sequence[str] = (), say: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        self.counts: dict[Skill, Counts] = {}
        self._settings = settings
        self._say = say or (lambda line: None)
        self._found: dict[str, dict[Key, Row]] = {}
        unread: list[Path] = []
        digest = hashlib.blake2b(digest_size=16)
        for path in files_below(folder, unread):
            digest.update(json.dumps([path.relative_to(folder).as_posix(), hash_file(path)]).encode())
        if unread:
            self._say(f"{folder}: links to nothing, or closed folders: {_few(list(map(str, unread)))}")
        self.identity = ModelIdentity(self.name, str(folder), digest.hexdigest(), {"answers": 1})

    def respond(self, benchmark: Benchmark, asks: Sequence[Ask]) -> list[Sample]:
        """The samples of these asks. Raises UserError: rows that cannot be read, ids or files that are there twice."""
        if benchmark.name not in self._found:
            self._found[benchmark.name] = self._read(benchmark)
        found = self._found[benchmark.name]
        there = {setting for _, setting, _ in found}
        samples = []
        for ask in asks:
            row = _found(found, ask.case, ask.setting, ask.k)
            if row is not None:
                samples.append(_sample(ask, row, self._root(benchmark)))
            elif ask.setting in there:
                samples.append(Sample(ask, "generation_failed", f"no answer in {self.name}"))
            else:
                samples.append(Sample(ask, "no_skill", f"{self.name} has no answers in {ask.setting}"))
        return samples

    def reread(self) -> None:
        """Nothing is added by others."""

    def release(self) -> None:
        """Nothing is loaded."""

    def _root(self, benchmark: Benchmark) -> Path:
        own = self.folder / benchmark.name
        return own if own.is_dir() else self.folder

    def _read(self, benchmark: Benchmark) -> dict[Key, Row]:
        root = self._root(benchmark)
        settings = [name for name in benchmark.settings if name in self._settings] or list(benchmark.settings)
        cases = {case.id: case for case in benchmark.cases()}
        files = [name for name in MANIFESTS if (root / name).is_file()]
        single = sorted(root.glob("*.json"))
        if not files and len(single) == 1 and single[0].stem not in benchmark.settings:
            files = [single[0].name]
        rows = [row for name in files for row in _rows(root / name)]
        if rows:
            found, unknown = _of_rows(rows, cases, settings, root)
        else:
            found, unknown = _of_files(benchmark, cases, settings, root)
        if not found:
            raise UserError(
                f"{root} has no answer to any of the {len(cases):,} questions of {benchmark.name}",
                f"`uni_train eval questions -b {benchmark.name}` writes them, with their ids, and says how to answer.",
            )
        if unknown:
            self._say(f"{root}: {_named(unknown)} to no question of {benchmark.name}")
        for setting in dict.fromkeys(setting for _, setting, _ in found):
            missing = [case.id for case in cases.values() if _found(found, case, setting, 0) is None]
            if missing:
                self._say(f"{root}, {setting}: no answer to {len(missing)} of {len(cases)} questions: {_few(missing)}")
        return found


def _found(found: Mapping[Key, Row], case: Case, setting: str, k: int) -> Row | None:
    """Its own answer, or that to the case whose drawing it shares under another label."""
    return found.get((case.id, setting, k)) or found.get((str(case.facts.get("drawn_as")), setting, k))


def _of_rows(
    rows: Sequence[Row], cases: Mapping[str, Case], settings: Sequence[str], root: Path
) -> tuple[dict[Key, Row], list[str]]:
    """The rows by id, setting and draw, and the ids that no question has."""
    found: dict[Key, Row] = {}
    unknown = []
    for row in rows:
        id_ = str(row.get("id", ""))
        key = (id_, str(row.get("setting") or settings[0]), int(row.get("k") or 0))
        if id_ not in cases:
            unknown.append(id_)
        elif key in found:
            raise UserError(f"{root}: two answers to {id_} in {key[1]}", "Give each question one row a setting and k.")
        else:
            found[key] = row
    return found, unknown


def _of_files(
    benchmark: Benchmark, cases: Mapping[str, Case], settings: Sequence[str], root: Path
) -> tuple[dict[Key, Row], list[str]]:
    """Answers by their files' names, and the images that belong to no question."""
    images = _images(root)
    tables: dict[str, dict[tuple[str, str | None], Row]] = {}
    found: dict[Key, Row] = {}
    used: set[str] = set()
    for number, (id_, case) in enumerate(cases.items()):
        for setting in settings:
            row, names = _by_submission(benchmark, Ask(case, setting, 0, 0), root, tables)
            names = [*names, f"{setting}/{file_name(id_)}", *([file_name(id_)] if setting == settings[0] else ())]
            first = next((images[name] for name in names if name in images), None)
            if row is not None and "images" not in row and "image_answer" not in row and first is not None:
                row = {**row, "image": first}
            elif row is None and first is not None:
                row = {"image": first}
            if row is not None:
                found[id_, setting, 0] = row
                used |= {Path(name).with_suffix("").as_posix() for name in _image_names(row)}
        k = 0
        while (name := f"{number:05d}/samples/{k:04d}") in images:
            found[id_, settings[0], k] = {"image": images[name]}
            used.add(name)
            k += 1
    return found, [images[name] for name in images if name not in used]


def _by_submission(
    benchmark: Benchmark, ask: Ask, root: Path, tables: dict[str, dict[tuple[str, str | None], Row]]
) -> tuple[Row | None, list[str]]:
    """The row that the benchmark's own files have for an ask, and the names that it gives an image, no extension."""
    row: dict[str, Any] = {}
    names = []
    # What it would write of such a sample says where it lies.
    for name, _ in benchmark.submission([Scored(Sample(ask, thought="", parts=(b"",)))]):
        if name.endswith(".png"):
            names.append(name.removesuffix(".png"))
            continue
        if name not in tables:
            rows = _rows(root / name) if (root / name).is_file() else []
            tables[name] = {(str(one.get("id", "")), one.get("setting")): one for one in rows}
        row |= tables[name].get((ask.case.id, ask.setting)) or tables[name].get((ask.case.id, None)) or {}
    return row or None, names


def _images(root: Path) -> dict[str, str]:
    """Name without extension -> name below `root`. Raises UserError: two files differ in the extension alone."""
    found: dict[str, str] = {}
    for path in files_below(root):
        if path.suffix.lower() in image_suffixes():
            name = path.relative_to(root)
            stem = name.with_suffix("").as_posix()
            if stem in found:
                raise UserError(f"{root}: {found[stem]} and {name} answer the same question", "Keep one of them.")
            found[stem] = name.as_posix()
    return found


def _rows(file: Path) -> list[Row]:
    """The rows of a JSON array, JSON lines or CSV. Raises UserError: one is no object, or the file is damaged."""
    try:
        if file.suffix == ".csv":
            rows: Any = list(csv.DictReader(io.StringIO(read_text(file), newline="")))
        elif file.suffix == ".json":
            rows = read_json(file)
        else:
            rows = [parse_json(line, file, number) for number, line in read_lines(file) if line.strip()]
    except (ValueError, OSError) as error:
        raise UserError(f"{file} cannot be read: {error}", "It needs a JSON object a line, or a CSV header.") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise UserError(f"{file}: a row has no id", "Each answer is an object with id, and image, images or text.")
    return rows


def _image_names(row: Row) -> list[str]:
    given = row.get("images") or row.get("image_answer") or row.get("image") or []
    return [name.strip() for name in given.split(";") if name.strip()] if isinstance(given, str) else list(given)


def _sample(ask: Ask, row: Row, root: Path) -> Sample:
    """The sample; of a file that is missing or no image, one that failed and says why."""
    status, note, images = str(row.get("status") or "ok"), "", []
    try:
        for name in _image_names(row):
            images.append(_png(below(root, name, links=True), name))
    except (UserError, ValueError, OSError) as error:
        status, note = "generation_failed", getattr(error, "message", "") or str(error)
    text = row.get("text") or row.get("text_answer")
    parts = (*((str(text),) if text else ()), *images)
    if status == "ok" and not parts:
        status, note = "generation_failed", "the row has neither an image nor a text"
    if status not in GENERATED:
        status, note = "generation_failed", f"status {status!r:.40}"
    facts = row.get("facts") or {}
    return Sample(
        ask, status, note, str(row.get("prompt") or ask.case.prompt), row.get("thought") or None,
        parts if status == "ok" else (), facts if isinstance(facts, dict) else {},
    )  # fmt: skip


def _png(path: Path, name: str) -> bytes:
    data = path.read_bytes()
    image = decode_picture(data, name)
    same = data.startswith(b"\x89PNG") and np.array_equal(decode_png(data), image)
    return data if same else encode_png(image)


def _named(ids: Sequence[str]) -> str:
    return f"{len(ids)} answers ({_few(ids)}) belong" if len(ids) > 1 else f"the answer {ids[0]} belongs"


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")


def questions_of(benchmark: Benchmark, asks: Sequence[Ask]) -> Iterator[tuple[str, bytes]]:
    """questions.jsonl, a row for each answer that is wanted, and the images that are shown with it."""
    from uni_train.eval.images import bytes_of
    from uni_train.eval.submission import json_lines

    ids = {ask.case.id for ask in asks}
    shown: dict[str, list[str]] = defaultdict(list)
    rows = {}
    for ask in asks:
        drawn_as = str(ask.case.facts.get("drawn_as"))  # one answer for the labels of a question
        id_ = drawn_as if drawn_as in ids else ask.case.id
        if id_ not in shown:
            for number, image in enumerate(ask.case.images):
                data = bytes_of(image)
                kind = "png" if data.startswith(b"\x89PNG") else "jpg"
                shown[id_].append(f"questions/{file_name(id_)}-{number}.{kind}")
                yield shown[id_][-1], data
        row = {"id": id_, "setting": ask.setting, "set": ask.case.set, "prompt": ask.case.prompt}
        rows[id_, ask.setting, ask.k] = row | {"k": ask.k, "seed": ask.seed, "images": shown[id_]}
    yield "questions.jsonl", json_lines(rows.values())
