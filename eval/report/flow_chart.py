"""A flow of units through columns of states as geometry; `flow_chart.html` turns it into inline SVG.

Each column is a question and each box in it a state; a band between two boxes is as wide as the number of units that
went from one to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, TOP, BOX, GAP = 980, 320, 40, 14, 10
_RIGHT = 150  # room for the names of the last column


@dataclass(frozen=True, slots=True)
class Box:
    """A state of a column: its place, its name with its count, and a class for its colour."""

    x: float
    y: float
    height: float
    label: str
    colour: int


@dataclass(frozen=True, slots=True)
class Band:
    """Units that go from one box to another: a closed path, the colour of where they come from, a tooltip."""

    path: str
    colour: int
    tip: str


@dataclass(frozen=True, slots=True)
class Flow:
    title: str
    description: str
    heads: Sequence[tuple[float, str]]
    boxes: Sequence[Box]
    bands: Sequence[Band]


def flow(title: str, columns: Sequence[tuple[str, Sequence[str]]], rows: Sequence[Sequence[str]]) -> Flow:
    """Place the boxes and bands of `rows`, each the states of one unit, one a column.

    columns: (head, its states from top to bottom). Raises ValueError for a state that its column lacks.
    """
    total = max(1, len(rows))
    xs = [round(i * (WIDTH - _RIGHT) / max(1, len(columns) - 1), 1) for i in range(len(columns))]
    place: list[dict[str, Box]] = []
    scale = (HEIGHT - TOP - GAP * max((len(states) for _, states in columns), default=1)) / total
    for x, (index, (head, states)) in zip(xs, enumerate(columns), strict=True):
        count = Counter(row[index] for row in rows)
        unknown = set(count) - set(states)
        if unknown:
            raise ValueError(f"the column {head!r} has no state {min(unknown)!r}")
        boxes, y = {}, float(TOP)
        for number, state in enumerate(states, start=1):
            height = count[state] * scale
            boxes[state] = Box(x, round(y, 1), round(height, 1), f"{state}: {count[state]}", 1 + (number - 1) % 6)
            y += height + (GAP if count[state] else 0)
        place.append(boxes)
    heads = [(x, head) for x, (head, _) in zip(xs, columns, strict=True)]
    shown = [box for boxes in place for box in boxes.values() if box.height]
    description = "; ".join(
        f"{head}: " + ", ".join(box.label for box in boxes.values())
        for (head, _), boxes in zip(columns, place, strict=True)
    )
    return Flow(title, description, heads, shown, _bands(place, columns, rows, scale))


def _bands(
    place: Sequence[dict[str, Box]],
    columns: Sequence[tuple[str, Sequence[str]]],
    rows: Sequence[Sequence[str]],
    scale: float,
) -> list[Band]:
    bands = []
    for left in range(len(columns) - 1):
        count = Counter((row[left], row[left + 1]) for row in rows)
        out = {state: box.y for state, box in place[left].items()}
        into = {state: box.y for state, box in place[left + 1].items()}
        for first in columns[left][1]:
            for second in columns[left + 1][1]:
                height = count[first, second] * scale
                if not height:
                    continue
                x, end = place[left][first].x + BOX, place[left + 1][second].x
                tip = f"{columns[left][0]}, {first} → {columns[left + 1][0]}, {second}: {count[first, second]}"
                bands.append(Band(_band(x, end, out[first], into[second], height), place[left][first].colour, tip))
                out[first] += height
                into[second] += height
    return bands


def _band(x: float, end: float, top: float, bottom: float, height: float) -> str:
    """A band whose upper edge goes from (x, top) to (end, bottom)."""
    middle = (x + end) / 2
    over = f"M{x:.1f} {top:.1f} C{middle:.1f} {top:.1f} {middle:.1f} {bottom:.1f} {end:.1f} {bottom:.1f}"
    low, lower = top + height, bottom + height
    return f"{over} V{lower:.1f} C{middle:.1f} {lower:.1f} {middle:.1f} {low:.1f} {x:.1f} {low:.1f} Z"
