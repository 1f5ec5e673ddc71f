"""The leaderboard as files: one page, a CSV file, and each paper's tables as CSV and LaTeX.

DIR/leaderboard.html     sortable table, radar, scores by complexity, the papers' tables
DIR/leaderboard.csv      one row a model and setting
DIR/tables/*.csv, *.tex  the papers' tables with the rows of all models
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from uni_train.eval.benchmark import Table
from uni_train.eval.leaderboard import PAPER, Complexity, Leaderboard
from uni_train.eval.report import charts, evaluation, evaluation_charts, page
from uni_train.eval.shards import disk_errors
from uni_train.eval.statistics import Estimate, PairedComparison
from uni_train.files import atomic_write_text, below

PAGE, SCORES = "leaderboard.html", "leaderboard.csv"
_MARKS = {"best": "best of its column", "equal": "not significantly below the best", "below": "below the best", "": ""}
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "Δ": r"$\Delta$",
        "–": "--", "−": "$-$", "×": r"$\times$", **{c: f"\\{c}" for c in "&%$#_{}"}}  # fmt: skip


def write_leaderboard(folder: Path, board: Leaderboard) -> Path:
    """Write all files below `folder` and return the page. Raises UserError where they cannot be written."""
    with disk_errors(folder):
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        rows = list(board.rows())
        atomic_write_text(folder / SCORES, _csv([list(rows[0]), *(list(row.values()) for row in rows)]))
        for benchmark, tables in board.tables.items():
            for number, table in enumerate(tables, 1):
                file = below(folder / "tables", f"{benchmark}-{number}-{_slug(table.title)}")
                atomic_write_text(file.with_name(f"{file.name}.csv"), table_csv(table))
                atomic_write_text(file.with_name(f"{file.name}.tex"), table_latex(table))
    return page.write_page(folder / PAGE, "leaderboard.html", context(board), _STYLES, "leaderboard.js")


_STYLES = ("style.css", "evaluation.css", "leaderboard.css")


def context(board: Leaderboard) -> dict[str, Any]:
    """What the template shows."""
    names = list(board.evaluations)
    groups = groupby(column.benchmark for column in board.columns)
    values = {
        name: {str(column): cell.estimate for (whose, column), cell in board.cells.items() if whose == name}
        for name in names
    }
    axes = [str(column) for column in board.columns]
    return {
        "groups": [(name, len(list(columns))) for name, columns in groups],
        "columns": board.columns,
        "rows": [(name, [board.cells.get((name, column)) for column in board.columns]) for name in names],
        "marks": _MARKS,
        "radar": evaluation_charts.radar("All columns", axes, values) if len(axes) > 2 else None,
        "charts": [_chart(one) for one in board.by_complexity],
        "tables": {name: [evaluation.shown_table(table) for table in tables] for name, tables in board.tables.items()},
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
    y = charts.Axis(0, 1, [(value / 4, f"{value / 4:.2f}") for value in range(5)])
    series = []
    for index, (name, line) in enumerate(one.lines.items()):
        shown = [(place, found) for place, found in line.items() if found.value is not None]
        # Models are set a little apart, so that whiskers do not hide each other.
        shift = 0.15 * margin * (index - (len(one.lines) - 1) / 2)
        series.append(
            charts.Series(
                name, [(place + shift, found.value or 0.0) for place, found in shown],
                index % evaluation_charts.COLOURS + 1, markers=True,
                intervals=[(found.low, found.high) for _, found in shown],
            )
        )  # fmt: skip
    told = "; ".join(f"{s.name} from {s.points[0][1]:.2f} to {s.points[-1][1]:.2f}" for s in series if s.points)
    return charts.chart(f"{one.column}", told, series, x, y)


def table_csv(table: Table) -> str:
    """A score takes three columns: its value, and the ends of its interval."""
    scores = [any(isinstance(row[i], Estimate | PairedComparison) for row in table.rows)
              for i in range(len(table.columns))]  # fmt: skip
    head = [part for name, wide in zip(table.columns, scores, strict=True)
            for part in ((name, f"{name} low", f"{name} high") if wide else (name,))]  # fmt: skip
    head += ["questions"] if table.questions else []
    lines: list[list[Any]] = [head]
    for row in table.rows:
        line: list[Any] = []
        for cell, wide in zip(row, scores, strict=True):
            one = cell.difference if isinstance(cell, PairedComparison) else cell
            if isinstance(one, Estimate):
                line += [one.value, one.low, one.high]
            else:
                line += [one, None, None] if wide else [one]
        lines.append([*line, table.questions] if table.questions else line)
    return _csv(lines)


def table_latex(table: Table) -> str:
    """A tabular of booktabs: the highest score of a column among rows of one name is bold, intervals are small."""
    best = _best(table)
    lines = [rf"% {_one_line(table.note)}", rf"\begin{{tabular}}{{ll{'r' * (len(table.columns) - 2)}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, table.columns)) + r" \\", r"\midrule"]
    before = ""
    for place, row in enumerate(table.rows):
        model = str(row[0])
        if before and model != before:
            lines.append(r"\midrule")
        cells = [_tex("" if model in (before, PAPER) else model)]
        cells += [_latex_cell(cell, (place, i) in best) for i, cell in enumerate(row[1:], 1)]
        lines.append(" & ".join(cells) + r" \\")
        before = model
    if table.questions:
        lines += [r"\midrule", rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\scriptsize {_tex(table.questions)}}} \\"]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _best(table: Table) -> set[tuple[int, int]]:
    """(row, column) of the highest scores among rows with the same name of several models."""
    found: set[tuple[int, int]] = set()
    for label in {row[1] if isinstance(row[1], str) else None for row in table.rows}:
        rows = [i for i, row in enumerate(table.rows) if (row[1] if isinstance(row[1], str) else None) == label]
        for column in range(1, len(table.columns)):
            scores = {i: cell.value for i in rows
                      if isinstance(cell := table.rows[i][column], Estimate) and cell.value is not None}  # fmt: skip
            if len(scores) > 1:
                found |= {(i, column) for i, value in scores.items() if value == max(scores.values())}
    return found


def _latex_cell(cell: Any, best: bool) -> str:
    paired = isinstance(cell, PairedComparison)
    one = cell.difference if isinstance(cell, PairedComparison) else cell
    if one is None or (isinstance(one, Estimate) and one.value is None):
        return "--"
    if not isinstance(one, Estimate):
        return _tex(str(one))
    sign = "+" if paired or one.low < 0 else ""
    value = f"${one.value:{sign}.2f}$"
    bold = rf"\textbf{{{value}}}" if best else value
    return bold + rf" {{\scriptsize [{one.low:{sign}.2f}, {one.high:{sign}.2f}]}}"


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _csv(lines: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
