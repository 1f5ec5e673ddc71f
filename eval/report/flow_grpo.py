"""What a report tells of reinforcement, and of any training that watched held-out prompts: tables, curves, images.

Read below a stage's folder, all of it optional: `held_out/step=*` and `gallery/epoch-*` (eval/groups.py),
`rollouts.jsonl` (a line an epoch) and `metrics.jsonl` (a line an update), as uni_train/training/flow_grpo writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import parse_json, read_text, reason
from uni_train.errors import UserError
from uni_train.eval import groups
from uni_train.eval.groups import Group, Member
from uni_train.eval.report import charts
from uni_train.eval.report.evaluation import OUTCOME_NAMES
from uni_train.eval.report.gallery import data_url
from uni_train.eval.report.page import Section
from uni_train.eval.statistics import Estimate, paired, share
from uni_train.run_folder import stage_folders

GALLERIES = 5  # epochs with images in the page, first and last among them
_MOMENTS = 3  # validations side by side: before, half way, after
_PARTS = {"rollout": "drawing", "reward": "rewarding", "update": "learning"}
_ROUNDING = 1e-9
Line = Mapping[str, Any]


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
        validations = groups.finished(folder / "held_out")
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
    seen = [groups.read_facts(validation) for validation in validations]
    done = (folder / "manifest.json").exists()
    drawn = groups.finished(folder / "gallery")
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
        "galleries": [_gallery(folder) for folder in _spread(drawn, GALLERIES)],
        "shown": _validation_groups(_spread(validations, _MOMENTS), done),
    }


# --- success on held-out prompts ------------------------------------------------------------------------------------


def _held_out(seen: Sequence[Line], done: bool) -> dict[str, Any]:
    """`success`, None without validations, and `success_charts`."""
    if not seen:
        return {"success": None, "success_charts": []}
    if "levels" in seen[0]:
        return {"success": _success(seen, done), "success_charts": [_success_chart(seen)] if len(seen) > 1 else []}
    return {"success": _rewards(seen, done), "success_charts": list(_mean_charts(seen)) if len(seen) > 1 else []}


def _rewards(seen: Sequence[Line], done: bool) -> dict[str, Any]:
    """Mean rewards of a file's prompts at the first validation, one half way and the last."""
    moments = _spread(seen, _MOMENTS)
    means = [groups.estimates(moment) for moment in moments]
    return {
        "file": moments[0]["file"],
        "moments": [_moment(i, moments, done) for i in range(len(moments))],
        "rows": [{"level": name, "cells": [one[name] for one in means], "change": None} for name in means[0]],
        "checks": [],
    }


def _mean_charts(seen: Sequence[Line]) -> Iterable[charts.Chart]:
    means = [(facts["step"], groups.estimates(facts)) for facts in seen]
    for name in seen[0]["rewards"]:
        yield from _curve(
            f"Held-out {name}", [{"step": step, "mean": one[name].value} for step, one in means], (("mean", "mean"),)
        )


def _success(seen: Sequence[Line], done: bool) -> dict[str, Any]:
    """Levels and checks at the first validation, one half way and the last; the change is paired, prompt by prompt.

    done: training has ended, and the last validation was after it.
    """
    moments = _spread(seen, _MOMENTS)
    levels = list(moments[0]["levels"])
    rows = [_row(f"level {level}", [level], moments) for level in levels]
    rows += [_row("all", levels, moments)] if len(levels) > 1 else []
    # A check that only says that nothing can be read (of sprites) is no share of anything.
    names = dict.fromkeys(
        name
        for moment in moments
        for one in moment["levels"].values()
        for name, statuses in one["checks"].items()
        if {*statuses} - {"unreadable", None}
    )
    return {
        "file": None,
        "task": moments[0]["task"],
        "split": moments[0]["split"],
        "moments": [_moment(i, moments, done) for i in range(len(moments))],
        "rows": rows,
        "checks": [
            {"name": name.replace("_", " "), "cells": [_check(moment, name) for moment in moments]} for name in names
        ],
    }


def _moment(i: int, moments: Sequence[Line], done: bool) -> str:
    if i == 0:
        return "before"
    return "after" if done and i == len(moments) - 1 else f"update {moments[i]['step']}"


def _row(name: str, levels: Sequence[str], moments: Sequence[Line]) -> dict[str, Any]:
    """Success on some levels at each moment, and the change from the first moment to the last."""
    seen = [[moment["levels"][level] for level in levels] for moment in moments]
    before, after = ([mark == "1" for level in one for mark in level["passed"]] for one in (seen[0], seen[-1]))
    change = paired(before, after, groups.clusters_of(seen[-1])) if len(moments) > 1 else None
    return {"level": name, "cells": [groups.passed(one) for one in seen], "change": change}


def _check(validation: Line, name: str) -> Estimate:
    """The share of all prompts whose image passes it; one that nobody can read does not."""
    levels = list(validation["levels"].values())
    passed = [status == "pass" for one in levels for status in one["checks"].get(name) or [None] * one["n"]]
    return share(passed, range(len(passed)), groups.clusters_of(levels))


def _success_chart(seen: Sequence[Line]) -> charts.Chart:
    steps = [float(validation["step"]) for validation in seen]
    levels = list(seen[0]["levels"])
    width = (steps[-1] - steps[0]) / 90
    series = []
    for place, level in enumerate(levels):
        cells = [groups.passed([validation["levels"][level]]) for validation in seen]
        # Levels are set a little apart, so that whiskers do not hide each other.
        aside = (place - (len(levels) - 1) / 2) * width
        points = [(step + aside, cell.value or 0.0) for step, cell in zip(steps, cells, strict=True)]
        series.append(
            charts.Series(
                f"level {level}",
                points,
                place + 1,
                markers=len(points) <= 40,
                intervals=[(cell.low, cell.high) for cell in cells],
            )
        )
    x = charts.linear_axis(0, steps[-1], "updates")
    x = charts.Axis(-steps[-1] / 40, max(x.high, steps[-1] * 1.025), x.ticks, "updates")
    y = charts.Axis(0, 1, [(value / 4, f"{value / 4:.2f}") for value in range(5)])
    told = "; ".join(f"{one.name} from {one.points[0][1]:.2f} to {one.points[-1][1]:.2f}" for one in series)
    return charts.chart("Success", f"Success on held-out prompts: {told}.", series, x, y)


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
    facts = groups.read_facts(folder)
    shown = [_group(group, group.members) for group in groups.read_groups(folder)]
    return {"title": f"Epoch {facts['epoch']}", "step": facts["step"], "moments": [], **_common(shown)}


def _validation_groups(validations: Sequence[Path], done: bool) -> dict[str, Any] | None:
    """The same held-out prompts at several moments, side by side."""
    if not validations:
        return None
    facts = [groups.read_facts(validation) for validation in validations]
    titles = [_moment(i, facts, done) for i in range(len(facts))]
    by_id = [{group.id: group for group in groups.read_groups(validation)} for validation in validations]
    shown = []
    for name, group in by_id[0].items():
        if all(name in one for one in by_id):
            shown.append(_group(group, [one[name].members[0] for one in by_id], titles))
    return _common(shown) | {"moments": titles}


def _common(shown: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all groups share is said once: the prompt (of mazes), the names of the checks."""
    prompts = {group["prompt"] for group in shown}
    checks = dict.fromkeys(c["name"] for group in shown for m in group["members"] for c in m["checks"])
    return {"groups": shown, "prompt": prompts.pop() if len(prompts) == 1 else None, "checks": list(checks)}


def _group(group: Group, members: Sequence[Member], titles: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "id": group.id,
        "prompt": group.prompt,
        "answer": group.answer,
        "level": group.level,
        "inputs": [data_url(image) for image in group.inputs],
        "members": [_member(one, titles[i] if titles else "") for i, one in enumerate(members)],
    }


def _member(member: Member, title: str) -> dict[str, Any]:
    verdict = member.verdict
    return {
        "title": title,
        "image": data_url(member.image),
        "status": "unscored" if verdict is None else verdict.status,
        "reason": "" if verdict is None else verdict.reason,
        "checks": []
        if verdict is None
        else [{"name": c.name.replace("_", " "), "status": c.status, "reason": c.reason} for c in verdict.checks],
        "total": member.total,
        "rewards": dict(member.rewards) if len(member.rewards) > 1 else {},
    }


def _spread(things: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly, the first and the last among them."""
    if len(things) <= most:
        return list(things)
    return [things[round(i * (len(things) - 1) / (most - 1))] for i in range(most)]
