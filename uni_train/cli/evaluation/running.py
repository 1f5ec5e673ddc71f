"""An evaluation on the console."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.evaluation import Evaluation

_TABLES = 2  # of a benchmark on the console; the report has all


def show(done: Evaluation, progress: ConsoleProgress, page: Path | None = None) -> None:
    """The papers' tables, with intervals, what became of the samples, and where the report is."""
    from uni_train.eval.benchmark import BENCHMARKS
    from uni_train.eval.report.evaluation import header_of
    from uni_train.eval.report.samples import OUTCOME_NAMES
    from uni_train.eval.report.tables import print_table

    for name, result in done.results.items():
        for table in result.tables[:_TABLES]:
            print_table(table, progress)
        if len(result.tables) > _TABLES:
            progress.say(f"{name}: {len(result.tables) - _TABLES} more tables are in the report")
        known = done.units(name) if name in BENCHMARKS.names() else {}  # questions of an analysis are of none
        graded = any(unit.worth not in (0, 1) for units in known.values() for unit in units)
        for setting, by_set in result.outcomes.items():
            totals = sum(map(Counter, by_set.values()), Counter[str]())
            n = totals.total()
            shown = ", ".join(
                f"{OUTCOME_NAMES[outcome]} {count} ({count / n:.1%})" for outcome, count in totals.items()
            )
            progress.say(f"{name}, {setting}: {n} samples: {shown}{'; right means full marks' if graded else ''}")
    for note in header_of(done).notes:
        progress.note(f"note: {note}")
    progress.say(f"evaluation: {done.folder}")
    if page is not None:
        progress.say(f"report: {page}")
