"""The numbers and tables of UFO, from scored samples. Questions with choices and open ones are never mixed.

Three averages, named: the *mean of regimes*, the *mean of tasks*, and *per question*, where every question counts
alike. The Average that Tables 3 and 4 print is the last one (`QUESTIONS`); a regime is its questions' mean, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.eval import paper
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.benchmarks.ufo.names import (
    ANSWERS,
    BLIND,
    CUED,
    DIMENSIONS,
    DIRECT,
    IMAGE_CUE,
    KINDS,
    REGIMES,
    SETS,
    SETTINGS,
    SOURCES,
    TASKS,
    TEXT_CUE,
    kind_of_set,
    regime_of,
    task_of_set,
)
from uni_train.eval.benchmarks.ufo.rubric import DIMENSIONS as FIVE
from uni_train.eval.benchmarks.ufo.rubric import MOST
from uni_train.eval.results import Cell, Results, Unit, plain, unit_of
from uni_train.eval.statistics import Estimate, PairedComparison

PAPER = paper.printed(Path(__file__))  # table -> rows of paper.csv
# Questions of each regime: the denominators of Tables B, which add up to the 1,943 and 1,993 of Table 2. The Average of
# Tables 3 and 4 is the mean over them: within 0.02 in the rows of all open models, but for one cell.
QUESTIONS = {
    "mcq": dict(zip(REGIMES, (822, 836, 285), strict=True)),
    "open": dict(zip(REGIMES, (834, 872, 287), strict=True)),
}
# Of State Reconstruction: inpainting A and B, exo-to-ego, jigsaw. Its accuracy follows from Tables B within 0.006,
# though the printed halves of inpainting are shares of 230 and 60.
RECONSTRUCTION_QUESTIONS = {"mcq": (170, 326, 310, 30), "open": (170, 362, 310, 30)}
INPAINTING = ("inpainting a", "inpainting b", "inpainting")  # its columns in Tables B; the last: of an unknown half
AVERAGES = ("mean of regimes", "mean of tasks", "per question")
_CUES = {TEXT_CUE: "textual", IMAGE_CUE: "visual"}
HEADS = {"mcq": "multiple choice", "open": "open questions"}
_Row = tuple[Cell, ...]


def of_kind(kind: str) -> list[str]:
    """The sets of a kind of question."""
    return [name for name in SETS if kind_of_set(name) == kind]


def units(scored: Iterable[Scored]) -> Results:
    """Samples by themselves, without swaps that the data have no cue for: these were not asked.

    Of our own questions the one with choices and the open one share their cues: they are one cluster.
    """
    each = (unit_of(one, one.value) for one in scored if one.outcome != "cue_missing")
    return Results(replace(unit, cluster=str(unit.case.facts.get("drawn_as", unit.cluster))) for unit in each)


def _regime(one: Unit) -> str:
    return regime_of(one.set)


def _task(one: Unit) -> str:
    return task_of_set(one.set)


def _half(one: Unit) -> tuple[str, str]:
    """The task, and of inpainting its half ("a", "b"; "" where the data do not say)."""
    return _task(one), str(one.case.facts.get("part", ""))


class Count:
    """Samples by setting."""

    def __init__(self, scored: Iterable[Scored]) -> None:
        every = units(scored)
        self.by_setting = every.by("setting", SETTINGS)
        self.kinds = [kind for kind in KINDS if any(kind_of_set(name) == kind for name in every.by("set"))]

    def of(self, setting: str, kind: str | None = None) -> Results:
        some = self.by_setting.get(setting, Results(()))
        return some.where(lambda one: kind in (None, kind_of_set(one.set)))

    def asked(self, kind: str) -> list[str]:
        """Settings that answer questions of a kind, in order."""
        return [setting for setting in (*ANSWERS, BLIND) if self.of(setting, kind)]

    def averages(self, kind: str, setting: str) -> dict[str, Estimate]:
        """Name of an average -> accuracy; {} where nothing was asked."""
        some = self.of(setting, kind)
        return {name: _mean(some, over) for name, over in zip(AVERAGES, (_regime, _task, None), strict=True) if some}

    def gains(self, kind: str, setting: str) -> dict[str, PairedComparison]:
        """regime or "all" -> a schedule minus direct, on the same questions and draws."""
        before, after = self.of(DIRECT, kind), self.of(setting, kind)
        parts = {**after.by(_regime, REGIMES), "all": after}
        return {name: gain for name, some in parts.items() if (gain := some.minus(before)) is not None}

    def dimensions(self) -> dict[str, Estimate]:
        """Dimension or "average" -> the mean share of 5; a cue that was not drawn, or not graded, has 0."""
        some = self.of(DIMENSIONS)
        graded = {name: some.measured(lambda one, name=name: _grade(one, name)) for name in FIVE}  # type: ignore[misc]
        return {name: _mean(part) for name, part in {**graded, "average": some}.items() if part}

    def swap(self, schedule: str) -> dict[str, Estimate]:
        """Whose cue -> accuracy, on the cases that were answered with each; {} where none was."""
        settings = {"own": schedule, **{source: f"{schedule}_{source}" for source in SOURCES}}
        each = {name: self.of(setting) for name, setting in settings.items()}
        shared = set.intersection(*({one.place for one in some} for some in each.values()))
        return {name: _mean(some.where(lambda one: one.place in shared)) for name, some in each.items() if shared}


def _mean(some: Results, over: Callable[[Unit], str] | None = None) -> Estimate:
    return some.mean(over, unit="place")


def _grade(one: Scored, name: str) -> float:
    checks = () if one.verdict is None else one.verdict.checks
    return next((check.value or 0.0 for check in checks if check.name == name), 0.0)


def regimes(some: Results) -> dict[str, Estimate]:
    """regime -> accuracy, every question alike."""
    return {name: _mean(part) for name, part in some.by(_regime, REGIMES).items()}


def scores(count: Count) -> dict[str, Any]:
    """setting -> set or "overall" (the mean of the regimes of all its sets) -> Estimate, and beside the settings:

    "regimes", "averages": kind of question -> setting -> regime, or name of an average -> Estimate. "gains": kind ->
    schedule -> regime or "all" -> PairedComparison with direct. "dimensions": dimension or "average" -> Estimate, as a
    share of 5. "swap": schedule -> "own", "true", "other", "blank" -> Estimate, on the cases that have all of them.
    """
    found: dict[str, Any] = {
        setting: {**{name: _mean(part) for name, part in some.by("set", SETS).items()}, "overall": _mean(some, _regime)}
        for setting, some in count.by_setting.items()
    }
    found["regimes"] = {k: {s: regimes(count.of(s, k)) for s in count.asked(k)} for k in count.kinds}
    found["averages"] = {k: {s: count.averages(k, s) for s in count.asked(k)} for k in count.kinds}
    found["gains"] = {k: {s: of for s in ANSWERS[1:] if (of := count.gains(k, s))} for k in count.kinds}
    found["dimensions"] = count.dimensions()
    found["swap"] = {schedule: rates for schedule in CUED if (rates := count.swap(schedule))}
    return plain(found)  # type: ignore[no-any-return]


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(count: Count, *, published: bool) -> list[Table]:
    """Tables 3 and 4, B.1 to B.8, 5 and 8, then ours; the paper's rows below ours where its questions are asked."""
    found = []
    for kind in KINDS:
        found += [_by_regime(count, kind, published), _by_task(count, kind, published), _gains(count, kind)]
        found.append(_necessity(count, kind))
    found += [_cue_accuracy(count, published), _dimensions(count, published), _swap(count)]
    return [table for table in found if table.rows]


def _by_regime(count: Count, kind: str, published: bool) -> Table:
    rows: list[_Row] = []
    asked = [one for one in count.asked(kind) if one in ANSWERS]
    for setting in asked:
        by_name, means = regimes(count.of(setting, kind)), count.averages(kind, setting)
        rows.append((setting, *(by_name.get(one) for one in REGIMES), *(means[one] for one in AVERAGES)))
    number = 3 + KINDS.index(kind)
    for row in PAPER[f"Table {number}"] if published else ():
        for setting in asked:
            own = [_number(row[f"{regime} {setting}"]) for regime in REGIMES]
            own += [mean_of(own), task_mean(kind, setting, row["model"]), _number(row[f"average {setting}"])]
            rows.append((f"{row['model']} in the paper, {setting}", *map(_percent, own)))
    note = (
        "Per question: every question counts alike; a regime is the mean of its questions. The paper's row has its "
        "printed Average there, and means of its printed regimes and tasks (inpainting's two halves are one)."
        if published
        else "Per question: every question counts alike; a regime is the mean of its questions."
    )
    head = ("Schedule", *(f"State {one}" for one in REGIMES), *(one.capitalize() for one in AVERAGES))
    return Table(f"Accuracy, {HEADS[kind]} (Table {number})", head, tuple(rows), note)


def _by_task(count: Count, kind: str, published: bool) -> Table:
    halves = {_half(one) for setting in count.by_setting for one in count.of(setting, kind)}
    there = sorted(halves, key=lambda half: (list(TASKS).index(half[0]), half[1]))
    rows: list[_Row] = []
    for setting in count.asked(kind):
        by_half = count.of(setting, kind).by(_half)
        rows.append((setting, *(_mean(by_half[half]) if half in by_half else None for half in there)))
    asked = [setting for setting in count.asked(kind) if published and setting in ANSWERS]
    rows += [
        (f"{row['model']} in the paper, {setting}", *(_printed(row, *half) for half in there))
        for setting in asked
        for row in _tasks(kind, setting)
    ]
    note = "The paper prints halves A and B of inpainting." if published else ""
    title = f"Accuracy by task, {HEADS[kind]} (Tables B.{1 + 4 * KINDS.index(kind)} to B.{4 + 4 * KINDS.index(kind)})"
    heads = (f"{task.replace('_', ' ')} {part.upper()}".strip() for task, part in there)
    return Table(title, ("Schedule", *heads), tuple(rows), note)


def _gains(count: Count, kind: str) -> Table:
    found = {setting: count.gains(kind, setting) for setting in ANSWERS[1:]}
    rows = tuple((s, *(gains.get(name) for name in (*REGIMES, "all"))) for s, gains in found.items() if gains)
    head = ("Schedule", *(f"State {one}" for one in REGIMES), "All")
    note = "Accuracy minus that of direct, on the same questions."
    return Table(f"Gain of cues over direct, {HEADS[kind]}", head, rows, note)


def _necessity(count: Count, kind: str) -> Table:
    """The paper's two filters, applied to the model itself instead of to outside validators."""
    easy = {name: {one.place for one in count.of(name, kind) if one.right} for name in (DIRECT, BLIND)}
    rows: list[_Row] = []
    for setting in ANSWERS[1:]:
        if some := count.of(setting, kind):
            hard = [some.where(lambda one, name=name: one.place not in easy[name]) for name in easy]  # type: ignore[misc]
            rows.append((setting, *(_mean(part) if part and count.of(name, kind) else None
                                    for part, name in zip(hard, easy, strict=True))))  # fmt: skip
    note = (
        "Only questions that the model itself answers wrong directly, or without images. The paper removed questions "
        "that other models solve without cues (cue necessity) or without images (contamination)."
    )
    head = ("Schedule", "Not solved directly", "Not solved without images")
    return Table(f"Accuracy on questions that need cues, {HEADS[kind]}", head, tuple(rows), note)


def _cue_accuracy(count: Count, published: bool) -> Table:
    asked = {setting: some for setting in _CUES if (some := count.of(setting))}
    rows: list[_Row] = [
        (_CUES[setting], *map(regimes(some).get, REGIMES), _mean(some, _regime)) for setting, some in asked.items()
    ]
    for row in PAPER["Table 5"] if published else ():
        for setting in asked:
            own = [_number(row[f"{regime} {_CUES[setting]}"]) for regime in REGIMES]
            rows.append((f"{row['model']} in the paper, {_CUES[setting]}", *map(_percent, [*own, mean_of(own)])))
    head = ("Cue", *(f"State {one}" for one in REGIMES), "Mean of regimes")
    return Table("Accuracy of the cues (Table 5)", head, tuple(rows), "The judge's questions are ours.")


def _dimensions(count: Count, published: bool) -> Table:
    found, names = count.dimensions(), (*FIVE, "average")
    rows: list[_Row] = []
    if found:
        rows.append(("visual cues", *(f"{MOST * (found[name].value or 0):.2f}" for name in names)))
        for row in PAPER["Table 8"] if published else ():
            rows.append((f"{row['model']} in the paper", *(row[name] and f"{float(row[name]):.2f}" for name in names)))
    head = ("Cues", *(name.replace("_", " ").capitalize() for name in names))
    note = "0 to 5, after the rubric's two caps; a cue that was not drawn has 0. Intervals are in scores.json."
    return Table("Visual cues by the five dimensions (Table 8)", head, tuple(rows), note)


def _swap(count: Count) -> Table:
    found = {schedule: rates for schedule in CUED if (rates := count.swap(schedule))}
    rows = tuple((schedule, *map(rates.get, ("own", *SOURCES))) for schedule, rates in found.items())
    note = (
        "On the questions that have all four. A model that uses its cues is right with true ones and not with others."
    )
    return Table("Whose cue it answers with", ("Schedule", "Own", "True", "Another's", "Blank"), rows, note)


# --- what the paper prints -------------------------------------------------------------------------------------------


def mean_of(cells: Sequence[float | None]) -> float | None:
    there = [cell for cell in cells if cell is not None]
    return sum(there) / len(there) if len(there) == len(cells) and there else None


def task_mean(kind: str, setting: str, model: str) -> float | None:
    """The mean over the ten tasks that the paper prints for a model, inpainting's two halves as one; its tables name
    some models' sizes apart."""
    for row in _tasks(kind, setting):
        if row["model"].replace("3B + 4B", "3B") == model:
            tasks = [_number(row[task]) for task in TASKS if task in row and task != "inpainting"]
            return mean_of([mean_of([float(row[name]) for name in INPAINTING if row[name]]), *tasks])
    return None


def _tasks(kind: str, setting: str) -> list[paper.Row]:
    return [row for row in PAPER["Tables B"] if (row["kind"], row["schedule"]) == (kind, setting)]


def _printed(row: Mapping[str, str], task: str, part: str) -> str | None:
    """A task's cell; of inpainting both halves where the data do not name them."""
    names = INPAINTING if (task, part) == ("inpainting", "") else (f"{task} {part}".strip(),)
    return " + ".join(f"{float(cell) / 100:.4f}" for name in names if (cell := row.get(name))) or None


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _percent(cell: float | None) -> str | None:
    return None if cell is None else f"{cell / 100:.4f}"
