"""Accuracy of trivial strategies (uni_train.data_gen.shortcuts) with intervals, for comparison with a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.shortcuts import LOOK_UP, MARGIN, Tally, tally
from uni_train.data_gen.task import Question
from uni_train.eval.results import Table
from uni_train.eval.statistics import Estimate, share


@dataclass(frozen=True, slots=True)
class Trivial:
    """A strategy on one set. note: why it is no shortcut there although it may be right; "" for every other."""

    name: str
    estimate: Estimate
    chance: float
    note: str = ""

    @property
    def beats_chance(self) -> bool:
        """By more than MARGIN, with the interval clear of chance, and nobody has said why."""
        value = self.estimate.value
        return not self.note and value is not None and value > self.chance + MARGIN and self.estimate.low > self.chance

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **self.estimate.to_dict(), "chance": self.chance, "note": self.note}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Trivial:
        return cls(str(raw["name"]), Estimate.from_dict(raw), float(raw["chance"]), str(raw.get("note", "")))


def trivial(questions: Sequence[Question], known: Mapping[str, str] | None = None) -> list[Trivial]:
    """Every strategy on one set of questions, the best first. known: as in `data_gen.shortcuts.tally`."""
    return estimated(tally(questions, known))


def estimated(tallies: Sequence[Tally]) -> list[Trivial]:
    """Tallies with their intervals, clustered by what repeats (expressions, sets of rules)."""
    return [
        Trivial(way.name, share(way.right, range(len(way.right)), way.clusters), TASKS.get(way.kind).chance, way.note)
        for way in tallies
    ]


def counted(estimate: Estimate) -> str:
    """n beside the number of different expressions or rules: "128 / 17"."""
    return f"{estimate.n} / {estimate.n if estimate.distinct is None else estimate.distinct}"


def best(strategies: Sequence[Trivial]) -> Trivial | None:
    """The best strategy that is not the task itself (a look-up of one link is)."""
    return next((strategy for strategy in strategies if strategy.note != LOOK_UP), None)


def table_of(name: str, tallies: Sequence[Tally]) -> Table:
    """What trivial strategies reach on a set of this name, beside chance."""
    strategies = estimated(tallies)
    first = strategies[0].estimate
    units = "pairs, both right" if TASKS.get(tallies[0].kind).items_per_draw == 2 else "prompts"
    repeats = f", {first.distinct} distinct" if first.distinct is not None else ""
    rows = [
        (
            strategy.name,
            f"{strategy.estimate.value:.2f}",
            f"{strategy.estimate.low:.2f}-{strategy.estimate.high:.2f}",
            "SHORTCUT: above chance" if strategy.beats_chance else "",
        )
        for strategy in strategies
    ]
    remarks = "".join(f" {strategy.name}: {strategy.note}." for strategy in strategies if strategy.note)
    note = f"n = {first.n} {units}{repeats}. Chance: {strategies[0].chance:.2f}.{remarks}"
    return Table(f"Trivial strategies, {name}", ("strategy", "right", "95 % interval", ""), tuple(rows), note)
