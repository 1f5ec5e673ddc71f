"""The leaderboard as files: one page, a CSV file, and each paper's tables as CSV and LaTeX.

DIR/leaderboard.html     sortable table, scores by complexity, the papers' tables
DIR/leaderboard.csv      one row a model and setting
DIR/tables/*.csv, *.tex  the papers' tables with the rows of all models
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.core.files import atomic_write_text, below, disk_errors
from uni_train.eval.benchmark import Table
from uni_train.eval.leaderboard import Complexity, Leaderboard
from uni_train.eval.report.charts import Axis, Chart, scores
from uni_train.eval.report.evaluation import header_of
from uni_train.eval.report.page import Page, Section, write_page
from uni_train.eval.report.radar import radar
from uni_train.eval.report.tables import csv_text, table_csv, table_latex

if TYPE_CHECKING:
    from uni_train.eval.evaluation import Evaluation

PAGE, SCORES = "leaderboard.html", "leaderboard.csv"
_MARKS = {"best": "best of its column", "equal": "not significantly below the best", "below": "below the best", "": ""}


def write_leaderboard(folder: Path, board: Leaderboard) -> Path:
    """Write all files below `folder` and return the page. Raises UserError where they cannot be written."""
    with disk_errors(folder):
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        rows = list(board.rows())
        atomic_write_text(folder / SCORES, csv_text([list(rows[0]), *(list(row.values()) for row in rows)]))
        for benchmark, tables in board.tables.items():
            for number, table in enumerate(tables, 1):
                file = below(folder / "tables", f"{benchmark}-{number}-{_slug(table.title)}")
                atomic_write_text(file.with_name(f"{file.name}.csv"), table_csv(table))
                atomic_write_text(file.with_name(f"{file.name}.tex"), table_latex(table))
    return write_page(folder / PAGE, page_of(board))


def page_of(board: Leaderboard) -> Page:
    """Scores with their marks, scores by complexity, the papers' tables, and what was evaluated."""
    names = list(board.evaluations)
    groups = [(name, len(list(columns))) for name, columns in groupby(column.benchmark for column in board.columns)]
    shown = {
        "groups": groups,
        "columns": board.columns,
        "rows": [(name, [board.cells.get((name, column)) for column in board.columns]) for name in names],
        "marks": _MARKS,
    }
    charts = [_chart(complexity, names) for complexity in board.by_complexity]
    polygons = [radar(f"{column}, by set", by_set) for column, by_set in board.by_set.items()]
    note = "Whiskers: 95 % intervals. A pair counts once."
    tables = board.tables.items()
    return Page(
        title="Leaderboard",
        lead="A score is the headline of the paper's own table, with its 95 % interval. Bold: the best of a column. "
        "≈: not significantly below the best on the same questions.",
        facts=[("Evaluations", str(len(names))), ("Benchmarks", str(len(groups)))],
        notes=board.notes,
        sections=[
            Section("Scores", body="board.html", shown=shown, script="leaderboard.js"),
            Section("By complexity", charts=charts, note=note),
            Section("By set", charts=polygons, note="From 0 in the middle to 1 at the rim."),
            *(Section(f"{name}: the paper's tables", tables=some, id=f"tables-{name}") for name, some in tables),
            Section("About these evaluations", tables=[_about(board.evaluations)]),
        ],
        style="small",
    )


def _about(evaluations: Mapping[str, Evaluation]) -> Table:
    facts = {
        name: {"Folder": str(done.folder), **dict(header_of(done).facts),
               "Revisions": ", ".join(f"{benchmark} {result.revision}" for benchmark, result in done.results.items())}
        for name, done in evaluations.items()
    }  # fmt: skip
    columns = list(dict.fromkeys(column for known in facts.values() for column in known))
    rows = tuple((name, *(known.get(column) for column in columns)) for name, known in facts.items())
    return Table("", ("Evaluation", *columns), rows)


def _chart(complexity: Complexity, names: Sequence[str]) -> Chart:
    """names: of all evaluations, so that each has one colour in all charts."""
    places = sorted({x for line in complexity.lines.values() for x in line})
    margin = 0.05 * (places[-1] - places[0])
    x = Axis(places[0] - margin, places[-1] + margin, [(place, f"{place:g}") for place in places], complexity.title)
    lines = {name: list(complexity.lines.get(name, {}).items()) for name in names}
    return scores(f"{complexity.column}, by {complexity.title}", lines, x, 0.15 * margin)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
