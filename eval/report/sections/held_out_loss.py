"""The held-out loss of supervised fine-tuning.

Read below a stage's folder: `held_out_loss.jsonl`, a line a moment (uni_train/recipes/sft/held_out_loss.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from uni_train.core.reading_limits import read_yaml
from uni_train.eval.report import charts
from uni_train.eval.report.page import Section
from uni_train.eval.report.run import Line, read_lines, run_section
from uni_train.eval.results import Table
from uni_train.eval.row_losses import Difference, changed, losses_of, mean_loss
from uni_train.eval.statistics import CONFIDENCE, Estimate
from uni_train.run_folder import stage_folders

LOG = "held_out_loss.jsonl"
_COLUMNS = {"before": "Before", "after": "After", "change": "Change", "train": "Trained rows", "gap": "Gap"}
_KINDS = {"change": Difference, "gap": Difference}  # of estimates, by their columns
_ABOUT = (
    "Rows that are not trained on, and as many that are, at fixed noise levels (0 = the image, 1 = noise) and from the "
    "same noise every time. Where the loss of trained rows alone falls, they are memorised."
)
_NOTE = (
    "Text: cross-entropy, nats a token. Images: squared error of the velocity. 95 % intervals over rows: Student's t, "
    "of the change row by row; the gap is held-out minus trained rows, after training (Welch's t)."
)


@run_section("held_out_loss")
def sections(run_dir: Path) -> Iterator[Section]:
    """Of the last stage that has the log: an extended training begins with that of the stage before.

    Raises UserError for a file that cannot be read, by its name.
    """
    keep = read_yaml(run_dir / "config.yaml").get("held_out_loss", {}).get("keep", "last")
    logs = [lines for folder in stage_folders(run_dir) if (lines := read_lines(folder / LOG))]
    yield from (_section(lines, keep) for lines in logs[-1:])


def _section(lines: Sequence[Line], keep: str) -> Section:
    kept = compared(lines[0], kept_line(lines, keep))
    drawn = list(_charts(lines)) if len(lines) > 1 else []
    return Section("Held-out loss", _ABOUT, [loss_table(kept)], drawn, note=lowest(best_line(lines)))


def best_line(lines: Sequence[Line]) -> Line:
    """That of the lowest held-out loss, as the recipe weights text and images; of equal ones the first."""
    return min(lines, key=lambda line: line["held_out/loss"])


def lowest(best: Line) -> str:
    """A sentence about `best_line`."""
    loss, step = f"{best['held_out/loss']:.3f}", best["step"]
    return f"The held-out loss, text and images weighted as in training, was lowest after {step} updates: {loss}."


def kept_line(lines: Sequence[Line], keep: str) -> Line:
    """That of the update whose weights are the stage's model; of "best" the start is none."""
    return best_line(lines[1:] or lines) if keep == "best" else lines[-1]


def compared(before: Line, after: Line) -> dict[str, Any]:
    """Two moments, JSON-able: "step" of the second, counts of "rows", and "parts", an estimate for each of _COLUMNS."""
    first, last, train = (losses_of(*which) for which in ((before, "held_out"), (after, "held_out"), (after, "train")))
    parts = {}
    for part, losses in first.items():
        now, trained = last[part], train.get(part, [])
        estimates = (mean_loss(losses), mean_loss(now), changed(losses, now), mean_loss(trained), _gap(now, trained))
        parts[part] = {name: one.to_dict() for name, one in zip(_COLUMNS, estimates, strict=True)}
    return {"step": after["step"], "rows": {name: len(ids) for name, ids in after["ids"].items()}, "parts": parts}


def loss_table(found: Mapping[str, Any]) -> Table:
    """`compared` as a table: a row a part."""
    rows = [
        (part, *(_KINDS.get(name, Estimate).from_dict(some[name]) for name in _COLUMNS))
        for part, some in found["parts"].items()
    ]
    about = f"{found['rows']['held_out']} held-out rows, {found['step']} updates"
    return Table(f"Held-out loss: {about}", ("", *_COLUMNS.values()), tuple(rows), _NOTE, digits=3)


def _gap(held_out: Sequence[float], train: Sequence[float]) -> Estimate:
    """Mean of the first minus mean of the second, with Welch's interval; n: rows of both."""
    from scipy.stats import ttest_ind

    low = high = math.nan
    if min(len(held_out), len(train)) > 1:
        low, high = ttest_ind(held_out, train, equal_var=False).confidence_interval(CONFIDENCE)
    ends = (-math.inf, math.inf) if math.isnan(low) else (float(low), float(high))
    gap = fmean(held_out) - fmean(train) if train else None
    return Estimate(gap, len(held_out) + len(train), *ends)


def _charts(lines: Sequence[Line]) -> Iterator[charts.Chart]:
    """A chart a part: held-out and trained rows by update."""
    moments, last = [(float(line["step"]), compared(lines[0], line)["parts"]) for line in lines], lines[-1]["step"]
    x = charts.linear_axis(0, last, "updates")
    x = replace(x, low=-last / 40, high=max(x.high, last * 1.025))
    for part in moments[0][1]:
        curves = {
            label: [(step, Estimate.from_dict(parts[part][name])) for step, parts in moments]
            for name, label in (("after", "held out"), ("train", "trained"))
        }
        known = [one for points in curves.values() for _, one in points if one.value is not None]
        high = max(one.high if math.isfinite(one.high) else one.value or 0.0 for one in known)
        yield charts.scores(part.capitalize(), curves, x, last / 90, y=charts.linear_axis(0, high))
