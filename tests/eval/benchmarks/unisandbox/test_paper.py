from __future__ import annotations

import pytest

from uni_train.eval.benchmarks.unisandbox import PAPER


def test_the_papers_averages_are_those_of_its_cells() -> None:
    for name in ("Table 1", "Table 2", "Table 3"):
        for row in PAPER[name]:
            *cells, average = (float(cell) for column, cell in row.items() if column != "model")
            assert len(cells) == 6 and sum(cells) / 6 == pytest.approx(average, abs=0.0051), row["model"]
    for row in PAPER["Table 4"]:  # of 30 and of 20 questions
        pooled = (30 * float(row["forward"]) + 20 * float(row["inverse"])) / 50
        assert pooled == pytest.approx(float(row["overall"]), abs=0.0051), row["model"]


def test_where_its_tables_disagree_is_stated() -> None:
    first, third = (next(row for row in PAPER[f"Table {n}"] if row["model"] == name)
                    for n, name in ((1, "BAGEL + CoT"), (3, "BAGEL")))  # fmt: skip
    assert [first[f"mapping{level}"] for level in (1, 2, 3)] == ["0.74", "0.60", "0.45"]
    assert [third[f"cot {level}"] for level in (1, 2, 3)] == ["0.75", "0.57", "0.46"]
    assert max(float(row["normal 3"]) for row in PAPER["Table 2"]) == 0.16  # B.1 says 0.23
