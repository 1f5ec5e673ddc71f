"""A folder of answers in the place of a model: images and texts that somebody has already.

They pass the steps of their benchmark as a model's replies do (`eval.passage`). Where an answer lies, the first that
applies (in BENCHMARK/ below the folder, where there is one):

1. manifest.jsonl or manifest.csv, a row an answer or one reply of it: id, setting, image or images, text, thought, k.
2. The files of the benchmark's own code, as `Benchmark.submission` writes them.
3. A single *.json file with rows (UEval: id, text_answer, image_answer).
4. SETTING/ID.png or ID.png (WISE's layout); 00000/samples/0000.png, by the number of question and draw (GenEval's).

Rows and images without a setting belong to the first setting that is asked. A setting without any answer is not asked;
a question without one counts as not right. Only the last reply of an answer must be there. A video is its frames.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError, did_you_mean
from uni_train.core.folders import files_below
from uni_train.core.reading_limits import VIDEOS, image_suffixes, parse_json, read_json, read_lines, read_text
from uni_train.eval.passage import SHOWN, Answer, Key, Passage, image_names
from uni_train.eval.sample import Ask, Case, Sample, Scored
from uni_train.eval.submission import file_name
from uni_train.models.checkpoint import MANIFESTS
from uni_train.models.identity import ModelIdentity, hash_file

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Benchmark, Step
    from uni_train.eval.calls import Counts
    from uni_train.eval.store import Skill
    from uni_train.models.base import OnStep

_SHOWN = 5  # names in a message
_NUMBERED = re.compile(r"(\d{5})/samples/(\d{4})")

Row = Mapping[str, Any]


class FolderAnswers:
    """Samples of a folder, as `StoredModel` gives those of a model; `respond` replaces that of the benchmark.

    Args:
        say: called with a line for what is missing and what belongs to nothing.
    """

    think_batch = draw_batch = sys.maxsize  # all asks at once: settings share replies
    partial = True  # a set may be without answers where others of its setting have them
    damaged: Sequence[str] = ()

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        self.counts: dict[Skill, Counts] = {}
        self._say = say or (lambda line: None)
        self._samples: dict[str, list[Sample]] = {}
        unread: list[Path] = []
        digest = hashlib.blake2b(digest_size=16)
        for path in files_below(folder, unread):
            digest.update(json.dumps([path.relative_to(folder).as_posix(), hash_file(path)]).encode())
        if unread:
            self._say(f"{folder}: links to nothing, or closed folders: {_few(list(map(str, unread)))}")
        self.identity = ModelIdentity(self.name, str(folder), digest.hexdigest(), {"answers": 1})

    def respond(self, benchmark: Benchmark, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """The samples of these asks, which are all that the benchmark asks.

        Raises UserError: rows that cannot be read; ids, files or replies that are there twice; a setting that the
        benchmark does not have; numbers of other questions than those that are asked.
        """
        samples = self._samples.get(benchmark.name, [])
        if not samples or [sample.ask for sample in samples] != list(asks):
            samples = self._samples[benchmark.name] = self._passed(benchmark, asks)
        return samples

    def waiting(self, benchmark: Benchmark, asks: Sequence[Ask]) -> list[tuple[Step, Sample]]:
        """What is asked next (`Passage.waiting`). Raises as `respond`."""
        return Passage(benchmark, asks, self._read(benchmark, asks), self._root(benchmark)).waiting

    def reread(self) -> None:
        """Nothing is added by others."""

    def release(self) -> None:
        """Nothing is loaded."""

    def _root(self, benchmark: Benchmark) -> Path:
        own = self.folder / benchmark.name
        return own if own.is_dir() else self.folder

    def _passed(self, benchmark: Benchmark, asks: Sequence[Ask]) -> list[Sample]:
        root, answers = self._root(benchmark), self._read(benchmark, asks)
        passage = Passage(benchmark, asks, answers, root)
        samples = passage.samples
        for row, step in passage.unanswered.items():
            note = f"no answer in {self.name}: no {step.reply}"
            left = step.failed(samples[row], UserError(note))
            samples[row] = left if left.status == "ok" else replace(left, note=note)
        own = {setting for _, setting, _ in answers}
        for setting in dict.fromkeys(ask.setting for ask in asks):
            rows = [row for row, ask in enumerate(asks) if ask.setting == setting]
            missing = [asks[row].case.id for row in rows if row in passage.unanswered]
            # Replies to other settings do not make it one, nor thoughts alone where images are asked for.
            if len(missing) == len(rows) or (setting not in own and 2 * len(missing) > len(rows)):
                reply = next(step.reply for row, step in passage.unanswered.items() if asks[row].setting == setting)
                for row in rows:
                    samples[row] = Sample(asks[row], "no_skill", f"{self.name} has no {reply} in {setting}")
            elif missing:
                self._say(f"{root}, {setting}: no answer to {len(missing)} of {len(rows)} questions: {_few(missing)}")
        return [benchmark.finish(sample) for sample in samples]

    def _read(self, benchmark: Benchmark, asks: Sequence[Ask]) -> dict[Key, Answer]:
        root = self._root(benchmark)
        first = asks[0].setting if asks else benchmark.settings[0]
        files = [name for name in MANIFESTS if (root / name).is_file()]
        single = sorted(root.glob("*.json"))
        if not files and len(single) == 1 and single[0].stem not in benchmark.settings:
            files = [single[0].name]
        rows = [row for name in files for row in _rows(root / name)]
        if rows:
            answers, unknown = _of_rows(rows, benchmark, first, root)
        else:
            answers, unknown = _of_files(benchmark, list({ask.case.id: ask.case for ask in asks}.values()), first, root)
        if not answers:
            raise UserError(
                f"{root} has no answer to any of the {len(benchmark.cases()):,} questions of {benchmark.name}",
                f"Answers to the published questions need these: data.{benchmark.name}=FOLDER. "
                f"`uni_train eval questions -b {benchmark.name}` writes what is asked, and says how to answer.",
            )
        if unknown:
            several = f"{len(unknown)} answers ({_few(unknown)}) belong"
            one_or_more = several if len(unknown) > 1 else f"the answer {unknown[0]} belongs"
            self._say(f"{root}: {one_or_more} to no question of {benchmark.name}")
        return answers


def _of_rows(rows: Sequence[Row], benchmark: Benchmark, first: str, root: Path) -> tuple[dict[Key, Answer], list[str]]:
    """What rows have by id, setting and draw, and the ids that no question has.

    first: the setting of rows without one; a thought alone is of the first one that thinks.
    """
    answers: dict[Key, Answer] = {}
    ids = {case.id for case in benchmark.cases()}
    settings = {name: benchmark.skills(Ask(benchmark.cases()[0], name, 0, 0)) for name in (first, *benchmark.settings)}
    thinking = next((name for name, skills in settings.items() if "think" in skills), first)
    for row in rows:
        fields = _fields(row)
        unnamed = thinking if fields.keys() - {"prompt"} == {"thought"} else first
        setting = _expect_setting(row.get("setting") or unnamed, benchmark, root)
        there = answers.setdefault(key := (str(row["id"]), setting, int(row.get("k") or 0)), {})
        twice = [name for name in fields if name in there and name != "prompt"]
        if any(isinstance(name, int) or there[name] != fields[name] for name in twice):
            raise UserError(
                f"{root}: two answers to {key[0]} in {key[1]}",
                "Give each question one row a setting and k; of several replies each the step of its question.",
            )
        there |= fields
    unknown = dict.fromkeys(id_ for id_, _, _ in answers if id_ not in ids)
    return {key: answer for key, answer in answers.items() if key[0] in ids and answer}, list(unknown)


def _fields(row: Row) -> Answer:
    """What a row has: "thought", "text", "prompt", and by the number of its reply the names of images."""
    given = {"text_answer": "text", "text": "text", "thought": "thought", "prompt": "prompt"}
    fields: Answer = {name: str(row[key]) for key, name in given.items() if row.get(key) not in (None, "")}
    return fields | ({int(row.get("step") or 0): names} if (names := image_names(row)) else {})


def _expect_setting(given: Any, benchmark: Benchmark, root: Path) -> str:
    name = str(given)
    if name not in benchmark.settings:
        optional = f"It is asked where --settings names it: {name}." if name in benchmark.optional_settings else ""
        hint = optional or did_you_mean(name, benchmark.settings, "settings, with these options")
        raise UserError(f"{root}: {benchmark.name} asks no setting {name}", hint)
    return name


def _of_files(
    benchmark: Benchmark, asked: Sequence[Case], first: str, root: Path
) -> tuple[dict[Key, Answer], list[str]]:
    """Answers by their files' names, and the images that belong to no question."""
    images = _images(root)
    tables: dict[str, dict[tuple[str, str | None], Row]] = {}
    questions = _by_number(images, benchmark, asked, root)
    answers: dict[Key, Answer] = {}
    used, places = set(), set()
    for name in images:
        if (match := _NUMBERED.fullmatch(name)) and match[1] in questions:
            answers[questions[match[1]].id, first, int(match[2])] = {0: [images[name]]}
            used.add(name)
    for case in benchmark.cases():
        for setting in benchmark.settings:
            row, names = _by_submission(benchmark, Ask(case, setting, 0, 0), root, tables)
            names = [*names, f"{setting}/{file_name(case.id)}", *([file_name(case.id)] if setting == first else ())]
            places |= {name.removeprefix(f"{setting}/") for name in names if name.startswith(f"{setting}/")}
            image = next((images[name] for name in names if name in images), None)
            if image is not None and not {"images", "image_answer"} & {*(row or ())}:
                row = {**(row or {}), "image": image}
            if row is not None and (fields := _fields(row)):
                answers[case.id, setting, 0] = fields
                used |= {Path(name).with_suffix("").as_posix() for name in image_names(row)}
    unknown = [name for name in images if name not in used]
    for top, _, rest in (name.partition("/") for name in unknown):
        if rest in places:
            _expect_setting(top, benchmark, root)
    return answers, [images[name] for name in unknown]


def _by_number(images: Mapping[str, str], benchmark: Benchmark, asked: Sequence[Case], root: Path) -> dict[str, Case]:
    """Number of GenEval's layout -> question. Raises UserError where all are numbered, and some are asked."""
    questions, every = _questions(asked), _questions(benchmark.cases())
    most = max((int(name[:5]) for name in images if _NUMBERED.fullmatch(name)), default=-1)
    if len(questions) <= most and len(questions) < len(every):
        raise UserError(
            f"{root}: images are numbered up to {most:05d}, but {len(questions):,} questions are asked",
            f"Numbers count these, not all {len(every):,}. Name images by id, or ask all questions.",
        )
    return {f"{number:05d}": case for number, case in enumerate(questions)}


def _questions(cases: Sequence[Case]) -> list[Case]:
    """Without second labels: they are of the same drawing, and count as one."""
    distinct: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        distinct.setdefault((case.set, case.facts.get("drawn_as", case.id)), case)
    return list(distinct.values())


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
            for stored in rows:
                _expect_setting(stored.get("setting") or ask.setting, benchmark, root)
            tables[name] = {(str(stored["id"]), stored.get("setting")): stored for stored in rows}
        row |= tables[name].get((ask.case.id, ask.setting)) or tables[name].get((ask.case.id, None)) or {}
    return row or None, names


def _images(root: Path) -> dict[str, str]:
    """Name without extension -> name below `root`. Raises UserError: two files differ in the extension alone."""
    names_by_stem: dict[str, str] = {}
    for path in files_below(root):
        name = path.relative_to(root)
        if path.suffix.lower() in {*image_suffixes(), *VIDEOS} and name.parts[0] != SHOWN:
            stem = name.with_suffix("").as_posix()
            if stem in names_by_stem:
                raise UserError(
                    f"{root}: {names_by_stem[stem]} and {name} answer the same question", "Keep one of them."
                )
            names_by_stem[stem] = name.as_posix()
    return names_by_stem


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
    for row in rows:
        if not all(str(row.get(name) or 0).isdecimal() for name in ("k", "step")):
            raise UserError(f"{file}: k or step of {row['id']} is no number", "Both count from 0.")
    return [row for row in rows if str(row.get("status") or "ok") in ("ok", "not_extracted")]  # others are no answers


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else "")
