"""The page of a run: what was scored before and after training, curves, and the samples side by side.

Read below RUN, all of it optional but for `config.yaml` or `summary.json`:

    summary.json                  numbers and rounds (`eval.summary`); tables of accuracy
    stages/*/manifest.json        where `stage` begins with "evaluate" and `result.label` names the moment
    stages/*/scored/*.parquet     samples of these stages
    stages/*/metrics.jsonl        a line a logged step: `step`, and any of `loss`, `mse`, `ce`, `lr`
    run.json, config.yaml         command, git state, versions; the configuration

A kind of recipe names who makes its page (`RecipeKind.report`): `page` here, or one that adds to it.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from uni_train.config.kinds import KINDS, RecipeKeys
from uni_train.core.errors import UserError
from uni_train.core.reading_limits import parse_json, read_json, read_text, read_yaml, reason
from uni_train.core.registry import Registry
from uni_train.eval import summary as run_summary
from uni_train.eval.report import charts
from uni_train.eval.report.page import Page, Section, about, duration, write_page
from uni_train.eval.report.samples import Part, gallery_of, outcomes_of
from uni_train.eval.scored import read_folder
from uni_train.run_folder import EXTENSION, stage_folders

_CURVES = (("loss", "Loss"), ("mse", "Image part (MSE)"), ("ce", "Text part (cross-entropy)"), ("lr", "Learning rate"),
           ("accuracy", "Chosen image preferred"), ("margin", "Margin of implicit rewards"),
           ("chosen_reward", "Reward of chosen images"), ("rejected_reward", "Reward of rejected images"))  # fmt: skip
_GALLERY_BYTES = 7_000_000
SECTIONS = Registry[Callable[[Path], Iterable[Section]]](
    "section of a run's report", "uni_train.eval.report.sections.*"
)
"""What a page shows of a run's folder where it is there: a module each of `uni_train.eval.report.sections`."""
run_section = SECTIONS.register
Line = Mapping[str, Any]


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html from a finished run, of any kind, and return its path.

    Raises:
        UserError: a file of the run cannot be read (DamagedShard: of samples), or the page cannot be written.
    """
    run_dir = Path(run_dir)
    config: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # pages say what of a damaged run is missing
        values = read_yaml(run_dir / "config.yaml")
        config = values if isinstance(values, dict) else {}
    summary = run_summary.read(run_dir) if os.path.lexists(run_dir / "summary.json") else _unevaluated(run_dir)
    kind = KINDS.get(config["kind"]) if config.get("kind") in KINDS.names() else RecipeKeys
    made = importlib.import_module(kind.report).page(run_dir, summary, config)
    return write_page(run_dir / "report.html", made)


def page(run_dir: Path, summary: Mapping[str, Any], config: Mapping[str, Any], watched: Sequence[Section] = ()) -> Page:
    """What report.html shows of any training. watched: sections of what it drew while it trained, before its curves."""
    scores = summary["scores"]
    trained = _TRAINED.get(str(config.get("teacher", config.get("kind"))), "training")
    lead = "What training did to the model."
    if scores["before"]:
        lead = f"What the model draws{f', before and after {trained}' if scores['after'] else ''}."
    moments = {moment: list(read_folder(folder)) for moment, folder in evaluations(run_dir).items()}
    questions = str(summary.get("questions", ""))
    tiles, accuracy, gallery = list[dict[str, Any]](), list[Section](), list[Section]()
    if scores["before"] or summary["rounds"] or moments:
        from uni_train.eval.sets import training_run

        shown, sets = training_run.SHOWN, training_run.shown_sets()
        part = Part("unisandbox", moments, settings=shown, sets=sets, questions=questions)
        tiles = training_run.tiles(summary)
        accuracy = [*training_run.sections(summary), outcomes_of(part)]
        gallery = [gallery_of([part], "Wrong answers included.", budget=_GALLERY_BYTES)]
    sections = [
        *accuracy,
        *watched,
        *(section for name in SECTIONS.names() if _left(run_dir, name) for section in SECTIONS.get(name)(run_dir)),
        Section("Training curves", charts=list(_loss_charts(_curves(run_dir))), note=_LOSSES),
        *gallery,
        about_run(run_dir, _SPLIT.format(summary.get("split", "test")) if scores["before"] else ""),
    ]
    return Page(
        title=" · ".join((summary["recipe"], summary["model"], f"seed {summary['seed']}")),
        heading=summary["recipe"],
        lead=lead,
        questions=questions,
        facts=facts_of(run_dir, summary, config),
        tiles_title="Normal accuracy after training" if scores["after"] else "Normal accuracy",
        tiles=tiles,
        sections=sections,
    )


_LOSSES = "Pale: every logged step. Strong: a moving average. Losses on a logarithmic scale."
_SPLIT = (
    "Prompts come from the {} split: no puzzle, expression or set of rules in it is trained on. A program reads the "
    "images, or the run's judge. An average is the unweighted mean over levels and settings."
)
_TRAINED = dict.fromkeys(("base", "current"), "training on its own samples")
_TRAINED |= {"reference": "training on solutions", "flow_grpo": "reinforcement"}
"""`teacher` of the recipe, or its kind -> what was done."""


def _left(run_dir: Path, name: str) -> bool:
    """Whether a leaf of this name has written anything: below the run's folder, or a stage's."""
    return any(any(run_dir.glob(pattern)) for pattern in (name, f"stages/*/{name}*"))


# --- files of the run -----------------------------------------------------------------------------------------------


def evaluations(run_dir: Path) -> dict[str, Path]:
    """What a run has evaluated: "before" and, where it can be compared, "after" -> folder of scored samples.

    "after" is the stage so labelled, or else the highest round; if it is all there is (pretraining), it is "before".
    Raises UserError for a manifest that cannot be read.
    """
    labels: dict[str, Path] = {}
    for path in sorted((Path(run_dir) / "stages").glob("*/manifest.json")):
        try:
            manifest = read_json(path)
            label = manifest["result"].get("label") if manifest["stage"].startswith("evaluate") else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: not a manifest ({error!r})", "Delete its folder to redo this stage.") from error
        if isinstance(label, str):
            labels[label] = path.parent / "scored"
    rounds = [int(label.removeprefix("round")) for label in labels if label.removeprefix("round").isdigit()]
    if "after" not in labels and rounds:
        labels["after"] = labels[f"round{max(rounds)}"]
    if "before" not in labels and "after" in labels:
        return {"before": labels["after"]}
    return {label: labels[label] for label in ("before", "after") if label in labels}


def without_samples(run_dir: Path) -> list[Path]:
    """The folders of `evaluations` whose shards are gone: the gallery lacks what they held."""
    return [folder for folder in evaluations(run_dir).values() if not any(folder.glob("[!.]*.parquet"))]


class _Start(BaseModel):
    """What run.json says of a start."""

    time: str = ""
    command: list[str] = []
    git: dict[str, Any] | None = None
    versions: dict[str, str] = {}


def _starts(run_dir: Path) -> list[_Start]:
    """At least one, which knows nothing where run.json is missing."""
    path = run_dir / "run.json"
    starts = _json(path).get("starts") if path.exists() else None
    try:
        return TypeAdapter(list[_Start]).validate_python(starts or [{}])
    except ValueError as error:
        raise UserError(
            f"{path} is damaged: its starts are not those of a run", "Delete it: the run itself does not need it."
        ) from error


def about_run(run_dir: Path, text: str) -> Section:
    """The last section: command, versions and configuration."""
    last = _starts(run_dir)[-1]
    git = last.git or {}
    commit, changed = str(git.get("commit") or "")[:12], git.get("changed_files")
    notes = [f"Commit {commit}{f', with {changed} changed files' if changed else ''}"] if commit else []
    notes += [", ".join(f"{name} {version}" for name, version in last.versions.items())] if last.versions else []
    return about("About this run", " ".join(last.command), notes, _text(run_dir / "config.yaml") or "", text)


def _curves(run_dir: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Stage -> metric -> (step, value), of the stages that logged any."""
    curves = {}
    for stage in stage_folders(run_dir):
        rows = read_lines(stage / "metrics.jsonl")
        values = {
            name: [(float(row["step"]), float(row[name])) for row in rows if is_number(row.get(name))]
            for name, _ in _CURVES
        }
        if match := EXTENSION.fullmatch(stage.name):  # its steps go on from those of the stage before
            values = {name: [(step - int(match[1]), v) for step, v in points] for name, points in values.items()}
        if any(values.values()):
            curves[stage.name.partition("-")[2].removeprefix("finetune-")] = values
    return curves


def read_lines(path: Path) -> list[Line]:
    """The lines of a log by their `step`, the last of equal ones; a line that was cut short at the end is left out.

    Raises:
        UserError: another line is no JSON object with a step.
    """
    if not path.exists():
        return []
    rows: dict[float, Line] = {}
    lines = read_text(path).split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line, path, number, nan=True)
            if not math.isfinite(row["step"]):
                raise ValueError(f"step {row['step']}")
            rows[float(row["step"])] = row
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break  # a line without its end: the process was killed while it wrote
            raise UserError(
                f"{path}, line {number}: not a logged step ({reason(error)})", "Delete the line."
            ) from error
    return [rows[step] for step in sorted(rows)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    manifests = _manifests(run_dir)
    return head | {
        "wall_seconds": sum(float(manifest.get("seconds", 0.0)) for manifest in manifests),
        "peak_rss_bytes": max((int(row["result"].get("peak_rss_bytes", 0)) for row in manifests), default=0),
        "scores": {"before": {}, "after": {}},
        "rounds": [],
    }


def _manifests(run_dir: Path) -> list[dict[str, Any]]:
    found = map(_json, sorted((run_dir / "stages").glob("*/manifest.json")))
    return [manifest for manifest in found if isinstance(manifest.get("result"), dict)]


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


# --- the head -------------------------------------------------------------------------------------------------------


def facts_of(run_dir: Path, summary: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The head of the page."""
    seconds, (first, *again) = summary["wall_seconds"], _starts(run_dir)
    facts = [("Model", summary["model"]), *_trained(run_dir, config), ("Seed", str(summary["seed"]))]
    facts += [("Wall time", duration(seconds) if seconds else "not finished")]
    facts += [("Peak memory", f"{summary['peak_rss_bytes'] / 1e9:.2f} GB")] if seconds else []
    started = first.time[:16].replace("T", " ")
    return [*facts, *([("Started", started + (f" (resumed {len(again)}×)" if again else ""))] if started else [])]


def _trained(run_dir: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What training began with, its data, how long it was, and where its model is, as far as the run's files say."""
    keys = {name: value for name, value in config.items() if isinstance(value, dict)}
    if "checkpoint" in keys.get("model", {}):
        yield "Checkpoint", str(keys["model"]["checkpoint"] or "none: random weights")
    sources = [*keys.get("sources", {}).values(), keys.get("prompts"), keys.get("characters")]
    paths = [source.get("path") for source in sources if isinstance(source, dict)]
    if files := [str(file) for path in paths if path for file in (path if isinstance(path, list) else [path])]:
        yield "Data", ", ".join(files[:3]) + f" and {len(files) - 3} more" * (len(files) > 3)
    done = _manifests(run_dir)
    begun = [one["result"].get("rows") for one in done if not EXTENSION.fullmatch(str(one.get("stage")))]
    rows = sum(sum(some.values()) for some in begun if isinstance(some, dict))
    updates = sum(one["result"].get("updates", 0) for one in done)
    yield from ((name, f"{n:,}") for name, n in (("Rows", rows), ("Updates", updates)) if n)
    models = [folder / "model" for folder in stage_folders(run_dir) if (folder / "model").is_dir()]
    yield from (("Trained model", str(model.relative_to(run_dir))) for model in models[-1:])


# --- charts ---------------------------------------------------------------------------------------------------------


def _loss_charts(curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> Iterator[charts.Chart]:
    """One chart a metric, the stages one after the other on one axis of updates."""
    for name, title in _CURVES:
        dividers: list[tuple[float, str]] = []
        raw: list[list[tuple[float, float]]] = []
        offset = 0.0
        for stage, values in curves.items():
            dividers.append((offset, stage))
            if values[name]:
                raw.append([(offset + step, value) for step, value in values[name]])
            offset += max(points[-1][0] for points in values.values() if points) + 1
        points = [point for part in raw for point in part]
        if not any(value for _, value in points):  # as of text, where nothing learns it
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
        described = f"From {points[0][1]:.3g} to {points[-1][1]:.3g} over {offset:.0f} updates."
        yield charts.chart(title, described, series, x, y, dividers if len(dividers) > 1 else ())
