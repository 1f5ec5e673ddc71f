"""Measuring a judge: it judges anchors as it would in an evaluation, and the agreement is kept as a `Calibration`.

A reply that does not answer is a disagreement, never left out.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.benchmark import Benchmark, Scored
from eval.judges.anchors import KINDS, Anchor
from eval.judges.calibration import Calibration, keep
from eval.judges.config import JudgeConfig
from eval.judges.failures import mostly_failed
from eval.judges.judging import Progress, run
from eval.statistics import Estimate, proportion
from uni_train.errors import UserError

_SHOWN = 100  # disagreements that a record lists
_SAID = ("pass", "fail", "none")


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
    keep(store, judge, found)
    return found


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
