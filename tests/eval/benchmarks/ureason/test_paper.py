"""The paper's printed numbers, recomputed with its formulas."""

from __future__ import annotations

import pytest

from uni_train.data_gen.ureason.taxonomy import TASKS
from uni_train.eval.benchmarks.ureason.counting import PAPER
from uni_train.eval.benchmarks.ureason.settings import BARE, DIRECT, EIGHT_TIMES, GUIDED, HEADLINE

COLUMNS = (*TASKS, "overall")


def overall(table: str) -> dict[tuple[str, str], float]:
    """(model, setting) -> the overall accuracy that a table prints."""
    return {(row["model"], row["setting"]): float(row["overall"]) for row in PAPER[table]}


def test_overall_is_the_mean_over_tasks_in_every_printed_row() -> None:
    rows = [row for name in ("Table 2", "Table 3", "Table 4", "Table 7", "Table 11") for row in PAPER[name]]
    assert len(rows) == 24 + 5 + 9 + 24 + 9
    for row in rows:
        assert sum(float(row[task]) for task in TASKS) / 5 == pytest.approx(float(row["overall"]), abs=0.051)


def test_all_228_printed_gains_are_differences_of_the_printed_accuracies() -> None:
    before, checked = dict(zip(HEADLINE[1:], HEADLINE, strict=False)), 0
    for table in ("Table 2", "Table 7", "Table 11"):
        rows = {(row["model"], row.get("split"), row["setting"]): row for row in PAPER[table]}
        for (model, split, setting), row in rows.items():
            for column in COLUMNS if setting in before else ():
                gap = float(row[column]) - float(rows[model, split, before[setting]][column])
                assert gap == pytest.approx(float(row[f"{column} gain"]), abs=0.051)
                checked += 1
    assert checked == 228


def test_tables_repeat_each_other() -> None:
    def cells(table: str, model: str) -> list[list[str]]:
        return [[row[name] for name in ("setting", *COLUMNS)] for row in PAPER[table] if row["model"] == model]

    assert cells("Table 11", "Qwen3-VL-235B-A22B") == cells("Table 2", "UniCoT")
    ours = {(row["model"], row["setting"]): row for row in PAPER["Table 2"]}
    for row in PAPER["Table 7"]:
        if row["split"] == "testmini":
            assert all(row[name] == ours[row["model"], row["setting"]][name] for name in COLUMNS)


def test_shares_of_errors_are_of_500_cases_and_not_of_the_wrong_images() -> None:
    shares = [float(row["share"]) for row in PAPER["Section 5"]]
    assert sum(shares) == pytest.approx(100)
    assert [round(5 * share) for share in shares] == [29, 53, 41, 377] and sum((29, 53, 41, 377)) == 500
    wrong = round(500 - 5 * overall("Table 2")["Bagel", GUIDED])
    assert wrong == 411
    assert not any(round(100 * n / wrong, 1) == 10.6 for n in range(wrong + 1))


def test_what_the_text_says_of_the_tables_and_is_not_so() -> None:
    """Section 4.2 and section 5; docs/benchmarks/ureason.md lists them."""
    two, four = overall("Table 2"), overall("Table 4")
    gains = [two[model, GUIDED] - two[model, DIRECT] for model, setting in two if setting == DIRECT]
    assert min(gains) == pytest.approx(0.4)  # "from +8.2% (Bagel-Zebra-CoT)"
    lost = {model: four[model, BARE] - four[model, EIGHT_TIMES] for model, setting in four if setting == BARE}
    assert lost["Bagel"] == pytest.approx(6.0) and max(lost.values()) == pytest.approx(7.4)  # "at most -6.0%"
    # "test" has 300 cases a task: whole per cents in all of its 60 cells are not what 300 would give.
    cells = [row[task] for row in PAPER["Table 7"] if row["split"] == "test" for task in TASKS]
    assert len(cells) == 60 and all(float(cell) == int(float(cell)) for cell in cells)
