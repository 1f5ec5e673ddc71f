"""What a report tells of reinforcement, and of any training that watched held-out prompts: tables, curves, images.

Kinds of recipes that have either name it (`RecipeKind.report`). Read below a stage's folder, all of it optional:
`held_out/step=*` and `gallery/epoch-*` (eval/validation.py), `rollouts.jsonl` (a line an epoch) and `metrics.jsonl` (a
line an update), as uni_train/training/flow_grpo writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.core.reading_limits import read_json
from uni_train.eval.images import bytes_of
from uni_train.eval.report import charts
from uni_train.eval.report.gallery import data_url
from uni_train.eval.report.page import Page, Section, duration
from uni_train.eval.report.run import Line, is_number, read_lines
from uni_train.eval.report.run import page as training_page
from uni_train.eval.report.samples import OUTCOME_NAMES
from uni_train.eval.results import Cell, Results, Table
from uni_train.eval.sample import Scored
from uni_train.eval.validation import estimates, finished, groups_of, read_validation, results_of, rewards_of
from uni_train.run_folder import stage_folders

GALLERIES = 5  # epochs with images in the page, first and last among them
_MOMENTS = 3  # validations side by side: before, half way, after
_PROMPTS = 24  # of them, with images
_PARTS = {"rollout": "drawing", "reward": "rewarding", "update": "learning"}
_ROUNDING = 1e-9
Validation = Sequence[Scored]


def page(run_dir: Path, summary: Mapping[str, Any], config: Mapping[str, Any]) -> Page:
    """What report.html shows. Raises as `sections`."""
    return training_page(run_dir, summary, config, sections(run_dir))


def sections(run_dir: Path) -> list[Section]:
    """What each stage has to tell of held-out prompts and of reinforcement.

    Raises:
        UserError: a file that cannot be read, by its name.
    """
    folders = []
    for folder in stage_folders(run_dir):
        validations = finished(folder / "held_out")
        epochs = read_lines(folder / "rollouts.jsonl")
        if validations or epochs:
            folders.append((folder, validations, epochs))
    return [
        replace(section, title=f"{section.title}: {folder.name}" if len(folders) > 1 else section.title)
        for folder, validations, epochs in folders
        for section in (*held_out(folder, validations), *_reinforcement(folder, epochs))
    ]


# --- success on held-out prompts ------------------------------------------------------------------------------------


def held_out(folder: Path, validations: Sequence[Path]) -> Iterator[Section]:
    """Of the validations below a stage's folder, the first and the last among those that are shown."""
    if not validations:
        return
    seen = [read_validation(validation, images=False) for validation in validations]
    done = (folder / "manifest.json").exists()  # training has ended, and the last validation was after it
    moments = _spread(seen, _MOMENTS)
    names = [_moment(i, moments, done) for i in range(len(moments))]
    case = seen[0][0].sample.ask.case
    if rewards_of(seen[0]):
        title, text = "Rewards of held-out prompts", f"The mean reward of prompts of {case.set}"
        tables, charts_of = [_mean_rewards(moments, names)], _mean_charts
    elif any(answer.verdict is None for answer in seen[0]):
        title, text = "Images of held-out prompts", f"Prompts of {case.set}, each drawn from the same noise every time"
        tables, charts_of = [], lambda seen: ()
    else:
        title, text = "Success on held-out prompts", f"Prompts of the {case.facts['item']['split']} split of "
        text += f"{case.facts['task']}. A program proves each image right or wrong; right means that every check passes"
        tables, charts_of = list(_success(moments, names)), _success_charts
    yield Section(
        title,
        f"{text}. They are never trained on, and drawn as the model always draws.",
        tables,
        list(charts_of(seen)) if len(seen) > 1 else [],
        body="groups.html",
        shown={
            "albums": [_same_prompts(_spread(validations, _MOMENTS), names)],
            "names": OUTCOME_NAMES if tables else {},
        },
    )


def _mean_rewards(moments: Sequence[Validation], names: Sequence[str]) -> Table:
    means = [*map(estimates, moments)]
    rows: list[tuple[Cell, ...]] = [(name, *(mean[name] for mean in means)) for name in means[0]]
    about = moments[0][0].sample.ask.case.set
    return Table("Mean reward", ("Reward", *names), tuple(rows), "95 % intervals (Student's t).", about)


def _success(moments: Sequence[Validation], names: Sequence[str]) -> Iterator[Table]:
    """Levels, then checks; the change from the first moment to the last is paired, prompt by prompt."""
    results = [*map(results_of, moments)]
    levels = [some.by("set") for some in results]
    rows = [_row(name, [level[name] for level in levels]) for name in levels[0]]
    rows += [_row("all", results)] if len(rows) > 1 else []
    facts = moments[0][0].sample.ask.case.facts
    questions = f"{facts['task']}, {facts['item']['split']} split"
    note = "95 % intervals. Change: last against first on the same prompts, Newcombe's interval, McNemar's exact test."
    changed = ("Change",) if len(moments) > 1 else ()
    yield Table("Share that is right", ("Level", *names, *changed), tuple(rows), note, questions)
    # A check that only says that nothing can be read (of sprites) is no share of anything.
    checks = [check for moment in moments for answer in moment if answer.verdict for check in answer.verdict.checks]
    read = {check.name for check in checks if check.status != "unreadable"}
    passed = [name for name in dict.fromkeys(check.name for check in checks) if name in read]
    if len(passed) > 1:
        shares: list[tuple[Cell, ...]] = [
            (name.replace("_", " "), *(some.measured(_passes(name)).mean() for some in results)) for name in passed
        ]
        yield Table("Checks, all levels together", ("Check", *names), tuple(shares), "", questions)


def _moment(i: int, moments: Sequence[Validation], done: bool) -> str:
    if i == 0:
        return "before"
    return "after" if done and i == len(moments) - 1 else f"update {_step(moments[i])}"


def _step(scored: Validation) -> int:
    return int(scored[0].sample.facts["step"])


def _row(name: str, moments: Sequence[Results]) -> tuple[Cell, ...]:
    changed = (moments[-1].minus(moments[0]),) if len(moments) > 1 else ()
    return name, *(moment.mean() for moment in moments), *changed


def _passes(check: str) -> Callable[[Scored], float]:
    """1 for an image that passes this check; one that nobody can read does not."""
    return lambda answer: float(
        answer.verdict is not None and (check, "pass") in [(c.name, c.status) for c in answer.verdict.checks]
    )


def _mean_charts(seen: Sequence[Validation]) -> Iterable[charts.Chart]:
    means = [(_step(scored), estimates(scored)) for scored in seen]
    for name in means[0][1]:
        lines = [{"step": step, "mean": mean[name].value} for step, mean in means]
        yield from _curve(f"Held-out {name}", lines, (("mean", "mean"),))


def _success_charts(seen: Sequence[Validation]) -> Iterable[charts.Chart]:
    steps, cells = [float(_step(scored)) for scored in seen], [*map(estimates, seen)]
    x = charts.linear_axis(0, steps[-1], "updates")
    x = charts.Axis(-steps[-1] / 40, max(x.high, steps[-1] * 1.025), x.ticks, "updates")
    lines = {level: list(zip(steps, (cell[level] for cell in cells), strict=True)) for level in cells[0]}
    yield charts.scores("Success", lines, x, (steps[-1] - steps[0]) / 90, "Success on held-out prompts: {}.")


# --- reinforcement --------------------------------------------------------------------------------------------------

_EPOCH = (
    "Each draws groups of images, one group a prompt, rewards them, and makes those likelier that are better than "
    "their group."
)
_NOTES = (
    "Of the images that were trained on, drawn with noise: held-out success is what counts.",
    "Pale: every update. Strong: a moving average. With one update an epoch the weights are those that drew, and every "
    "ratio is 1.",
    "Diversity within groups: the mean standard deviation of a pixel. Where it falls to nothing, the model draws the "
    "same whatever its noise.",
)
_GROUPS = (
    "The first groups of some epochs, as they were drawn for training, wrong images included. Left what was shown, "
    "then the group; under each image its checks and its reward."
)


_KNOWN = (
    "What rewards that ask a model paid, before training, for images of held-out items which a program has proved "
    "right or wrong. AUC: the share of pairs of a right and a wrong image in which the right one was paid more."
)


def _reinforcement(folder: Path, epochs: Sequence[Line]) -> Iterator[Section]:
    if (known := folder / "known_images.json").exists():
        yield Section("Known images", _KNOWN, [_known(read_json(known))])
    if epochs:
        updates, (on_rewards, on_policy, on_images) = read_lines(folder / "metrics.jsonl"), _NOTES
        text = f"{len(epochs):,} epochs. {_EPOCH}"
        yield Section("Reinforcement: rewards", text, charts=list(_reward_charts(epochs)), note=on_rewards)
        yield Section("Reinforcement: policy", charts=list(_policy_charts(updates)), note=on_policy)
        yield Section("Reinforcement: images", charts=list(_picture_charts(epochs)), note=on_images)
        yield Section("Reinforcement: time", tables=[_time(epochs)], charts=list(_time_charts(epochs)))
    albums = [_epoch(file) for file in _spread(finished(folder / "gallery"), GALLERIES)]
    shown = {"albums": albums, "names": OUTCOME_NAMES}
    yield Section("Groups", _GROUPS, body="groups.html" if albums else "", shown=shown)


def _known(rewards: Mapping[str, Any]) -> Table:
    rows = []
    for name, paid in rewards.items():
        cells = [(paid[kind]["mean"], paid[kind]["n"]) for kind in ("right", "wrong")]
        means = [f"{mean:.2f} of {n}" if n else "none" for mean, n in cells]
        rows.append((name, *means, "-" if paid["auc"] is None else f"{paid['auc']:.2f}", str(paid["missing"])))
    return Table("Rewards of known images", ("Reward", "Right ones", "Wrong ones", "AUC", "Not read"), tuple(rows))


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


def _time(epochs: Sequence[Line]) -> Table:
    seconds = {name: sum(line.get("seconds", {}).get(part, 0.0) for line in epochs) for part, name in _PARTS.items()}
    total = sum(seconds.values()) or 1.0
    rows = tuple((name, duration(value), f"{100 * value / total:.0f} %") for name, value in seconds.items())
    return Table("Time", ("Spent on", "Time", "Share"), rows)


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
    named = [curve for curve in series if not curve.faint]
    ends = "; ".join(
        f"{curve.name or title} from {curve.points[0][1]:.3g} to {curve.points[-1][1]:.3g}" for curve in named
    )
    yield charts.chart(title, f"{ends}.", series, x, y)


# --- images -------------------------------------------------------------------------------------------------------


def _epoch(folder: Path) -> dict[str, Any]:
    scored = read_validation(folder)
    title = f"Epoch {int(folder.name.removeprefix('epoch-'))}, before update {_step(scored) + 1}"
    return _album(title, [_group(group) for group in groups_of(scored)])


def _same_prompts(validations: Sequence[Path], names: Sequence[str]) -> dict[str, Any]:
    by_id = [
        {answer.sample.ask.case.id: answer for answer in read_validation(folder) if answer.sample.drawn}
        for folder in validations
    ]
    together = [[answers[name] for answers in by_id] for name in by_id[0] if all(name in answers for answers in by_id)]
    together = together[:_PROMPTS]
    title = f"The same prompts at these moments: the first {len(together)}, chosen by their place"
    return _album(title, [_group(some, names) for some in together], side=True)


def _album(title: str, shown: Sequence[dict[str, Any]], side: bool = False) -> dict[str, Any]:
    """Groups for groups.html. What all share is said once: the prompt (of mazes), the names of the checks."""
    prompts = {group["prompt"] for group in shown}
    checks = dict.fromkeys(c["name"] for group in shown for m in group["members"] for c in m["checks"])
    prompt = prompts.pop() if len(prompts) == 1 else None
    return {"title": title, "groups": shown, "prompt": prompt, "checks": list(checks), "side": side}


def _group(scored: Sequence[Scored], titles: Sequence[str] = ()) -> dict[str, Any]:
    case = scored[0].sample.ask.case
    return {
        "id": case.id,
        "prompt": case.prompt,
        "answer": case.facts.get("answer"),
        "level": case.facts.get("level"),
        "inputs": [data_url(bytes_of(image)) for image in case.images],
        "members": [_member(answer, titles[i] if titles else "") for i, answer in enumerate(scored)],
    }


def _member(answer: Scored, title: str) -> dict[str, Any]:
    verdict, facts = answer.verdict, answer.sample.facts
    checks = () if verdict is None else verdict.checks
    rewards = dict(facts.get("rewards", ()))
    return {
        "title": title,
        "image": data_url(answer.sample.images[-1]),
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
