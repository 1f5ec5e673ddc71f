"""Build report.html from the files of a run. Only positions are computed here.

Numbers come from summary.json, the gallery from the samples, curves from metrics.jsonl. The page makes no network
requests: styles and scripts are inline, images are data URLs. All text is escaped (autoescaping), and the content
security policy of the page allows no other script.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.data_gen.reading_limits import read_json, read_text, read_yaml, reason
from uni_train.data_gen.registry import TASKS
from uni_train.errors import UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmarks import unisandbox
from uni_train.eval.benchmarks.unisandbox import training_run
from uni_train.eval.report import charts, flow_grpo, gallery
from uni_train.eval.report.tables import shown_table
from uni_train.eval.scored import read_folder
from uni_train.eval.statistics import Estimate, signed
from uni_train.files import atomic_write_text
from uni_train.run_folder import stage_folders

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent
_STATUS_NAMES = {
    "pass": "right",
    "fail": "wrong",
    "unreadable": "unreadable",
    "generation_failed": "no image",
    "judge_blank": "judge blank",
    "judge_refused": "judge refused",
    "judge_filtered": "judge filtered",
    "unparseable": "judge unreadable",
    "missing": "no record",
}
_SETTING_NAMES = {"normal": "Normal", "cot": "CoT", "said": "Said"}
_CURVES = (("loss", "Loss"), ("mse", "Image part (MSE)"), ("ce", "Text part (cross-entropy)"), ("lr", "Learning rate"))


@dataclass(frozen=True, slots=True)
class Curve:
    """What one training stage logged: metric -> (step, value)."""

    stage: str
    values: dict[str, list[tuple[float, float]]]


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html from a finished run and return its path.

    Reads, below run_dir:

    - `summary.json`, as `benchmarks.unisandbox.training_run.build` makes it (without it, tables of accuracy are left
      out). Only the seven keys of its contract must be there; what else is missing is left out of the page.
    - `stages/<NN>-<stage>/manifest.json` whose `stage` begins with "evaluate" and whose `result.label` is one of
      "before", "round1", "round2", ..., "after"; beside it `scored/*.parquet` (`eval.evaluation`). The gallery shows
      "before" beside "after", or beside the highest round where no stage is labelled "after", or what there is of
      them alone. Without such stages there is none.
    - `stages/<NN>-<stage>/metrics.jsonl` (any stage): one JSON object a logged step, with `step` and any of `loss`,
      `mse`, `ce`, `lr`. Steps may repeat after a resume (the last counts), values may be null, and a last line that
      was cut short is ignored. The curves are labelled with the
      stage, "finetune-" left out.
    - of each stage that reinforces or watches held-out prompts, what `uni_train.eval.report.flow_grpo` reads.
    - `run.json` (optional), as `uni_train.run_folder` writes it: its last start gives command, git state and versions;
      `config.yaml` (optional) is shown as it is.

    Raises UserError (DamagedShard among them) naming the file that cannot be read or written.
    """
    run_dir = Path(run_dir)
    summary = run_summary.read(run_dir) if os.path.lexists(run_dir / "summary.json") else _unevaluated(run_dir)
    tables = _tables(summary)
    moments = {moment: partial(read_folder, folder) for moment, folder in gallery.evaluations(run_dir).items()}
    shown = gallery.build({"unisandbox": moments}, gallery.beside, budget=7_000_000)
    sets, settings = training_run.shown_sets(), (*unisandbox.SETTINGS, unisandbox.SAID)
    shown.cards.sort(key=lambda card: (sets.index(card["set"]), settings.index(card["setting"])))
    context = {
        "summary": summary,
        "about": _about(run_dir),
        "config": _text(run_dir / "config.yaml"),
        "tiles": _tiles(summary),
        "tables": tables,
        "outcomes": _outcomes(summary),
        "accuracy_charts": list(_accuracy_charts(summary)),
        "loss_charts": list(_loss_charts(_curves(run_dir))),
        "reinforced": flow_grpo.stages(run_dir),
        "gallery": shown,
        "pictures_left_out": sum(card.get(moment, {}).get("left_out", 0) for card in shown.cards for moment in moments),
        "sets": list(dict.fromkeys(card["set"] for card in shown.cards)),
        "setting_names": {key: name for key, name in _SETTING_NAMES.items() if key in _settings(summary)},
        "status_names": _STATUS_NAMES,
        "questions": str(summary.get("questions", "")),
        "paper_name": "BAGEL-7B, other questions",  # a run asks questions of its own split
    }
    return write_page(
        run_dir / "report.html", "report.html", context, ("style.css", "flow_grpo.css"), ("paging.js", "gallery.js")
    )


def write_page(
    path: Path, template: str, context: Mapping[str, Any], styles: Sequence[str], scripts: Sequence[str]
) -> Path:
    """Write a page of ours: its template with what it shows, its styles, and its scripts as one, whose hash is the only
    one that the page's policy allows. Raises UserError where it cannot be written.
    """
    code = "\n".join(map(_asset, scripts))
    whole = {
        **context,
        "style": "\n".join(_asset(name) for name in styles),
        "script": code,
        "script_hash": base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
    }
    try:
        atomic_write_text(path, environment().get_template(template).render(whole))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})", "Check the folder and the disk.") from error
    return path


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates of this folder: everything is escaped, a missing name is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.undefined = jinja2.StrictUndefined
    environment.filters |= {
        "score": _score,
        "interval": _interval,
        "duration": _duration,
        "p_value": _p_value,
        "signed": signed,
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    }
    return environment


# --- files of the run -----------------------------------------------------------------------------------------------


def _about(run_dir: Path) -> dict[str, Any]:
    path = run_dir / "run.json"
    starts = _json(path).get("starts") if path.exists() else None
    try:
        first, last = (starts[0], starts[-1]) if starts else ({}, {})
        git = last.get("git") or {}
        return {
            "command": " ".join(last.get("command") or []),
            "started": str(first.get("time") or ""),
            "starts": len(starts or []),
            "commit": str(git.get("commit") or ""),
            "changed_files": int(git.get("changed_files") or 0),
            "versions": dict(last.get("versions") or {}),
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged: its starts are not those of a run", "Delete it: the run itself does not need it."
        ) from error


def _curves(run_dir: Path) -> list[Curve]:
    curves = []
    for stage in stage_folders(run_dir):
        rows = flow_grpo.read_lines(stage / "metrics.jsonl")
        values = {
            name: [(float(row["step"]), float(row[name])) for row in rows if _is_number(row.get(name))]
            for name, _ in _CURVES
        }
        curves.append(Curve(stage.name.partition("-")[2] or stage.name, values))
    return curves


def _unevaluated(run_dir: Path) -> dict[str, Any]:
    """The head of a summary for a run that measured no accuracy on UniSandbox.

    Raises:
        UserError: there is no config.yaml, or it or a manifest cannot be read.
    """
    path = run_dir / "config.yaml"
    try:
        config = read_yaml(path)
        head = {"recipe": config["recipe"], "model": config["model"]["name"], "seed": config["seed"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: cannot be read ({reason(error)})", "A report needs the folder of a run.") from error
    manifests = [_json(path) for path in sorted((run_dir / "stages").glob("*/manifest.json"))]
    return head | {
        "wall_seconds": sum(float(one.get("seconds", 0.0)) for one in manifests),
        "peak_rss_bytes": max((int(one.get("result", {}).get("peak_rss_bytes", 0)) for one in manifests), default=0),
        "scores": {"before": {}, "after": {}},
        "rounds": [],
    }


def _json(path: Path) -> dict[str, Any]:
    try:
        raw = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({reason(error)})", "Delete it and run the same command again."
        ) from error
    return raw if isinstance(raw, dict) else {}


def _text(path: Path) -> str | None:
    try:
        return read_text(path) if path.exists() else None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({reason(error)})", "Restore it: a run needs it.") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# --- tables ---------------------------------------------------------------------------------------------------------


def _tiles(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Normal accuracy per set, before and after."""
    before, after = (summary["scores"].get(when, {}).get("normal", {}) for when in ("before", "after"))
    best = unisandbox.PAPER["Table 3"][3]  # the last round of the curriculum
    curriculum = {f"mapping{level}": float(best[f"normal {level}"]) for level in unisandbox.LEVELS}
    return [
        {
            "name": name,
            "before": before.get(name),
            "now": after.get(name) or before[name],
            "paper": curriculum.get(name),
        }
        for name in training_run.shown_sets()[:6]
        if name in before
    ]


def _tables(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the model scored, and what each round's filter kept, for table.html."""
    return [shown_table(table, f"table-{i}") for i, table in enumerate(training_run.tables(summary, printed=True), 1)]


def _settings(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Normal and CoT, and "said" where it was asked."""
    measured = any(unisandbox.SAID in scores for scores in summary.get("scores", {}).values())
    return (*unisandbox.SETTINGS, unisandbox.SAID) if measured else unisandbox.SETTINGS


def _outcomes(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per set and setting: the headline, single images, pairs half right, and how the images were read."""
    rows = []
    for setting in _settings(summary):
        for name in training_run.shown_sets():
            moments = []
            for when in ("before", "after"):
                shares = _dig(summary, "statuses", when, setting, name)
                if shares:
                    moments.append(
                        {
                            "when": when,
                            "score": _dig(summary, "scores", when, setting, name),
                            "per_image": _dig(summary, "per_image", when, setting, name),
                            "one_of_two": _dig(summary, "one_of_two", when, setting, name),
                            "shares": [
                                (status, shares[status]["value"]) for status in _STATUS_NAMES if status in shares
                            ],
                            "n": shares["pass"]["n"],
                        }
                    )
            if moments:
                change = _dig(summary, "changes", setting, name)
                plain = training_run.trivial(summary, name)
                row = {"set": name, "setting": setting, "moments": moments, "change": change, "trivial": plain}
                rows.append(row | {"pairs": moments[0]["one_of_two"] is not None})
    return rows


def _dig(tree: Mapping[str, Any], *keys: str) -> Any:
    node: Any = tree
    for key in keys:
        node = (node or {}).get(key)
    return node


# --- charts ---------------------------------------------------------------------------------------------------------


def _accuracy_charts(summary: Mapping[str, Any]) -> Iterator[charts.Chart]:
    """Accuracy after each round, one chart per task and setting, with the chance line."""
    for task, variant, rows in training_run.score_rows(summary):
        about = TASKS.get(task)
        if variant or len(rows) < 2:
            continue
        columns = [f"{about.short}{level}" for level in about.sets]
        names = ["base", *(row.name.removeprefix("after ") for row in rows[1:])]
        x = charts.Axis(-0.25, len(rows) - 0.75, list(enumerate(names)))
        for setting in unisandbox.SETTINGS:
            cells = [getattr(row, setting) for row in rows]
            lines = {name: [(i, row[level]) for i, row in enumerate(cells)] for level, name in enumerate(columns)}
            if any(one is not None and one.value is not None for line in lines.values() for _, one in line):
                title = f"{about.title}, {_SETTING_NAMES[setting]}"
                guess = (about.chance, about.guess)
                yield charts.scores(title, lines, x, 0.06, "Accuracy by round: {}.", guess)


def _loss_charts(curves: Sequence[Curve]) -> Iterator[charts.Chart]:
    """One chart a metric, the stages one after the other on one axis of updates."""
    trained = [curve for curve in curves if any(curve.values.values())]
    for name, title in _CURVES:
        dividers: list[tuple[float, str]] = []
        raw: list[list[tuple[float, float]]] = []
        offset = 0.0
        for curve in trained:
            dividers.append((offset, curve.stage.removeprefix("finetune-")))
            values = curve.values[name]
            if values:
                raw.append([(offset + step, value) for step, value in values])
            offset += max(step for series in curve.values.values() for step, _ in series[-1:]) + 1
        points = [point for part in raw for point in part]
        if not points:
            continue
        positive = all(value > 0 for _, value in points)
        low, high = min(value for _, value in points), max(value for _, value in points)
        log = name != "lr" and positive and high > low
        y = charts.log_axis(low, high) if log else charts.linear_axis(min(low, 0.0), high)
        step_axis = charts.linear_axis(0, offset)
        x = charts.Axis(0, offset, [tick for tick in step_axis.ticks if tick[0] <= offset], "updates")
        series = []
        for part in raw:
            heights = [value for _, value in part]
            smooth = charts.smooth(heights, len(heights) / 25) if name != "lr" else heights
            if name != "lr":
                series.append(charts.Series("", part, 1, faint=True))
            series.append(charts.Series("", [(step, v) for (step, _), v in zip(part, smooth, strict=True)], 1))
        told = f"From {points[0][1]:.3g} to {points[-1][1]:.3g} over {offset:.0f} updates."
        yield charts.chart(title, told, series, x, y, dividers if len(dividers) > 1 else ())


# --- how numbers are written ----------------------------------------------------------------------------------------


def _as_estimate(raw: Any) -> Estimate | None:
    return Estimate.from_dict(raw) if isinstance(raw, Mapping) else raw


def _score(raw: Any, digits: int = 2) -> str:
    value = raw if isinstance(raw, int | float) else getattr(_as_estimate(raw), "value", None)
    return "–" if value is None else f"{value:.{digits}f}"


def _interval(raw: Any, digits: int = 2) -> str:
    estimate = _as_estimate(raw)
    if not isinstance(estimate, Estimate) or estimate.value is None:
        return ""
    if estimate.low < 0:
        return f"{signed(estimate.low, digits)} to {signed(estimate.high, digits)}"
    return f"{estimate.low:.{digits}f}–{estimate.high:.{digits}f}"


def _p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
