"""Dots with whiskers as geometry: `evaluation.html` turns them into inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uni_train.eval.statistics import Estimate

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 520, 128, 14, 8, 24
_ROW, _SPREAD = 13, 11  # height of a row without its dots; of each dot


@dataclass(frozen=True, slots=True)
class Mark:
    """One score: where its dot and the ends of its whisker are, in the viewBox."""

    x: float
    low: float
    high: float
    y: float
    colour: int
    tip: str


@dataclass(frozen=True, slots=True)
class Dots:
    """A chart. rows: (y, name); x_ticks: (x, name); legend: (colour, name)."""

    title: str
    description: str
    height: float
    rows: Sequence[tuple[float, str]]
    x_ticks: Sequence[tuple[float, str]]
    marks: Sequence[Mark]
    legend: Sequence[tuple[int, str]]


def dots(title: str, values: Mapping[str, Mapping[str, Estimate]], colours: Mapping[str, int]) -> Dots:
    """A row for each name of `values`, in it a dot for each series; shares from 0 to 1.

    values: row -> series -> estimate (left out where it has no value). colours: series -> 1 to 6, a CSS class.
    """
    height = _ROW + _SPREAD * max(1, len(colours))
    marks, rows, told = [], [], []
    for i, (name, by_series) in enumerate(values.items()):
        top = TOP + i * height
        rows.append((round(top + height / 2, 1), name))
        shown = [(series, one) for series, one in by_series.items() if one.value is not None]
        for series, one in shown:
            place = list(colours).index(series)
            y = round(top + _ROW / 2 + _SPREAD * (place + 0.5), 1)
            assert one.value is not None
            tip = f"{name}, {series}: {one.value:.2f} [{one.low:.2f}, {one.high:.2f}], n = {one.n}"
            marks.append(Mark(_at(one.value), _at(one.low), _at(one.high), y, colours[series], tip))
        told += [f"{name}: " + ", ".join(f"{series} {one.value:.2f}" for series, one in shown)] if shown else []
    ticks = [(_at(i / 4), f"{i / 4:.2f}") for i in range(5)]
    legend = [(colour, series) for series, colour in colours.items()]
    return Dots(title, "; ".join(told), TOP + len(values) * height + BOTTOM, rows, ticks, marks, legend)


def _at(share: float) -> float:
    return round(LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 1)
