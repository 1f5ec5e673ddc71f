"""How far a judge can be believed: its verdicts against pictures of which the truth is known.

Three kinds of anchors. *program*: what a model drew, where a verifier has read the picture. *reference*: a picture that
is right by construction, drawn by a renderer or given in a folder; the judge must pass it. *shuffled*: the reference of
another case, with another answer; it must fail. A judge that passes everything does well on references alone, and one
that guesses by how common right pictures are does well on programs alone; kappa and balanced accuracy show both.

A reply that does not answer is a disagreement, never left out. The record of a calibration is found again by the judge,
its dialect and the benchmark, and evaluations with that judge cite it.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.judging import find_image
from data_gen.reading_limits import IMAGE_BYTES, read_bytes, read_json
from data_gen.seeds import derive_seed
from eval.benchmark import Ask, Benchmark, Case, Sample, Scored
from eval.judges.config import JudgeConfig
from eval.judges.failures import mostly_failed
from eval.judges.judging import Progress, run
from eval.statistics import Estimate, proportion
from uni_train.errors import UserError
from uni_train.files import atomic_write_json

KINDS = ("program", "reference", "shuffled")
_SHOWN = 100  # disagreements that a record lists
_SAID = ("pass", "fail", "none")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A sample of which it is known whether it is right, and from what (one of KINDS)."""

    sample: Sample
    right: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found.

    Attributes:
        judge: `JudgeConfig.identity`. key: its hash. dialect, benchmark, benchmark_revision: what it was asked, how.
        counts: kind -> "right"|"wrong" -> "pass"|"fail"|"none" -> number of anchors.
        accuracy: share of anchors judged as they are. sensitivity, specificity: of the right and of the wrong ones.
        balanced_accuracy: the mean of these two. kappa: Cohen's, with no answer as a third word of the judge; its
            interval is that of statsmodels. Each has a 95 % interval.
        by_kind: accuracy of each kind.
        disagreements: the first of them: {"id", "setting", "kind", "right", "judged", "reply"}.
        made: when.
    """

    judge: Mapping[str, Any]
    key: str
    dialect: str
    benchmark: str
    benchmark_revision: str
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    accuracy: Estimate
    sensitivity: Estimate
    specificity: Estimate
    balanced_accuracy: Estimate
    kappa: Estimate
    by_kind: Mapping[str, Estimate]
    disagreements: tuple[Mapping[str, Any], ...]
    made: str

    @property
    def n(self) -> int:
        return self.accuracy.n

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        numbers = {name: getattr(self, name).to_dict() for name in _NUMBERS}
        kinds = {kind: estimate.to_dict() for kind, estimate in self.by_kind.items()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"format": FORMAT, "n": self.n, **plain, **numbers, "by_kind": kinds}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Calibration:
        numbers = {name: Estimate.from_dict(raw[name]) for name in _NUMBERS}
        kinds = {kind: Estimate.from_dict(one) for kind, one in raw["by_kind"].items()}
        plain = {name: raw[name] for name in _PLAIN}
        return cls(**{**plain, **numbers, "by_kind": kinds, "disagreements": tuple(raw["disagreements"])})


FORMAT = "uni_train.calibration/1"
_NUMBERS = ("accuracy", "sensitivity", "specificity", "balanced_accuracy", "kappa")
_PLAIN = ("judge", "key", "dialect", "benchmark", "benchmark_revision", "counts", "disagreements", "made")


def anchors_from_programs(scored: Iterable[Scored], n: int | None = None, seed: int = 0) -> list[Anchor]:
    """Samples that a program has read as right or wrong; `n`: so many at most, as even between the two as can be.

    Samples must hold their pictures (`Evaluation.scored(name, images=True)`).
    """
    found = [
        Anchor(one.sample, one.passed, "program")
        for one in scored
        if one.by == "program" and one.outcome in ("pass", "fail") and one.sample.image
    ]
    if n is None or len(found) <= n:
        return found
    sides = [[one for one in found if one.right is right] for right in (True, False)]
    for right, side in zip((True, False), sides, strict=True):
        random.Random(derive_seed(seed, "anchors", right)).shuffle(side)
    fewer = min(len(side) for side in sides)
    share = [min(len(side), max(n // 2, n - fewer)) for side in sides]
    kept = {id(one) for side, size in zip(sides, share, strict=True) for one in side[:size]}
    return [one for one in found if id(one) in kept][:n]


def anchors_from_references(
    benchmark: Benchmark,
    cases: Sequence[Case],
    picture: Callable[[Case], bytes | None],
    setting: str | None = None,
    seed: int = 0,
) -> list[Anchor]:
    """Two anchors a case: its own reference, and that of another case whose answer is another one.

    picture: the encoded reference of a case, or None where there is none (`Benchmark.reference`, `from_folder`). Where
    a program can check pictures, a shuffled one is taken only if it fails the check. Raises UserError for a reference
    that fails it.
    """
    setting = setting or benchmark.settings[0]
    pictures = {case.id: image for case in cases if (image := picture(case)) is not None}
    shown = [case for case in cases if case.id in pictures]
    anchors = []
    for place, case in enumerate(shown):
        own = _sample(case, setting, pictures[case.id])
        verdict = benchmark.check(own)
        if verdict is not None and not verdict.passed:
            raise UserError(
                f"the reference picture of {case.id} is not right: {verdict.reason}", "Remove it, or give another one."
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
        raise UserError(f"{folder} is no folder", "Name the folder that holds the reference pictures.")

    def picture(case: Case) -> bytes | None:
        found = find_image(case.id, folder)
        return read_bytes(found, IMAGE_BYTES) if found is not None else None

    return picture


def calibrate(
    anchors: Sequence[Anchor],
    benchmark: Benchmark,
    judge: JudgeConfig,
    folder: Path,
    progress: Progress | None = None,
    *,
    store: Path,
) -> Calibration:
    """Have the judge judge the anchors, as it would in an evaluation; the record is kept in `store`/calibrations.

    Args:
        folder: for the log of judging. store: as for `eval.judges.run`.

    Raises:
        UserError: no anchors, or none of one side; most have no verdict, which is no measurement and is not recorded;
            whatever `run` raises.
    """
    for right, noun in ((True, "right"), (False, "wrong")):
        if not any(anchor.right is right for anchor in anchors):
            raise UserError(
                f"there is no picture that is known to be {noun}: agreement would mean nothing",
                "Give reference pictures, or an evaluation in which programs found both.",
            )
    scored = run([anchor.sample for anchor in anchors], benchmark, judge, folder, progress, store=store)
    broken = mostly_failed(scored)
    if broken:
        raise UserError(
            f"the judge {judge.model} is not calibrated for {benchmark.name}: {broken}",
            "See that it answers, and run the same command again; what it said is kept.",
        )
    found = measure(anchors, scored, benchmark, judge)
    path = _path(store, judge, benchmark.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, found.to_dict())
    return found


def cited(store: Path, judge: JudgeConfig, benchmark: Benchmark) -> dict[str, Any] | None:
    """What an evaluation says of its judge: the numbers, and whether of the same questions; None: not calibrated."""
    found = find(store, judge, benchmark.name)
    if found is None:
        return None
    numbers = {name: getattr(found, name).to_dict() for name in ("kappa", "accuracy", "balanced_accuracy")}
    same = found.benchmark_revision == benchmark.revision
    return {"n": found.n, **numbers, "made": found.made, "same_questions": same}


def find(store: Path, judge: JudgeConfig, benchmark: str) -> Calibration | None:
    """The calibration of this judge in this dialect for a benchmark; None if there is none that can be read."""
    try:
        return Calibration.from_dict(read_json(_path(store, judge, benchmark)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def measure(
    anchors: Sequence[Anchor], scored: Sequence[Scored], benchmark: Benchmark, judge: JudgeConfig
) -> Calibration:
    """The agreement of judged anchors. Both sides, right and wrong, must be there."""
    counts = {kind: {side: dict.fromkeys(_SAID, 0) for side in ("right", "wrong")} for kind in KINDS}
    disagreements: list[dict[str, Any]] = []
    for anchor, one in zip(anchors, scored, strict=True):
        said = one.outcome if one.outcome in ("pass", "fail") else "none"
        counts[anchor.kind]["right" if anchor.right else "wrong"][said] += 1
        if said != ("pass" if anchor.right else "fail") and len(disagreements) < _SHOWN:
            ask = anchor.sample.ask
            about = {"id": ask.case.id, "setting": ask.setting, "kind": anchor.kind, "right": anchor.right}
            reply = one.replies[-1] if one.replies else ""
            disagreements.append({**about, "judged": one.outcome, "reply": reply})
    kinds = [kind for kind in KINDS if any(sum(side.values()) for side in counts[kind].values())]
    table = {side: Counter[str]() for side in ("right", "wrong")}
    for kind in kinds:
        for side in table:
            table[side].update(counts[kind][side])
    sensitivity = proportion(table["right"]["pass"], table["right"].total())
    specificity = proportion(table["wrong"]["fail"], table["wrong"].total())
    return Calibration(
        judge=judge.identity,
        key=judge.key,
        dialect=judge.dialect,
        benchmark=benchmark.name,
        benchmark_revision=benchmark.revision,
        counts={kind: counts[kind] for kind in kinds},
        accuracy=_accuracy(table),
        sensitivity=sensitivity,
        specificity=specificity,
        balanced_accuracy=mean_of_two(sensitivity, specificity),
        kappa=kappa(table),
        by_kind={kind: _accuracy(counts[kind]) for kind in kinds},
        disagreements=tuple(disagreements),
        made=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def kappa(table: Mapping[str, Mapping[str, int]]) -> Estimate:
    """Cohen's kappa of "right"/"wrong" against "pass"/"fail"/"none" (Cohen 1960; interval of statsmodels).

    Where all agree that interval has no width; it then begins where accuracy's does, on the scale of kappa. Where
    chance alone explains all (everything is right and everything passes) kappa has no value.
    """
    from statsmodels.stats.inter_rater import cohens_kappa

    rows = [[table[side][said] for said in _SAID] for side in ("right", "wrong")] + [[0, 0, 0]]
    n = sum(map(sum, rows))
    # With no answer on neither side, its empty row and column change nothing.
    by_chance = sum(sum(rows[i]) * sum(row[i] for row in rows) for i in range(3))
    if n == 0 or by_chance == n * n:
        return Estimate(None, n, -1.0, 1.0)
    found = cohens_kappa(rows)
    value, low, high = (float(one) for one in (found.kappa, found.kappa_low, found.kappa_upp))
    if value == 1.0:
        low, high = 1 - (1 - proportion(n, n).low) / (1 - by_chance / (n * n)), 1.0
    return Estimate(value, n, max(-1.0, low), min(1.0, high))


def mean_of_two(first: Estimate, second: Estimate) -> Estimate:
    """The mean of two independent estimates; its interval squares and adds theirs (Zou and Donner 2008, MOVER)."""
    if first.value is None or second.value is None:
        return Estimate(None, first.n + second.n, 0.0, 1.0)
    value = (first.value + second.value) / 2
    below = math.hypot(first.value - first.low, second.value - second.low) / 2
    above = math.hypot(first.high - first.value, second.high - second.value) / 2
    return Estimate(value, first.n + second.n, value - below, value + above)


def _accuracy(table: Mapping[str, Mapping[str, int]]) -> Estimate:
    agreed = table["right"]["pass"] + table["wrong"]["fail"]
    return proportion(agreed, sum(sum(side.values()) for side in table.values()))


def _path(store: Path, judge: JudgeConfig, benchmark: str) -> Path:
    return Path(store) / "calibrations" / f"{benchmark}-{judge.dialect}-{judge.key}.json"


def _sample(case: Case, setting: str, image: bytes) -> Sample:
    return Sample(Ask(case, setting, 0, 0), prompt=case.prompt, parts=(image,))


def _answer(case: Case) -> str:
    """What makes two cases ask for the same picture, as far as their facts say."""
    facts = case.facts
    said = facts.get("outcome") or facts.get("answer") or facts.get("criterion") or case.id
    return json.dumps(said, sort_keys=True, ensure_ascii=False).lower()
