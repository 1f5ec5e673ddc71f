"""Two evaluations of the same questions: what got better, what got worse, and whether that is more than chance.

    comparison = compare(Path("evals/before"), Path("evals/after"))
    comparison.tables()      a paired table for each benchmark
    comparison.flips         the questions that one gets right and the other wrong

Only like is compared with like: the same benchmark revision, subset, seed and number of draws. Everything else (the
checkpoint, how it samples, who judges) may differ and is said in `notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Table
from uni_train.eval.evaluation import Evaluation, load
from uni_train.eval.results import Cell, Results, paired_cells
from uni_train.eval.shortcuts import Trivial, best
from uni_train.eval.statistics import PairedComparison, detectable_change


@dataclass(frozen=True, slots=True)
class Flip:
    """A unit (question or pair) that one evaluation has right and the other wrong.

    label: under which labels it is counted, "" where a benchmark has one kind. ids: of its cases. direction: "right to
    wrong" or "wrong to right".
    """

    benchmark: str
    label: str
    setting: str
    set: str
    unit: str
    k: int
    ids: tuple[str, ...]
    direction: str


@dataclass(frozen=True, slots=True)
class Row:
    """One set in one setting. first, second: the mean of each. detectable: the smallest difference that so many units
    with so many flips would show; None where scores are graded."""

    benchmark: str
    label: str
    setting: str
    set: str
    n: int
    first: float
    second: float
    comparison: PairedComparison
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations, set by set. notes: what else differs between them, and what could not be compared."""

    first: Evaluation
    second: Evaluation
    rows: tuple[Row, ...]
    flips: tuple[Flip, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, str]:
        """What to call the two: their models, or where these are equal their folders."""
        models = (self.first.model, self.second.model)
        if models[0] != models[1]:
            return models
        folders = (self.first.folder.name, self.second.folder.name)
        return folders if folders[0] != folders[1] else (str(self.first.folder), str(self.second.folder))

    def tables(self) -> list[Table]:
        """One table a benchmark: what each has, the difference with its interval, the flips, McNemar's p."""
        one, two = self.names
        return [
            Table(
                f"{benchmark}: {two} (second) against {one} (first)",
                ("Setting", "Set", "First", "Second", "Difference", "won", "lost", "p", "detectable", "n"),
                _cells(list(rows)),
                "The same questions with the same seeds. p: McNemar's exact test (several draws of a question: a "
                "sign-flip test over questions). Detectable: the smallest difference that so many flips would show."
                + _beside(self.first.results[benchmark].scores),
                self.first.results[benchmark].questions,
            )
            for benchmark, rows in groupby(self.rows, lambda row: row.benchmark)
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, without images."""
        return {
            "first": str(self.first.folder),
            "second": str(self.second.folder),
            "rows": [
                {name: getattr(row, name) for name in ("benchmark", "label", "setting", "set", "n")}
                | {**row.comparison.to_dict(), "detectable": row.detectable}
                for row in self.rows
            ],
            "flips": [asdict(flip) for flip in self.flips],
            "questions": {row.benchmark: self.first.results[row.benchmark].questions for row in self.rows},
            "notes": list(self.notes),
        }


def _cells(rows: Sequence[Row]) -> tuple[tuple[Cell, ...], ...]:
    labelled = len({row.label for row in rows}) > 1
    return tuple(
        (
            row.setting + (f", {row.label} labels" if labelled else ""),
            row.set,
            f"{row.first:.2f}",
            f"{row.second:.2f}",
            row.comparison,
            str(row.comparison.only_second),
            str(row.comparison.only_first),
            f"{row.comparison.p_value:.2g}",
            None if row.detectable is None else f"{row.detectable:.2f}",
            str(row.n),
        )
        for row in rows
    )


def compare(first: Path, second: Path) -> Comparison:
    """Compare two finished evaluations on the benchmarks and settings that both have.

    Raises:
        UserError: a folder holds none; they have no benchmark, setting or score in common; they did not ask the same.
            The message says which of revision, subset, seed, draws or questions differs.
    """
    one, two = load(Path(first)), load(Path(second))
    common = [name for name in one.results if name in two.results]
    if not common:
        raise UserError(
            f"{one.folder} and {two.folder} have no benchmark in common",
            f"They have {', '.join(one.results)} and {', '.join(two.results)}.",
        )
    _check_same(one, two, common)
    rows: list[Row] = []
    flips: list[Flip] = []
    notes = _differences(one, two)
    for name in common:
        settings = [setting for setting in one.results[name].settings if setting in two.results[name].settings]
        if not settings:
            raise UserError(
                f"{one.folder} and {two.folder} asked {name} in different settings",
                f"They have {', '.join(one.results[name].settings)} and {', '.join(two.results[name].settings)}.",
            )
        skipped = one.results[name].without_score | two.results[name].without_score
        notes += [f"{name}: {s}, {set_} has no score in both, and is left out" for s, set_ in sorted(skipped)]
        before, after = (done.units(name, settings, skipped) for done in (one, two))
        for label in before:
            _check_asked(one, two, name, before[label], after[label])
            try:
                difference = _compare_units(name, label, before[label], after[label])
            except ValueError as error:
                hint = "Evaluate both with the same data and options."
                raise UserError(f"{one.folder} and {two.folder}: {name}: {error}", hint) from None
            rows += difference[0]
            flips += difference[1]
    if not rows:
        hint = "`eval` with judge.model=MODEL judges what is drawn."
        raise UserError(f"{one.folder} and {two.folder} have no score in common", hint)
    return Comparison(one, two, tuple(rows), tuple(flips), tuple(notes))


def _beside(scores: Mapping[str, Any]) -> str:
    """What trivial strategies reach on these sets, and chance; "" for a benchmark without any."""
    strategies = {
        name: [Trivial.from_dict(raw) for raw in raws] for name, raws in (scores.get("strategies") or {}).items()
    }
    leading = {name: one for name, all_ in strategies.items() if (one := best(all_)) is not None}
    leaders = ", ".join(
        f"{name} {strategy.estimate.value:.2f} ({strategy.chance:.2f})" for name, strategy in leading.items()
    )
    return f" Best trivial strategy (chance): {leaders}." if leaders else ""


# ------------------------------------------------------------------------------------------------- what is counted


def _compare_units(benchmark: str, label: str, before: Results, after: Results) -> tuple[list[Row], list[Flip]]:
    rows, flips = [], []
    for some, now, change in paired_cells(before, after):
        setting, name = some.units[0].setting, some.units[0].set
        detectable = None
        if all(unit.worth in (0, 1) for unit in (*some, *now)):
            differing = (change.only_first + change.only_second) / len(some)
            detectable = detectable_change(len(some.by("cluster")), differing)
        first, second = (sum(unit.worth for unit in answer) / len(some) for answer in (some, now))
        rows.append(Row(benchmark, label, setting, name, len(some), first, second, change, detectable))
        for unit, other in zip(some, now, strict=True):
            if unit.right != other.right:
                direction = "right to wrong" if unit.right else "wrong to right"
                flips.append(Flip(benchmark, label, setting, name, unit.name, unit.k, unit.ids, direction))
    return rows, flips


# ------------------------------------------------------------------------------------------ is like compared with like


def _check_same(one: Evaluation, two: Evaluation, common: Sequence[str]) -> None:
    for name in common:
        first, second = one.questions_identity(name), two.questions_identity(name)
        if first["revision"] != second["revision"]:
            raise UserError(
                f"{one.folder} and {two.folder} asked different questions of {name}: {_why(one, two, name)}",
                "Evaluate both checkpoints with the same data, labels and options.",
            )
        for key in first:
            if first[key] != second[key]:
                shown = " and ".join("all" if value is None else str(value) for value in (first[key], second[key]))
                raise UserError(
                    f"{one.folder} and {two.folder} did not ask the same: --{key} was {shown}",
                    f"Evaluate both checkpoints with one --{key}.",
                )


def _why(one: Evaluation, two: Evaluation, name: str) -> str:
    """The options, else the cases, in which two revisions of a benchmark differ."""
    options = [e.asked.get("options") or {} for e in (one, two)]
    keys = [key for key in dict.fromkeys([*options[0], *options[1]]) if options[0].get(key) != options[1].get(key)]
    if keys:
        return "; ".join(f"{key} was {options[0].get(key)} and {options[1].get(key)}" for key in keys[:3])
    first, second = ({(case := scored.sample.ask.case).id: case for scored in e.scored(name)} for e in (one, two))
    if lone := sorted(first.keys() ^ second.keys()):
        where = one.folder if lone[0] in first else two.folder
        return f"{len(lone)} cases are in one alone, such as {lone[0]}, which is in {where}"
    for case in first.values():
        for field in fields(case):
            shown = [f"{getattr(some[case.id], field.name)!r:.80}" for some in (first, second)]
            if shown[0] != shown[1]:
                return f"{field.name} of {case.id} is {shown[0]} and {shown[1]}"
    revisions = " and ".join(e.results[name].revision for e in (one, two))
    return f"the cases are equal, the revisions {revisions} are not: another version asked them otherwise"


def _check_asked(one: Evaluation, two: Evaluation, name: str, first: Results, second: Results) -> None:
    before, after = (
        {scored.sample.identity: scored.sample.ask.seed for scored in units.scored} for units in (first, second)
    )
    lone = sorted(before.keys() ^ after.keys())
    if lone:
        where = one.folder if lone[0] in before else two.folder
        raise UserError(
            f"{one.folder} and {two.folder} did not ask the same of {name}: {len(lone)} are in one only, such "
            f"as {lone[0][0]} ({lone[0][1]}), which is in {where}",
            "Evaluate both checkpoints with the same sets and subset.",
        )
    other = [key for key in before if before[key] != after[key]]
    if other:
        raise UserError(
            f"{one.folder} and {two.folder} drew {other[0][0]} ({other[0][1]}) with the seeds {before[other[0]]} and "
            f"{after[other[0]]}",
            "Evaluate both checkpoints with the same version of this program.",
        )


def _differences(one: Evaluation, two: Evaluation) -> list[str]:
    """What may differ and should be known when reading the numbers."""
    notes = []
    judges = [e.asked.get("judge") for e in (one, two)]
    if judges[0] != judges[1]:
        shown = [str(judge.get("model", judge)) if isinstance(judge, Mapping) else "nobody" for judge in judges]
        how = "" if shown[0] != shown[1] else ", asked in different ways"
        notes.append(f"judged by {shown[0]} and by {shown[1]}{how}: a difference may be the judges'")
    models = [e.asked["model"] for e in (one, two)]
    if models[0].get("settings") != models[1].get("settings"):
        notes.append("the models draw with different sampling settings")
    options = [e.asked.get("options") or {} for e in (one, two)]
    unlike = [key for key in {**options[0], **options[1]} if options[0].get(key) != options[1].get(key)]
    notes += [f"{key} is not the same: a difference may be its own" for key in unlike if "." in key]  # of a benchmark
    redraws = [of.get("redraw", 1) for of in options]
    if redraws[0] != redraws[1]:
        notes.append(f"redraw was {redraws[0]} and {redraws[1]}: a difference may be that of more images a sample")
    if models[0].get("content") == models[1].get("content"):
        notes.append("both are the same checkpoint")
    return notes
