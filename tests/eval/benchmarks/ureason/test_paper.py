"""The paper's printed numbers, recomputed with its formulas."""

from __future__ import annotations

import pytest

from uni_train.eval.benchmarks.ureason import paper
from uni_train.eval.benchmarks.ureason.settings import BARE, DIRECT, EIGHT_TIMES, GUIDED, HEADLINE

# (model, setting) -> gain over the setting before, as Table 2 prints it for the overall accuracy.
GAINS = {
    ("Bagel", GUIDED): 11.2, ("Bagel", BARE): 44.8, ("UniCoT-v2", GUIDED): 19.2, ("UniCoT-v2", BARE): 38.6,
    ("SRUM", GUIDED): 10.4, ("SRUM", BARE): 43.2, ("Bagel-Zebra-CoT", GUIDED): 8.2, ("Bagel-Zebra-CoT", BARE): 37.4,
    ("ThinkMorph", GUIDED): 10.0, ("ThinkMorph", BARE): 36.0, ("UniCoT", GUIDED): 13.8, ("UniCoT", BARE): 26.6,
    ("T2I-R1", GUIDED): 0.4, ("T2I-R1", BARE): 19.0, ("UniMoE2", GUIDED): 1.8, ("UniMoE2", BARE): 7.6,
}  # fmt: skip


def test_overall_is_the_mean_over_tasks_in_every_printed_row() -> None:
    rows = [row for table in (paper.TABLE_2, paper.TABLE_4, paper.TABLE_7, paper.TABLE_11) for by in table.values()
            for row in by.values()]  # fmt: skip
    rows += list(paper.TABLE_3.values())
    assert len(rows) == 24 + 9 + 12 + 9 + 5
    for row in rows:
        assert sum(row[:5]) / 5 == pytest.approx(row[5], abs=0.051)


def test_gains_are_differences_of_the_overall_accuracy() -> None:
    before = dict(zip(HEADLINE[1:], HEADLINE, strict=False))
    for (model, setting), gain in GAINS.items():
        row = paper.TABLE_2[model]
        assert row[setting][5] - row[before[setting]][5] == pytest.approx(gain, abs=0.051)


def test_shares_of_errors_are_all_of_them_and_table_11_repeats_table_2() -> None:
    assert sum(paper.ERRORS.values()) == pytest.approx(100)
    assert paper.TABLE_11["Qwen3-VL-235B-A22B"] == paper.TABLE_2["UniCoT"]


def test_what_the_text_says_of_the_tables_and_is_not_so() -> None:
    """Section 4.2 and section 5; docs/benchmarks/ureason.md lists them."""
    gains = {model: row[GUIDED][5] - row[DIRECT][5] for model, row in paper.TABLE_2.items()}
    assert min(gains.values()) == pytest.approx(0.4)  # "from +8.2% (Bagel-Zebra-CoT)"
    lost = {model: row[BARE][5] - row[EIGHT_TIMES][5] for model, row in paper.TABLE_4.items()}
    assert lost["Bagel"] == pytest.approx(6.0) and max(lost.values()) == pytest.approx(7.4)  # "at most -6.0%"
