"""Several evaluations beside each other: one row a model, one column a setting of a benchmark.

    board = leaderboard([Path("evals/one"), Path("evals/two")])
    board.cells          scores with their intervals, each compared with the best of its column
    board.by_complexity  scores by level, by size of a grid
    board.tables         the papers' tables with the rows of all models

A score is the headline of a paper's own table (`Benchmark.metrics`), counted from `Benchmark.units`. A model is
marked as equal to the best where the 95 % interval of their paired difference holds zero. Each is compared with the
best alone, and the intervals are not widened for the number of comparisons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from uni_train.core.errors import UserError
from uni_train.core.files import below
from uni_train.eval.benchmark import BENCHMARKS, Table
from uni_train.eval.evaluation import ASKED, Evaluation, counting, load
from uni_train.eval.results import PAPER, Metric, Results, printed
from uni_train.eval.statistics import Estimate, PairedComparison
from uni_train.eval.submission import file_name, write_submission

Mark = Literal["best", "equal", "below", ""]
"""Against the best of a column on the same questions; "": no other was asked these."""


@dataclass(frozen=True, slots=True)
class Column:
    """A setting of a benchmark. label: under which labels it is counted; part: which of `Benchmark.metrics`; each ""
    where there is one kind."""

    benchmark: str
    setting: str
    label: str = ""
    part: str = ""

    def __str__(self) -> str:
        named = (self.benchmark, self.setting, self.label and f"{self.label} labels", self.part)
        return ", ".join(filter(None, named))

    @property
    def metric(self) -> Metric:
        return BENCHMARKS.get(self.benchmark).metrics()[self.part]


@dataclass(frozen=True, slots=True)
class Cell:
    """A score. best: the comparison with the best of the column (this one minus that one), where it was paired."""

    estimate: Estimate
    mark: Mark = ""
    best: PairedComparison | None = None


@dataclass(frozen=True, slots=True)
class Complexity:
    """How scores fall with complexity: model -> x -> score. title: of what (`Benchmark.complexity`)."""

    column: Column
    title: str
    lines: Mapping[str, Mapping[float, Estimate]]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """evaluations: by the name of their row. tables: benchmark -> its paper's tables. notes: what else to know. by_set:
    of columns of which a radar is drawn, name -> set -> score, with the same sets of all names."""

    evaluations: Mapping[str, Evaluation]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, Column], Cell]
    by_complexity: tuple[Complexity, ...]
    tables: Mapping[str, tuple[Table, ...]]
    notes: tuple[str, ...]
    by_set: Mapping[Column, Mapping[str, Mapping[str, Estimate | None]]] = field(default_factory=dict)

    def rows(self) -> Iterator[dict[str, Any]]:
        """For a CSV file: one row a cell."""
        for (name, column), cell in self.cells.items():
            estimate, best = cell.estimate, cell.best
            gap = best and best.difference
            yield {
                "model": name, "benchmark": column.benchmark, "setting": column.setting, "labels": column.label,
                "part": column.part,
                "score": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n,
                "against_best": cell.mark,
                "difference": gap and gap.value, "difference_low": gap and gap.low, "difference_high": gap and gap.high,
                "p": best and best.p_value,
                "questions": self.evaluations[name].results[column.benchmark].questions,
                "folder": str(self.evaluations[name].folder),
            }  # fmt: skip

    def table(self) -> Table:
        """A row a score, a column an evaluation."""
        rows = [
            (str(column), *(_shown(self.cells.get((name, column))) for name in self.evaluations))
            for column in self.columns
        ]
        title = "Leaderboard: * best of those in its row that were asked the same, ≈ not to be told from it"
        return Table(title, ("Score", *self.evaluations), tuple(rows))

    def submit(self, folder: Path) -> Iterator[tuple[Path, int]]:
        """Write the answers for the benchmarks' own code. Yields each folder and its number of files.

        Raises:
            UserError: whatever `write_submission` raises.
        """
        for name, evaluation in self.evaluations.items():
            for benchmark in evaluation.results:
                place = below(folder, f"{file_name(name)}/{benchmark}")
                files = BENCHMARKS.get(benchmark).submission(evaluation.scored(benchmark))
                with counting(evaluation.folder, benchmark):
                    yield place, write_submission(place, files)


def _shown(cell: Cell | None) -> str:
    if cell is None or cell.estimate.value is None:
        return "–"
    mark = {"best": " *", "equal": " ≈"}.get(cell.mark, "")
    return f"{cell.estimate.value:.2f} ({cell.estimate.low:.2f}–{cell.estimate.high:.2f}){mark}"


def leaderboard(folders: Sequence[Path | str]) -> Leaderboard:
    """Read finished evaluations, FOLDER or NAME=FOLDER, and count them.

    Raises:
        UserError: a folder holds none or is given twice, none has a score, or two have one name. DamagedShard: a file
            of samples is not what was written.
    """
    evaluations = _named(folders)
    results = {
        (name, column): counted
        for name, evaluation in evaluations.items()
        for benchmark in evaluation.results
        for column, counted in columns_of(evaluation, benchmark)
    }
    if not results:
        raise UserError(f"no score in {', '.join(evaluations)}", "`eval` with judge.model=MODEL judges what is drawn.")
    columns = tuple(sorted({column for _, column in results}, key=lambda c: _place(c, evaluations)))
    by_column = {
        column: {name: results[name, column] for name in evaluations if (name, column) in results} for column in columns
    }
    cells: dict[tuple[str, Column], Cell] = {}
    for column, counted in by_column.items():
        cells |= _column(counted, column, evaluations)
    names = list(dict.fromkeys(benchmark for evaluation in evaluations.values() for benchmark in evaluation.results))
    return Leaderboard(
        evaluations,
        columns,
        cells,
        tuple(chart for column, counted in by_column.items() for chart in _charts(column, counted, evaluations)),
        {benchmark: tuple(_merged(benchmark, evaluations)) for benchmark in names},
        tuple(_notes(evaluations)),
        {column: by_set for column, counted in by_column.items() if (by_set := _by_set(column, counted, evaluations))},
    )


def _named(folders: Sequence[Path | str]) -> dict[str, Evaluation]:
    """By the given names (NAME=FOLDER), else by the model's, or where these are equal the folder's; evals/*/ names the
    store too, which is passed over."""
    given = [_given(str(folder)) for folder in folders]
    given = [entry for entry in given if entry[1].name != "store" or (entry[1] / ASKED).exists()] or given
    loaded = [load(folder) for _, folder in given]
    twice = [folder for folder, n in Counter(evaluation.folder.resolve() for evaluation in loaded).items() if n > 1]
    if twice:
        raise UserError(f"{twice[0]} is given twice", "Give each evaluation once.")
    models = [evaluation.model for evaluation in loaded]
    names = [name or (model if models.count(model) == 1 else entry.folder.name)
             for (name, _), model, entry in zip(given, models, loaded, strict=True)]  # fmt: skip
    if len(set(names)) < len(names):
        same = next(name for name in names if names.count(name) > 1)
        raise UserError(f"two evaluations are called {same}", "Name them: before=evals/one after=evals/two.")
    return dict(zip(names, loaded, strict=True))


def _given(text: str) -> tuple[str, Path]:
    """The name, "" for none, and the folder."""
    name, equals, folder = text.partition("=")
    return ("", Path(text)) if not equals or Path(text).exists() else (name, Path(folder))


def columns_of(evaluation: Evaluation, benchmark: str) -> Iterator[tuple[Column, Results]]:
    """The columns of one benchmark, and what counts in each, without sets that have no score."""
    kind, labelled = BENCHMARKS.get(benchmark), evaluation.units(benchmark)
    for label, units in labelled.items():
        for setting, counted in units.by("setting").items():
            shown = {part: metric.among(counted) for part, metric in kind.metrics().items()}
            for part, some in shown.items() if not kind.headline or setting in kind.headline else ():
                if some:
                    yield Column(benchmark, setting, label if len(labelled) > 1 else "", part), some


def _place(column: Column, evaluations: Mapping[str, Evaluation]) -> tuple[Any, ...]:
    """Benchmarks in the order of their registry, settings in that of the first evaluation that has them."""
    results = [
        evaluation.results[column.benchmark]
        for evaluation in evaluations.values()
        if column.benchmark in evaluation.results
    ]
    order = next(result.settings for result in results if column.setting in result.settings)
    parts = list(BENCHMARKS.get(column.benchmark).metrics())
    place = column.label, parts.index(column.part), order.index(column.setting)
    return BENCHMARKS.names().index(column.benchmark), *place


def _column(
    results: Mapping[str, Results], column: Column, evaluations: Mapping[str, Evaluation]
) -> dict[tuple[str, Column], Cell]:
    """The cells of a column; the best is that of the evaluations that were asked the same."""
    metric = column.metric
    means = {name: metric(some) for name, some in results.items()}
    cells = {(name, column): Cell(mean) for name, mean in means.items()}
    for group in _asked_the_same(column.benchmark, {name: evaluations[name] for name in results}):
        best = max(group, key=lambda name: means[name].value or 0.0)
        for name in group:
            mark: Mark = "best" if len(group) > 1 else ""
            comparison = None if name == best else metric.gain(results[best], results[name])
            if comparison is not None:
                gap = comparison.difference
                mark = "equal" if gap.low <= 0 <= gap.high else "below"
            cells[name, column] = Cell(means[name], mark, comparison)
    return cells


def _asked_the_same(benchmark: str, evaluations: Mapping[str, Evaluation]) -> list[list[str]]:
    """Names of evaluations in groups that are compared."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, evaluation in evaluations.items():
        groups[tuple(evaluation.questions_identity(benchmark).values())].append(name)
    return list(groups.values())


def _charts(
    column: Column, counted: Mapping[str, Results], evaluations: Mapping[str, Evaluation]
) -> Iterator[Complexity]:
    """Those that have more than one place on their axis."""
    complexity = BENCHMARKS.get(column.benchmark).complexity
    charts: dict[str, dict[str, dict[float, Estimate]]] = defaultdict(lambda: defaultdict(dict))
    for name, units in counted.items():
        with counting(evaluations[name].folder, column.benchmark):
            places = units.by(lambda unit: complexity(unit.case))
        for title, x in filter(None, places):
            charts[title][name][x] = column.metric(places[title, x])
    for title, lines in charts.items():
        if max(map(len, lines.values())) > 1:
            yield Complexity(column, title, {name: dict(sorted(line.items())) for name, line in lines.items()})


def _by_set(
    column: Column, counted: Mapping[str, Results], names: Iterable[str]
) -> dict[str, dict[str, Estimate | None]]:
    """For a radar: {} where the benchmark has none, or fewer than three sets have scores."""
    kind = BENCHMARKS.get(column.benchmark)
    parts = {name: counted[name].by("set") if name in counted else {} for name in names}
    sets = [one for one in kind.known_sets if any(one in some for some in parts.values())]
    return {
        name: {one: column.metric(some[one]) if one in some else None for one in sets}
        for name, some in parts.items() if kind.radar and len(sets) > 2
    }  # fmt: skip


def _merged(benchmark: str, evaluations: Mapping[str, Evaluation]) -> Iterator[Table]:
    """The tables of one benchmark, model by model; what the paper prints stands once below them."""
    tables: dict[str, dict[str, Table]] = defaultdict(dict)
    for name, evaluation in evaluations.items():
        if benchmark in evaluation.results:
            for table in evaluation.results[benchmark].tables:
                tables[table.title][name] = table
    for title, by_model in tables.items():
        columns = list(dict.fromkeys(column for table in by_model.values() for column in table.columns))
        if any(len(set(table.columns)) < len(table.columns) for table in by_model.values()):
            # Columns of one name ("Δ"): only tables of the same layout can stand below each other.
            columns = list(next(iter(by_model.values())).columns)
            by_model = {name: table for name, table in by_model.items() if list(table.columns) == columns}
            placed = {name: [list(row) for row in table.rows] for name, table in by_model.items()}
        else:
            placed = {
                name: [[dict(zip(table.columns, row, strict=True)).get(column) for column in columns]
                       for row in table.rows]
                for name, table in by_model.items()
            }  # fmt: skip
        ours = [(name, *row) for name, rows in placed.items() for row in rows if not printed(row)]
        theirs = dict.fromkeys((PAPER, *row) for rows in placed.values() for row in rows if printed(row))
        questions = questions_of({name: table.questions for name, table in by_model.items()})
        yield Table(title, ("Model", *columns), (*ours, *theirs), next(iter(by_model.values())).note, questions)


def questions_of(by_model: Mapping[str, str]) -> str:
    """What was asked of all models, or where that differs of each."""
    texts = dict.fromkeys(by_model.values())
    named = (f"{name}: {text}" for name, text in by_model.items())
    return "; ".join(texts if len(texts) == 1 else named)


def _notes(evaluations: Mapping[str, Evaluation]) -> Iterator[str]:
    from uni_train.eval.report.evaluation import header_of

    for benchmark in dict.fromkeys(name for evaluation in evaluations.values() for name in evaluation.results):
        having = {name: evaluation for name, evaluation in evaluations.items() if benchmark in evaluation.results}
        if questions := questions_of(
            {name: evaluation.results[benchmark].questions for name, evaluation in having.items()}
        ):
            yield f"{benchmark}: {questions}."
        groups = _asked_the_same(benchmark, having)
        if len(groups) > 1:
            pairs = "; ".join(" and ".join(group) for group in groups if len(group) > 1)
            compared = f"only these are compared: {pairs}" if pairs else "none are compared"
            yield f"{benchmark}: not all were asked the same questions, so {compared}."
        judges = {
            name: str((evaluation.asked.get("judge") or {}).get("model", "programs alone"))
            for name, evaluation in having.items()
        }
        if len(set(judges.values())) > 1:
            judged_by = ", ".join(f"{name} by {judge}" for name, judge in judges.items())
            yield f"{benchmark}: a difference may be the judges': {judged_by}."
    for name, evaluation in evaluations.items():
        yield from (f"{name}: {note}" for note in header_of(evaluation).notes)
