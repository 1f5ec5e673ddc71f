"""What share a judge would have passed if it made no mistakes, as far as its calibration knows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.judges.calibration import Calibration
from uni_train.eval.statistics import CONFIDENCE, Estimate, share

HARDLY = 0.55
"""A balanced accuracy whose interval reaches down to this is hardly better than chance."""


def corrected(raw: Estimate, sensitivity: Estimate, specificity: Estimate) -> Estimate:
    """The prevalence behind a share of positives (Rogan and Gladen 1978), cut to [0, 1].

    (raw + specificity - 1) / (sensitivity + specificity - 1). The interval is that of Lang and Reiczigel (Preventive
    Veterinary Medicine 113, 2014), which knows that all three are estimates; where units repeat each other, as many
    count as differ. specificity: of not passing what is wrong, whether failed or left without an answer. Raises
    ValueError where one of the three has no value, or the judge is no better than chance.
    """
    if raw.value is None or sensitivity.value is None or specificity.value is None:
        raise ValueError("a share without a value cannot be corrected")
    if sensitivity.value + specificity.value <= 1:
        raise ValueError("a judge that is no better than chance cannot be corrected")
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    value = (raw.value + specificity.value - 1) / (sensitivity.value + specificity.value - 1)
    n, right, wrong = (float(one.distinct or one.n) for one in (raw, sensitivity, specificity))
    passed = (n * raw.value + z * z / 2) / (n + z * z)
    sens, spec = ((of * one.value + 1) / (of + 2) for of, one in ((right, sensitivity), (wrong, specificity)))  # type: ignore[operator]
    slope = sens + spec - 1
    middle = (passed + spec - 1) / slope
    of_right, of_wrong = sens * (1 - sens) / (right + 2), spec * (1 - spec) / (wrong + 2)
    shift = 2 * z * z * (middle * of_right - (1 - middle) * of_wrong)
    spread = passed * (1 - passed) / (n + z * z) + middle**2 * of_right + (1 - middle) ** 2 * of_wrong
    half = z * math.sqrt(spread) / slope
    value, low, high = (min(max(one, 0.0), 1.0) for one in (value, middle + shift - half, middle + shift + half))
    return Estimate(value, raw.n, min(low, value), max(high, value), raw.distinct)


def judged_scores(scored: Sequence[Scored], judge: JudgeConfig, calibration: Calibration | None) -> dict[str, Any]:
    """What an evaluation says of the samples that a judge judged; JSON-able.

    {"judge", "way", "refused": why nothing is corrected or "", "scores": [{"setting", "set", "raw", "corrected"}]}
    """
    cells: dict[tuple[str, str], list[Scored]] = {}
    for one in scored:
        if one.by not in ("", "program"):
            cells.setdefault((one.sample.ask.setting, one.sample.ask.case.set), []).append(one)
    why = "uncalibrated" if calibration is None else _refused(calibration)
    scores = []
    for (setting, name), some in cells.items():
        raw = _passed(some)
        fixed = (
            None
            if calibration is None or why
            else corrected(raw, calibration.overall.sensitivity, _not_passed(calibration))
        )
        scores.append({"setting": setting, "set": name, "raw": raw.to_dict(), "corrected": fixed and fixed.to_dict()})
    return {"judge": judge.name, "way": judge.label, "refused": why, "scores": scores}


def table_of(judged: Mapping[str, Any], about: str) -> Table:
    """The judge's scores, raw and corrected; about: how well the judge is known."""
    rows = tuple(
        (
            one["setting"],
            one["set"],
            Estimate.from_dict(one["raw"]),
            judged["refused"] if one["corrected"] is None else Estimate.from_dict(one["corrected"]),
        )
        for one in judged["scores"]
    )
    title = f"Passed by the judge {judged['judge']}, {judged['way']}"
    note = (
        f"Of the samples that it judged. {about} Corrected: Rogan and Gladen 1978, interval of Lang and Reiczigel 2014."
    )
    return Table(title, ("setting", "set", "raw", "corrected"), rows, note)


def _refused(found: Calibration) -> str:
    """Why the judge's scores cannot be corrected; "" where they can."""
    if found.by_sample is not None:  # how often single checks are mistaken says not how often whole answers are
        return "refused: people labelled single checks, not whole answers"
    balanced = found.overall.balanced_accuracy
    if balanced.value is not None and balanced.low > HARDLY:
        return ""
    return f"refused: hardly better than chance (balanced accuracy {balanced})"


def _passed(scored: Sequence[Scored]) -> Estimate:
    cases = [one.sample.ask.case for one in scored]
    units = [one.sample.identity for one in scored]
    return share([one.passed for one in scored], units, [case.cluster_id for case in cases])


def _not_passed(found: Calibration) -> Estimate:
    """Of what is wrong, the share that the judge does not pass."""
    wrong = [kind["wrong"] for kind in found.counts.values()]
    n = sum(sum(side.values()) for side in wrong)
    failed = found.overall.specificity
    return Estimate(1 - sum(side["pass"] for side in wrong) / n, n, failed.low, failed.high, failed.distinct)
