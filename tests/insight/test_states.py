"""States through the language head and probes: against numbers that are known, and on models through the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.insight.command import GOLDEN, insight
from tests.models.bagel.published import published
from uni_train.core.errors import UserError
from uni_train.core.seeds import rng
from uni_train.eval.task_benchmark import cases_of_task
from uni_train.insight.states import FOLDS, RIDGE, _chart, appearance_table, distinct_tokens, labels_of, probe


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    out = tmp_path_factory.mktemp("insight")
    result = insight("states", "-c", "shipped", "--task", "mapping", "--n", 12, "--out", out)
    assert result.exit_code == 0, result.output
    assert "Linear probes" in (out / "insight.html").read_text()
    return json.loads((out / "states.json").read_text())  # type: ignore[no-any-return]


def test_nano_has_the_object_where_it_says_it_and_not_where_it_draws_it(found: dict) -> None:  # type: ignore[type-arg]
    """It answers "1 cup": the second word is the object. Normal drawing is what it has not learned."""
    holds = {name: np.array(one["object"]["holds"])[-1].mean() for name, one in found["lens"].items()}
    control = {name: np.array(one["object"]["control"])[-1].mean() for name, one in found["lens"].items()}
    assert holds["answer, word 2"] > 0.95 and control["answer, word 2"] < 0.2
    assert max(value for name, value in holds.items() if name.startswith("image")) < 0.5
    assert "count" not in found["lens"]["last word"], "every answer of mapping is one object"
    shapes = {np.array(one["object"]["probability"]).shape for one in found["lens"].values()}
    assert shapes == {(6, len(found["clusters"]))} == {(6, 24)}


def test_the_table_says_where_it_appears(found: dict) -> None:  # type: ignore[type-arg]
    rows = {row[0]: row for row in appearance_table(found, "lens", "object").rows}
    assert list(rows) == ["last word", *(f"answer, word {i}" for i in (1, 2, 3)), "image marker, t = 1.00",
                          *(f"image tokens, t = {t}" for t in ("1.00", "0.50", "0.10"))]  # fmt: skip
    values = np.array(found["lens"]["answer, word 2"]["object"]["holds"]).mean(1)
    assert rows["answer, word 2"][1] == str(1 + int(np.argmax(values >= 0.5)))
    assert {row[0] for row in appearance_table(found, "probes", "object").rows} == set(rows)


def test_a_position_has_one_colour_in_all_charts() -> None:
    holds = {"holds": [[True, False]] * 2, "probability": [[0.5, 0.1]] * 2}
    lens = {"prompt": {"object": holds}, "thought": {"object": holds, "number": holds}, "marker": {"number": holds}}
    result = {"lens": lens, "probes": {"marker": {"number": holds}}}
    drawn = [
        (line.name, line.colour)
        for reader, target in (("lens", "object"), ("lens", "number"), ("probes", "number"))
        for line in _chart(result, reader, target, "holds").lines
    ]
    assert drawn == [("prompt", 1), ("thought", 2), ("thought", 2), ("marker", 3), ("marker", 3)]


def test_a_probe_finds_what_is_there_and_nothing_in_shuffled_labels() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = ["cup", "fish", "tree"] * 40
    places = torch.tensor([["cup", "fish", "tree"].index(one) for one in labels])
    states = torch.randn(120, 60, generator=generator)
    states[:, :3] += 6 * torch.nn.functional.one_hot(places, 3)
    clusters = [str(i) for i in range(120)]
    assert np.mean(probe(states, labels, clusters, 0)) > 0.9
    shuffled = [labels[i] for i in torch.randperm(120, generator=generator).tolist()]
    assert np.mean(probe(states, shuffled, clusters, 0)) < 0.55
    # A copy of an item in another fold would give its label away: whole clusters are kept apart.
    twins = torch.randn(20, 60, generator=generator).repeat_interleave(2, 0)
    coins = [label for label in ["a", "b"] * 10 for _ in range(2)]
    apart = probe(twins, coins, [str(i // 2) for i in range(40)], 0)
    together = probe(twins, coins, [str(i) for i in range(40)], 0)
    assert np.mean(together) > np.mean(apart)


def test_tokens_that_several_classes_share_are_left_out() -> None:
    assert distinct_tokens({"3": (0, 7), "4": (0, 8)}) == {"3": (7,), "4": (8,)}
    same = {"straw": (5,), "strawberry": (5,)}
    assert distinct_tokens(same) == same, "nothing else is left"


def test_a_probe_is_ridge_regression() -> None:
    """The dual form that is solved gives what the primal form gives, with more items than width."""
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(50, 4, generator=generator).double()
    labels = ["a" if value > 0 else "b" for value in (states[:, 0] + states[:, 1]).tolist()]
    clusters = [str(i) for i in range(50)]
    ours = probe(states, labels, clusters, 3)
    groups = sorted(set(clusters))
    rng("insight", "folds", 3).shuffle(groups)
    fold = torch.tensor([groups.index(one) % FOLDS for one in clusters])
    y = torch.tensor([[one == "a", one == "b"] for one in labels]).double()
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        mean, spread = states[train].mean(0), states[train].std(0, unbiased=False)
        a, b = ((states[rows] - mean) / spread / 4**0.5 for rows in (train, test))
        base = y[train].mean(0)
        weights = torch.linalg.inv(a.T @ a + RIDGE * torch.eye(4)) @ a.T @ (y[train] - base)
        expected = (b @ weights + base).argmax(-1) == y[test].argmax(-1)
        assert [ours[i] for i in test.nonzero().flatten().tolist()] == expected.tolist()


def test_items_without_one_object_are_refused_before_the_model_is_loaded() -> None:
    result = insight("states", "-c", "shipped", "--task", "maze", "--level", 4, "--n", 1)
    assert result.exit_code == 1 and "maze asks for something else" in result.output
    with pytest.raises(UserError, match="Choose --task mapping"):
        labels_of(cases_of_task("ureason", n=1)[0])


def test_a_tiny_bagel_is_read_in_everyday_words(tmp_path: Path) -> None:
    folder = published(GOLDEN, tmp_path / "BAGEL")
    short = ("sampling.max_think_tokens=3", "sampling.steps=2")
    result = insight("states", "-c", folder, "--task", "maths", "--n", 6, *short, "--out", tmp_path / "in")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "in" / "states.json").read_text())
    assert {"object", "count"} == set(found["lens"]["last word"]) == set(found["probes"]["last word"])
