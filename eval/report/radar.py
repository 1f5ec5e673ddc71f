"""A radar of scores by set: a polygon each evaluation, as papers compare models over tasks (UEval, Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uni_train.eval.report.charts import COLOURS, SHARES, Line
from uni_train.eval.statistics import Estimate

CENTRE, RADIUS = (260, 158), 125  # of the viewBox, 520 x 316


@dataclass(frozen=True, slots=True)
class Radar:
    """A chart. spokes: x and y of an axis' end, x and y of its name, anchor, name; rings: (path, y, share); lines:
    polygons, open where a set has no score."""

    title: str
    description: str
    spokes: Sequence[tuple[float, float, float, float, str, str]]
    rings: Sequence[tuple[str, float, str]]
    lines: Sequence[Line]


def radar(title: str, values: Mapping[str, Mapping[str, Estimate | None]]) -> Radar:
    """Place scores in the viewBox, the first set at the top, the others clockwise; shares from 0 to 1.

    values: name -> set -> estimate, all names with the same sets in one order. Its place is a name's colour.
    """
    sets = list(next(iter(values.values())))
    angles = {name: 2 * math.pi * place / len(sets) for place, name in enumerate(sets)}

    def at(name: str, share: float) -> tuple[float, float]:
        x, y = (RADIUS * share * turn(angles[name]) for turn in (math.sin, math.cos))
        return round(CENTRE[0] + x, 1), round(CENTRE[1] - y, 1)

    def path(shares: Mapping[str, float]) -> str:
        sides = [(a, b) for a, b in zip(sets, [*sets[1:], sets[0]], strict=True) if a in shares and b in shares]
        return " ".join("M{} {}L{} {}".format(*at(a, shares[a]), *at(b, shares[b])) for a, b in sides)

    lines, described = [], []
    for number, (name, by_set) in enumerate(values.items()):
        shares = {one: score.value for one, score in by_set.items() if score is not None and score.value is not None}
        dots = [(*at(one, share), f"{name}, {one}: {share:.2f}") for one, share in shares.items()]
        lines.append(Line(name, path(shares), number % COLOURS + 1, False, dots, ()))
        described.append(f"{name}: " + ", ".join(f"{one} {share:.2f}" for one, share in shares.items()))
    sides = [round(math.sin(angle), 6) for angle in angles.values()]
    anchors = ["start" if side > 0 else "end" if side < 0 else "middle" for side in sides]
    spokes = [(*at(one, 1), *at(one, 1.1), anchor, one) for one, anchor in zip(sets, anchors, strict=True)]
    rings = [(path(dict.fromkeys(sets, share)), at(sets[0], share)[1], label) for share, label in SHARES.ticks[1:]]
    return Radar(title, "; ".join(described), spokes, rings, lines)
