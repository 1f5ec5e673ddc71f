"""UniSandbox's results of STARS (Niu et al. 2025, arXiv 2511.20561), ours beside the paper's own rows.

table_2      STARS on each maths level
table_3      on each mapping level, levels 2 and 3 for three rounds, and the curriculum after each round
table_5      curriculum, mixed, and levels 2 and 3 alone for as many updates
figure_5     the filter (own understanding, none, verifier) at equal numbers of samples kept, on one level
distil_*     think-distillation beside STARS: same prompts, thoughts and updates; both also with a third of the prompts
sharpness    one round of distillation for each temperature, filter and source of states
seeds        any runs (`--run`, or folders of finished ones), compared with the first

Scores are group-bys of the samples that runs have stored.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from bench.experiment import Job, Lab, plan, stage_seconds
from bench.markdown import interval, row, table
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.registry import TASKS, set_name
from uni_train.eval import summary as run_summary
from uni_train.eval.results import Results
from uni_train.eval.scored import read_folder
from uni_train.eval.sets import counting, training_run
from uni_train.eval.sets.counting import PAPER
from uni_train.eval.sets.names import SAID
from uni_train.eval.statistics import Estimate, mean_over_seeds, proportion
from uni_train.eval.task_benchmark import LABELS

SETTINGS = {"normal": "Normal", "cot": "CoT", SAID: "Said"}
CURRICULUM = "stars_curriculum evaluation.every_round=true name=rounds"
STARS, DISTILLED = "STARS", "distilled"
PACE = 40  # updates of the short run that tells how many fill an arm's seconds
Cell = tuple[str, str]
"""Setting and set."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A row as printed: levels 1 to 3 asked both ways, and the average. None: not printed, or lost in our copy."""

    name: str
    normal: tuple[float | None, ...] = (None, None, None)
    cot: tuple[float | None, ...] = (None, None, None)
    average: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which runs stand beside which rows of the paper.

    Attributes:
        arms: label -> "RECIPE KEY=VALUE ...". against: label -> that of the arm which it is compared with.
        averaged: the settings of the last column, as the paper averages.
        variants: of its sets, asked beside them; (): the first one.
        as_long_as: the arm whose seconds of sampling, filtering and training all others get, by their number of
            updates; arms have one round each. "": each trains as its recipe says.
    """

    title: str
    task: str
    arms: Mapping[str, str]
    paper: tuple[Paper, ...] = ()
    against: Mapping[str, str] = field(default_factory=dict)
    averaged: tuple[str, ...] = ("normal", "cot")
    remarks: tuple[str, ...] = ()
    levels: tuple[int, ...] = (1, 2, 3)
    modes: tuple[str, ...] = ("normal", "cot", SAID)
    variants: tuple[str, ...] = ()
    as_long_as: str = ""

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(set_name(self.task, level) for level in self.levels)

    @property
    def beside(self) -> dict[str, tuple[str, ...]]:
        """What variants of its sets are -> those that are asked beside them."""
        every = TASKS.get(self.task).variants
        chosen = self.variants or list(every)[:1]
        return {every[name].said: tuple(set_name(self.task, n, name) for n in self.levels) for name in chosen}

    def cells(self, settings: Sequence[str], sets: Sequence[str] = ()) -> list[Cell]:
        return [(setting, name) for setting in settings if setting in self.modes for name in sets or self.sets]


# --- what runs answered ---------------------------------------------------------------------------------------------


class Run:
    """A finished run. Raises UserError where its summary or its samples are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.summary = folder, run_summary.read(folder)
        self._answers: dict[str, dict[Cell, Results]] = {}

    @property
    def labels(self) -> list[str]:
        """Of its evaluations after training, in order: round1, round2, after."""
        between = sorted(self.summary.get("after_round") or {}, key=lambda label: int(label.removeprefix("round")))
        return [*between, "after"]

    def answers(self, label: str) -> dict[Cell, Results]:
        """(setting, set) -> what was answered at this evaluation, a unit a prompt or pair."""
        if label not in self._answers:
            folders = self.folder.glob(f"stages/*-evaluate-{label}/scored")
            scored = [one for folder in folders for one in read_folder(folder, images=False)]
            if not scored:
                raise UserError(f"{self.folder} has no answers of its evaluation {label}", "Delete it to run it again.")
            self._answers[label] = counting.units(scored, LABELS[0]).by(lambda unit: (unit.setting, unit.set))
        return self._answers[label]

    def updates(self, label: str) -> int:
        """Up to this evaluation."""
        rounds = self.summary["rounds"]
        done = rounds if label == "after" else rounds[: 0 if label == "before" else int(label.removeprefix("round"))]
        return sum(int(one["updates"]) for one in done)

    @cached_property
    def results(self) -> list[dict[str, Any]]:
        """Of its stages."""
        return [json.loads(path.read_text())["result"] for path in self.folder.glob("stages/*/manifest.json")]


@dataclass(frozen=True, slots=True)
class Row:
    """Runs of one kind, a seed each, at one of their evaluations."""

    label: str
    runs: tuple[Run, ...]
    when: str

    def answers(self, cell: Cell) -> list[Results]:
        """Of every run; empty where one was not asked so. A cluster is one of this set; seeds are draws."""
        found = [run.answers(self.when).get(cell, Results(())) for run in self.runs]
        return [
            Results(replace(unit, k=seed, cluster=f"{unit.set} {unit.cluster}") for unit in some)
            for seed, some in enumerate(found if all(found) else [])
        ]

    def score(self, cells: Sequence[Cell]) -> Estimate | None:
        """The mean over cells, with an interval for other seeds and other questions; of one run, for other questions.
        None where a cell was not asked."""
        asked = [self.answers(cell) for cell in cells]
        if not all(asked):
            return None
        each = [
            Results(unit for part in some for unit in part).mean(over=lambda unit: (unit.setting, unit.set))
            for some in zip(*asked, strict=True)
        ]
        return over_seeds_and_questions(each) if len(each) > 1 else each[0]

    def share(self, cell: Cell, of: Callable[[Results], Estimate]) -> Estimate | None:
        """`of` what all runs answered together; None where one was not asked."""
        units = Results(unit for some in self.answers(cell) for unit in some)
        return of(units) if units else None


def over_seeds_and_questions(runs: Sequence[Estimate]) -> Estimate:
    """The mean of runs that were asked the same questions, with an interval for other seeds and other questions.

    Its limits are those of the t interval over seeds and of the runs' mean interval over questions, combined in
    quadrature (MOVER, Zou and Donner 2008). Questions do not average out over seeds, so this is conservative. n: seeds.
    """
    values = [run.value for run in runs if run.value is not None]
    seeds, mean = mean_over_seeds(values), math.fsum(values) / len(values)
    below, above = ([getattr(run, end) - run.value for run in runs] for end in ("low", "high"))
    low = mean - math.hypot(mean - seeds.low, math.fsum(below) / len(runs))
    high = mean + math.hypot(seeds.high - mean, math.fsum(above) / len(runs))
    return Estimate(mean, len(runs), max(low, 0.0), min(high, 1.0))


def _unreadable(some: Results) -> Estimate:
    return counting.outcome_shares(some)["unreadable"]


def rows_of(base: str, arms: Mapping[str, Sequence[Run]]) -> list[Row]:
    """What the base began with, then every arm after each of its evaluations."""
    first = next(iter(arms.values()))[0]
    found = [Row(f"{first.summary['model']}, {base}", (first,), "before")]
    for label, runs in arms.items():
        labels = runs[0].labels
        for number, when in enumerate(labels, 1):
            after = f"{label}, round {number}" if len(labels) > 1 else label
            found.append(Row(f"{base} + {after}", tuple(runs), when))
    return found


# --- the page -------------------------------------------------------------------------------------------------------


def page(lab: Lab, what: Comparison) -> Iterator[str]:
    """Plan all runs of a comparison, or of the arms whose labels --only names; its lines make them."""
    arms = {label: what.arms[label] for label in lab.arms(what.arms)}
    what = replace(what, arms=arms, against={one: b for one, b in what.against.items() if {one, b} <= set(arms)})
    bases = lab.bases or {"shipped": []}

    def planned(base: str, label: str, seeds: Sequence[int], *last: str, folder: Path = lab.runs) -> list[Job]:
        asked = f"evaluation.modes=[{','.join(what.modes)}]"
        sets = f"evaluation.sets=[{','.join((*what.sets, *chain(*what.beside.values())))}]"
        common = shlex.join([f"out={folder / base}", asked, sets, *bases[base], *lab.overrides])
        recipe, _, own = what.arms[label].partition(" ")  # it comes last: --set does not undo the comparison
        return plan(f"{recipe} {common} {own} {shlex.join(last)}", seeds)

    jobs = {(base, label): planned(base, label, lab.seeds) for base in bases for label in arms}
    if what.as_long_as and what.as_long_as not in arms:
        raise UsageError(f"--only leaves out {what.as_long_as}", "All other arms get as many seconds as it takes.")

    key = f"budget.{what.sets[0]}.updates"

    def equalise(base: str) -> None:
        """Plan the other arms for as many updates as fill the seconds of `as_long_as`, by a short run of each."""
        short = ("evaluation.n=1", f"{key}={PACE}")
        paces = {label: planned(base, label, lab.seeds[:1], *short, folder=lab.runs / "pace") for label in arms}
        lab.make(job for some in paces.values() for job in some)
        spent = {label: _seconds(job.folder) for label, (job,) in paces.items()}
        rest, training = spent[what.as_long_as]
        (round_,) = jobs[base, what.as_long_as][0].config.rounds  # type: ignore[attr-defined]
        seconds = rest + training / PACE * round_.updates
        for label, (rest, training) in spent.items():
            if label != what.as_long_as:
                updates = max(1, round((seconds - rest) / training * PACE))
                jobs[base, label] = planned(base, label, lab.seeds, f"{key}={updates}")

    def made() -> Iterator[str]:
        if what.as_long_as:
            for base in bases:
                equalise(base)
        lab.make(job for some in jobs.values() for job in some)
        runs = {key: [Run(job.folder) for job in some] for key, some in jobs.items()}
        found = {base: {label: runs[base, label] for label in what.arms} for base in bases}
        yield from lines(what, found, lab.command)

    return made()


def _seconds(run: Path) -> tuple[float, float]:
    """Of sampling and filtering, and of training."""
    stages = stage_seconds(run)
    training = math.fsum(spent for name, spent in stages.items() if re.search("-(finetune|distil|dpo)-", name))
    return math.fsum(stages.values()) - training, training


def lines(what: Comparison, found: Mapping[str, Mapping[str, Sequence[Run]]], command: str) -> Iterator[str]:
    """One page. found: base -> label of an arm -> its runs."""
    rows = {base: rows_of(base, arms) for base, arms in found.items()}
    every = [one for some in rows.values() for one in some]
    yield from (f"# {what.title}", "", f"    {command}", "", *_asked(what, every), "")
    yield from _scores(what, rows)
    for said, sets in what.beside.items():
        beside = what.cells(("normal", "cot"), sets)
        if not any(one.answers(cell) for one in every for cell in beside):
            continue
        yield from ("", f"The same models on other items: {said}.", "")
        yield from table("model", *map(column, beside))
        for one in every:
            yield row(one.label, *(_cell(one, [cell]) for cell in beside))
        yield row("best trivial strategy", *(_trivial(every[0].runs[0], name) for _, name in beside))
    yield from ("", "Answers in words at once (nothing drawn), unreadable images, pairs with one right image:", "")
    words, drawn = what.cells((SAID,)), what.cells(("normal", "cot"))
    pairs = [cell for cell in drawn if cell[1] in counting.pairs_of(what.sets)]
    heads = (*(f"unreadable, {column(cell)}" for cell in drawn), *(f"one of two, {column(cell)}" for cell in pairs))
    yield from table("model", *map(column, words), *heads)
    for one in every:
        unclear, half = ([interval(one.share(cell, of), brackets="()") for cell in some]
                         for some, of in ((drawn, _unreadable), (pairs, counting.one_of_two)))  # fmt: skip
        yield row(one.label, *(_cell(one, [cell]) for cell in words), *unclear, *half)
    for some in rows.values():
        yield from _differences(what, some)
    yield from ("", "Sampling and filter (samples are images; right: by the exact verifier) and costs:", "")
    yield from _costs(found)
    for remark in what.remarks:
        yield from ("", remark)


def column(cell: Cell) -> str:
    """("normal", "mapping2") -> "Normal M2"."""
    setting, name = cell
    name, _, beside = name.replace("mapping", "M").replace("math", "Math").partition("_")
    return f"{SETTINGS[setting]} {name}{f' {beside}' if beside else ''}"


def _asked(what: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    unit = "pairs (both right)" if what.task == "mapping" else "prompts"
    counts = []
    for name in what.sets:
        seen = {(len(some), len(some.by("cluster"))) for one in rows for some in one.answers(("normal", name))}
        counts += [f"{name} {' or '.join(f'{n} {unit}, {distinct} distinct' for n, distinct in sorted(seen))}"]
    yield f"Ours: {'; '.join(counts)}, asked in every cell of every run. The paper: 100 in a cell, BAGEL-7B-MoT."
    yield "Means over seeds; [a, b]: 95 % for other seeds and questions. (a, b): of one run, for other questions."
    yield "Questions that share an expression or a set of rules are one cluster."
    yield f"Average: mean of {'all' if len(what.averaged) > 1 else 'the Normal'} cells."


def _scores(what: Comparison, rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    cells, averaged = what.cells(("normal", "cot")), what.cells(what.averaged)
    shares = what.sets if "cot" in what.modes and what.against else ()
    extra = [f"Normal / CoT {column(('normal', name)).removeprefix('Normal ')}" for name in shares]
    yield from table("model", "seeds", "updates", *map(column, cells), "Average", "change", *extra)
    blank = [""] * len(extra)
    base = what.paper[0].average if what.paper and what.paper[0].name == "BAGEL" else None
    for paper in what.paper:
        gain = None if None in (base, paper.average) or paper is what.paper[0] else paper.average - base
        printed = map(_bare, (*paper.normal, *paper.cot, paper.average))
        yield row(f"paper: {paper.name}", "", "", *printed, _bare(gain, "+.2f", ""), *blank)
    for some in rows.values():
        first = some[0].score(averaged)
        for one in some:
            average = one.score(averaged)
            gain = average.value - first.value if average and first and one.when != "before" else None
            updates = " or ".join(map(str, sorted({run.updates(one.when) for run in one.runs})))
            seeds = "" if one.when == "before" else len(one.runs)
            means = [[s.value for s in (one.score([(way, name)]) for way in ("normal", "cot")) if s] for name in shares]
            ratios = [f"{pair[0] / pair[1]:.2f}" if len(pair) == 2 and pair[1] else "-" for pair in means]
            shown = (_cell(one, some) for some in (*([cell] for cell in cells), averaged))
            yield row(one.label, seeds, updates, *shown, _bare(gain, "+.2f", ""), *ratios)
    run = next(iter(rows.values()))[0].runs[0]
    chance = (run.summary.get("chance") or {}).get(what.task)
    trivial = [_trivial(run, name) for _, name in cells]
    if chance is not None:
        yield row("chance", "", "", *[_bare(chance)] * len(cells), _bare(chance), "", *blank)
    if any(trivial):
        yield row("best trivial strategy", "", "", *trivial, "", "", *blank)


def _trivial(run: Run, name: str) -> str:
    """The best strategy on a set that is not the task itself; "" in an older summary."""
    best = training_run.trivial(run.summary, name)
    return "" if best is None else f"{_bare(best.estimate.value)} ({best.name})"


def _cell(one: Row, cells: Sequence[Cell]) -> str:
    """0.62 [0.55, 0.69], of one run 0.62 (0.58, 0.66)."""
    return interval(one.score(cells), brackets="[]" if len(one.runs) > 1 else "()")


def _bare(value: float | None, form: str = ".2f", nothing: str = "-") -> str:
    return nothing if value is None else f"{value:{form}}"


def _differences(what: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    """After the last update, of each arm and the one that it is compared with."""
    last = {one.label.partition(" + ")[2].partition(", round ")[0]: one for one in rows if one.when == "after"}
    cells = what.cells(("normal", "cot"))
    if not what.against:
        return
    yield from ("", "Differences, paired by seed [t interval] and question (a, b):", "")
    yield from table("minus", *map(column, cells))
    for label, rival in what.against.items():
        unequal = "" if _updates(last[label]) == _updates(last[rival]) else " (unequal updates)"
        yield row(f"{label} - {rival}{unequal}", *(difference(last[label], last[rival], cell) for cell in cells))


def _updates(one: Row) -> set[int]:
    return {run.updates(one.when) for run in one.runs}


def difference(one: Row, rival: Row, cell: Cell) -> str:
    """Of the seeds that both have; "-" where there is none, or where a run was not asked."""
    by_seed = [
        {run.summary.get("seed", number): some for number, (run, some) in enumerate(zip(arm.runs, asked, strict=True))}
        for arm in (one, rival)
        if (asked := arm.answers(cell))
    ]
    if len(by_seed) < 2:
        return "-"
    seeds = [seed for seed in by_seed[0] if seed in by_seed[1]]
    after, before = (
        [Results(replace(unit, k=seed) for unit in arm[seed]) for seed in seeds] for arm in by_seed
    )  # a seed is the same draw in both
    if not seeds:
        return "-"
    gaps = [a.mean().value - b.mean().value for a, b in zip(after, before, strict=True)]
    joined = [Results(unit for some in arm for unit in some) for arm in (after, before)]
    found, over = joined[0].minus(joined[1]), mean_over_seeds(gaps, (-1, 1))
    spread = interval(over, "+.2f") if over.n > 1 else f"{over.value:+.2f}"
    return f"{spread} ({found.difference.low:+.2f}, {found.difference.high:+.2f})" if found else spread


def _costs(found: Mapping[str, Mapping[str, Sequence[Run]]]) -> Iterator[str]:
    """Means over seeds. Minutes of sampling, filtering and training, and of everything."""
    calls = ("thoughts", "answers", "images", "velocities", "rollout")
    heads = ("sampled", "of them right", "kept", "of the kept right", "trained on", "spread of thoughts", *calls)
    yield from table("runs", "seeds", *heads, "minutes", "in all", "peak GB, largest")
    for base, arms in found.items():
        for label, runs in arms.items():
            counts = [_mean(runs, lambda one, key=key: one["calls"].get(key, 0)) for key in calls]  # type: ignore[misc]
            sampled, kept = (_mean(runs, lambda one, key=key: one[key]) for key in ("sampled", "kept"))  # type: ignore[misc]
            right = _mean(runs, lambda one: (one.get("recall_estimate") or {"n": 0})["n"])
            hits = _mean(runs, lambda one: (one["precision"] or 0.0) * one["kept"])
            used = sum(one.get("used", 0) for run in runs for one in run.results) / len(runs)
            measured = any(one.get("recall_estimate") for run in runs for one in run.summary["rounds"])
            spread = [one["spread"] for run in runs for one in run.results if "spread" in one]
            yield row(
                *(
                    f"{base} + {label}",
                    len(runs),
                    f"{sampled:.0f}",
                    _bare(right / sampled if sampled and measured else None),
                ),
                *(f"{kept:.0f}", _bare(hits / kept if kept and measured else None), f"{used:.0f}"),
                _bare(sum(spread) / len(spread) if spread else None),
                *(f"{count:.0f}" for count in counts),
                f"{_mean(runs, lambda one: one['seconds']) / 60:.1f}",
                f"{sum(run.summary['wall_seconds'] for run in runs) / len(runs) / 60:.1f}",
                f"{max(run.summary['peak_rss_bytes'] for run in runs) / 1e9:.2f}",
            )


def _mean(runs: Sequence[Run], value: Callable[[dict[str, Any]], float]) -> float:
    """Over runs, of the sum over a run's rounds."""
    return math.fsum(value({"calls": {}, **one}) for run in runs for one in run.summary["rounds"]) / len(runs)


# --- the paper's tables ---------------------------------------------------------------------------------------------


def printed(table: str, *names: str) -> tuple[Paper, ...]:
    """The rows of a table of the paper that have these names; all without names."""
    found = {}
    for one in PAPER[table]:
        normal, cot = (tuple(float(one[f"{setting} {level}"]) for level in (1, 2, 3)) for setting in ("normal", "cot"))
        found[one["model"]] = Paper(one["model"], normal, cot, float(one["average"]))
    return tuple(found[name] for name in names or found)


# Our copy of Table 3 has lost one of seven numbers in each row "on M2" and "on M3": where six accuracies are left, the
# average; where the average is left, CoT M2 or M3, so neither can be told.
LOST = (
    "Table 3 of our copy of the paper lacks a cell in each row on M2 and M3. CoT M2 or M3 was 0.18 (M2, round 1), "
    "0.00 (M2, round 3), 0.23 (M3, round 1); the other one is lost. The averages of rounds 2 are lost too; the text "
    "gives 0.18 for the last row."
)
# "BAGEL + STARS on M1" and round 1 of the curriculum are the same training and have the same numbers.
SINGLE_LEVELS = (
    Paper("BAGEL + STARS on M1", (0.69, 0.10, 0.10), (0.66, 0.39, 0.38), 0.39),
    Paper("BAGEL + STARS on M2, round 1", (0.04, 0.05, 0.04), (0.70, None, None), 0.19),
    Paper("BAGEL + STARS on M2, round 2", (0.02, 0.09, 0.05), (0.39, 0.18, 0.09), None),
    Paper("BAGEL + STARS on M2, round 3", (0.04, 0.00, 0.00), (0.63, None, None), 0.11),
    Paper("BAGEL + STARS on M3, round 1", (0.11, 0.06, 0.01), (0.72, None, None), 0.24),
    Paper("BAGEL + STARS on M3, round 2", (0.01, 0.05, 0.02), (0.63, 0.25, 0.17), None),
    Paper("BAGEL + STARS on M3, round 3", (0.02, 0.05, 0.02), (0.59, 0.23, 0.16), 0.18),
)
FIGURE_5 = tuple(
    Paper(f"BAGEL + STARS on Math3, {name} (section B.1)", average=average)
    for name, average in (("unfiltered", 0.16), ("filtered", 0.23))
)


def _rounds(task: str, *levels: int, replay: Sequence[str] = ("pretrain",)) -> str:
    """`rounds=...` of a recipe: a round a level, with the recipe's shares of what is replayed."""
    shares = ", ".join(f"{name}: '${{{name}_replay}}'" for name in replay)
    return f"rounds=[{', '.join(f'{{task: {task}, level: {level}, replay: {{{shares}}}}}' for level in levels)}]"


def one_round(task: str, level: int) -> str:
    """`rounds=...` of one level, quoted for a line."""
    return shlex.quote(_rounds(task, level))


def table_2(lab: Lab) -> Iterator[str]:
    """Beside the paper's three models one of all levels, mixed: as many updates as theirs together."""
    arms = {f"STARS on Math{level}": f"stars_math level={level}" for level in (1, 2, 3)}
    mixed = shlex.quote(_rounds("maths", 1, 2, 3, replay=("pretrain", "thoughts")))
    arms["STARS on all levels"] = f"stars_math {mixed} schedule.kind=mixed name=mixed"
    paper = printed("Table 2")
    return page(lab, Comparison("Table 2: STARS on maths", "maths", arms, paper, variants=("seen", "balanced")))


def table_3(lab: Lab) -> Iterator[str]:
    arms = {
        "STARS on M1": "stars_mapping level=1",
        "STARS on M2": "stars_mapping_rounds level=2",
        "STARS on M3": "stars_mapping_rounds level=3",
        "STARS with CL": CURRICULUM,
    }
    curriculum = printed("Table 3", *(f"BAGEL + STARS with CL, round {number}" for number in (1, 2, 3)))
    rows = (*printed("Table 3", "BAGEL"), *SINGLE_LEVELS, *curriculum)
    title = "Table 3: STARS on symbolic mapping, level by level and as a curriculum"
    return page(lab, Comparison(title, "mapping", arms, rows, remarks=(LOST,)))


def table_5(lab: Lab) -> Iterator[str]:
    rounds = compose("stars_curriculum", list(lab.overrides)).rounds
    unit = "epochs" if rounds[-1].epochs else "updates"  # levels have equally many samples where epochs count
    total = sum(getattr(one, unit) for one in rounds)
    arms = {
        "STARS with CL": CURRICULUM,
        "STARS with Mix": "stars_mixed",
    }
    for n in (2, 3):  # as the mixture, but for the levels: equal noise draws and rates
        line = f"stars_mixed {one_round('mapping', n)} budget.mapping{n}.{unit}={total:g} name=long{n}"
        arms[f"STARS on M{n} alone"] = line
    rows = printed("Table 3", "BAGEL", "BAGEL + STARS with CL, round 3", "BAGEL + STARS with Mix")
    title = f"Table 5: curriculum, all levels mixed, and one level alone for as many {unit}"
    return page(lab, Comparison(title, "mapping", arms, rows))


def figure_5(lab: Lab, task: str = "maths", level: int = 3, temperature: float | None = None) -> Iterator[str]:
    """temperature: of the thoughts that are learned from, the higher, the more of them are wrong; None: the model's."""
    heat = "null" if temperature is None else f"{temperature:g}"
    filters = {"none": "no filter", "self": "its own understanding", "verifier": "the exact verifier"}
    recipe, set_ = {"maths": "stars_math", "mapping": "stars_mapping"}[task], set_name(task, level)
    kept = compose(recipe, [f"level={level}", *lab.overrides]).rounds[0].prompts // 3
    line = f"{recipe} level={level} temperature={heat} budget.{set_}.kept={kept}"
    name = f"level{level}-{heat}"
    label = f"STARS on {TASKS.get(task).short}{level} (filter: {{}})".format
    arms = {label(said): f"{line} filter={key} name={name}-{key}" for key, said in filters.items()}
    against = {label(said): label("no filter") for said in list(filters.values())[1:]}
    title = f"Figure 5: rejection sampling on {task} of level {level}, at equal numbers of samples kept"
    paper = FIGURE_5 if task == "maths" else ()
    return page(lab, Comparison(title, task, arms, paper, against, ("normal",)))


# --- think-distillation ---------------------------------------------------------------------------------------------

DISTIL = "Think-distillation beside STARS"


def distil_mapping(lab: Lab) -> Iterator[str]:
    rounds = compose("distil_curriculum", list(lab.overrides)).rounds
    fewer = " ".join(f"budget.{one.set_name}.prompts={one.prompts // 6 * 2}" for one in rounds)  # a pair is two prompts
    recipes, third = {STARS: "stars_curriculum", DISTILLED: "distil_curriculum"}, " (a third of the prompts)"
    arms = {
        way + part: f"{recipe} evaluation.every_round=true {how}"
        for part, how in {"": "name=rounds", third: f"{fewer} name=third"}.items()
        for way, recipe in recipes.items()
    }
    against = {DISTILLED: STARS, STARS + third: STARS, DISTILLED + third: STARS + third}
    return page(lab, Comparison(f"{DISTIL}: the curriculum on mapping", "mapping", arms, against=against))


def distil_maths(lab: Lab) -> Iterator[str]:
    recipes = {STARS: "stars_math", DISTILLED: "distil_math"}
    arms = {f"{way} on Math{n}": f"{recipe} level={n}" for n in (1, 2, 3) for way, recipe in recipes.items()}
    against = {f"{DISTILLED} on Math{n}": f"{STARS} on Math{n}" for n in (1, 2, 3)}
    return page(lab, Comparison(f"{DISTIL}: maths, each level alone", "maths", arms, against=against))


def distil_speed(lab: Lab) -> Iterator[str]:
    one_link = f"distil_curriculum {one_round('mapping', 1)}"
    arms = {
        f"{way} ({updates} updates)": f"{line} budget.mapping1.updates={updates} name=m1-{updates}"
        for updates in (25, 50, 100)
        for way, line in {STARS: "stars_mapping level=1", DISTILLED: one_link}.items()
    }
    against = {label: label.replace(DISTILLED, STARS) for label in arms if label.startswith(DISTILLED)}
    title = f"{DISTIL}: one link, after few updates"
    return page(lab, Comparison(title, "mapping", arms, against=against, levels=(1,), modes=("normal",)))


def sharpness(
    lab: Lab,
    task: str = "maths",
    level: int = 3,
    temperatures: str = "0,1",
    filters: str = "none,agreement",
    states: str = "teacher,student",
) -> Iterator[str]:
    """Whether thoughts that disagree blur what is learned from them. A blur is an image that cannot be read."""
    arms = {}
    for temperature in map(float, temperatures.split(",")):
        for name in filters.split(",") if temperature else ["none"]:
            drawn = f"candidates=4 temperature={temperature}" if temperature else ""
            for state in states.split(","):
                about = f"level={level} {one_round(task, level)} filter={name} states={state} {drawn}"
                label = f"t{temperature:g}-{name}-{state}"
                arms[label] = f"distil_math {about} name={label}"
    title = "Thoughts that disagree: spread of conclusions, and images that cannot be read"
    return page(lab, Comparison(title, task, arms, levels=(level,), modes=("normal",)))


# --- any runs -------------------------------------------------------------------------------------------------------


def seeds(lab: Lab, counts: Path | None = None) -> Iterator[str]:
    """Runs of one recipe whose names differ in the seed alone are one row. counts: a CSV with cell, questions, right of
    each seed, instead of runs."""
    jobs = [job for line in lab.lines for job in plan(line, lab.seeds)]
    if counts is not None:
        return counted(counts)

    def made() -> Iterator[str]:
        lab.make(jobs)
        groups = grouped([*lab.folders, *(job.folder for job in jobs)])
        first, *others = groups
        asked = next(iter(groups.values()))[0].answers("after")
        for task in ("mapping", "maths"):
            if ("normal", set_name(task, 1)) in asked:
                modes = tuple(mode for mode in SETTINGS if (mode, set_name(task, 1)) in asked)
                levels = tuple(n for n in TASKS.get(task).sets if ("normal", set_name(task, n)) in asked)
                what = Comparison(
                    TASKS.get(task).title, task, {}, against=dict.fromkeys(others, first), levels=levels, modes=modes,
                    variants=tuple(TASKS.get(task).variants),
                )  # fmt: skip
                yield from lines(what, {"shipped": groups}, lab.command)

    return made()


def grouped(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """Runs by recipe and variant, in the order of folders. Raises UserError: two runs of one recipe and seed."""
    found: dict[str, dict[int, Run]] = {}
    for folder in folders:
        run = Run(folder)
        variant = re.sub(r"-?seed\d+", "", folder.resolve().name).strip("-")
        label, seed = f"{run.summary['recipe']} {variant}".strip(), run.summary["seed"]
        if seed in found.setdefault(label, {}):
            raise UserError(f"{folder} is a second run of {label} with seed {seed}", "Give one of them.")
        found[label][seed] = run
    return {label: [runs[seed] for seed in sorted(runs)] for label, runs in found.items()}


def counted(path: Path) -> Iterator[str]:
    """The row of cells whose numbers of right answers, a seed each, are in a CSV file."""
    with path.open(encoding="utf-8", newline="") as stream:
        header, *cells = csv.reader(stream)
    yield from table("", *(cell for cell, *_ in cells))
    runs = [[proportion(int(right), int(questions)) for right in right_of] for _, questions, *right_of in cells]
    yield row(f"{len(header) - 2} seeds", *(interval(over_seeds_and_questions(each)) for each in runs))
