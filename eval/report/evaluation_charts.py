"""Dots with whiskers and radars as geometry: `evaluation.html` and `leaderboard.html` turn them into inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uni_train.eval.statistics import Estimate

COLOURS = 6  # of style.css
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


@dataclass(frozen=True, slots=True)
class Spoke:
    """One axis of a radar: where it ends, and where and how its name is written."""

    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str
    name: str


@dataclass(frozen=True, slots=True)
class Outline:
    """One series of a radar: its points as SVG writes them, and its dots (x, y, tip)."""

    points: str
    dots: Sequence[tuple[float, float, str]]
    colour: int


@dataclass(frozen=True, slots=True)
class Radar:
    """A radar chart: shares from 0 (the middle) to 1. rings: (points, share)."""

    title: str
    description: str
    spokes: Sequence[Spoke]
    rings: Sequence[tuple[str, float]]
    outlines: Sequence[Outline]
    legend: Sequence[tuple[int, str]]


RADAR_WIDTH, RADAR_HEIGHT, _RADIUS = 620, 430, 150


def radar(title: str, axes: Sequence[str], values: Mapping[str, Mapping[str, Estimate]]) -> Radar:
    """An outline for each series over the same axes; an axis that a series lacks is left out of its outline.

    values: series -> axis -> estimate.
    """

    def at(place: int, share: float) -> tuple[float, float]:
        angle = 2 * math.pi * place / len(axes) - math.pi / 2
        return (round(RADAR_WIDTH / 2 + share * _RADIUS * math.cos(angle), 1),
                round(RADAR_HEIGHT / 2 + share * _RADIUS * math.sin(angle), 1))  # fmt: skip

    def joined(points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x},{y}" for x, y in points)

    spokes = []
    for place, name in enumerate(axes):
        (x, y), (label_x, label_y) = at(place, 1), at(place, 1.09)
        side = label_x - RADAR_WIDTH / 2
        anchor = "middle" if abs(side) < 1 else "start" if side > 0 else "end"
        spokes.append(Spoke(x, y, label_x, label_y + 4, anchor, name))
    rings = [(joined([at(place, share) for place in range(len(axes))]), share) for share in (0.25, 0.5, 0.75, 1.0)]
    outlines, told = [], []
    for index, (series, by_axis) in enumerate(values.items()):
        dots = []
        for place, name in enumerate(axes):
            one = by_axis.get(name)
            if one is not None and one.value is not None:
                tip = f"{series}, {name}: {one.value:.2f} [{one.low:.2f}, {one.high:.2f}], n = {one.n}"
                dots.append((*at(place, min(max(one.value, 0.0), 1.0)), tip))
        outlines.append(Outline(joined([(x, y) for x, y, _ in dots]), dots, index % COLOURS + 1))
        told.append(
            f"{series}: "
            + ", ".join(f"{name} {one.value:.2f}" for name, one in by_axis.items() if one.value is not None)
        )
    legend = [(index % COLOURS + 1, series) for index, series in enumerate(values)]
    return Radar(title, "; ".join(told), spokes, rings, outlines, legend)
