"""The papers' printed numbers, recomputed by their formulas, and where they disagree (docs/benchmarks lists it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from uni_train.data_gen.ureason.taxonomy import TASKS
from uni_train.eval.benchmarks.ueval import counting as ueval
from uni_train.eval.benchmarks.ueval.cases import CLOSED, OPEN
from uni_train.eval.benchmarks.ueval.cases import TASKS as EIGHT
from uni_train.eval.benchmarks.ufo import counting as ufo
from uni_train.eval.benchmarks.ufo.names import ANSWERS, KINDS, REGIMES
from uni_train.eval.benchmarks.ufo.rubric import DIMENSIONS as FIVE
from uni_train.eval.benchmarks.ureason import counting as ureason
from uni_train.eval.benchmarks.ureason.settings import HEADLINE
from uni_train.eval.benchmarks.vigor import counting as vigor
from uni_train.eval.benchmarks.vigor.prompts import DIMENSIONS as FOUR
from uni_train.eval.benchmarks.wise import editions as wise
from uni_train.eval.benchmarks.wise.editions import ORIGINAL, SETS, VERIFIED
from uni_train.eval.paper import printed
from uni_train.eval.sets.counting import PAPER as UNISANDBOX

Row = Mapping[str, str]
# Of UFO's State Reconstruction: inpainting A and B, exo-to-ego, jigsaw. Its accuracy follows from Tables B within
# 0.006, though the printed halves of inpainting are shares of 230 and 60.
RECONSTRUCTION_QUESTIONS = {"mcq": (170, 326, 310, 30), "open": (170, 362, 310, 30)}
UEVAL, WISE = printed(Path(ueval.__file__)), printed(Path(wise.__file__))


def mean(row: Row, names: Sequence[str], weights: Sequence[float] = ()) -> float:
    """Of a row's cells, each alike or by its weight."""
    weights = weights or [1] * len(names)
    return sum(weight * float(row[name]) for name, weight in zip(names, weights, strict=True)) / sum(weights)


def ask(kind: str, schedule: str) -> tuple[list[str], list[int], str]:
    """The regimes' columns of a schedule in UFO's Table 3 or 4, their questions, and the average that is printed."""
    weights = [ufo.QUESTIONS[kind][one] for one in REGIMES]
    return [f"{one} {schedule}" for one in REGIMES], weights, f"average {schedule}"


def open_models(kind: str) -> list[Row]:
    return [
        row for row in ufo.PAPER[f"Table {3 + KINDS.index(kind)}"] if not row["model"].startswith(("Gemini", "GPT"))
    ]


LEVELS = [f"{setting} {level}" for setting in ("normal", "cot") for level in (1, 2, 3)]
OVIS = "Ovis-U1 (2.4 + 1B)"
Average = tuple[Sequence[Row], Sequence[str], Sequence[float], str, float, set[str]]
# Rows, the columns that are averaged, their weights, the printed average, rounding, models whose average is another.
AVERAGES: dict[str, Average] = {
    "unisandbox 1": (UNISANDBOX["Table 1"], [*(f"{task}{i}" for task in ("math", "mapping") for i in (1, 2, 3))], (),
                     "average", 0.0051, set()),
    "unisandbox 2": (UNISANDBOX["Table 2"], LEVELS, (), "average", 0.0051, set()),
    "unisandbox 3": (UNISANDBOX["Table 3"], LEVELS, (), "average", 0.0051, set()),
    "unisandbox 4": (UNISANDBOX["Table 4"], ["forward", "inverse"], (30, 20), "overall", 0.0051, set()),
    **{f"ureason {n}": (ureason.PAPER[f"Table {n}"], TASKS, (), "overall", 0.051, set()) for n in (2, 3, 4, 7, 11)},
    "ueval 1": (UEVAL["Table 1"], EIGHT, (), "overall", 0.1, set()),
    **{f"ueval {n} {part}": (UEVAL[f"Table {n}"], [f"{task} {part}" for task in tasks], (), f"{ended} {part}",
                             0.1, set())
       for n, ended, tasks in ((3, "closed-ended", CLOSED), (4, "open-ended", OPEN)) for part in ("image", "text")},
    **{f"ueval 1 {task}": ([{**there, **row} for there in UEVAL[f"Table {n}"]
                            for row in UEVAL["Table 1"] if there["model"] == row["model"]],
                           [f"{task} image", f"{task} text"], (), task, 0.1, set())
       for n, tasks in ((3, CLOSED), (4, OPEN)) for task in tasks},
    # Neither a mean of regimes nor of tasks: per question.
    **{f"ufo {kind} {schedule}": (open_models(kind), *ask(kind, schedule), 0.02,
                                  {OVIS} if (kind, schedule) == ("mcq", "textual") else set())
       for kind in KINDS for schedule in ANSWERS},
    "ufo 8": (ufo.PAPER["Table 8"], FIVE, (), "average", 0.0151, set()),
    **{f"vigor {n} {of}": ([row for row in vigor.PAPER[f"Table {n}"] if row.get(f"{of}mean")],
                           [f"{of}{name}" for name in FOUR], (), f"{of}mean", 0.13,
                           {"Seedream 4.0"} if (n, of) == (3, "") else set())
       for n, of in ((3, ""), (3, "process "), (4, ""))},
    # Means over questions; of the exceptions the last two are means over categories.
    "wise verified": (WISE["Verified"], SETS, VERIFIED.sizes, "overall", 0.00006, {"DeepGen 1.0"}),
    "wise original": (WISE["Original"], SETS, ORIGINAL.sizes, "overall", 0.0101, {"BAGEL", "OpenUni-B-512"}),
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_printed_averages_follow_from_the_printed_parts(name: str) -> None:
    rows, columns, weights, average, rounding, other = AVERAGES[name]
    gaps = {row["model"]: mean(row, columns, weights) - float(row[average]) for row in rows}
    assert gaps and {model for model, gap in gaps.items() if abs(gap) > rounding + 1e-9} == other


def test_tables_have_all_rows() -> None:
    rows = [len(ureason.PAPER[f"Table {n}"]) for n in (2, 3, 4, 7, 11)]
    assert rows == [24, 5, 9, 24, 9] and [len(vigor.PAPER[f"Table {n}"]) for n in (3, 4)] == [29, 17]
    assert sum(bool(row["process mean"]) for row in vigor.PAPER["Table 3"]) == 11
    assert {kind: sum(ufo.QUESTIONS[kind].values()) for kind in KINDS} == {"mcq": 1943, "open": 1993}


COLUMNS = (*TASKS, "overall")


def overall(table: str) -> dict[tuple[str, str], float]:
    """(model, setting) -> the overall accuracy that a table prints."""
    return {(row["model"], row["setting"]): float(row["overall"]) for row in ureason.PAPER[table]}


def test_all_228_printed_gains_of_ureason_are_differences_of_the_printed_accuracies() -> None:
    before, checked = dict(zip(HEADLINE[1:], HEADLINE, strict=False)), 0
    for table in ("Table 2", "Table 7", "Table 11"):
        rows = {(row["model"], row.get("split"), row["setting"]): row for row in ureason.PAPER[table]}
        for (model, split, setting), row in rows.items():
            for column in COLUMNS if setting in before else ():
                gap = float(row[column]) - float(rows[model, split, before[setting]][column])
                assert gap == pytest.approx(float(row[f"{column} gain"]), abs=0.051)
                checked += 1
    assert checked == 228


def test_tables_of_ureason_repeat_each_other() -> None:
    def cells(table: str, model: str) -> list[list[str]]:
        rows = [row for row in ureason.PAPER[table] if row["model"] == model and row.get("split") != "test"]
        return [[row[name] for name in ("setting", *COLUMNS)] for row in rows]

    assert cells("Table 11", "Qwen3-VL-235B-A22B") == cells("Table 2", "UniCoT")
    for model in {row["model"] for row in ureason.PAPER["Table 7"]}:
        assert cells("Table 7", model) == cells("Table 2", model)


def by_model(table: str) -> dict[str, Row]:
    return {row["model"]: row for row in UEVAL[table]}


def test_the_judge_and_the_gap_of_ueval_s_table_1() -> None:
    models = [float(row["overall"]) for row in UEVAL["Table 1"]]
    assert round(sum(models[4:]) / 4 - sum(models[:4]) / 4, 1) == 38.7  # section 1
    there, here = by_model("Table 1")["GPT-5-Thinking"], by_model("Table 2")["Gemini-2.5-Pro"]
    assert [task for task in EIGHT if float(there[task]) != float(here[task])] == ["textbook", "life"]
    means = {judge: round(mean(row, EIGHT), 1) for judge, row in by_model("Table 2").items()}
    assert (min(means, key=means.__getitem__), max(means, key=means.__getitem__)) == ("GPT-5", "Qwen3-VL-8B")
    assert (means["GPT-5"], means["Qwen3-VL-8B"], means["Gemini-2.5-Pro"]) == (57.3, 77.1, 61.8)


def ufo_rows(kind: str) -> Iterator[tuple[Row, Callable[[str], float]]]:
    """A model's row in Tables B, and what Table 3 or 4 prints of a regime in its schedule."""
    regimes = {row["model"]: row for row in ufo.PAPER[f"Table {3 + KINDS.index(kind)}"]}
    for row in ufo.PAPER["Tables B"]:
        if row["kind"] == kind:
            there, schedule = regimes[row["model"].replace("3B + 4B", "3B")], row["schedule"]
            yield row, lambda name, there=there, schedule=schedule: float(there[f"{name} {schedule}"])  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_ufo_s_reconstruction_follows_from_its_tasks_and_the_halves_of_inpainting(kind: str) -> None:
    weights, checked = RECONSTRUCTION_QUESTIONS[kind], 0
    assert sum(weights) == ufo.QUESTIONS[kind]["reconstruction"]
    names = ("inpainting a", "inpainting b", "exo_to_ego", "jigsaw")
    for row, regime in ufo_rows(kind):
        if "" in [row[name] for name in names]:  # a cell that is not printed
            assert (row["model"], row["schedule"]) in {(OVIS, "textual"), ("Janus-Pro (1B)", "joint")}
            continue
        assert mean(row, names, weights) == pytest.approx(regime("reconstruction"), abs=0.0051), row
        checked += 1
    assert checked == 43


@pytest.mark.parametrize(
    ("kind", "sizes", "cells"),
    [
        ("mcq", (144, 81, 60), [("Bagel (7B MoT)", schedule, None) for schedule in ANSWERS]),
        # Cells that Table 4 lacks.
        ("open", (144, 82, 61), [("Ovis-U1", "visual", 38), ("UniPic1", "joint", 10), ("Ovis-U1", "joint", 44)]),
    ],
)
def test_ufo_s_state_augmentation_follows_from_geometry_logic_and_physics(
    kind: str, sizes: tuple[int, ...], cells: list[tuple[str, str, int | None]]
) -> None:
    for model, schedule, right in cells:
        ((row, regime),) = [pair for pair in ufo_rows(kind)
                            if pair[0]["model"].startswith(model) and pair[0]["schedule"] == schedule]  # fmt: skip
        tasks = ("geometric", "logical", "physics")
        counts = [round(n * float(row[task]) / 100) for task, n in zip(tasks, sizes, strict=True)]
        if right is None:
            assert 100 * sum(counts) / sum(sizes) == pytest.approx(regime("augmentation"), abs=0.36)
        else:
            assert sum(counts) == right and regime("augmentation") == round(100 * right / sum(sizes), 2)
