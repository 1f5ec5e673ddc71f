"""The numbers that papers print: `paper.csv` beside a benchmark, a block of CSV for each table.

A block begins with a line `# NAME: remarks`; its first columns name the row, the others hold numbers as printed. An
empty cell is one that is not printed.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from uni_train.eval.statistics import signed

Row = dict[str, str]
"""Column -> cell, as printed."""


@cache
def printed(file: Path) -> dict[str, tuple[Row, ...]]:
    """Table -> its rows, of paper.csv beside `file`."""
    found = {}
    for block in (file.parent / "paper.csv").read_text(encoding="utf-8").strip().split("\n\n"):
        head, _, rows = block.partition("\n")
        found[head.removeprefix("# ").partition(":")[0]] = tuple(csv.DictReader(rows.splitlines()))
    return found


def per_cent(cell: str, digits: int = 3, gain: bool = False) -> str | None:
    """A printed per cent as a share, with its sign where it is a gain; None where nothing is printed."""
    if not cell:
        return None
    return signed(float(cell) / 100, digits) if gain else f"{float(cell) / 100:.{digits}f}"
