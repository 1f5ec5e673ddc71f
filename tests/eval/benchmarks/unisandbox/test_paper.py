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
