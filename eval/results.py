"""Scored samples as one table: a row is what counts once, and every score is a group-by with a 95 % interval.

    results = Results(benchmark.units(scored, label))
    results.by("setting")["direct"].by("set")["maze"].mean()     accuracy of a set
    results.by("setting")["direct"].mean(over="set")             the mean over sets, each set alike
    after.minus(before)                                          the paired difference, on what both have

`tabulate` makes a table of declared columns, each a score of the rows of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from uni_train.eval.statistics import Estimate, PairedComparison, paired, share, shares

if TYPE_CHECKING:
    from uni_train.eval.sample import Case, Scored


@dataclass(frozen=True, slots=True)
class Unit:
    """What counts once, in scores and where evaluations are compared: a case, or cases that are right only together.

    ids: of its cases. value: between 0 and 1, where its score is graded; None: 1 if it is right, else 0. cluster: units
    that are not independent share it. samples: what was scored; () where only the outcome is known.
    """

    setting: str
    set: str
    name: str
    k: int
    ids: tuple[str, ...]
    right: bool
    cluster: str
    value: float | None = None
    samples: tuple[Scored, ...] = ()

    @property
    def worth(self) -> float:
        return float(self.right) if self.value is None else self.value

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.setting, self.set, self.name, self.k

    @property
    def place(self) -> tuple[str, str, int]:
        """Set, name and draw: equal in two settings that asked the same."""
        return self.set, self.name, self.k

    @property
    def case(self) -> Case:
        return self.samples[0].sample.ask.case


Key = str | Callable[[Unit], Any]
"""A column of the table: an attribute of a unit, or a function of it."""
Cell = str | Estimate | PairedComparison | None
PAPER = "the paper"
"""Whose the rows are that a paper prints, where tables of several models are put together."""


def printed(row: Sequence[Any]) -> bool:
    """Whether a row is a paper's: it is called "MODEL in the paper", with what else is to know behind it."""
    return row[0] == PAPER or (isinstance(row[0], str) and "in the paper" in row[0])


def unit_of(scored: Scored, value: float | None = None) -> Unit:
    """A sample that counts by itself. value: its score, where that is not whether it passed."""
    ask = scored.sample.ask
    case = ask.case
    return Unit(
        ask.setting, case.set, case.id, ask.k, (case.id,), scored.passed, case.cluster_id, value, (scored,)
    )  # fmt: skip


def _question(unit: Unit) -> tuple[str, str]:
    return unit.set, unit.name


class Results:
    """Units in the order of asking."""

    __slots__ = ("units",)

    def __init__(self, units: Iterable[Unit]) -> None:
        self.units = tuple(units)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def scored(self) -> list[Scored]:
        return [scored for unit in self for scored in unit.samples]

    @property
    def setting(self) -> str:
        """Of the first unit, where all have one."""
        return self.units[0].setting

    def where(self, keep: Callable[[Unit], bool]) -> Results:
        return Results(unit for unit in self if keep(unit))

    def by(self, key: Key, order: Iterable[Any] | None = None) -> dict[Any, Results]:
        """Value of the column -> its units; in `order`, without what is not in it, or as the values come."""
        column, groups = _column(key), dict[Any, list[Unit]]()
        for unit in self:
            groups.setdefault(column(unit), []).append(unit)
        return {value: Results(groups[value]) for value in (groups if order is None else order) if value in groups}

    def groups(self, groups: Mapping[str, Collection[str]]) -> dict[str, Results]:
        """Name -> the units of its sets, where there are any."""
        parts = {name: self.where(lambda unit, sets=sets: unit.set in sets) for name, sets in groups.items()}  # type: ignore[misc]
        return {name: some for name, some in parts.items() if some}

    def measured(self, value: Callable[[Scored], float | None]) -> Results:
        """With another value in [0, 1] of each sample, without those that have none."""
        each = ((unit, value(unit.samples[0])) for unit in self)
        return Results(replace(unit, value=measured) for unit, measured in each if measured is not None)

    def mean(self, over: Key | None = None, unit: Key = _question) -> Estimate:
        """The mean, with `over` the unweighted mean over the values of that column. n: different values of `unit`."""
        return share(
            [row.worth for row in self], [*map(_column(unit), self)], [row.cluster for row in self], self._cells(over)
        )

    def minus(self, before: Results, over: Key | None = None) -> PairedComparison | None:
        """Paired by `Unit.place` on what both have; None where that is nothing."""
        earlier = {unit.place: unit for unit in before}
        both = Results(unit for unit in self if unit.place in earlier)
        if not both:
            return None
        first = [earlier[unit.place].worth for unit in both]
        clusters = [unit.cluster for unit in both]
        return paired(first, [unit.worth for unit in both], clusters, both._cells(over))

    def shares(self, names: Iterable[str], of: Callable[[Scored], str]) -> dict[str, Estimate]:
        """Each of `names`: the share of the samples that `of` calls so."""
        labelled = [(of(scored), unit.cluster) for unit in self for scored in unit.samples]
        return shares(names, [name for name, _ in labelled], [cluster for _, cluster in labelled])

    def _cells(self, over: Key | None) -> list[Any] | None:
        cells = [] if over is None else [*map(_column(over), self)]
        return cells if len(set(cells)) > 1 else None


@dataclass(frozen=True, slots=True)
class Metric:
    """A score of units, declared once: scores.json, tables, leaderboards and exports take it from here.

    sets: whose units count; empty: all. over: the mean over the values of this column, each alike; None: over units.
    unit: n counts its different values.
    """

    sets: Collection[str] = ()
    over: Key | None = "set"
    unit: Key = _question

    def among(self, some: Results) -> Results:
        """The units that count."""
        return some.where(lambda unit: unit.set in self.sets) if self.sets else some

    def __call__(self, some: Results) -> Estimate:
        return self.among(some).mean(self.over, self.unit)

    def gain(self, before: Results, after: Results) -> PairedComparison | None:
        """After minus before, paired by `Unit.place`; None where they share nothing."""
        return self.among(after).minus(before, self.over)

    def by_set(self, some: Results, groups: Mapping[str, Collection[str]]) -> dict[str, Estimate]:
        """Name of a group of sets, or "overall" -> the score."""
        return {**{name: self(part) for name, part in some.groups(groups).items()}, "overall": self(some)}


def paired_cells(before: Results, after: Results) -> Iterator[tuple[Results, Results, PairedComparison]]:
    """What both have of each set in each setting, in the order of `before`, and the difference.

    Raises ValueError where a set has different units in the two.
    """
    later = after.by(_setting_and_set)
    for (setting, name), first in before.by(_setting_and_set).items():
        if (second := later.get((setting, name))) is None:
            continue
        places = {unit.place: unit for unit in second}
        if places.keys() != {unit.place for unit in first}:
            raise ValueError(f"{setting} {name}: the two were not measured on the same items")
        second = Results(places[unit.place] for unit in first)
        difference = second.minus(first)
        assert difference is not None, "a cell has units"
        yield first, second, difference


def changes(before: Results, after: Results) -> dict[str, dict[str, PairedComparison]]:
    """setting -> set -> the same units before and after."""
    differences: dict[str, dict[str, PairedComparison]] = {}
    for first, _, difference in paired_cells(before, after):
        differences.setdefault(first.units[0].setting, {})[first.units[0].set] = difference
    return differences


def _setting_and_set(unit: Unit) -> tuple[str, str]:
    return unit.setting, unit.set


def _column(key: Key) -> Callable[[Unit], Any]:
    return (lambda unit: getattr(unit, key)) if isinstance(key, str) else key


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the layout of its paper. A cell is a text, an Estimate, a PairedComparison, or None (not asked).

    questions: whose they are (`Benchmark.questions`); whoever shows the table shows it. digits: of scores after the
    point.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    questions: str = ""
    digits: int = 2

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `from_dict` gives an equal table. `digits` is there where it is not 2."""
        rows = [[*map(plain, row)] for row in self.rows]
        about: dict[str, Any] = {"note": self.note, "questions": self.questions}
        about |= {} if self.digits == 2 else {"digits": self.digits}
        return {"title": self.title, "columns": list(self.columns), "rows": rows, **about}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Table:
        rows = tuple(tuple(cell_from_json(cell) for cell in row) for row in raw["rows"])
        note, questions = (str(raw.get(name, "")) for name in ("note", "questions"))
        return cls(str(raw["title"]), tuple(raw["columns"]), rows, note, questions, int(raw.get("digits", 2)))


def cell_from_json(raw: Any) -> Cell:
    """A cell of a table, or of a summary."""
    if raw is None or isinstance(raw, str):
        return raw
    if "difference" not in raw:
        return Estimate.from_dict(raw)
    both, first, second, neither = (int(raw[name]) for name in ("both", "only_first", "only_second", "neither"))
    difference, p_value = Estimate.from_dict(raw["difference"]), float(raw["p_value"])
    return PairedComparison(both, first, second, neither, difference, p_value)


def plain(tree: Any) -> Any:
    """JSON-able: estimates, comparisons and what else has `to_dict` in nested mappings as dicts."""
    if isinstance(tree, Mapping):
        return {key: plain(value) for key, value in tree.items()}
    return tree.to_dict() if hasattr(tree, "to_dict") else tree
