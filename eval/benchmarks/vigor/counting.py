"""Numbers and tables of ViGoR-Bench. A sample that failed, or that nobody could read, has 0 in every dimension.

Reasoning success and all four dimensions at once come first. The paper's mean of the four is beside them, because a
copy of the input earns half of it: FLUX.1-Kontext has a mean of 38.9 at a reasoning success of 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.benchmarks.vigor.paper import TABLE_3, TABLE_4, Five
from uni_train.eval.benchmarks.vigor.tasks import DOMAINS, MAZE, TASKS, title
from uni_train.eval.benchmarks.vigor.templates import BACKGROUND, DIMENSIONS, PROCESS, QUALITY, REASONING, RULE
from uni_train.eval.statistics import Estimate, graded_mean

Cell = str | Estimate | None
Measure = Callable[[Scored], float]


def mark(one: Scored, name: str) -> float:
    """In [0, 1]: what one dimension of a sample is worth."""
    if one.sample.status != "ok" or one.verdict is None:
        return 0.0
    checks = [check for check in one.verdict.checks if check.name == name]
    return sum(float(c.status == "pass") if c.value is None else c.value for c in checks)


def mean(one: Scored) -> float:
    """Equations 3 and 6: of the dimensions that the case has and that somebody judged."""
    names = [name for name in one.sample.ask.case.facts["dimensions"] if _has(one, name)]
    return sum(mark(one, name) for name in names) / len(names)


def _has(one: Scored, name: str) -> bool:
    """Whether a dimension counts for a sample. Programs of the published files leave visual quality out; what failed
    has none of them right."""
    if name not in one.sample.ask.case.facts["dimensions"]:
        return False
    judged = one.sample.status == "ok" and one.verdict is not None
    return not judged or any(check.name == name for check in one.verdict.checks)  # type: ignore[union-attr]


def reasoning(one: Scored) -> float:
    return mark(one, REASONING)


def all_four(one: Scored) -> float:
    """All dimensions of a result at once."""
    return float(one.passed)


def estimate(some: Sequence[Scored], measure: Measure) -> Estimate:
    """The mean; several draws of a case are one cluster."""
    ids = [one.sample.ask.case.id for one in some]
    # The mean of four marks is exact in binary, but for sums of hundredths.
    return graded_mean([min(1.0, max(0.0, measure(one))) for one in some], ids)


def scores(scored: Sequence[Scored]) -> dict[str, Any]:
    """setting -> task, domain or "overall" -> Estimate: reasoning success, of `process` the mean of its four.

    Beside the settings: "measures": setting -> (reasoning_success | all_four | mean | a dimension) -> the same names ->
    Estimate. "sizes": setting -> task -> size -> reasoning success. "draws": setting -> what varies from draw to draw.
    """
    found: dict[str, Any] = {}
    measures: dict[str, Any] = {}
    sizes: dict[str, Any] = {}
    draws: dict[str, Any] = {}
    for setting, some in _by_setting(scored).items():
        headline = mean if setting == PROCESS else reasoning
        found[setting] = {name: estimate(part, headline).to_dict() for name, part in _parts(some)}
        measures[setting] = {
            name: {part: estimate(kept, measure).to_dict() for part, inside in _parts(some)
                   if (kept := _having(inside, name))}
            for name, measure in _measures(setting)
        }  # fmt: skip
        by_size = {task: _sizes([one for one in some if _task(one) == task]) for task in TASKS}
        sizes[setting] = {
            task: {size: estimate(part, reasoning).to_dict() for size, part in groups.items()}
            for task, groups in by_size.items() if groups
        }  # fmt: skip
        if len({one.sample.ask.k for one in some}) > 1:
            draws[setting] = _draws(some)
    return {**found, "measures": measures, "sizes": sizes, "draws": draws}


def _measures(setting: str) -> Iterator[tuple[str, Measure]]:
    if setting != PROCESS:
        yield "all_four", all_four
    yield "mean", mean
    for name in DIMENSIONS:
        yield name, lambda one, name=name: mark(one, name)  # type: ignore[misc]


def _having(some: Sequence[Scored], measure: str) -> list[Scored]:
    """Samples that have this dimension."""
    return [one for one in some if measure not in DIMENSIONS or _has(one, measure)]


def _draws(some: Sequence[Scored]) -> dict[str, Any]:
    """Reasoning of each draw over all cases, and the mean over cases of its variance from draw to draw (population
    variance, as a judge's is over its three runs in Table 2)."""
    by_draw: dict[int, list[float]] = {}
    by_case: dict[str, list[float]] = {}
    for one in some:
        by_draw.setdefault(one.sample.ask.k, []).append(reasoning(one))
        by_case.setdefault(one.sample.ask.case.id, []).append(reasoning(one))
    return {
        "each": [_average(by_draw[k]) for k in sorted(by_draw)],
        "variance": _average([_average([(v - _average(of)) ** 2 for v in of]) for of in by_case.values()]),
    }


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _by_setting(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    found: dict[str, list[Scored]] = {}
    for one in scored:
        found.setdefault(one.sample.ask.setting, []).append(one)
    return found


def _parts(some: Sequence[Scored]) -> Iterator[tuple[str, list[Scored]]]:
    """Tasks, domains, and "overall": all samples alike, as the paper does not say that it averages over tasks."""
    for task in TASKS:
        if inside := [one for one in some if _task(one) == task]:
            yield task, inside
    for domain, tasks in DOMAINS.items():
        if inside := [one for one in some if _task(one) in tasks]:
            yield domain, inside
    yield "overall", list(some)


def _sizes(some: Sequence[Scored]) -> dict[str, list[Scored]]:
    found: dict[str, list[Scored]] = {}
    for one in some:
        if one.sample.ask.case.category:
            found.setdefault(one.sample.ask.case.category, []).append(one)
    return dict(sorted(found.items(), key=lambda item: [int(side) for side in item[0].split("x")]))


def _task(one: Scored) -> str:
    return one.sample.ask.case.set


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(scored: Sequence[Scored], *, published: bool, copied: Sequence[Verdict] = ()) -> list[Table]:
    """Table 3 (result, process), each task and domain, Figure 5, Table 4, and the spread over draws.

    published: the paper's own rows stand below ours. copied: verdicts of copies of the input.
    """
    by_setting = _by_setting(scored)
    results = {setting: some for setting, some in by_setting.items() if setting != PROCESS}
    found = []
    if results:
        baseline = [_copies(copied)] if copied else []
        found.append(_result_table(results, published, baseline))
        found.append(_by_task(results))
    if PROCESS in by_setting:
        found.append(_process_table(by_setting[PROCESS], published))
    found.append(_size_table(by_setting))
    mazes = {s: kept for s, some in results.items() if (kept := [one for one in some if _task(one) == MAZE])}
    if mazes and published:
        rows = tuple((setting, *_five(some)) for setting, some in mazes.items())
        paper = tuple((f"{name} in the paper", *_printed(row)) for name, row in TABLE_4.items())
        found.append(Table("Maze navigation (Table 4)", ("", *_COLUMNS), rows + paper, _NOTE))
    found.append(_draw_table(by_setting))
    return [table for table in found if table.rows]


_COLUMNS = ("Reasoning success", "All four", "Mean", "BC", "RO", "VQ")
_NOTE = (
    "BC: background consistency, RO: rule obey, VQ: visual quality. The mean of the four is the paper's Avg: "
    "a copy of the input earns half of it. The paper prints no share that passes all four."
)


def _result_table(results: Mapping[str, Sequence[Scored]], published: bool, baseline: list[tuple[Cell, ...]]) -> Table:
    rows: list[tuple[Cell, ...]] = [(setting, *_five(some)) for setting, some in results.items()]
    if published:
        baseline += [
            (f"{row.model} in the paper, {row.kind}" + (", planner" if row.planner else ""), *_printed(row.result))
            for row in TABLE_3
        ]
    return Table("Result metrics (Table 3)", ("", *_COLUMNS), tuple(rows + baseline), _NOTE)


def _five(some: Sequence[Scored]) -> tuple[Cell, ...]:
    each = tuple(_of_dimension(some, name) for name in (BACKGROUND, RULE, QUALITY))
    return (estimate(some, reasoning), estimate(some, all_four), estimate(some, mean), *each)


def _of_dimension(some: Sequence[Scored], name: str) -> Estimate | None:
    kept = _having(some, name)
    return estimate(kept, lambda one: mark(one, name)) if kept else None


def _printed(row: Five) -> tuple[Cell, ...]:
    """In the order of the columns; the mean is the printed one."""
    background, rule, quality, success, average = (f"{value / 100:.3f}" for value in row)
    return success, None, average, background, rule, quality


def _copies(copied: Sequence[Verdict]) -> tuple[Cell, ...]:
    shares = {
        name: _average([float(c.status == "pass") for v in copied for c in v.checks if c.name == name])
        for name in DIMENSIONS
    }
    average = sum(shares.values()) / len(shares)
    passed = _average([float(verdict.passed) for verdict in copied])
    cells = (shares[REASONING], passed, average, shares[BACKGROUND], shares[RULE], shares[QUALITY])
    return (f"a copy of the input ({len(copied)} mazes, by program)", *(f"{value:.3f}" for value in cells))


def _process_table(some: Sequence[Scored], published: bool) -> Table:
    def line(part: Sequence[Scored]) -> tuple[Cell, ...]:
        order = (REASONING, BACKGROUND, RULE, QUALITY)
        each = [_of_dimension(part, name) for name in order]
        return (each[0], estimate(part, mean), *each[1:])

    rows: list[tuple[Cell, ...]] = [(title(name), *line(part)) for name, part in _parts(some)]
    for row in TABLE_3 if published else ():
        if row.process is not None:
            success, _, average, *rest = _printed(row.process)
            planner = ", planner" if row.planner else ""
            rows.append((f"{row.model} in the paper, {row.kind}{planner}", success, average, *rest))
    note = "Marks from 0 to 1 (the paper: 0 to 100). RA is what the templates call Beneficial Action."
    return Table("Process metrics (Table 3)", ("", "RA", "Mean", "BC", "RO", "VQ"), tuple(rows), note)


def _by_task(results: Mapping[str, Sequence[Scored]]) -> Table:
    heads = [f"{setting}: {name}" for setting in results for name in ("reasoning success", "all four", "mean", "n")]
    parts = {setting: dict(_parts(some)) for setting, some in results.items()}
    names = [name for name in (*TASKS, *DOMAINS) if any(name in found for found in parts.values())]
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        cells: list[Cell] = []
        for found in parts.values():
            some = found.get(name, [])
            measured = [estimate(some, one) for one in (reasoning, all_four, mean)] if some else [None] * 3
            cells += [*measured, str(len(some))]
        rows.append((title(name), *cells))
    return Table("Tasks and domains", ("", *heads), tuple(rows))


def _size_table(by_setting: Mapping[str, Sequence[Scored]]) -> Table:
    groups = {
        (setting, task): _sizes([one for one in some if _task(one) == task])
        for setting, some in by_setting.items() if setting != PROCESS for task in TASKS
    }  # fmt: skip
    sizes = sorted({size for found in groups.values() for size in found}, key=lambda s: [int(n) for n in s.split("x")])
    rows = tuple(
        (setting, title(task), *(estimate(found[size], reasoning) if size in found else None for size in sizes))
        for (setting, task), found in groups.items() if found
    )  # fmt: skip
    return Table("Reasoning success by size (Figure 5)", ("Setting", "Task", *sizes), rows)


def _draw_table(by_setting: Mapping[str, Sequence[Scored]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setting, some in by_setting.items():
        if len({one.sample.ask.k for one in some}) > 1:
            found = _draws(some)
            rows.append((setting, ", ".join(f"{value:.3f}" for value in found["each"]), f"{found['variance']:.3f}"))
    note = "Reasoning of each draw over all cases. Variance: of a case from draw to draw, the mean over cases."
    return Table("From draw to draw", ("Setting", "Each draw", "Variance"), tuple(rows), note)


def fields_found(fields: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Table:
    """Which fields of records.json were read as what."""
    roles = list(dict.fromkeys(role for found in fields.values() for role in found))
    rows = tuple((title(task), *(", ".join(found.get(role, ())) or None for role in roles)) for task, found in
                 fields.items())  # fmt: skip
    note = "Field names were probed: check them against the dataset's own description."
    return Table("Fields of records.json as they were read", ("Task", *roles), rows, note)
