"""The numbers and tables of UFO, from scored samples. Questions with choices and open ones are never mixed.

Three averages, named: the *mean of regimes*, the *mean of tasks*, and *per question*, where every question counts
alike. The Average that Table 3 prints is the last one (see `paper.QUESTIONS`); a regime is its questions' mean, as
there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.benchmarks.ufo import paper
from uni_train.eval.benchmarks.ufo.names import (
    ANSWERS,
    BLIND,
    CUED,
    DIMENSIONS,
    DIRECT,
    IMAGE_CUE,
    KINDS,
    PAPER_TASKS,
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
from uni_train.eval.statistics import Estimate, PairedComparison, graded_mean, paired

AVERAGES = ("mean of regimes", "mean of tasks", "per question")
_CUES = {TEXT_CUE: "textual", IMAGE_CUE: "visual"}
_HEADS = {"mcq": "multiple choice", "open": "open questions"}
_Row = tuple[str | Estimate | PairedComparison | None, ...]


def scores(scored: Iterable[Scored]) -> dict[str, Any]:
    """setting -> set or "overall" (the mean of the regimes of all its sets) -> Estimate, and beside the settings:

    "regimes", "averages": kind of question -> setting -> regime, or name of an average -> Estimate. "gains": kind ->
    schedule -> regime or "all" -> PairedComparison with direct. "dimensions": dimension or "average" -> Estimate, as a
    share of 5. "swap": schedule -> "own", "true", "other", "blank" -> Estimate, on the cases that have all of them.
    """
    by_cell = _cells(scored)
    kinds = [kind for kind in KINDS if any(kind_of_set(name) == kind for _, name in by_cell)]
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        names = [name for name in SETS if (setting, name) in by_cell]
        if names:
            cells = {name: _mean(by_cell[setting, name]).to_dict() for name in names}
            whole = [one for name in names for one in by_cell[setting, name]]
            found[setting] = {**cells, "overall": _mean(whole, _regime).to_dict()}
    found["regimes"] = {
        kind: {setting: _plain(regimes(by_cell, kind, setting)) for setting in _asked(by_cell, kind)} for kind in kinds
    }
    found["averages"] = {
        kind: {setting: _plain(averages(by_cell, kind, setting)) for setting in _asked(by_cell, kind)} for kind in kinds
    }
    found["gains"] = {
        kind: {setting: _plain(found_) for setting in ANSWERS[1:] if (found_ := gains(by_cell, kind, setting))}
        for kind in kinds
    }
    found["dimensions"] = _plain(dimensions(_of(by_cell, DIMENSIONS)))
    found["swap"] = {schedule: _plain(rates) for schedule in CUED if (rates := swap(by_cell, schedule))}
    return found


def tables(scored: Iterable[Scored], *, published: bool) -> list[Table]:
    """Tables 3 and 4, B.1 to B.8, 5 and 8, then ours; the paper's rows below ours where its questions are asked."""
    by_cell = _cells(scored)
    found = []
    for kind in KINDS:
        found += [_by_regime(by_cell, kind, published), _by_task(by_cell, kind, published), _gains(by_cell, kind)]
        found.append(_necessity(by_cell, kind))
    found += [_cue_accuracy(by_cell, published), _dimensions(by_cell, published), _swap(by_cell)]
    return [table for table in found if table.rows]


# --- numbers ---------------------------------------------------------------------------------------------------------

_Cells = Mapping[tuple[str, str], Sequence[Scored]]


def _cells(scored: Iterable[Scored]) -> dict[tuple[str, str], list[Scored]]:
    """(setting, set) -> its samples. A swap that the data have no cue for was not asked."""
    found: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for one in scored:
        if one.outcome != "cue_missing":
            found[one.sample.ask.setting, one.sample.ask.case.set].append(one)
    return found


def _of(by_cell: _Cells, setting: str, kind: str | None = None) -> list[Scored]:
    """Of one setting, in the order of the sets."""
    return [one for name in SETS if kind in (None, kind_of_set(name)) for one in by_cell.get((setting, name), ())]


def _asked(by_cell: _Cells, kind: str) -> list[str]:
    """Settings that answer questions of a kind, in order."""
    return [one for one in (*ANSWERS, BLIND) if _of(by_cell, one, kind)]


def regimes(by_cell: _Cells, kind: str, setting: str) -> dict[str, Estimate]:
    """regime -> accuracy, every question alike."""
    some = _of(by_cell, setting, kind)
    return {name: _mean(these) for name in REGIMES if (these := [one for one in some if _regime(one) == name])}


def averages(by_cell: _Cells, kind: str, setting: str) -> dict[str, Estimate]:
    """Name of an average -> accuracy; {} where nothing was asked."""
    some = _of(by_cell, setting, kind)
    cells: tuple[Callable[[Scored], str] | None, ...] = (_regime, _task, None)
    return {name: _mean(some, cell) for name, cell in zip(AVERAGES, cells, strict=True)} if some else {}


def gains(by_cell: _Cells, kind: str, setting: str) -> dict[str, PairedComparison]:
    """regime or "all" -> a schedule minus direct, on the same questions and draws."""
    before = {_place(one): one for one in _of(by_cell, DIRECT, kind)}
    after = {_place(one): one for one in _of(by_cell, setting, kind)}
    shared = [place for place in before if place in after]
    found = {}
    for name in (*REGIMES, "all"):
        these = [place for place in shared if name in ("all", _regime(before[place]))]
        if these:
            found[name] = _paired([before[place] for place in these], [after[place] for place in these])
    return found


def dimensions(some: Sequence[Scored]) -> dict[str, Estimate]:
    """Dimension or "average" -> the mean share of 5; a cue that was not drawn, or not graded, has 0."""
    if not some:
        return {}
    found = {}
    for name in FIVE:
        values = [next((c.value or 0.0 for c in _checks(one) if c.name == name), 0.0) for one in some]
        found[name] = graded_mean(values, [_place(one) for one in some], [_cluster(one) for one in some])
    found["average"] = graded_mean(
        [one.value for one in some], [_place(one) for one in some], [_cluster(one) for one in some]
    )
    return found


def swap(by_cell: _Cells, schedule: str) -> dict[str, Estimate]:
    """Whose cue -> accuracy, on the cases that were answered with each; {} where none was."""
    settings = {"own": schedule, **{source: f"{schedule}_{source}" for source in SOURCES}}
    by_place = {name: {_place(one): one for one in _of(by_cell, setting)} for name, setting in settings.items()}
    shared = [place for place in by_place["own"] if all(place in found for found in by_place.values())]
    return {name: _mean([found[place] for place in shared]) for name, found in by_place.items()} if shared else {}


def _mean(some: Sequence[Scored], cell: Callable[[Scored], str] | None = None) -> Estimate:
    cells = None if cell is None or len({cell(one) for one in some}) < 2 else [cell(one) for one in some]
    units, clusters = [_place(one) for one in some], [_cluster(one) for one in some]
    return graded_mean([one.value for one in some], units, clusters, cells)


def _paired(first: Sequence[Scored], second: Sequence[Scored]) -> PairedComparison:
    return paired([one.passed for one in first], [one.passed for one in second], [_cluster(one) for one in first])


def _checks(one: Scored) -> Sequence[Any]:
    return () if one.verdict is None else one.verdict.checks


def _plain(found: Mapping[str, Estimate | PairedComparison]) -> dict[str, Any]:
    return {name: one.to_dict() for name, one in found.items()}


def _place(one: Scored) -> tuple[str, int]:
    return one.sample.ask.case.id, one.sample.ask.k


def _cluster(one: Scored) -> str:
    """The case; of our own questions the one with choices and the open one, which share their cues."""
    return str(one.sample.ask.case.facts.get("drawn_as", one.sample.ask.case.id))


def _regime(one: Scored) -> str:
    return regime_of(one.sample.ask.case.set)


def _task(one: Scored) -> str:
    return task_of_set(one.sample.ask.case.set)


# --- tables ----------------------------------------------------------------------------------------------------------


def _by_regime(by_cell: _Cells, kind: str, published: bool) -> Table:
    rows: list[_Row] = []
    asked = [one for one in _asked(by_cell, kind) if one in ANSWERS]
    for setting in asked:
        by_name, means = regimes(by_cell, kind, setting), averages(by_cell, kind, setting)
        rows.append((setting, *(by_name.get(one) for one in REGIMES), *(means[one] for one in AVERAGES)))
    for name, by_schedule in paper.by_regime(kind).items() if published else ():
        for setting in asked:
            cells = by_schedule[setting]
            own = [cells[one] for one in REGIMES]
            shown = [*own, mean_of(own), task_mean(kind, setting, name), cells["average"]]
            rows.append((f"{name} in the paper, {setting}", *map(_percent, shown)))
    note = (
        "Per question: every question counts alike; a regime is the mean of its questions. The paper's row has its "
        "printed Average there, and means of its printed regimes and tasks (inpainting's two halves are one)."
        if published
        else "Per question: every question counts alike; a regime is the mean of its questions."
    )
    head = ("Schedule", *(f"State {one}" for one in REGIMES), *(one.capitalize() for one in AVERAGES))
    return Table(f"Accuracy, {_HEADS[kind]} (Table {3 + KINDS.index(kind)})", head, tuple(rows), note)


def _by_task(by_cell: _Cells, kind: str, published: bool) -> Table:
    asked = {_half(one) for setting, _ in by_cell for one in _of(by_cell, setting, kind)}
    there = sorted(asked, key=lambda half: (list(TASKS).index(half[0]), half[1]))
    rows: list[_Row] = []
    for setting in _asked(by_cell, kind):
        some = _of(by_cell, setting, kind)
        rows.append((setting, *(_mean(these) if (these := [one for one in some if _half(one) == half]) else None
                                for half in there)))  # fmt: skip
    for setting in _asked(by_cell, kind) if published else ():
        if setting in ANSWERS:
            for name, by_name in paper.by_task(kind, setting).items():
                rows.append((f"{name} in the paper, {setting}", *(_printed(by_name, *half) for half in there)))
    note = "The paper prints halves A and B of inpainting." if published else ""
    title = f"Accuracy by task, {_HEADS[kind]} (Tables B.{1 + 4 * KINDS.index(kind)} to B.{4 + 4 * KINDS.index(kind)})"
    heads = (f"{task.replace('_', ' ')} {part.upper()}".strip() for task, part in there)
    return Table(title, ("Schedule", *heads), tuple(rows), note)


def _half(one: Scored) -> tuple[str, str]:
    """The task, and of inpainting its half ("a", "b"; "" where the data do not say)."""
    return _task(one), str(one.sample.ask.case.facts.get("part", ""))


def _printed(by_task: Mapping[str, tuple[float, ...]], task: str, part: str) -> str | None:
    cells = by_task.get(task, ())
    halves = dict(zip("ab", cells, strict=True)) if len(cells) == 2 else {}
    chosen = (halves[part],) if part in halves else () if part else cells
    return " + ".join(_percent(one) or "" for one in chosen) or None


def _gains(by_cell: _Cells, kind: str) -> Table:
    rows: list[_Row] = []
    for setting in ANSWERS[1:]:
        found = gains(by_cell, kind, setting)
        if found:
            rows.append((setting, *(found.get(name) for name in (*REGIMES, "all"))))
    head = ("Schedule", *(f"State {one}" for one in REGIMES), "All")
    note = "Accuracy minus that of direct, on the same questions."
    return Table(f"Gain of cues over direct, {_HEADS[kind]}", head, tuple(rows), note)


def _necessity(by_cell: _Cells, kind: str) -> Table:
    """The paper's two filters, applied to the model itself instead of to outside validators."""
    places = {setting: {_place(one) for one in _of(by_cell, setting, kind) if one.passed} for setting in SETTINGS}
    easy = {"direct": places[DIRECT], "blind": places[BLIND]}
    rows: list[_Row] = []
    for setting in ANSWERS[1:]:
        some = _of(by_cell, setting, kind)
        cells = [[one for one in some if _place(one) not in easy[name]] for name in easy]
        if some:
            asked = [bool(_of(by_cell, name, kind)) for name in easy]
            rows.append((setting, *(_mean(these) if these and there else None
                                    for these, there in zip(cells, asked, strict=True))))  # fmt: skip
    note = (
        "Only questions that the model itself answers wrong directly, or without images. The paper removed questions "
        "that other models solve without cues (cue necessity) or without images (contamination)."
    )
    head = ("Schedule", "Not solved directly", "Not solved without images")
    return Table(f"Accuracy on questions that need cues, {_HEADS[kind]}", head, tuple(rows), note)


def _cue_accuracy(by_cell: _Cells, published: bool) -> Table:
    settings = [one for one in _CUES if _of(by_cell, one)]
    rows: list[_Row] = []
    for setting in settings:
        some = _of(by_cell, setting)
        cells = [_mean(these) if (these := [one for one in some if _regime(one) == name]) else None for name in REGIMES]
        rows.append((_CUES[setting], *cells, _mean(some, _regime)))
    for name, by_name in paper.cue_accuracy().items() if published else ():
        for setting in settings:
            own = [by_name[regime][_CUES[setting]] for regime in REGIMES]
            rows.append((f"{name} in the paper, {_CUES[setting]}", *map(_percent, own), _percent(mean_of(own))))
    head = ("Cue", *(f"State {one}" for one in REGIMES), "Mean of regimes")
    return Table("Accuracy of the cues (Table 5)", head, tuple(rows), "The judge's questions are ours.")


def _dimensions(by_cell: _Cells, published: bool) -> Table:
    some = _of(by_cell, DIMENSIONS)
    rows: list[_Row] = []
    if some:
        found = dimensions(some)
        rows.append(("visual cues", *(f"{MOST * (found[name].value or 0):.2f}" for name in (*FIVE, "average"))))
        for name, cells in paper.dimensions().items() if published else ():
            rows.append((f"{name} in the paper", *("" if cell is None else f"{cell:.2f}" for cell in cells)))
    head = ("", *(name.replace("_", " ").capitalize() for name in FIVE), "Average")
    note = "0 to 5, after the rubric's two caps; a cue that was not drawn has 0. Intervals are in scores.json."
    return Table("Visual cues by the five dimensions (Table 8)", head, tuple(rows), note)


def _swap(by_cell: _Cells) -> Table:
    rows: list[_Row] = []
    for schedule in CUED:
        found = swap(by_cell, schedule)
        if found:
            rows.append((schedule, *(found[name] for name in ("own", *SOURCES))))
    note = (
        "On the questions that have all four. A model that uses its cues is right with true ones and not with others."
    )
    return Table("Whose cue it answers with", ("Schedule", "Own", "True", "Another's", "Blank"), tuple(rows), note)


def mean_of(cells: Sequence[float | None]) -> float | None:
    there = [cell for cell in cells if cell is not None]
    return sum(there) / len(there) if len(there) == len(cells) and there else None


def task_mean(kind: str, setting: str, name: str) -> float | None:
    """The mean over the ten tasks that the paper prints for a model; its tables name some models' sizes apart."""
    by_name = {one.replace("3B + 4B", "3B"): cells for one, cells in paper.by_task(kind, setting).items()}
    cells = by_name.get(name)
    return None if cells is None else mean_of([mean_of(cells[task]) for task in PAPER_TASKS])


def _percent(cell: float | None) -> str | None:
    return None if cell is None else f"{cell / 100:.4f}"
