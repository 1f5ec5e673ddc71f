"""What a report tells of reinforcement, and of any training that watched held-out prompts: tables, curves, images.

Read below a stage's folder, all of it optional: `held_out/step=*` and `gallery/epoch-*` (eval/validation.py),
`rollouts.jsonl` (a line an epoch) and `metrics.jsonl` (a line an update), as uni_train/training/flow_grpo writes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import parse_json, read_text, reason
from uni_train.errors import UserError
from uni_train.eval.images import bytes_of
from uni_train.eval.report import charts
from uni_train.eval.report.evaluation import OUTCOME_NAMES
from uni_train.eval.report.gallery import data_url
from uni_train.eval.report.page import Section
from uni_train.eval.results import Results
from uni_train.eval.sample import Scored
from uni_train.eval.validation import estimates, finished, groups_of, read_validation, results_of, rewards_of
from uni_train.run_folder import stage_folders

GALLERIES = 5  # epochs with images in the page, first and last among them
_MOMENTS = 3  # validations side by side: before, half way, after
_PARTS = {"rollout": "drawing", "reward": "rewarding", "update": "learning"}
_ROUNDING = 1e-9
Line = Mapping[str, Any]
Validation = Sequence[Scored]


def sections(run_dir: Path) -> list[Section]:
    found = stages(run_dir)
    return (
        [Section("Reinforcement", body="flow_grpo.html", shown={"reinforced": found, "names": OUTCOME_NAMES})]
        if found
        else []
    )


def stages(run_dir: Path) -> list[dict[str, Any]]:
    """One entry a stage that has something to tell, for flow_grpo.html.

    Raises:
        UserError: a file that cannot be read, by its name.
    """
    found = []
    for folder in stage_folders(run_dir):
        validations = finished(folder / "held_out")
        epochs = read_lines(folder / "rollouts.jsonl")
        if validations or epochs:
            found.append(_stage(folder, validations, epochs))
    return found


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


def _stage(folder: Path, validations: Sequence[Path], epochs: Sequence[Line]) -> dict[str, Any]:
    seen = [read_validation(one, images=False) for one in validations]
    done = (folder / "manifest.json").exists()
    updates = read_lines(folder / "metrics.jsonl") if epochs else []
    return {
        "name": folder.name.partition("-")[2] or folder.name,
        **_held_out(seen, done),
        "reward_charts": list(_reward_charts(epochs)),
        "policy_charts": list(_policy_charts(updates)),
        "picture_charts": list(_picture_charts(epochs)),
        "time": _time(epochs),
        "time_charts": list(_time_charts(epochs)),
        "epochs": len(epochs),
        "galleries": [_gallery(one) for one in _spread(finished(folder / "gallery"), GALLERIES)],
        "shown": _validation_groups(_spread(validations, _MOMENTS), done),
    }


# --- success on held-out prompts ------------------------------------------------------------------------------------


def _held_out(seen: Sequence[Validation], done: bool) -> dict[str, Any]:
    """`success`, None without validations, and `success_charts`.

    done: training has ended, and the last validation was after it.
    """
    if not seen:
        return {"success": None, "success_charts": []}
    rewarded, moments = bool(rewards_of(seen[0])), _spread(seen, _MOMENTS)
    charts_of, about = (_mean_charts, _rewards(moments)) if rewarded else (_success_charts, _success(moments))
    success = {"moments": [_moment(i, moments, done) for i in range(len(moments))], **about}
    return {"success": success, "success_charts": list(charts_of(seen)) if len(seen) > 1 else []}


def _rewards(moments: Sequence[Validation]) -> dict[str, Any]:
    """Mean rewards of a file's prompts."""
    means = [*map(estimates, moments)]
    rows = [{"level": name, "cells": [one[name] for one in means], "change": None} for name in means[0]]
    return {"file": moments[0][0].sample.ask.case.set, "rows": rows, "checks": []}


def _success(moments: Sequence[Validation]) -> dict[str, Any]:
    """Levels and checks; the change from the first moment to the last is paired, prompt by prompt."""
    results = [*map(results_of, moments)]
    levels = [some.by("set") for some in results]
    rows = [_row(name, [one[name] for one in levels]) for name in levels[0]]
    rows += [_row("all", results)] if len(rows) > 1 else []
    # A check that only says that nothing can be read (of sprites) is no share of anything.
    checks = [check for moment in moments for one in moment if one.verdict for check in one.verdict.checks]
    read = {check.name for check in checks if check.status != "unreadable"}
    names = [name for name in dict.fromkeys(check.name for check in checks) if name in read]
    facts = moments[0][0].sample.ask.case.facts
    return {
        "file": None,
        "task": facts["task"],
        "split": facts["item"]["split"],
        "rows": rows,
        "checks": [
            {"name": name.replace("_", " "), "cells": [some.measured(_passes(name)).mean() for some in results]}
            for name in names
        ],
    }


def _moment(i: int, moments: Sequence[Validation], done: bool) -> str:
    if i == 0:
        return "before"
    return "after" if done and i == len(moments) - 1 else f"update {_step(moments[i])}"


def _step(scored: Validation) -> int:
    return int(scored[0].sample.facts["step"])


def _row(name: str, moments: Sequence[Results]) -> dict[str, Any]:
    change = moments[-1].minus(moments[0]) if len(moments) > 1 else None
    return {"level": name, "cells": [one.mean() for one in moments], "change": change}


def _passes(check: str) -> Callable[[Scored], float]:
    """1 for an image that passes this check; one that nobody can read does not."""
    return lambda one: float(
        one.verdict is not None and (check, "pass") in [(c.name, c.status) for c in one.verdict.checks]
    )


def _mean_charts(seen: Sequence[Validation]) -> Iterable[charts.Chart]:
    means = [(_step(one), estimates(one)) for one in seen]
    for name in means[0][1]:
        lines = [{"step": step, "mean": one[name].value} for step, one in means]
        yield from _curve(f"Held-out {name}", lines, (("mean", "mean"),))


def _success_charts(seen: Sequence[Validation]) -> Iterable[charts.Chart]:
    steps = [float(_step(one)) for one in seen]
    found = [*map(estimates, seen)]
    width = (steps[-1] - steps[0]) / 90
    series = []
    for place, level in enumerate(found[0]):
        cells = [one[level] for one in found]
        # Levels are set a little apart, so that whiskers do not hide each other.
        aside = (place - (len(found[0]) - 1) / 2) * width
        points = [(step + aside, cell.value or 0.0) for step, cell in zip(steps, cells, strict=True)]
        intervals = [(cell.low, cell.high) for cell in cells]
        series.append(charts.Series(level, points, place + 1, markers=len(points) <= 40, intervals=intervals))
    x = charts.linear_axis(0, steps[-1], "updates")
    x = charts.Axis(-steps[-1] / 40, max(x.high, steps[-1] * 1.025), x.ticks, "updates")
    y = charts.Axis(0, 1, [(value / 4, f"{value / 4:.2f}") for value in range(5)])
    told = "; ".join(f"{one.name} from {one.points[0][1]:.2f} to {one.points[-1][1]:.2f}" for one in series)
    yield charts.chart("Success", f"Success on held-out prompts: {told}.", series, x, y)


# --- curves ---------------------------------------------------------------------------------------------------------


def _reward_charts(epochs: Sequence[Line]) -> Iterable[charts.Chart]:
    quantiles = (("reward_p90", "best tenth"), ("reward", "mean"), ("reward_p10", "worst tenth"))
    yield from _curve("Reward", epochs, (*quantiles, ("best_of_group", "best of a group")))
    each = sorted({name for line in epochs for name in line if name.startswith("rewards/")})
    yield from _curve(
        "Reward by name", epochs, [(name, name.removeprefix("rewards/").removesuffix("/mean")) for name in each]
    )
    missing = sorted({name for line in epochs for name in line if name.startswith("missing/")})
    failed = [(name, f"without {name.removeprefix('missing/')}") for name in missing]
    shares = [("frac_reward_zero_std", "groups of equal rewards"), *failed]
    yield from _curve("Shares", epochs, shares, bounds=(0.0, 1.0))


def _policy_charts(updates: Sequence[Line]) -> Iterable[charts.Chart]:
    yield from _curve("Gradient norm", updates, (("grad_norm", "before clipping"),), log=True)
    yield from _curve("KL from the start", updates, (("kl", ""),))
    yield from _curve("Clipped steps", updates, (("clip_ratio/high_mean", "above"), ("clip_ratio/low_mean", "below")))
    yield from _curve("Ratio", updates, (("ratio", "mean"),), bounds=(0.995, 1.005))
    spread = (
        ("log_ratio_max", "largest |log ratio|"),
        ("ratio_std", "deviation of the ratio"),
        ("approx_kl", "approximate KL"),
    )
    yield from _curve("How far from the weights that drew", updates, spread, log=True)


def _picture_charts(epochs: Sequence[Line]) -> Iterable[charts.Chart]:
    names = (("brightness", "brightness"), ("contrast", "contrast"), ("diversity", "diversity within groups"))
    yield from _curve("Images, grey levels", epochs, names)


def _time_charts(epochs: Sequence[Line]) -> Iterable[charts.Chart]:
    lines = [{"step": line["step"], **line.get("seconds", {})} for line in epochs]
    yield from _curve("Seconds an epoch", lines, list(_PARTS.items()))


def _time(epochs: Sequence[Line]) -> list[dict[str, Any]]:
    seconds = {name: sum(line.get("seconds", {}).get(part, 0.0) for line in epochs) for part, name in _PARTS.items()}
    total = sum(seconds.values()) or 1.0
    return [{"name": name, "seconds": value, "share": value / total} for name, value in seconds.items()]


def _curve(
    title: str,
    lines: Sequence[Line],
    names: Sequence[tuple[str, str]],
    *,
    log: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Iterable[charts.Chart]:
    """One chart of those columns that are there, or none.

    log: a logarithmic axis where values differ much, without what is rounding. bounds: what the axis spans at least.
    """
    series, heights = [], []
    for place, (name, label) in enumerate(names):
        points = [(float(line["step"]), float(line[name])) for line in lines if is_number(line.get(name))]
        if log:
            points = [point for point in points if point[1] > _ROUNDING]
        if not points:
            continue
        values = [value for _, value in points]
        many = len(points) > 60
        if many:
            series.append(charts.Series("", points, place + 1, faint=True))
            values = charts.smooth(values, len(values) / 25)
        heights += [value for _, value in points]
        smooth = [(step, value) for (step, _), value in zip(points, values, strict=True)]
        series.append(charts.Series(label, smooth, place + 1, markers=len(points) == 1))
    if not series:
        return
    least, most = min(heights), max(heights)
    if log and most > 10 * least:
        y = charts.log_axis(least, most)
    else:
        low, high = bounds or (min(0.0, least), most or 1.0)
        y = charts.linear_axis(min(low, least), max(high, most))
    last = max(float(line["step"]) for line in lines)
    x = charts.linear_axis(0, last, "updates")
    x = charts.Axis(0, last, [tick for tick in x.ticks if tick[0] <= last], "updates")
    named = [one for one in series if not one.faint]
    told = "; ".join(f"{one.name or title} from {one.points[0][1]:.3g} to {one.points[-1][1]:.3g}" for one in named)
    yield charts.chart(title, f"{told}.", series, x, y)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- images -------------------------------------------------------------------------------------------------------


def _gallery(folder: Path) -> dict[str, Any]:
    scored = read_validation(folder)
    shown = [_group(group) for group in groups_of(scored)]
    epoch = int(folder.name.removeprefix("epoch-"))
    return {"title": f"Epoch {epoch}", "step": _step(scored), "moments": [], **_common(shown)}


def _validation_groups(validations: Sequence[Path], done: bool) -> dict[str, Any] | None:
    """The same held-out prompts at several moments, side by side."""
    if not validations:
        return None
    seen = [read_validation(one) for one in validations]
    titles = [_moment(i, seen, done) for i in range(len(seen))]
    by_id = [{one.sample.ask.case.id: one for one in some if one.sample.drawn} for some in seen]
    together = [[one[name] for one in by_id] for name in by_id[0] if all(name in one for one in by_id)]
    return _common([_group(some, titles) for some in together]) | {"moments": titles}


def _common(shown: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all groups share is said once: the prompt (of mazes), the names of the checks."""
    prompts = {group["prompt"] for group in shown}
    checks = dict.fromkeys(c["name"] for group in shown for m in group["members"] for c in m["checks"])
    return {"groups": shown, "prompt": prompts.pop() if len(prompts) == 1 else None, "checks": list(checks)}


def _group(scored: Sequence[Scored], titles: Sequence[str] = ()) -> dict[str, Any]:
    case = scored[0].sample.ask.case
    return {
        "id": case.id,
        "prompt": case.prompt,
        "answer": case.facts.get("answer"),
        "level": case.facts.get("level"),
        "inputs": [data_url(bytes_of(image)) for image in case.images],
        "members": [_member(one, titles[i] if titles else "") for i, one in enumerate(scored)],
    }


def _member(one: Scored, title: str) -> dict[str, Any]:
    verdict, facts = one.verdict, one.sample.facts
    checks = () if verdict is None else verdict.checks
    rewards = dict(facts.get("rewards", ()))
    return {
        "title": title,
        "image": data_url(one.sample.images[-1]),
        "status": "unscored" if verdict is None else verdict.status,
        "reason": "" if verdict is None else verdict.reason,
        "checks": [{"name": c.name.replace("_", " "), "status": c.status, "reason": c.reason} for c in checks],
        "total": facts.get("reward"),
        "rewards": rewards if len(rewards) > 1 else {},
    }


def _spread(things: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly, the first and the last among them."""
    if len(things) <= most:
        return list(things)
    return [things[round(i * (len(things) - 1) / (most - 1))] for i in range(most)]
