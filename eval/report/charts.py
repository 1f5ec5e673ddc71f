"""Charts as geometry: data in, positions in a small viewBox out; `chart.html` turns them into inline SVG.

`chart` draws lines, `scores` lines of scores with their intervals, `dots` a row of scores for each name.

Why not plotly: its script adds 4.5 MB to every report and starts slower than the rest of the page loads. A few hundred
points need no library in the browser. SVG follows dark mode through CSS and prints sharply.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uni_train.eval.statistics import Estimate

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 18, 38  # left: at least, more where labels are longer
COLOURS = 8  # of style.css
_MAX_POINTS = 400
_LETTER = 6.5  # of a tick's label
_NAMES, _MARGIN, _ABOVE, _BELOW = 128, 14, 8, 24  # of `dots`: left at least, right, top, bottom
_ROW, _SPREAD = 13, 11  # of `dots`: height of a row without its dots, and of each dot


@dataclass(frozen=True, slots=True)
class Series:
    """One line. colour: 1, 2, ..., CSS classes, after COLOURS from the first again; faint: raw data behind a smoothed
    line; intervals: (low, high) a point."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 1
    faint: bool = False
    markers: bool = False
    intervals: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """low and high in data units; ticks as (value, label); log: a logarithmic scale (low > 0)."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    label: str = ""
    log: bool = False

    def share(self, value: float) -> float:
        """Where `value` lies between low (0) and high (1)."""
        if self.log:
            value, low, high = math.log(max(value, 1e-12)), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return (value - low) / ((high - low) or 1.0)


SHARES = Axis(0, 1, [(i / 4, f"{i / 4:.2f}") for i in range(5)])


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    path: str
    colour: int
    faint: bool
    dots: Sequence[tuple[float, float, str]]  # x, y, tooltip
    whiskers: Sequence[tuple[float, float, float]]  # x, y of low, y of high


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    description: str
    lines: Sequence[Line]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    x_label: str
    dividers: Sequence[tuple[float, str]]
    reference: tuple[float, str] | None
    numbers: str = ""  # what the numbers of the dividers stand for
    left: float = LEFT

    @property
    def legend(self) -> list[Line]:
        return [line for line in self.lines if not line.faint and line.name]


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
    left: float = _NAMES


def _room(least: float, names: Iterable[str]) -> float:
    """What names left of a chart need, with 8 between them and the chart."""
    return max([least, *(8 + _LETTER * len(name) for name in names)])


def chart(
    title: str,
    description: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    dividers: Sequence[tuple[float, str]] = (),
    reference: tuple[float, str] | None = None,
) -> Chart:
    """Place `series` in the viewBox.

    description: what a reader who cannot see the chart is told. dividers: vertical lines at x values, whose names are
    numbers below the title where one does not fit; reference: one dashed horizontal line at a y value, with its name.
    """

    left = _room(LEFT, (label for _, label in y.ticks))

    def at_x(value: float) -> float:
        return round(left + x.share(value) * (WIDTH - left - RIGHT), 1)

    def at_y(value: float) -> float:
        return round(HEIGHT - BOTTOM - min(max(y.share(value), 0.0), 1.0) * (HEIGHT - TOP - BOTTOM), 1)

    lines = []
    for curve in series:
        points = thin(curve.points)
        path = " ".join(f"{'M' if i == 0 else 'L'}{at_x(a)} {at_y(b)}" for i, (a, b) in enumerate(points))
        digits = "z.2f" if y is SHARES else ".3g"
        dots = [(at_x(a), at_y(b), f"{curve.name}: {b:{digits}}") for a, b in points] if curve.markers else []
        whiskers = [
            (at_x(a), at_y(low), at_y(high)) for (a, _), (low, high) in zip(points, curve.intervals, strict=False)
        ]
        lines.append(Line(curve.name, path, (curve.colour - 1) % COLOURS + 1, curve.faint, dots, whiskers))
    places, names = [at_x(value) for value, _ in dividers], [name for _, name in dividers]
    room = [(end - place) / _LETTER for place, end in zip(places, [*places[1:], WIDTH], strict=False)]
    shown = names
    if numbered := any(len(name) > letters for name, letters in zip(names, room, strict=True)):
        shown = [str(i) if len(str(i)) <= letters else "" for i, letters in enumerate(room, 1)]
    return Chart(
        title,
        description,
        lines,
        [(at_x(value), label) for value, label in x.ticks],
        [(at_y(value), label) for value, label in y.ticks],
        x.label,
        list(zip(places, shown, strict=True)),
        None if reference is None else (at_y(reference[0]), reference[1]),
        ", ".join(f"{number} {name}" for number, name in enumerate(names, 1)) if numbered else "",
        left,
    )


def scores(
    title: str,
    lines: Mapping[str, Sequence[tuple[float, Estimate | None]]],
    x: Axis,
    spacing: float = 0.0,
    description: str = "{}",
    reference: tuple[float, str] | None = None,
    y: Axis = SHARES,
) -> Chart:
    """A line for each name: shares with their intervals, without those that have no value.

    Its place among `lines` is its colour: charts that show the same names have all of them, those without points too.
    spacing: how far neighbours are moved from each other, so that whiskers do not hide each other. description: as of
    `chart`; {} stands for the ends of the lines.
    """
    series = []
    for index, (name, points) in enumerate(lines.items()):
        shift = spacing * (index - (len(lines) - 1) / 2)
        placed = [(at + shift, point) for at, point in points if point is not None and point.value is not None]
        if placed:
            whiskers = [(estimate.low, estimate.high) for _, estimate in placed]
            heights = [(at, estimate.value or 0.0) for at, estimate in placed]
            series.append(Series(name, heights, index + 1, markers=True, intervals=whiskers))
    ends = "; ".join(f"{curve.name} from {curve.points[0][1]:.2f} to {curve.points[-1][1]:.2f}" for curve in series)
    return chart(title, description.format(ends), series, x, y, reference=reference)


def dots(title: str, values: Mapping[str, Mapping[str, Estimate]], colours: Mapping[str, int]) -> Dots:
    """A row for each name of `values`, in it a dot for each series; shares from 0 to 1.

    values: row -> series -> estimate (left out where it has no value). colours: series -> 1 to COLOURS, a CSS class.
    """
    height = _ROW + _SPREAD * max(1, len(colours))
    short = {name: name[:35] + "…" * (len(name) > 35) for name in values}  # tooltips have all of it
    left = _room(_NAMES, short.values())

    def at(share: float) -> float:
        return round(left + min(max(share, 0.0), 1.0) * (WIDTH - left - _MARGIN), 1)

    marks, rows, described = [], [], []
    for i, (name, by_series) in enumerate(values.items()):
        top = _ABOVE + i * height
        rows.append((round(top + height / 2, 1), short[name]))
        shown = [(series, curve) for series, curve in by_series.items() if curve.value is not None]
        for series, estimate in shown:
            place = list(colours).index(series)
            y = round(top + _ROW / 2 + _SPREAD * (place + 0.5), 1)
            assert estimate.value is not None
            tip = f"{name}, {series}: {estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}], n = {estimate.n}"
            marks.append(Mark(at(estimate.value), at(estimate.low), at(estimate.high), y, colours[series], tip))
        described += [f"{name}: " + ", ".join(f"{series} {at.value:.2f}" for series, at in shown)] if shown else []
    ticks = [(at(value), name) for value, name in SHARES.ticks]
    legend = [(colour, series) for series, colour in colours.items()]
    return Dots(title, "; ".join(described), _ABOVE + len(values) * height + _BELOW, rows, ticks, marks, legend, left)


def thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most _MAX_POINTS of them, evenly spaced, the last one included."""
    if len(points) <= _MAX_POINTS:
        return points
    step = (len(points) - 1) / (_MAX_POINTS - 1)
    return [points[round(i * step)] for i in range(_MAX_POINTS)]


def smooth(values: Sequence[float], span: float) -> list[float]:
    """Exponential moving average over about `span` values, corrected for its start."""
    decay, total, weight, out = 1 - 1 / max(span, 1.0), 0.0, 0.0, []
    for value in values:
        total, weight = decay * total + value, decay * weight + 1
        out.append(total / weight)
    return out


def linear_axis(low: float, high: float, label: str = "") -> Axis:
    """Round numbers around `low` and `high` as ends, with about five ticks at multiples of 1, 2 or 5."""
    step = _round_up((high - low) / 5 or 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [(i * step, f"{i * step:g}") for i in range(first, max(last, first + 1) + 1)]
    return Axis(ticks[0][0], ticks[-1][0], ticks, label)


def log_axis(low: float, high: float) -> Axis:
    """A logarithmic axis around positive data, with ticks at 1, 2 and 5 times powers of ten, fewer where wide."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    wide = math.log10(high / low) > 2.5
    marks = [m * 10.0**d for d in decades for m in ((1,) if wide else (1, 2, 5))]
    below = max((m for m in marks if m <= low), default=low)
    above = min((m for m in marks if m >= high), default=high)
    ticks = [(m, f"{m:g}") for m in marks if below <= m <= above]
    return Axis(below, above if above > below else below * 10, ticks, log=True)


def _round_up(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))
