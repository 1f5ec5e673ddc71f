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


def test_weights_of_a_group_are_means_over_the_items_that_have_it(found: dict) -> None:  # type: ignore[type-arg]
    """A thought without a refined prompt has no weight of one, which is not a weight of 0."""
    weights, place = np.array(found["weights"]), GROUPS.index("refined")
    before = weights_table(found)
    weights[1:, :, place] = 0
    table = weights_table({**found, "weights": weights.tolist()})
    assert [row[:3] for row in table.rows] == [row[:3] for row in before.rows] and not before.note
    assert table.rows[-1][3] == f"{weights[0, :, place].mean() * 1e4:.2f}"
    assert table.note.startswith("R_p is over the 1 of 6 items")
    weights[..., place] = 0
    assert weights_table({**found, "weights": weights.tolist()}).rows[-1][3] == "0.00"


PRINTED = {
    "5": [(3.98, 5.50, 9.79), (3.11, 4.22, 8.24), (0.20, 0.30, 0.79), (0.12, 0.21, 0.58), (1.85, 2.56, 4.85)],
    "9": [(2.45, 4.57, 6.93), (1.71, 3.32, 5.33), (0.12, 0.21, 0.43), (0.08, 0.12, 0.34), (1.09, 2.06, 3.26)],
    "10": [(2.57, 3.56, 4.01), (1.17, 2.19, 2.73), (1.08, 1.83, 4.21), (1.61, 2.53, 3.65)],
}
"""Tables of UReason (arXiv 2602.08336): P, R_t, R_p by groups of layers, and last over all layers."""


@pytest.mark.parametrize("table", PRINTED)
def test_the_papers_last_rows_are_means_over_its_groups_of_layers(table: str) -> None:
    """Groups have one size, so that ours, the mean over layers, is the same."""
    *groups, last = PRINTED[table]
    assert np.mean(groups, axis=0) == pytest.approx(last, abs=0.0051)
    assert [row[1] / row[2] > 0.5 for row in PRINTED["5"]] == [True, True, False, False, True]


def test_a_tiny_bagel_is_looked_into_in_everyday_words(tmp_path: Path) -> None:
    folder = published(GOLDEN, tmp_path / "BAGEL")
    command = ("-c", folder, "--task", "maths", "--n", 1, "batch=2", "--maps", 1, "--out", tmp_path / "in")
    short = ("sampling.max_think_tokens=8", "sampling.steps=2")
    result = insight("attention", *command, *short, "--no-interventions")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "in" / "attention.json").read_text())
    assert np.allclose(np.array(found["shares"]).sum(-1), 1, atol=1e-5)
    assert len(found["groups"]) == min(4, len(found["shares"][0]))
