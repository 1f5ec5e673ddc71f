"""Measuring a judge: it judges anchors as it would in an evaluation, and the agreement is kept as a `Calibration`.

A reply that does not answer is a disagreement, never left out. Anchors are samples of which the truth is known, of four
kinds. *human*: what people have labelled. *program*: what a model drew, where a verifier has read the image.
*reference*: an image that is right by construction, drawn by a renderer or given in a folder; the judge must pass it.
*shuffled*: the reference of another case, with another answer; it must fail. A judge that passes everything does well
on references alone. One that guesses by how common right images are does well on programs alone. Kappa and balanced
accuracy show both.

Labels of people are a file of verdicts on samples, one a line, which several people may have given.

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

import asyncio
import csv
import hashlib
import io
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.core.errors import DataError, UserError, did_you_mean, nearest
from uni_train.core.reading_limits import (
    IMAGE_BYTES,
    open_image,
    parse_json,
    read_bytes,
    read_lines,
    read_text,
    reason,
    rgb,
)
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.verifying import find_image
from uni_train.eval import reading
from uni_train.eval.benchmark import Ask, Benchmark, Case, Sample, Scored
from uni_train.eval.generation import cases_of
from uni_train.eval.judges.agreement import OUTCOMES, Agreement, Calibration, Rating, agreement, keep
from uni_train.eval.judges.judge import run
from uni_train.eval.judges.ways import perturbed
from uni_train.eval.nobody import JudgeAsked, ask_nobody
from uni_train.eval.progress import Progress
from uni_train.eval.sample import mostly_failed
from uni_train.eval.statistics import Estimate, paired, share

KINDS = ("human", "program", "reference", "shuffled")
COLUMNS = ("id", "label", "setting", "k", "rater", "check", "images", "text", "note")
_SHOWN = 100  # disagreements that a record lists


# --- labels of people ------------------------------------------------------------------------------------------------


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


def read_labels(path: Path, benchmark: Benchmark) -> list[Labelled]:
    """The labelled samples, in the order of the file.

    Raises:
        UserError: names the file, and the line where there is one. A column is missing or unknown; the benchmark lacks
            the id, setting or draw; a label is no verdict; an image cannot be read; a person labels the same twice.
    """
    path = Path(path)
    cases = {case.id: case for case in benchmark.cases()}
    by_question: dict[tuple[Any, ...], list[Label]] = defaultdict(list)
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
        for other in by_question[key]:
            if (other.rater, other.check) == (label.rater, label.check):
                who = f"{label.rater or 'nobody by name'} has labelled it before"
                line = other.where.rpartition(", ")[2]
                raise UserError(f"{where}: {who}, in {line}", "Keep one of the two, or name both people as rater.")
        by_question[key].append(label)
    if not by_question:
        raise UserError(f"{path} holds no labels", "Give one a line, below a header with id and label.")
    return [Labelled(*about[key], tuple(labels)) for key, labels in by_question.items()]


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
    if name == "images" and isinstance(value, list) and all(isinstance(part, str) for part in value):
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
    verdict = {"pass": True, "fail": False}.get(text.lower(), reading.truth(text))
    value = reading.number(text, 0, 1) if verdict is None else float(verdict)
    if value is None:
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


# --- anchors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """A sample of which it is known whether it is right, and from what (one of KINDS).

    labels: of people; empty where a program or a construction knows, which makes no mistakes.
    """

    sample: Sample
    right: bool
    kind: str
    labels: tuple[Label, ...] = ()

    @property
    def item(self) -> str:
        """Anchors that share it are not independent."""
        return self.sample.ask.case.cluster_id

    @property
    def truth_by_check(self) -> dict[str, float | None]:
        """Check -> the mean of people, "" for the whole answer; None where as many say pass as fail."""
        if not self.labels:
            return {"": float(self.right)}
        values_by_check: dict[str, list[float]] = {}
        for label in self.labels:
            values_by_check.setdefault(label.check, []).append(label.value)
        return {check: mean_of(values) for check, values in values_by_check.items()}


def mean_of(values: Sequence[float]) -> float | None:
    """The truth that people agree on; None where verdicts are split evenly."""
    mean = sum(values) / len(values)
    return None if mean == 0.5 and set(values) == {0.0, 1.0} else mean


def anchors_from_labels(
    labelled: Iterable[Labelled], benchmark: Benchmark, scored: Iterable[Scored] = ()
) -> list[Anchor]:
    """What people have labelled; samples that the file does not give are looked for among those `scored`.

    Raises UserError, which names the line: a sample that is nowhere, or that has nothing to judge.
    """
    listed = list(labelled)
    wanted = {entry.identity for entry in listed if not entry.parts}
    stored = {answer.sample.identity: answer.sample for answer in scored if answer.sample.identity in wanted}
    anchors = []
    for entry in listed:
        where = entry.labels[0].where
        if entry.parts:
            sample = Sample(Ask(entry.case, *entry.identity[1:], 0), prompt=entry.case.prompt, parts=entry.parts)
            if not sample.images:
                sample = replace(sample, thought=sample.text)  # a thought may be what is judged
        elif entry.identity in stored:
            sample = stored[entry.identity]
        else:
            case, setting, k = entry.identity
            raise UserError(
                f"{where}: there is no sample of {case} ({setting}, k={k}) to judge",
                "Give the --checkpoint whose samples people labelled, or a column images or text.",
            )
        if sample.status != "ok":
            raise UserError(f"{where}: the model made no answer ({sample.status}: {sample.note})", "Take out the line.")
        try:
            asyncio.run(benchmark.judge(sample, ask_nobody))
        except AssertionError as error:
            raise UserError(f"{where}: nothing to judge ({error})", "Give its image in the column images.") from error
        except JudgeAsked:
            pass
        mean = sum(label.value for label in entry.labels) / len(entry.labels)
        anchors.append(Anchor(sample, mean > 0.5, "human", entry.labels))
    return anchors


def anchors_from_programs(scored: Iterable[Scored], n: int | None = None, seed: int = 0) -> list[Anchor]:
    """Samples that a program has read as right or wrong; `n`: so many at most, as even between the two as can be."""
    anchors = [
        Anchor(anchor.sample, anchor.passed, "program")
        for anchor in scored
        if anchor.by == "program" and anchor.outcome in ("pass", "fail") and anchor.sample.image
    ]
    if n is None or len(anchors) <= n:
        return anchors
    sides = [[anchor for anchor in anchors if anchor.right is right] for right in (True, False)]
    for right, side in zip((True, False), sides, strict=True):
        random.Random(derive_seed(seed, "anchors", right)).shuffle(side)
    fewer = min(len(side) for side in sides)
    share = [min(len(side), max(n // 2, n - fewer)) for side in sides]
    kept = {id(anchor) for side, size in zip(sides, share, strict=True) for anchor in side[:size]}
    return [anchor for anchor in anchors if id(anchor) in kept][:n]


def anchors_from_references(
    benchmark: Benchmark,
    cases: Sequence[Case],
    picture: Callable[[Case], bytes | None],
    seed: int = 0,
) -> list[Anchor]:
    """Two anchors a case: its own reference, and that of another case whose answer is another one.

    picture: the encoded reference of a case, or None where there is none (`Benchmark.reference`, `from_folder`). Where
    a program can check images, a shuffled one is taken only if it fails the check. Raises UserError for a reference
    that fails it.
    """
    setting = benchmark.settings[0]
    pictures = {case.id: image for case in cases if (image := picture(case)) is not None}
    shown = [case for case in cases if case.id in pictures]
    anchors = []
    for place, case in enumerate(shown):
        own = _sample(case, setting, pictures[case.id])
        verdict = benchmark.check(own)
        if verdict is not None and not verdict.passed:
            raise UserError(
                f"the reference image of {case.id} is not right: {verdict.reason}", "Remove it, or give another one."
            )
        anchors.append(Anchor(own, True, "reference"))
        others = [other for other in shown if _answer(other) != _answer(case)]
        random.Random(derive_seed(seed, "shuffled", place)).shuffle(others)
        for other in others[:20]:
            sample = _sample(case, setting, pictures[other.id])
            verdict = benchmark.check(sample)
            if verdict is None or verdict.status == "fail":  # answers in other words may mean the same
                anchors.append(Anchor(sample, False, "shuffled"))
                break
    return anchors


def from_folder(folder: Path) -> Callable[[Case], bytes | None]:
    """References as files named after their cases (math1-3.png, or as `data verify` takes them).

    Raises UserError if there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder", "Name the folder that holds the reference images.")

    def picture(case: Case) -> bytes | None:
        file = find_image(case.id, folder)
        return read_bytes(file, IMAGE_BYTES) if file is not None else None

    return picture


def _sample(case: Case, setting: str, image: bytes) -> Sample:
    return Sample(Ask(case, setting, 0, 0), prompt=case.prompt, parts=(image,))


def _answer(case: Case) -> str:
    """What makes two cases ask for the same image, as far as their facts say."""
    facts = case.facts
    answer = facts.get("outcome") or facts.get("answer") or facts.get("criterion") or case.id
    return json.dumps(answer, sort_keys=True, ensure_ascii=False).lower()


def anchors_of(
    benchmark: Benchmark,
    scored: Iterable[Scored] | None,
    labels: Path | None,
    references: str,
    n: int,
    *,
    seed: int = 0,
) -> list[Anchor]:
    """All that is known of samples of a benchmark.

    Args:
        scored: samples of an evaluation, with images: those that people labelled, else those that a program has read.
        labels: a file of people's verdicts.
        references: "drawn" by the renderer, a folder of images, or "none".
        n: at most so many of programs, and so many cases of references.

    Raises:
        UserError: whatever `read_labels` and `anchors_from_labels` raise.
    """
    anchors: list[Anchor] = []
    if labels is not None:
        anchors += anchors_from_labels(read_labels(labels, benchmark), benchmark, scored or ())
    elif scored is not None:
        anchors += anchors_from_programs(scored, n, seed)
    if references != "none":
        image = benchmark.reference if references == "drawn" else from_folder(Path(references))
        anchors += anchors_from_references(benchmark, cases_of(benchmark, subset=n, seed=seed), image, seed=seed)
    return anchors


# --- measuring -------------------------------------------------------------------------------------------------------


def calibrate(
    anchors: Sequence[Anchor],
    benchmark: Benchmark,
    judge: JudgeConfig,
    folder: Path,
    progress: Progress | None = None,
    *,
    store: Path,
    reruns: int = 0,
    changes: Sequence[str] = (),
) -> Calibration:
    """Have the judge judge the anchors, as it would in an evaluation; the record is kept in `store`/calibrations.

    Args:
        folder: for the log of judging. store: as for `uni_train.eval.judges.run`.
        reruns: how often the judge is asked all again, by further draws. changes: of ``CHANGES`, after
            each of which it is asked again. Both only for `Calibration.stability`.

    Raises:
        UserError: no anchors, or none of one side; most have no verdict, which is no measurement and is not recorded;
            people labelled a check that the judge's verdict does not have; whatever `run` raises.
    """
    _expect_both(anchors)
    samples = [anchor.sample for anchor in anchors]

    def judged(by: JudgeConfig, name: str = "", change: str = "") -> list[Scored]:
        shown = [perturbed(sample, change) for sample in samples] if change else samples
        scored = run(shown, benchmark, by, folder / name, progress, store=store)
        if broken := mostly_failed(scored):
            raise UserError(
                f"the judge {judge.name} is not calibrated for {benchmark.name}: {broken}",
                "See that it answers, and run the same command again; what it said is kept.",
            )
        return scored

    scored = judged(judge)
    again = [judged(_later(judge, number), f"rerun-{number}") for number in range(1, reruns + 1)]
    changed = {change: judged(judge, change, change) for change in changes}
    calibration = measure(anchors, scored, benchmark, judge)
    calibration = replace(calibration, stability=_stability(anchors, scored, again, changed))
    if judge.small:
        by_large = judged(replace(judge, small=()), "large")
        calibration = replace(calibration, cascade=_compared(anchors, scored, by_large, judge.name))
    keep(store, judge, calibration)
    return calibration


def _later(judge: JudgeConfig, times: int) -> JudgeConfig:
    """The judge asked for later draws, as if it had been asked so many times before."""
    small = tuple(_later(member, times) for member in judge.small)
    return replace(judge, first_draw=judge.first_draw + times * judge.votes, small=small)


def _truth(anchor: Anchor) -> float:
    """Of the whole sample: where people labelled single checks or are split, their mean."""
    labels = anchor.labels
    return sum(label.value for label in labels) / len(labels) if labels else float(anchor.right)


def _expect_both(anchors: Sequence[Anchor]) -> None:
    truths = [truth for anchor in anchors for truth in anchor.truth_by_check.values() if truth is not None]
    for right, noun in ((True, "right"), (False, "wrong")):
        if not any((truth > 0.5) is right for truth in truths):
            raise UserError(
                f"there is no sample that is known to be {noun}: agreement would mean nothing",
                "Give reference images, labels of both kinds, or an evaluation in which programs found both.",
            )


@dataclass(frozen=True, slots=True)
class _Judged:
    """An anchor's rating of one check."""

    anchor: Anchor
    scored: Scored
    check: str
    rating: Rating


def measure(
    anchors: Sequence[Anchor], scored: Sequence[Scored], benchmark: Benchmark, judge: JudgeConfig
) -> Calibration:
    """The agreement of judged anchors. Both sides, right and wrong, must be there."""
    judged = [
        judgement for anchor, answer in zip(anchors, scored, strict=True) for judgement in _judged(anchor, answer)
    ]
    kinds = [kind for kind in KINDS if any(judgement.anchor.kind == kind for judgement in judged)]
    settings = dict.fromkeys(judgement.anchor.sample.ask.setting for judgement in judged)
    counts = {kind: {side: dict.fromkeys(OUTCOMES, 0) for side in ("right", "wrong")} for kind in kinds}
    for judgement in judged:
        counts[judgement.anchor.kind]["right" if judgement.rating.right else "wrong"][judgement.rating.outcome] += 1
    people = [rating for anchor in anchors for rating in _person_by_person(anchor)]
    return Calibration(
        judge=judge.protocol,
        way=judge.label,
        benchmark=benchmark.name,
        benchmark_revision=benchmark.revision,
        anchors=_hash(anchors),
        counts=counts,
        overall=agreement([judgement.rating for judgement in judged]),
        by_kind={
            kind: agreement([judgement.rating for judgement in judged if judgement.anchor.kind == kind])
            for kind in kinds
        },
        by_setting={
            name: agreement([judgement.rating for judgement in judged if judgement.anchor.sample.ask.setting == name])
            for name in (settings if len(settings) > 1 else ())
        },
        by_sample=_by_sample(judged),
        people=agreement(people) if people else None,
        split=sum(truth is None for anchor in anchors for truth in anchor.truth_by_check.values()),
        stability={},
        cascade=None,
        disagreements=tuple(_disagreements(judged)),
        made=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _judged(anchor: Anchor, scored: Scored) -> Iterator[_Judged]:
    """A rating a check; of what people are split on there is none."""
    for check, truth in anchor.truth_by_check.items():
        if truth is None:
            continue
        outcome: str = scored.outcome
        value = scored.value
        if check and scored.verdict is not None:
            named = _named(check, anchor, scored.verdict)
            outcome, value = named.status, float(named.status == "pass") if named.value is None else named.value
        grades = any(label.value not in (0, 1) for label in anchor.labels if label.check == check)
        if grades and outcome in ("pass", "fail"):
            outcome = "pass" if value > 0.5 else "fail"
        rating = Rating(anchor.item, truth, outcome if outcome in ("pass", "fail") else "none", value)
        yield _Judged(anchor, scored, check, rating)


def _named(check: str, anchor: Anchor, verdict: Verdict) -> Check:
    """Raises UserError, which names the line."""
    found = next((entry for entry in verdict.checks if entry.name == check), None)
    if found is None:
        where = next(label.where for label in anchor.labels if label.check == check)
        names = ", ".join(named.name for named in verdict.checks)
        raise UserError(f"{where}: the judge's verdict has no check {check!r}", f"It has: {names or 'none'}.")
    return found


def _by_sample(judged: Sequence[_Judged]) -> Agreement | None:
    """Of the means of samples over the checks that people labelled (UEval, Figure 8)."""
    samples: dict[int, list[Rating]] = {}
    for judgement in judged:
        if judgement.check:
            samples.setdefault(id(judgement.anchor), []).append(judgement.rating)
    means = [
        (
            some[0].item,
            sum(answer.truth for answer in some) / len(some),
            sum(answer.value for answer in some) / len(some),
        )
        for some in samples.values()
    ]
    return agreement([_by_value(*mean) for mean in means]) if means else None


def _by_value(item: str, truth: float, value: float) -> Rating:
    return Rating(item, truth, "pass" if value > 0.5 else "fail", value)


def _person_by_person(anchor: Anchor) -> Iterator[Rating]:
    """What each person says against the mean of the others: the agreement that a judge can hope for."""
    for check in anchor.truth_by_check:
        labels = [label for label in anchor.labels if label.check == check]
        for own in labels:
            others = [label.value for label in labels if label is not own]
            truth = mean_of(others) if others else None
            if truth is not None:
                yield _by_value(anchor.item, truth, own.value)


def _stability(
    anchors: Sequence[Anchor],
    scored: Sequence[Scored],
    again: Sequence[Sequence[Scored]],
    changed: Mapping[str, Sequence[Scored]],
) -> dict[str, Estimate]:
    """How much verdicts move where nothing that matters does."""
    items = [anchor.item for anchor in anchors]
    places = [f"{number}" for number in range(len(anchors))]
    estimates = {}
    for name, others in (
        ("flips over reruns", again),
        *((f"flips over {change}", [changed[change]]) for change in changed),
    ):
        if others:
            flips = [
                answer.outcome != other.outcome for run_ in others for answer, other in zip(scored, run_, strict=True)
            ]
            estimates[name] = share(flips, places * len(others), items * len(others))
    if again:
        draws = [[answer.value for answer in some] for some in zip(scored, *again, strict=True)]
        estimates["variance over reruns"] = share([_variance(some) for some in draws], items)
    by_item = [
        (anchor.item, [label.value for label in anchor.labels if label.check == check])
        for anchor in anchors
        for check in anchor.truth_by_check
    ]
    several = [(item, _variance(some)) for item, some in by_item if len(some) > 1]
    if several:
        estimates["variance among people"] = share([variance for _, variance in several], [item for item, _ in several])
    return estimates


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def _disagreements(judged: Sequence[_Judged]) -> list[dict[str, Any]]:
    disagreements: list[dict[str, Any]] = []
    for judgement in judged:
        if not judgement.rating.agrees and len(disagreements) < _SHOWN:
            ask = judgement.anchor.sample.ask
            about = {"id": ask.case.id, "setting": ask.setting, "check": judgement.check, "kind": judgement.anchor.kind}
            reply = judgement.scored.replies[-1] if judgement.scored.replies else ""
            outcome = judgement.rating.outcome if judgement.rating.outcome != "none" else judgement.scored.outcome
            disagreements.append({**about, "truth": judgement.rating.truth, "judged": outcome, "reply": reply})
    return disagreements


def _hash(anchors: Sequence[Anchor]) -> str:
    """Of the samples and their truths, in whatever order."""
    rows = sorted(
        [anchor.sample.key, anchor.kind, json.dumps(anchor.truth_by_check, sort_keys=True)] for anchor in anchors
    )
    return hashlib.blake2b(json.dumps(rows).encode(), digest_size=8).hexdigest()


def _compared(
    anchors: Sequence[Anchor], cascade: Sequence[Scored], large: Sequence[Scored], name: str
) -> dict[str, Any]:
    """What a cascade saves and what it costs, on the same samples; JSON-able.

    asked: the share of samples that the large judge, called `name`, was asked about; saving: how many times fewer.
    bias: the cascade's mean value less the large judge's. error, large_error: those of each less the truth's.
    """
    items, truths = [anchor.item for anchor in anchors], [_truth(anchor) for anchor in anchors]
    asked = share([answer.by == name for answer in cascade], list(range(len(cascade))), items)
    values, alone = ([answer.value for answer in some] for some in (cascade, large))
    biases = {"bias": (alone, values), "error": (truths, values), "large_error": (truths, alone)}
    numbers = {key: paired(bias, other, items).difference.to_dict() for key, (bias, other) in biases.items()}
    return {"asked": asked.to_dict(), "saving": 1 / asked.value if asked.value else None, **numbers}
