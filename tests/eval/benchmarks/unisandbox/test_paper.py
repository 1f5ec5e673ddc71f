from __future__ import annotations

import pytest

from uni_train.eval.benchmarks.unisandbox.paper import PAPER_TABLE_1, PAPER_TABLE_2, PAPER_TABLE_3, PAPER_TABLE_4


def test_the_papers_averages_are_those_of_its_cells() -> None:
    for model in PAPER_TABLE_1:
        assert sum(model.accuracies) / 6 == pytest.approx(model.average, abs=0.0051), model.name
    for name, (forward, inverse, overall) in PAPER_TABLE_4.items():  # of 30 and of 20 questions
        assert (30 * forward + 20 * inverse) / 50 == pytest.approx(overall, abs=0.0051), name
    for row in PAPER_TABLE_2 + PAPER_TABLE_3:
        assert sum(row.normal + row.cot) / 6 == pytest.approx(row.average, abs=0.0051), row.name
