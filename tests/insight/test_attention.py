"""The analysis of attention on the shipped nano and the tiny BAGEL, and its command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.insight.command import GOLDEN, insight
from tests.models.bagel.published import published
from uni_train.core.errors import UserError
from uni_train.eval.statistics import Estimate
from uni_train.insight.attention import layer_groups, levels_table, shares_table, weights_table
from uni_train.models.bagel.hooks import GROUPS


def test_layers_fall_into_the_papers_four_groups() -> None:
    assert layer_groups(28) == [(1, 7), (8, 14), (15, 21), (22, 28)]
    assert layer_groups(3) == [(1, 1), (2, 2), (3, 3)] and layer_groups(6, [(2, 5)]) == [(2, 5)]
    for wanted in ((0, 3), (5, 4), (2, 29)):
        with pytest.raises(UserError, match="The model has the layers 1-28"):
            layer_groups(28, [wanted])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    out = tmp_path_factory.mktemp("insight")
    command = ("attention", "shipped", "task=mapping", "n=3", "maps=1", "interventions=false")
    result = insight(*command, f"out={out}")
    assert result.exit_code == 0, result.output
    page = (out / "insight.html").read_text()
    assert page.count("<svg") == 3 and page.count("data:image/png") == 4 and "http://" not in page
    return json.loads((out / "attention.json").read_text())  # type: ignore[no-any-return]


def test_tables_are_means_over_items_layers_and_steps(found: dict) -> None:  # type: ignore[type-arg]
    shares = np.array(found["shares"])
    assert shares.shape == (6, 6, len(GROUPS)) and np.allclose(shares.sum(-1), 1, atol=1e-5)
    assert np.allclose(np.array(found["by_level"]).mean(1), shares.mean(1), atol=1e-6)
    table = shares_table(found)
    *_, whole = table.rows
    used = [name for i, name in enumerate(GROUPS) if shares[..., i].any()]
    assert "image" not in used and len(table.columns) == 1 + len(used)
    cells = [cell for cell in whole[1:] if isinstance(cell, Estimate)]
    assert sum(cell.value or 0 for cell in cells) == pytest.approx(1, abs=1e-5)
    assert all(cell.n == 3 and cell.low <= (cell.value or 0) <= cell.high for cell in cells), "pairs are clusters"
    weights = np.array(found["weights"]).mean((0, 1))
    assert weights_table(found).rows[-1][1:] == tuple(f"{weights[GROUPS.index(g)] * 1e4:.2f}" for g in
                                                      ("instruction", "thought", "refined"))  # fmt: skip
    assert [row[0] for row in levels_table(found).rows] == ["1.00 to 0.70", "0.60 to 0.40", "0.30 to 0.10"]
    (ranked,) = found["ranks"]
    weights = [weight for _, _, weight in ranked["words"]]
    assert weights == sorted(weights, reverse=True) and len(weights) == 10
    assert {group for _, group, _ in ranked["words"]} <= {"instruction", "thought", "refined"}, "no markers"


def test_a_tiny_bagel_is_looked_into_in_everyday_words(tmp_path: Path) -> None:
    folder = published(GOLDEN, tmp_path / "BAGEL")
    command = ("-c", folder, "--task", "maths", "--n", 1, "batch=2", "--maps", 1, "--out", tmp_path / "in")
    short = ("sampling.max_think_tokens=8", "sampling.steps=2")
    result = insight("attention", *command, *short, "--no-interventions")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "in" / "attention.json").read_text())
    assert np.allclose(np.array(found["shares"]).sum(-1), 1, atol=1e-5)
    assert len(found["groups"]) == min(4, len(found["shares"][0]))
