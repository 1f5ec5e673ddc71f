"""Calibrations as tables: one judge in detail, and all judges of the same samples beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from uni_train.eval.judges.agreement import Agreement, Calibration
from uni_train.eval.results import Table
from uni_train.eval.statistics import Estimate

_NAMES = {
    "sensitivity": "of the right ones, passed",
    "specificity": "of the wrong ones, failed",
    "always_no": "accuracy of always no",
    "mae": "mean absolute error",
    "bins": "same of three bins",
}
_CASCADE = {
    "asked": "the large judge was asked about",
    "bias": "bias over the large judge alone",
    "error": "bias over the truth",
    "large_error": "bias of the large judge over the truth",
}
_COMPARED = ("accuracy", "balanced_accuracy", "kappa", "sensitivity", "specificity")


def calibration_table(calibration: Calibration) -> Table:
    """All numbers of a judge, with their intervals and n."""
    numbers = _numbers(calibration.overall, calibration.by_sample is not None or _is_graded(calibration.overall))
    numbers |= {f"accuracy on {kind} anchors": agreement.accuracy for kind, agreement in calibration.by_kind.items()}
    for setting, agreement in calibration.by_setting.items():
        numbers |= {f"accuracy, {setting}": agreement.accuracy, f"kappa, {setting}": agreement.kappa}
    if calibration.by_sample is not None:
        numbers |= {
            "Pearson of whole samples": calibration.by_sample.pearson,
            "error of whole samples": calibration.by_sample.mae,
        }
    if calibration.people is not None:
        numbers |= {
            f"people among themselves, {name}": estimate
            for name, estimate in _numbers(calibration.people, False).items()
        }
    numbers |= calibration.stability
    if calibration.cascade is not None:
        numbers |= {words: Estimate.from_dict(calibration.cascade[name]) for name, words in _CASCADE.items()}
    rows = tuple((name, *str(estimate).rsplit(" n=", 1)) for name, estimate in numbers.items())
    return Table(
        f"{calibration.benchmark}: the judge {calibration.judge['model']}, {calibration.way}", ("", "value", "n"), rows
    )


def remarks_of(calibration: Calibration) -> list[str]:
    """What got no answer, what is left out, and the first disagreements."""
    remarks = []
    unanswered = sum(side["none"] for kind in calibration.counts.values() for side in kind.values())
    if unanswered:
        remarks.append(f"{unanswered} of {calibration.n} got no answer, which counts as disagreement")
    if calibration.split:
        remarks.append(f"{calibration.split} are left out: as many people say pass as fail")
    for shown in calibration.disagreements[:5]:
        check = f", {shown['check']}" if shown["check"] else ""
        truth = "right" if shown["truth"] > 0.5 else "wrong"
        remarks.append(
            f"  {shown['kind']}, {truth}, judged {shown['judged']}: {shown['id']} ({shown['setting']}{check})"
        )
    return remarks


def comparison_table(calibrations: Sequence[Calibration]) -> Table:
    """All judges and ways of the same samples (UFO, Tables 6 and 7)."""
    rows = [
        (f"{calibration.judge['model']}, {calibration.way}", *_short(calibration.overall))
        for calibration in calibrations
    ]
    people = next((calibration.people for calibration in calibrations if calibration.people is not None), None)
    if people is not None:
        rows.append(("people among themselves", *_short(people)))
    always_no = str(calibrations[0].overall.always_no).rsplit(" n=", 1)[0]
    rows.append(("always no", always_no, "0.50", "0.00", "0.00", "1.00"))
    columns = ("judge", *(name.replace("_", " ") for name in _COMPARED))
    return Table(f"{calibrations[0].benchmark}: judges and ways, on the same samples", columns, tuple(rows))


def _numbers(agreement: Agreement, graded: bool) -> dict[str, Any]:
    """Name -> estimate; errors and correlations where there are grades."""
    names = [field.name for field in fields(agreement)]
    shown = names if graded else [name for name in names if name not in ("mae", "pearson", "spearman", "bins")]
    return {_NAMES.get(name, name.replace("_", " ")): getattr(agreement, name) for name in shown}


def _is_graded(agreement: Agreement) -> bool:
    """Whether there is more to values than pass and fail: else the error is that of accuracy."""
    return agreement.mae.value is not None and abs(agreement.mae.value - 1 + (agreement.accuracy.value or 0)) > 1e-9


def _short(agreement: Agreement) -> list[str]:
    return [str(getattr(agreement, name)).rsplit(" n=", 1)[0] for name in _COMPARED]
