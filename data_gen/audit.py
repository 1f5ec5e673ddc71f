"""Files whose answers are worked out again, and guessed: published ones, and those of `data make`."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from pathlib import Path

from uni_train.data_gen.findings import AuditRow
from uni_train.data_gen.jsonl import MappingRow, MathsRow, read_any, read_objects
from uni_train.data_gen.mapping import audit as mapping
from uni_train.data_gen.maths import audit as maths
from uni_train.data_gen.registry import TASKS, get_task, task_of
from uni_train.data_gen.shortcuts import Tally, known_shortcuts, questions_of, tally
from uni_train.data_gen.task import Item, Question


def audit_file(path: Path | str) -> list[AuditRow]:
    """One finding for every question of a maths or mapping file, in its order: published, or an items.jsonl of ours; or
    of a UReason file of `data make`.

    Items of other tasks are left out: their answers are proved by their verifiers. DataError if it is no such file.
    """
    if _is_ureason(Path(path)):
        return get_task("ureason").audit_file(Path(path))  # type: ignore[attr-defined, no-any-return]
    rows = read_any(Path(path))
    items = [row for row in rows if isinstance(row, Item)]
    if items:
        by_task = groupby(sorted(items, key=lambda item: item.task), key=lambda item: item.task)
        return [row for task, group in by_task for row in get_task(task).audit(list(group))]
    sums = [maths.audit_maths(row) for row in rows if isinstance(row, MathsRow)]
    return sums or mapping.audit_pairs(row for row in rows if isinstance(row, MappingRow))


def _is_ureason(path: Path) -> bool:
    """Whether the first row of a file has the published keys. DataError if it cannot be read."""
    return "expect_en" in next(read_objects(path), (0, {}))[1]


def tally_file(path: Path) -> dict[str, list[Tally]]:
    """Every strategy on each set of a published file or an items.jsonl of ours: "maths level 2" -> tallies.

    A published file is one set, named after its task. {} where no strategy has anything to say (mazes, files in
    UReason's schema). Raises DataError for a file that is neither.
    """
    if _is_ureason(path):
        return {}
    sets: dict[str, list[Question]] = defaultdict(list)
    known: dict[str, dict[str, str]] = {}
    for row in read_any(path):
        if not isinstance(row, Item):
            task = "maths" if isinstance(row, MathsRow) else "mapping"
            sets[task].append(TASKS.get(task).published_question(row.id, row.question, row.answer))
            continue
        name = f"{row.task} level {row.level}"
        sets[name] += questions_of([row])
        known[name] = known.get(name) or known_shortcuts(task_of(row), row.level)
    return {name: tally(questions, known.get(name)) for name, questions in sets.items() if questions}
