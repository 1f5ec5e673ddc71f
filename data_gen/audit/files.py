"""Files whose answers are worked out again: published ones, and those of `data make`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from uni_train.data_gen.audit.findings import AuditRow
from uni_train.data_gen.audit.mapping import audit_pairs
from uni_train.data_gen.audit.maths import audit_maths
from uni_train.data_gen.jsonl import MappingRow, MathsRow, read_items, read_objects, read_published
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.data_gen.ureason import audit as ureason


def audit_file(path: Path | str) -> list[AuditRow]:
    """One finding for every question of a maths or mapping file, in its order: published, or an items.jsonl of ours; or
    of a UReason file of `data make`.

    Items of other tasks are left out: their answers are proved by their verifiers. DataError if it is no such file.
    """
    if ureason.is_ureason(Path(path)):
        return ureason.findings(Path(path))
    rows = read_any(Path(path))
    items = [row for row in rows if isinstance(row, Item)]
    if items:
        by_task = groupby(sorted(items, key=lambda item: item.task), key=lambda item: item.task)
        return [row for task, group in by_task for row in get_task(task).audit(list(group))]
    maths = [row for row in rows if isinstance(row, MathsRow)]
    return [audit_maths(row) for row in maths] or audit_pairs(row for row in rows if isinstance(row, MappingRow))


def read_any(path: Path) -> list[MathsRow] | list[MappingRow] | list[Item]:
    """Rows in the published schema, or the items that `data make` writes: the keys of the first row say which."""
    first = next(read_objects(path), None)
    return read_items(path) if first is not None and {"prompt", "facts"} <= set(first[1]) else read_published(path)
