"""Tables of figures in markdown."""

from __future__ import annotations


def table(*columns: str) -> list[str]:
    """The head of a table, its first column left-aligned."""
    return [row(*columns), f"|---|{'---:|' * (len(columns) - 1)}"]


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
