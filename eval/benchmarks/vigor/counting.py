"""Numbers and tables of ViGoR-Bench. A sample that failed, or that nobody could read, has 0 in every dimension.

Reasoning success and all dimensions at once come first. The paper's mean of the four is beside them, because a
copy of the input earns half of it: FLUX.1-Kontext has a mean of 38.9 at a reasoning success of 1.6. It is of samples
that all have visual quality. Programs of puzzles and of the published files leave that out, so their mean of the other
three is a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

from uni_train.data_gen.task import Verdict
from uni_train.eval import paper
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks.vigor.cases import DOMAINS, MAZE, TASKS, Fields, title
from uni_train.eval.benchmarks.vigor.prompts import BACKGROUND, DIMENSIONS, PROCESS, QUALITY, REASONING, RULE
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Cell, Results
from uni_train.eval.statistics import Estimate

PAPER = paper.printed(Path(__file__))  # table -> rows of paper.csv
# Tasks, domains, and all samples alike, as the paper does not say that it averages over tasks.
GROUPS = {**{task: (task,) for task in TASKS}, **DOMAINS, "overall": TASKS}
Measure = Callable[[Scored], float | None]
_THREE = [name for name in DIMENSIONS if name != QUALITY]


def mark(answer: Scored, name: str) -> float:
    """In [0, 1]: what one dimension of a sample is worth."""
    if answer.sample.status != "ok" or answer.verdict is None:
        return 0.0
    checks = [check for check in answer.verdict.checks if check.name == name]
    return sum(float(c.status == "pass") if c.value is None else c.value for c in checks)


def mean(answer: Scored) -> float:
    """Equations 3 and 6: of the dimensions that the case has and that somebody judged."""
    return _mean(answer, [name for name in answer.sample.ask.case.facts["dimensions"] if _has(answer, name)])


def mean_of_four(answer: Scored) -> float | None:
    """Equations 3 and 6 as the paper has them; None where a dimension was judged by nobody."""
    return mean(answer) if all(_has(answer, name) for name in DIMENSIONS) else None


def mean_without_quality(answer: Scored) -> float:
    """Of the dimensions that programs decide: those of the case but for visual quality."""
    return _mean(answer, [name for name in answer.sample.ask.case.facts["dimensions"] if name != QUALITY])


def _mean(answer: Scored, names: Sequence[str]) -> float:
    # The mean of four marks is exact in binary, but for sums of hundredths.
    return min(1.0, sum(mark(answer, name) for name in names) / len(names))


def _has(answer: Scored, name: str) -> bool:
    """Whether a dimension counts for a sample. Programs of the published files leave visual quality out; what failed
    has none of them right."""
    if name not in answer.sample.ask.case.facts["dimensions"]:
        return False
    judged = answer.sample.status == "ok" and answer.verdict is not None
    return not judged or any(check.name == name for check in answer.verdict.checks)  # type: ignore[union-attr]


def reasoning(answer: Scored) -> float:
    return mark(answer, REASONING)


def all_dimensions(answer: Scored) -> float:
    """All dimensions of a result at once, that it has and that somebody judged."""
    return float(answer.passed)


def dimension(name: str, answer: Scored) -> float | None:
    """`mark`, or None where the sample does not have the dimension."""
    return mark(answer, name) if _has(answer, name) else None


MEASURES: dict[str, Measure] = {
    "all_dimensions": all_dimensions, "mean_of_four": mean_of_four, "mean_without_quality": mean_without_quality,
    **{name: partial(dimension, name) for name in DIMENSIONS},
}  # fmt: skip


def estimate(some: Results, measure: Measure) -> Estimate | None:
    """The mean over the samples that have it; several draws of a case are one cluster. That of four only where all have
    it: else it would be the mean of a part, in the place of all."""
    known = some.measured(measure)
    if not known or (measure is mean_of_four and len(known) < len(some)):
        return None
    return known.mean()


def details(results: Results) -> dict[str, Any]:
    """ "measures": setting -> (all_dimensions | mean_of_four | mean_without_quality | a dimension) -> task, domain or
    "overall" -> Estimate. "sizes": setting -> task -> size -> reasoning success. "draws": setting -> what varies from
    draw to draw.
    """
    settings = results.by("setting")
    details: dict[str, Any] = {"measures": {}, "sizes": {}}
    for setting, some in settings.items():
        parts = some.groups(GROUPS)
        details["measures"][setting] = {
            name: {n: value for n, part in parts.items() if (value := estimate(part, measure)) is not None}
            for name, measure in MEASURES.items()
            if (name, setting) != ("all_dimensions", PROCESS)
        }
        by_size = {task: _sizes(part) for task, part in some.by("set", TASKS).items()}
        details["sizes"][setting] = {
            task: {size: estimate(part, reasoning) for size, part in of.items()} for task, of in by_size.items() if of
        }
    return details | {"draws": {setting: _draws(some) for setting, some in _repeated(settings).items()}}


def _repeated(settings: Mapping[str, Results]) -> dict[str, Results]:
    return {setting: some for setting, some in settings.items() if len(some.by("k")) > 1}


def _draws(some: Results) -> dict[str, Any]:
    """Reasoning of each draw over all cases, and the mean over cases of its variance from draw to draw (population
    variance, as a judge's is over its three runs in Table 2)."""
    by_draw, by_case = some.by("k"), some.by("name")
    return {
        "each": [fmean(map(reasoning, by_draw[k].scored)) for k in sorted(by_draw)],
        "variance": fmean(pvariance(list(map(reasoning, of.scored))) for of in by_case.values()),
    }


def _sizes(some: Results) -> dict[str, Results]:
    by_size = some.by(lambda unit: unit.case.category)
    return {size: by_size[size] for size in sorted(filter(None, by_size), key=_sides)}


def _sides(size: str) -> list[int]:
    return [int(side) for side in size.split("x")]


# --- tables -----------------------------------------------------------------------------------------------------------


def specs(
    units: Results, printed: paper.Paper | None, copied: Sequence[Verdict], fields: Fields
) -> Iterable[TableSpec]:
    """Table 3 (result, process), each task and domain, Figure 5, Table 4, the spread over draws, and the fields read.

    copied: verdicts of copies of the input. fields: of published files.
    """
    settings = units.by("setting")
    results = {setting: some for setting, some in settings.items() if setting != PROCESS}
    process = settings.get(PROCESS, Results(())).groups(GROUPS)
    mazes = {setting: part for setting, some in results.items() if (part := some.where(lambda unit: unit.set == MAZE))}
    models = [{**row, "kind": row["kind"] + (", planner" if row["planner"] else "")} for row in PAPER["Table 3"]]
    label = "{model} in the paper, {kind}"
    copies = [_copies(copied)] if copied and results else []
    yield TableSpec("Result metrics (Table 3)", RESULT, results, paper=models, label=label, below=copies, note=_NOTE)
    yield _by_task(results)
    note = "Marks from 0 to 1 (the paper: 0 to 100). RA is what the templates call Beneficial Action."
    yield TableSpec(
        "Process metrics (Table 3)", STEPS, process, names={name: title(name) for name in GROUPS}, label=label,
        paper=[row for row in models if row["process mean"]], first="Task", note=note,
    )  # fmt: skip
    yield _by_size(results)
    yield TableSpec("Maze navigation (Table 4)", RESULT, mazes if printed else {}, paper="Table 4", note=_NOTE)
    note = "Reasoning of each draw over all cases. Variance: of a case from draw to draw, the mean over cases."
    yield TableSpec("From draw to draw", DRAWS, _repeated(settings), note=note)
    yield _fields_read(fields)


def _column(head: str, measure: Measure, printed: str = "") -> Column:
    return Column(head, lambda some: estimate(some, measure), printed)


_LOOKS = {"BC": BACKGROUND, "RO": RULE, "VQ": QUALITY}
_MEANS = (_column("Mean of four", mean_of_four, "mean"), _column("Mean without VQ", mean_without_quality))
RESULT = [
    _column("Reasoning success", reasoning, REASONING), _column("All dimensions", all_dimensions), *_MEANS,
    *(_column(head, MEASURES[name], name) for head, name in _LOOKS.items()),
]  # fmt: skip
STEPS = [
    _column("RA", MEASURES[REASONING], f"process {REASONING}"), _column("Mean of four", mean_of_four, "process mean"),
    _MEANS[1],
    *(_column(head, MEASURES[name], f"process {name}") for head, name in _LOOKS.items()),
]  # fmt: skip
DRAWS = [
    Column("Each draw", lambda some: ", ".join(f"{value:.3f}" for value in _draws(some)["each"])),
    Column("Variance", lambda some: f"{_draws(some)['variance']:.3f}"),
]
_NOTE = (
    "BC: background consistency, RO: rule obey, VQ: visual quality. The mean of the four is the paper's Avg: "
    "a copy of the input earns half of it. Where programs leave VQ out, options.vigor.visual_quality=judge gives it. "
    "All dimensions: those that were judged; the paper prints no such share."
)


def _copies(copied: Sequence[Verdict]) -> tuple[Cell, ...]:
    shares = {
        name: fmean([float(c.status == "pass") for v in copied for c in v.checks if c.name == name])
        for name in DIMENSIONS
    }
    means = (fmean(share for name, share in shares.items() if name in names) for names in (DIMENSIONS, _THREE))
    passed = fmean([float(verdict.passed) for verdict in copied])
    cells = (shares[REASONING], passed, *means, shares[BACKGROUND], shares[RULE], shares[QUALITY])
    return (f"a copy of the input ({len(copied)} mazes, by program)", *(f"{value:.3f}" for value in cells))


def _by_task(results: Mapping[str, Results]) -> TableSpec:
    groups = Results(unit for some in results.values() for unit in some).groups(GROUPS)
    columns = []
    for setting in results:
        for head, score in (
            *((column.head, column.score) for column in RESULT[:4]),
            ("n", lambda some: str(len(some))),
        ):

            def of_setting(some: Results, setting: str = setting, score: Callable[[Results], Cell] = score) -> Cell:
                return score(some.where(lambda unit: unit.setting == setting))

            columns.append(Column(f"{setting}: {head[:1].lower()}{head[1:]}", of_setting))
    names = {name: title(name) for name in groups}
    return TableSpec(
        "Tasks and domains", columns, {k: v for k, v in groups.items() if k != "overall"}, names=names, first="Task"
    )


def _by_size(results: Mapping[str, Results]) -> TableSpec:
    rows = {(setting, task): {"task": title(task), **by_size}
            for setting, some in results.items() for task, part in some.by("set", TASKS).items()
            if (by_size := _sizes(part))}  # fmt: skip
    sizes = sorted({size for row in rows.values() for size in row} - {"task"}, key=_sides)
    columns = [
        Column("Task", itemgetter("task")),
        *(Column(size, lambda row, size=size: estimate(row.get(size, Results(())), reasoning))  # type: ignore[misc]
          for size in sizes),
    ]  # fmt: skip
    names = {(setting, task): setting for setting, task in rows}
    note = "The longer side of grids; of puzzles of our own, the level."
    return TableSpec("Reasoning success by size (Figure 5)", columns, rows, names=names, note=note)


def _fields_read(fields: Fields) -> TableSpec:
    roles = dict.fromkeys(role for by_role in fields.values() for role in by_role)
    columns = [Column(role, lambda by_role, role=role: ", ".join(by_role.get(role, ())) or None) for role in roles]  # type: ignore[misc]
    note = "Field names were probed: check them against the dataset's own description."
    return TableSpec(
        "Fields of records.json as they were read", columns, fields, names={task: title(task) for task in fields},
        first="Task", note=note,
    )  # fmt: skip
