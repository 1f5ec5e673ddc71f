"""The shipped nano judges by what it sees: it refuses near misses, and accepts what is right."""

from __future__ import annotations

import pytest

from bench.experiment import Lab
from bench.experiments.judgements import KINDS, judgements


@pytest.mark.slow
def test_the_shipped_model_refuses_every_near_miss_and_little_else() -> None:
    lines = list(judgements(Lab(overrides=("model.threads=1",)), n=20, sets=(("mapping", 1),)))
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| shipped")]
    assert [row[0] for row in rows] == [
        *("shipped, words alone", "shipped, mapping, rendered"),
        *("shipped, mapping, Normal images", "shipped, mapping, CoT images"),
    ]
    for row in rows[:2]:
        refused = {kind: float(cell.split()[0]) for kind, cell in zip(KINDS, row[1:], strict=True)}
        assert refused["same"] <= 0.1
        assert min(refused["other object"], refused["other count"], refused["both"]) >= 0.9
    assert {row[1].rpartition(" ")[2] for row in rows[:2]} == {"48", "20"}
