"""How a `Table` reads: on a page, on the console, as CSV, as LaTeX, in Weights & Biases.

Runs, evaluations, comparisons and leaderboards show their numbers through these functions alone.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from uni_train.eval.results import PAPER, Cell, Table, printed
from uni_train.eval.statistics import Estimate, PairedComparison, signed

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress

_NUMBER = re.compile(r"[-+−–]?[\d.,]*(e[-+]?\d+)?( ?%)?|\d+ / \d+")
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "Δ": r"$\Delta$",
        "–": "--", "−": "$-$", "×": r"$\times$", **{c: f"\\{c}" for c in "&%$#_{}"}}  # fmt: skip


def _estimate(cell: Cell) -> Estimate | None:
    """The score or the difference that a cell holds; None for a text, nothing, and a score without a value."""
    estimate = cell.difference if isinstance(cell, PairedComparison) else cell
    return estimate if isinstance(estimate, Estimate) and estimate.value is not None else None


def _signed(cell: Cell) -> bool:
    """Whether a cell is a difference, which is written with its sign."""
    return isinstance(cell, PairedComparison) or (isinstance(cell, Estimate) and cell.signed)


# --- a page ---------------------------------------------------------------------------------------------------------


def shown_table(table: Table, id: str = "") -> dict[str, Any]:
    """For table.html.

    groups: ("Normal", 3) where columns are named "Normal M1" and so on: the word stands once above them, and their
    scores without the n that the note has. id: for links.
    """
    words = [any(_is_text(row[i]) for row in table.rows) for i in range(len(table.columns))]
    rows = [[_cell(cell) | {"words": words[i]} for i, cell in enumerate(row)] for row in table.rows]
    groups = [(word, len(list(some))) for word, some in groupby(table.columns, key=_first_word)]
    groups = [(word if width > 1 else "", width) for word, width in groups]
    grouped = {word for word, _ in groups if word}
    columns = [name.partition(" ")[2] if _first_word(name) in grouped else name for name in table.columns]
    return {
        "id": id,
        "title": table.title,
        "note": table.note,
        "questions": table.questions,
        "digits": table.digits,
        "groups": groups if grouped else [],
        "columns": list(zip(columns, words, strict=True)),
        "rows": rows,
        "printed": [printed(row) for row in table.rows],
    }


def _first_word(column: str) -> str:
    """Of "Normal M1" the setting; other names stand alone."""
    word, space, _ = column.partition(" ")
    return word if space and word in ("Normal", "CoT") else column


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and not _NUMBER.fullmatch(cell)


def _cell(cell: str | Estimate | PairedComparison | None) -> dict[str, Any]:
    if isinstance(cell, Estimate):
        return {"kind": "estimate", "value": cell}
    if isinstance(cell, PairedComparison):
        return {"kind": "paired", "value": cell}
    return {"kind": "none" if cell is None else "text", "value": cell}


# --- the console ----------------------------------------------------------------------------------------------------


def print_table(table: Table, progress: ConsoleProgress) -> None:
    """Print a table, each interval below its score; turned on its side where it is too wide."""
    lines = [list(table.columns), *([_console_cell(cell, table.digits) for cell in row] for row in table.rows)]
    if _width(lines) > progress.console.width and len(lines) < len(table.columns):
        lines = [list(line) for line in zip(*lines, strict=True)]
    progress.table(f"{table.title}\n{table.questions}".rstrip(), lines[0], lines[1:], table.note)


def _console_cell(cell: Cell, digits: int) -> str:
    estimate = _estimate(cell)
    if estimate is None:
        return "–" if cell is None or isinstance(cell, Estimate | PairedComparison) else str(cell)
    low, high = estimate.low, estimate.high
    if _signed(cell):
        ends = f"{signed(low, digits)} to {signed(high, digits)}"
        return f"{signed(estimate.value or 0.0, digits)}\n" + re.sub(r"(?<!\d)0\.", ".", ends)
    return f"{estimate.value:z.{digits}f}\n" + "–".join(_short(end, digits) for end in (low, high))


def _short(share: float, digits: int) -> str:
    """.25 and 1.0, so that eight columns of intervals fit beside each other."""
    text = f"{share:z.{digits}f}"
    if 0 <= share <= 1:
        return text[1:] if share < 1 and text[0] == "0" else text[: digits + 1]
    return text


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Letters that the lines need side by side."""
    columns = zip(*lines, strict=True)
    return sum(1 + max(len(part) for cell in column for part in cell.split("\n")) for column in columns) + 2


# --- files ----------------------------------------------------------------------------------------------------------


def wandb_table(table: Table) -> dict[str, Any]:
    """Columns and data for W&B, which wants one kind of value in a column; the last one says what was asked."""
    rows = [[*map(_text, row), table.questions] for row in table.rows]
    return {"columns": [*(column or "-" for column in table.columns), "questions"], "data": rows}


def _text(cell: Cell) -> str | None:
    if isinstance(cell, PairedComparison):
        return f"{cell.difference} p={cell.p_value:.2g}"
    return None if cell is None else str(cell)


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
            estimate = cell.difference if isinstance(cell, PairedComparison) else cell
            if isinstance(estimate, Estimate):
                line += [estimate.value, estimate.low, estimate.high]
            else:
                line += [estimate, None, None] if wide else [estimate]
        lines.append([*line, table.questions] if table.questions else line)
    return csv_text(lines)


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
    best_cells: set[tuple[int, int]] = set()
    for label in {row[1] if isinstance(row[1], str) else None for row in table.rows}:
        rows = [i for i, row in enumerate(table.rows) if (row[1] if isinstance(row[1], str) else None) == label]
        for column in range(1, len(table.columns)):
            scores = {i: cell.value for i in rows
                      if isinstance(cell := table.rows[i][column], Estimate) and cell.value is not None}  # fmt: skip
            if len(scores) > 1:
                best_cells |= {(i, column) for i, value in scores.items() if value == max(scores.values())}
    return best_cells


def _latex_cell(cell: Any, best: bool) -> str:
    estimate = cell.difference if isinstance(cell, PairedComparison) else cell
    if estimate is None or (isinstance(estimate, Estimate) and estimate.value is None):
        return "--"
    if not isinstance(estimate, Estimate):
        return _tex(str(estimate))
    value, low, high = (signed(x or 0.0).replace("−", "-") if _signed(cell) else f"{x:z.2f}"
                        for x in (estimate.value, estimate.low, estimate.high))  # fmt: skip
    bold = rf"\textbf{{${value}$}}" if best else f"${value}$"
    return bold + rf" {{\scriptsize [{low}, {high}]}}"


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def csv_text(lines: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()
