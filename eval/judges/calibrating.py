"""Measuring a judge: it judges anchors as it would in an evaluation, and the agreement is kept as a `Calibration`.

A reply that does not answer is a disagreement, never left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval.benchmark import Benchmark, Scored
from uni_train.eval.judges.agreement import SAID, Agreement, Rating, agreement
from uni_train.eval.judges.anchors import KINDS, Anchor, mean_of
from uni_train.eval.judges.calibration import Calibration, keep
from uni_train.eval.judges.cascade import compared, run
from uni_train.eval.judges.failures import mostly_failed
from uni_train.eval.judges.perturbation import perturbed
from uni_train.eval.progress import Progress
from uni_train.eval.statistics import Estimate, share

_SHOWN = 100  # disagreements that a record lists


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
        reruns: how often the judge is asked all again, by further draws. changes: of `eval.judges.perturbation`, after
            each of which it is asked again. Both only for `Calibration.stability`.

    Raises:
        UserError: no anchors, or none of one side; most have no verdict, which is no measurement and is not recorded;
            people labelled a check that the judge's verdict does not have; whatever `run` raises.
    """
    _expect_both(anchors)
    samples = [anchor.sample for anchor in anchors]
    scored = run(samples, benchmark, judge, folder, progress, store=store)
    broken = mostly_failed(scored)
    if broken:
        raise UserError(
            f"the judge {judge.name} is not calibrated for {benchmark.name}: {broken}",
            "See that it answers, and run the same command again; what it said is kept.",
        )
    again = []
    for number in range(1, reruns + 1):
        other = _later(judge, number)
        again.append(run(samples, benchmark, other, folder / f"rerun-{number}", progress, store=store))
    changed = {
        change: run(
            [perturbed(one, change) for one in samples], benchmark, judge, folder / change, progress, store=store
        )
        for change in changes
    }
    found = measure(anchors, scored, benchmark, judge)
    found = replace(found, stability=_stability(anchors, scored, again, changed))
    if judge.small:
        alone = replace(judge, small=())
        by_large = run(samples, benchmark, alone, folder / "large", progress, store=store)
        truths, items = [_truth(anchor) for anchor in anchors], [anchor.item for anchor in anchors]
        found = replace(found, cascade=compared(scored, by_large, truths, items, judge.name))
    keep(store, judge, found)
    return found


def _later(judge: JudgeConfig, times: int) -> JudgeConfig:
    """The judge asked for later draws, as if it had been asked so many times before."""
    small = tuple(_later(one, times) for one in judge.small)
    return replace(judge, first_draw=judge.first_draw + times * judge.votes, small=small)


def _truth(anchor: Anchor) -> float:
    """Of the whole sample: where people labelled single checks or are split, their mean."""
    labels = anchor.labels
    return sum(label.value for label in labels) / len(labels) if labels else float(anchor.right)


def _expect_both(anchors: Sequence[Anchor]) -> None:
    truths = [truth for anchor in anchors for truth in anchor.truths.values() if truth is not None]
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
    judged = [found for anchor, one in zip(anchors, scored, strict=True) for found in _judged(anchor, one)]
    kinds = [kind for kind in KINDS if any(one.anchor.kind == kind for one in judged)]
    settings = dict.fromkeys(one.anchor.sample.ask.setting for one in judged)
    counts = {kind: {side: dict.fromkeys(SAID, 0) for side in ("right", "wrong")} for kind in kinds}
    for one in judged:
        counts[one.anchor.kind]["right" if one.rating.right else "wrong"][one.rating.said] += 1
    people = [rating for anchor in anchors for rating in _person_by_person(anchor)]
    return Calibration(
        judge=judge.manner,
        way=judge.label,
        benchmark=benchmark.name,
        benchmark_revision=benchmark.revision,
        anchors=_hash(anchors),
        counts=counts,
        overall=agreement([one.rating for one in judged]),
        by_kind={kind: agreement([one.rating for one in judged if one.anchor.kind == kind]) for kind in kinds},
        by_setting={
            name: agreement([one.rating for one in judged if one.anchor.sample.ask.setting == name])
            for name in (settings if len(settings) > 1 else ())
        },
        by_sample=_by_sample(judged),
        people=agreement(people) if people else None,
        split=sum(truth is None for anchor in anchors for truth in anchor.truths.values()),
        stability={},
        cascade=None,
        disagreements=tuple(_disagreements(judged)),
        made=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def _judged(anchor: Anchor, scored: Scored) -> Iterator[_Judged]:
    """A rating a check; of what people are split on there is none."""
    for check, truth in anchor.truths.items():
        if truth is None:
            continue
        said: str = scored.outcome
        value = scored.value
        if check and scored.verdict is not None:
            one = _named(check, anchor, scored.verdict)
            said, value = one.status, float(one.status == "pass") if one.value is None else one.value
        grades = any(label.value not in (0, 1) for label in anchor.labels if label.check == check)
        if grades and said in ("pass", "fail"):
            said = "pass" if value > 0.5 else "fail"
        rating = Rating(anchor.item, truth, said if said in ("pass", "fail") else "none", value)
        yield _Judged(anchor, scored, check, rating)


def _named(check: str, anchor: Anchor, verdict: Verdict) -> Check:
    """Raises UserError, which names the line."""
    found = next((one for one in verdict.checks if one.name == check), None)
    if found is None:
        where = next(label.where for label in anchor.labels if label.check == check)
        names = ", ".join(one.name for one in verdict.checks)
        raise UserError(f"{where}: the judge's verdict has no check {check!r}", f"It has: {names or 'none'}.")
    return found


def _by_sample(judged: Sequence[_Judged]) -> Agreement | None:
    """Of the means of samples over the checks that people labelled (UEval, Figure 8)."""
    samples: dict[int, list[Rating]] = {}
    for one in judged:
        if one.check:
            samples.setdefault(id(one.anchor), []).append(one.rating)
    means = [
        (some[0].item, sum(one.truth for one in some) / len(some), sum(one.value for one in some) / len(some))
        for some in samples.values()
    ]
    return agreement([_by_value(*one) for one in means]) if means else None


def _by_value(item: str, truth: float, value: float) -> Rating:
    return Rating(item, truth, "pass" if value > 0.5 else "fail", value)


def _person_by_person(anchor: Anchor) -> Iterator[Rating]:
    """What each person says against the mean of the others: the agreement that a judge can hope for."""
    for check in anchor.truths:
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
    for name, others in (("flips over reruns", again), *((f"flips over {one}", [changed[one]]) for one in changed)):
        if others:
            flips = [one.outcome != other.outcome for run_ in others for one, other in zip(scored, run_, strict=True)]
            estimates[name] = share(flips, places * len(others), items * len(others))
    if again:
        draws = [[one.value for one in some] for some in zip(scored, *again, strict=True)]
        estimates["variance over reruns"] = share([_variance(some) for some in draws], items)
    said = [
        (anchor.item, [label.value for label in anchor.labels if label.check == check])
        for anchor in anchors
        for check in anchor.truths
    ]
    several = [(item, _variance(some)) for item, some in said if len(some) > 1]
    if several:
        estimates["variance among people"] = share([one for _, one in several], [item for item, _ in several])
    return estimates


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((one - mean) ** 2 for one in values) / len(values)


def _disagreements(judged: Sequence[_Judged]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in judged:
        if not one.rating.agrees and len(found) < _SHOWN:
            ask = one.anchor.sample.ask
            about = {"id": ask.case.id, "setting": ask.setting, "check": one.check, "kind": one.anchor.kind}
            reply = one.scored.replies[-1] if one.scored.replies else ""
            said = one.rating.said if one.rating.said != "none" else one.scored.outcome
            found.append({**about, "truth": one.rating.truth, "judged": said, "reply": reply})
    return found


def _hash(anchors: Sequence[Anchor]) -> str:
    """Of the samples and their truths, in whatever order."""
    said = sorted([one.sample.key, one.kind, json.dumps(one.truths, sort_keys=True)] for one in anchors)
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=8).hexdigest()
