"""An evaluation on the console."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.benchmark import Table
    from uni_train.eval.evaluation import Evaluation

_TABLES = 2  # of a benchmark on the console; the report has all


def show(done: Evaluation, progress: ConsoleProgress, page: Path | None = None) -> None:
    """The papers' tables, with intervals, what became of the samples, and where the report is."""
    from uni_train.eval.report.evaluation import OUTCOME_NAMES, header_of

    for name, result in done.results.items():
        for table in result.tables[:_TABLES]:
            print_table(table, progress)
        if len(result.tables) > _TABLES:
            progress.say(f"{name}: {len(result.tables) - _TABLES} more tables are in the report")
        totals: dict[str, int] = {}
        for by_set in result.outcomes.values():
            for counts in by_set.values():
                for outcome, count in counts.items():
                    totals[outcome] = totals.get(outcome, 0) + count
        shown = ", ".join(f"{OUTCOME_NAMES[one]} {count} ({count / result.n:.1%})" for one, count in totals.items())
        progress.say(f"{name}: {result.n} samples: {shown}")
    for note in header_of(done).notes:
        progress.note(f"note: {note}")
    progress.say(f"evaluation: {done.folder}")
    if page is not None:
        progress.say(f"report: {page}")


def print_table(table: Table, progress: ConsoleProgress) -> None:
    """A table of a benchmark on the console, scores with their intervals below; turned on its side where too wide."""
    lines = [list(table.columns), *([_console_cell(value) for value in row] for row in table.rows)]
    if _width(lines) > progress.console.width and len(lines) < len(table.columns):
        lines = [list(line) for line in zip(*lines, strict=True)]
    progress.table(f"{table.title}\n{table.questions}".rstrip(), lines[0], lines[1:], table.note)


def _console_cell(value: Any) -> str:
    from uni_train.eval.statistics import Estimate, PairedComparison

    paired = isinstance(value, PairedComparison)
    if isinstance(value, PairedComparison):
        value = value.difference
    if isinstance(value, Estimate):
        if value.value is None:
            return "–"
        if paired or value.low < 0:
            return f"{value.value:+.2f}\n" + f"{value.low:+.2f} to {value.high:+.2f}".replace("0.", ".")
        return f"{value.value:.2f}\n" + f"{value.low:.2f}–{value.high:.2f}".replace("0.", ".")
    return "–" if value is None else str(value)


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Letters that the lines need side by side."""
    columns = zip(*lines, strict=True)
    return sum(1 + max(len(part) for cell in column for part in cell.split("\n")) for column in columns) + 2
