"""Files whose answers are worked out again: published ones, and those of `data make`."""

from __future__ import annotations

from pathlib import Path

from data_gen.audit.findings import AuditRow
from data_gen.audit.mapping import audit_pairs
from data_gen.audit.maths import audit_maths
from data_gen.jsonl import MappingRow, MathsRow, read_items, read_objects, read_published
from data_gen.task import Item
from data_gen.ureason import audit as ureason


def audit_file(path: Path | str) -> list[AuditRow]:
    """One finding for every question of a maths or mapping file, in its order: published, or an items.jsonl of ours; or
    of a UReason file of `data make`.

    Items of other tasks are left out: their answers are proved by their verifiers. DataError if it is no such file.
    """
    if ureason.is_ureason(Path(path)):
        return [AuditRow(*one) for one in ureason.findings(Path(path))]
    found = read_any(Path(path))
    rows = [row for item in found if isinstance(item, Item) for row in _rows_of(item)] or [
        row for row in found if not isinstance(row, Item)
    ]
    maths = [row for row in rows if isinstance(row, MathsRow)]
    if maths:
        return [audit_maths(row) for row in maths]
    return audit_pairs(row for row in rows if isinstance(row, MappingRow))


def read_any(path: Path) -> list[MathsRow] | list[MappingRow] | list[Item]:
    """Rows in the published schema, or the items that `data make` writes: the keys of the first row say which."""
    first = next(read_objects(path), None)
    return read_items(path) if first is not None and {"prompt", "facts"} <= set(first[1]) else read_published(path)


def _rows_of(item: Item) -> list[MathsRow | MappingRow]:
    if item.task == "maths":
        return [MathsRow(item.id, item.prompt, item.answer, 0)]
    if item.task == "mapping":
        return [MappingRow(item.pair or item.id, item.id[-1], item.prompt, item.answer, 0)]
    return []
