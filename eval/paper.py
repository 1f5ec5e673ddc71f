"""Declared tables, and the numbers that papers print: `paper.csv` beside a benchmark, a block of CSV for each table.

A block begins with a line `# NAME: remarks`; its first columns name the row, the others hold numbers as printed. An
empty cell is one that is not printed.

    TableSpec("Accuracy (Table 3)", (Column("Maths", maths, "maths"), ...), rows="setting", paper="Table 3")

is a table with a row for each setting. Where the paper's questions are asked, the rows of Table 3 stand below.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from uni_train.eval.results import Cell, Key, Results, Table
from uni_train.eval.statistics import Estimate, signed

Row = dict[str, str]
"""Column -> cell, as printed."""
Paper = Mapping[str, Sequence[Row]]
"""Table -> its rows."""


@cache
def printed(file: Path) -> dict[str, tuple[Row, ...]]:
    """Table -> its rows, of paper.csv beside `file`."""
    tables = {}
    for block in (file.parent / "paper.csv").read_text(encoding="utf-8").strip().split("\n\n"):
        head, _, rows = block.partition("\n")
        tables[head.removeprefix("# ").partition(":")[0]] = tuple(csv.DictReader(rows.splitlines()))
    return tables


def per_cent(cell: str, digits: int = 3, gain: bool = False) -> str | None:
    """A printed per cent as a share, with its sign where it is a gain; None where nothing is printed."""
    if not cell:
        return None
    return signed(float(cell) / 100, digits) if gain else f"{float(cell) / 100:.{digits}f}"


def per_setting(rows: Iterable[Row], settings: Iterable[str], columns: Iterable[str]) -> list[Row]:
    """A row for each setting, where the paper prints settings side by side: of columns like "code direct"."""
    settings, columns = list(settings), list(columns)
    return [
        {**row, "setting": setting, **{name: row[f"{name} {setting}"] for name in columns}}
        for row in rows
        for setting in settings
    ]


def mean_of(key: Key, value: Any) -> Callable[[Results], Estimate | None]:
    """The score of a column: the mean of the units that have this value, such as `mean_of("set", "maths")`."""
    return lambda some: part.mean() if (part := some.by(key).get(value)) else None


@dataclass(frozen=True, slots=True)
class Column:
    """A score of what stands in each row, mostly `Results`.

    printed: the paper's column of the same number, in per cent; or a function of the paper's row; "": it prints none.
    """

    head: str
    score: Callable[[Any], Cell]
    printed: str | Callable[[Row], str | None] = ""

    def of_paper(self, row: Row) -> str | None:
        return per_cent(row.get(self.printed, "")) if isinstance(self.printed, str) else self.printed(row)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A declared table: a row for each group of units, a score in each column, the paper's rows below.

    rows: what units are grouped by, in the order of `order` (None: as they come); or the groups themselves. names:
    what a group is called, where not by its value. paper: the table of paper.csv, or rows made of it; a row with a
    "setting" stands there only where that is a group. label: of the paper's rows, filled from their columns.
    below: further rows, above the paper's. first: the head of the first column.
    """

    title: str
    columns: Sequence[Column]
    rows: Key | Mapping[Any, Any] = "setting"
    order: Iterable[Any] | None = None
    names: Mapping[Any, str] = field(default_factory=dict)
    paper: str | Sequence[Row] = ()
    label: str = "{model} in the paper"
    below: Sequence[Sequence[Cell]] = ()
    first: str = "Setting"
    note: str = ""

    def table(self, results: Results, paper: Paper | None) -> Table:
        """The table, filled in; without groups it has no rows. paper: `printed`; None: other questions are asked."""
        groups: Mapping[Any, Any] = self.rows if isinstance(self.rows, Mapping) else results.by(self.rows, self.order)
        lines = [(self.names.get(key, key), *(of.score(some) for of in self.columns)) for key, some in groups.items()]
        lines += map(tuple, self.below)
        if paper is not None and groups:
            rows = paper[self.paper] if isinstance(self.paper, str) else self.paper
            lines += [self._of_paper(row) for row in rows if row.get("setting") in (None, *groups)]
        return Table(self.title, (self.first, *(column.head for column in self.columns)), tuple(lines), self.note)

    def _of_paper(self, row: Row) -> tuple[Cell, ...]:
        setting = row.get("setting", "")
        label = self.label.format_map({**row, "setting": self.names.get(setting, setting)})
        return label, *(column.of_paper(row) for column in self.columns)
