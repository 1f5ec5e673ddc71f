"""The numbers and tables of UFO, from scored samples. Questions with choices and open ones are never mixed.

Three averages, named: the *mean of regimes*, the *mean of tasks*, and *per question*, where every question counts
alike. The Average that Tables 3 and 4 print is the last one (`QUESTIONS`); a regime is its questions' mean, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.eval import paper
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks.ufo.names import (
    ANSWERS,
    BLIND,
    CUED,
    DIMENSIONS,
    DIRECT,
    IMAGE_CUE,
    KINDS,
    REGIMES,
    SCHEDULES,
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
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Metric, Results, Unit, unit_of
from uni_train.eval.statistics import Estimate, PairedComparison

PAPER = paper.printed(Path(__file__))  # table -> rows of paper.csv
# Questions of each regime: the denominators of Tables B, which add up to the 1,943 and 1,993 of Table 2. The Average of
# Tables 3 and 4 is the mean over them: within 0.02 in the rows of all open models, but for one cell.
QUESTIONS = {
    "mcq": dict(zip(REGIMES, (822, 836, 285), strict=True)),
    "open": dict(zip(REGIMES, (834, 872, 287), strict=True)),
}
INPAINTING = ("inpainting a", "inpainting b", "inpainting")  # its columns in Tables B; the last: of an unknown half
_CUES = {TEXT_CUE: "textual", IMAGE_CUE: "visual"}
HEADS = {"mcq": "multiple choice", "open": "open questions"}


def units(scored: Iterable[Scored]) -> Results:
    """Samples by themselves, without swaps that the data have no cue for: these were not asked.

    Of our own questions the one with choices and the open one share their cues: they are one cluster.
    """
    each = (unit_of(answer, answer.value) for answer in scored if answer.outcome != "cue_missing")
    return Results(replace(unit, cluster=str(unit.case.facts.get("drawn_as", unit.cluster))) for unit in each)


def _regime(unit: Unit) -> str:
    return regime_of(unit.set)


def _task(unit: Unit) -> str:
    return task_of_set(unit.set)


def _half(unit: Unit) -> tuple[str, str]:
    """The task, and of inpainting its half ("a", "b"; "" where the data do not say)."""
    return _task(unit), str(unit.case.facts.get("part", ""))


AVERAGES = {
    name: Metric(over=over, unit="place")
    for name, over in (("mean of regimes", _regime), ("mean of tasks", _task), ("per question", None))
}
_mean = AVERAGES["per question"]


class Count:
    """Samples by setting."""

    def __init__(self, results: Results) -> None:
        self.by_setting = results.by("setting", SETTINGS)
        self.kinds = [kind for kind in KINDS if any(kind_of_set(name) == kind for name in results.by("set"))]

    def results(self, setting: str, kind: str | None = None) -> Results:
        some = self.by_setting.get(setting, Results(()))
        return some.where(lambda unit: kind in (None, kind_of_set(unit.set)))

    def settings(self, kind: str) -> list[str]:
        """Settings that answer questions of a kind, in order."""
        return [setting for setting in (*SCHEDULES, BLIND) if self.results(setting, kind)]

    def averages(self, kind: str, setting: str) -> dict[str, Estimate]:
        """Name of an average -> accuracy; {} where nothing was asked."""
        some = self.results(setting, kind)
        return {name: metric(some) for name, metric in AVERAGES.items() if some}

    def gains(self, kind: str, setting: str) -> dict[str, PairedComparison]:
        """regime or "all" -> a schedule minus direct, on the same questions and draws."""
        before, after = self.results(DIRECT, kind), self.results(setting, kind)
        parts = {**after.by(_regime, REGIMES), "all": after}
        return {name: gain for name, some in parts.items() if (gain := some.minus(before)) is not None}

    def dimensions(self) -> dict[str, Estimate]:
        """Dimension or "average" -> the mean share of 5; a cue that was not drawn, or not graded, has 0."""
        some = self.results(DIMENSIONS)
        graded = {name: some.measured(lambda answer, name=name: _grade(answer, name)) for name in FIVE}  # type: ignore[misc]
        return {name: _mean(part) for name, part in {**graded, "average": some}.items() if part}

    def swap(self, schedule: str) -> dict[str, Estimate]:
        """Whose cue -> accuracy, on the cases that were answered with each; {} where none was."""
        settings = {"own": schedule, **{source: f"{schedule}_{source}" for source in SOURCES}}
        each = {name: self.results(setting) for name, setting in settings.items()}
        shared = set.intersection(*({unit.place for unit in some} for some in each.values()))
        return {name: _mean(some.where(lambda unit: unit.place in shared)) for name, some in each.items() if shared}


def _grade(answer: Scored, name: str) -> float:
    checks = () if answer.verdict is None else answer.verdict.checks
    return next((check.value or 0.0 for check in checks if check.name == name), 0.0)


def regimes(some: Results) -> dict[str, Estimate]:
    """regime -> accuracy, every question alike."""
    return {name: _mean(part) for name, part in some.by(_regime, REGIMES).items()}


def details(count: Count) -> dict[str, Any]:
    """ "regimes", "averages": kind of question -> setting -> regime, or name of an average -> Estimate.

    "gains": kind -> schedule -> regime or "all" -> PairedComparison with direct. "dimensions": dimension or "average"
    -> Estimate, as a share of 5. "swap": schedule -> "own", "true", "other", "blank" -> Estimate, on the cases that
    have all of them.
    """
    return {
        "regimes": {k: {s: regimes(count.results(s, k)) for s in count.settings(k)} for k in count.kinds},
        "averages": {k: {s: count.averages(k, s) for s in count.settings(k)} for k in count.kinds},
        "gains": {k: {s: of for s in SCHEDULES[1:] if (of := count.gains(k, s))} for k in count.kinds},
        "dimensions": count.dimensions(),
        "swap": {schedule: rates for schedule in CUED if (rates := count.swap(schedule))},
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def specs(count: Count, printed: paper.Paper | None) -> Iterable[TableSpec]:
    """Tables 3 and 4, B.1 to B.8, 5 and 8, then ours; the paper's rows below ours where its questions are asked."""
    for kind in KINDS:
        yield _by_regime(count, kind, printed)
        yield _by_task(count, kind, printed)
        yield _gains(count, kind)
        yield _necessity(count, kind)
    yield from (_cue_accuracy(count), _dimensions(count), _swap(count))


def _by_regime(count: Count, kind: str, printed: paper.Paper | None) -> TableSpec:
    asked = {setting: count.results(setting, kind) for setting in SCHEDULES if count.results(setting, kind)}
    number = f"Table {3 + KINDS.index(kind)}"
    note = "Per question: every question counts alike; a regime is the mean of its questions."
    if printed is not None:
        note += (
            " The paper's row has its printed Average there, and means of its printed regimes and tasks (inpainting's "
            "two halves are one)."
        )
    of_paper = (lambda row: _share(mean_of(_cells(row, REGIMES))),
                lambda row: _share(task_mean(kind, row["setting"], row["model"])),
                _printed("average"))  # fmt: skip
    columns = [
        *_regimes(),
        *(Column(name.capitalize(), metric, cell)
          for (name, metric), cell in zip(AVERAGES.items(), of_paper, strict=True)),
    ]  # fmt: skip
    printed_schedules = [setting for setting in asked if setting in ANSWERS]
    rows = paper.per_setting(PAPER[number], printed_schedules, (*REGIMES, "average"))
    return TableSpec(f"Accuracy, {HEADS[kind]} ({number})", columns, asked, paper=rows,
                     label="{model} in the paper, {setting}", first="Schedule", note=note)  # fmt: skip


def _by_task(count: Count, kind: str, printed: paper.Paper | None) -> TableSpec:
    asked = {setting: count.results(setting, kind) for setting in count.settings(kind)}
    halves = {_half(unit) for setting in count.by_setting for unit in count.results(setting, kind)}
    columns = [
        Column(f"{task.replace('_', ' ')} {part.upper()}".strip(), partial(_of_half, (task, part)),
               partial(_task_printed, task, part))
        for task, part in sorted(halves, key=lambda half: (list(TASKS).index(half[0]), half[1]))
    ]  # fmt: skip
    first = 1 + 4 * KINDS.index(kind)
    rows = [{**row, "setting": row["schedule"]} for setting in ANSWERS for row in _tasks(kind, setting)]
    note = "" if printed is None else "The paper prints halves A and B of inpainting."
    return TableSpec(f"Accuracy by task, {HEADS[kind]} (Tables B.{first} to B.{first + 3})", columns, asked, paper=rows,
                     label="{model} in the paper, {setting}", first="Schedule", note=note)  # fmt: skip


def _gains(count: Count, kind: str) -> TableSpec:
    asked = {
        setting: some
        for setting in SCHEDULES[1:]
        if (some := count.results(setting, kind)) and count.gains(kind, setting)
    }
    heads = {**{regime: f"State {regime}" for regime in REGIMES}, "all": "All"}
    columns = [Column(head, lambda some, name=name: count.gains(kind, some.setting).get(name))  # type: ignore[misc]
               for name, head in heads.items()]  # fmt: skip
    return TableSpec(f"Gain of cues over direct, {HEADS[kind]}", columns, asked, first="Schedule",
                     note="Accuracy minus that of direct, on the same questions.")  # fmt: skip


def _necessity(count: Count, kind: str) -> TableSpec:
    """The paper's two filters, applied to the model itself instead of to outside validators."""

    def hard(setting: str, some: Results) -> Estimate | None:
        easy = {unit.place for unit in count.results(setting, kind) if unit.right}
        left = some.where(lambda unit: unit.place not in easy)
        return _mean(left) if left and count.results(setting, kind) else None

    heads = {DIRECT: "Not solved directly", BLIND: "Not solved without images"}
    return TableSpec(
        f"Accuracy on questions that need cues, {HEADS[kind]}",
        [Column(head, partial(hard, setting)) for setting, head in heads.items()],
        {setting: some for setting in SCHEDULES[1:] if (some := count.results(setting, kind))},
        first="Schedule",
        note="Only questions that the model itself answers wrong directly, or without images. The paper removed "
        "questions that other models solve without cues (cue necessity) or without images (contamination).",
    )


def _cue_accuracy(count: Count) -> TableSpec:
    asked = {name: some for setting, name in _CUES.items() if (some := count.results(setting))}
    mean = Column("Mean of regimes", AVERAGES["mean of regimes"], lambda row: _share(mean_of(_cells(row, REGIMES))))
    return TableSpec(
        "Accuracy of the cues (Table 5)", [*_regimes(), mean], asked, first="Cue",
        paper=paper.per_setting(PAPER["Table 5"], asked, REGIMES), label="{model} in the paper, {setting}",
        note="The judge's questions are ours.",
    )  # fmt: skip


def _dimensions(count: Count) -> TableSpec:
    means, some = count.dimensions(), count.results(DIMENSIONS)
    columns = [
        Column(name.replace("_", " ").capitalize(),
               lambda _, name=name: f"{MOST * (means[name].value or 0):.2f}",  # type: ignore[misc]
               lambda row, name=name: row[name] and f"{float(row[name]):.2f}")  # type: ignore[misc]
        for name in (*FIVE, "average")
    ]  # fmt: skip
    return TableSpec(
        "Visual cues by the five dimensions (Table 8)", columns, {"visual cues": some} if some else {}, first="Cues",
        paper="Table 8",
        note="0 to 5, after the rubric's two caps; a cue that was not drawn has 0. Intervals are in scores.json.",
    )  # fmt: skip


def _swap(count: Count) -> TableSpec:
    heads = {"own": "Own", "true": "True", "other": "Another's", "blank": "Blank"}
    return TableSpec(
        "Whose cue it answers with",
        [Column(head, lambda some, of=of: count.swap(some.setting).get(of)) for of, head in heads.items()],  # type: ignore[misc]
        {schedule: count.results(schedule) for schedule in CUED if count.swap(schedule)},
        first="Schedule",
        note="On the questions that have all four. A model that uses its cues is right with true ones and not with "
        "others.",
    )


def _regimes() -> list[Column]:
    return [Column(f"State {regime}", lambda some, regime=regime: regimes(some).get(regime), _printed(regime))  # type: ignore[misc]
            for regime in REGIMES]  # fmt: skip


def _of_half(half: tuple[str, str], some: Results) -> Estimate | None:
    part = some.where(lambda unit: _half(unit) == half)
    return _mean(part) if part else None


# --- what the paper prints -------------------------------------------------------------------------------------------


def mean_of(cells: Sequence[float | None]) -> float | None:
    there = [cell for cell in cells if cell is not None]
    return sum(there) / len(there) if len(there) == len(cells) and there else None


def task_mean(kind: str, setting: str, model: str) -> float | None:
    """The mean over the ten tasks that the paper prints for a model, inpainting's two halves as one; its tables name
    some models' sizes apart."""
    for row in _tasks(kind, setting):
        if row["model"].replace("3B + 4B", "3B") == model:
            tasks = _cells(row, [task for task in TASKS if task in row and task != "inpainting"])
            return mean_of([mean_of([float(row[name]) for name in INPAINTING if row[name]]), *tasks])
    return None


def _tasks(kind: str, setting: str) -> list[paper.Row]:
    return [row for row in PAPER["Tables B"] if (row["kind"], row["schedule"]) == (kind, setting)]


def _task_printed(task: str, part: str, row: paper.Row) -> str | None:
    """A task's cell; of inpainting both halves where the data do not name them."""
    names = INPAINTING if (task, part) == ("inpainting", "") else (f"{task} {part}".strip(),)
    return " + ".join(f"{float(cell) / 100:.4f}" for name in names if (cell := row.get(name))) or None


def _printed(column: str) -> Callable[[paper.Row], str | None]:
    return lambda row: paper.per_cent(row[column], 4)


def _cells(row: paper.Row, names: Iterable[str]) -> list[float | None]:
    return [float(row[name]) if row[name] else None for name in names]


def _share(cell: float | None) -> str | None:
    return None if cell is None else f"{cell / 100:.4f}"
