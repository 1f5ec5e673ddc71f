"""The leaderboard as files: one page, a CSV file, and each paper's tables as CSV and LaTeX.

DIR/leaderboard.html     sortable table, scores by complexity, the papers' tables
DIR/leaderboard.csv      one row a model and setting
DIR/tables/*.csv, *.tex  the papers' tables with the rows of all models
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from uni_train.eval.leaderboard import Complexity, Leaderboard
from uni_train.eval.report import charts, evaluation, page
from uni_train.eval.report.tables import csv_text, shown_table, table_csv, table_latex
from uni_train.files import atomic_write_text, below, disk_errors

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
    return page.write_page(folder / PAGE, "leaderboard.html", context(board), _STYLES, ("leaderboard.js",))


_STYLES = ("style.css", "evaluation.css", "leaderboard.css")


def context(board: Leaderboard) -> dict[str, Any]:
    """What the template shows."""
    names = list(board.evaluations)
    groups = groupby(column.benchmark for column in board.columns)
    return {
        "groups": [(name, len(list(columns))) for name, columns in groups],
        "columns": board.columns,
        "rows": [(name, [board.cells.get((name, column)) for column in board.columns]) for name in names],
        "marks": _MARKS,
        "charts": [_chart(one) for one in board.by_complexity],
        "tables": {name: [shown_table(table) for table in tables] for name, tables in board.tables.items()},
        "notes": board.notes,
        "about": [
            {"name": name, "folder": str(one.folder), "facts": evaluation.header_of(one).facts,
             "revisions": {benchmark: result.revision for benchmark, result in one.results.items()}}
            for name, one in board.evaluations.items()
        ],
    }  # fmt: skip


def _chart(one: Complexity) -> charts.Chart:
    places = sorted({x for line in one.lines.values() for x in line})
    margin = 0.05 * (places[-1] - places[0])
    x = charts.Axis(places[0] - margin, places[-1] + margin, [(place, f"{place:g}") for place in places], one.title)
    lines = {name: list(line.items()) for name, line in one.lines.items()}
    return charts.scores(f"{one.column}, by {one.title}", lines, x, 0.15 * margin)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
