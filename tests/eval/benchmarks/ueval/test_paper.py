"""The formulas on the paper's own rows: which printed averages follow from printed parts, and which do not."""

from __future__ import annotations

from uni_train.eval.benchmarks.ueval.counting import PAPER
from uni_train.eval.benchmarks.ueval.files import CLOSED, OPEN, TASKS


def _numbers(table: str) -> dict[str, list[float]]:
    return {row["model"]: [float(cell) for name, cell in row.items() if name != "model"] for row in PAPER[table]}


TABLE_1, TABLE_2, TABLE_3, TABLE_4 = (_numbers(f"Table {number}") for number in (1, 2, 3, 4))

# Averages of numbers that are rounded to 0.1, printed rounded to 0.1 themselves.
ROUNDING = 0.1 + 1e-9


def test_every_printed_task_score_is_the_mean_of_its_image_and_text_score() -> None:
    off = []
    for model, row in TABLE_1.items():
        for names, table in ((CLOSED, TABLE_3), (OPEN, TABLE_4)):
            for place, task in enumerate(names):
                image, text = table[model][2 * place : 2 * place + 2]
                gap = (image + text) / 2 - row[TASKS.index(task)]
                if abs(gap) > ROUNDING:
                    off.append((model, task, round(gap, 2)))
    assert off == []


def test_printed_averages_over_tasks() -> None:
    off = []
    for model, row in TABLE_1.items():
        gap = sum(row[:8]) / 8 - row[8]
        if abs(gap) > ROUNDING:
            off.append(("Table 1", model, round(gap, 2)))
    for name, table in (("Table 3", TABLE_3), ("Table 4", TABLE_4)):
        for model, row in table.items():
            for part, start in (("image", 0), ("text", 1)):
                gap = sum(row[start:8:2]) / 4 - row[8 + start]
                if abs(gap) > ROUNDING:
                    off.append((name, model, part, round(gap, 2)))
    assert off == []


def test_the_gap_between_open_and_proprietary_models_is_a_mean_of_four() -> None:
    models = [row[8] for row in TABLE_1.values()]
    assert round(sum(models[4:]) / 4 - sum(models[:4]) / 4, 1) == 38.7  # section 1


def test_the_judge_of_table_1_has_nearly_its_row_in_table_2() -> None:
    there, here = TABLE_1["GPT-5-Thinking"], TABLE_2["Gemini-2.5-Pro"]
    assert [task for task, a, b in zip(TASKS, there, here, strict=False) if a != b] == ["textbook", "life"]
    means = {judge: round(sum(row) / 8, 1) for judge, row in TABLE_2.items()}
    assert (min(means, key=means.__getitem__), max(means, key=means.__getitem__)) == ("GPT-5", "Qwen3-VL-8B")
    assert (means["GPT-5"], means["Qwen3-VL-8B"], means["Gemini-2.5-Pro"]) == (57.3, 77.1, 61.8)
