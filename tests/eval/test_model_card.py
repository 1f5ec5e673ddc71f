"""The card of a trained model: every figure of its run with n and interval, every key of its recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.eval.sample_evaluation import make_run
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.eval.model_card import model_card


@pytest.mark.slow
def test_a_card_tells_the_recipe_and_every_figure(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n=4)
    config = to_plain(compose("stars_curriculum", ["seed=3"]))
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    card = model_card("me/mine", "a nano", run, None)
    written = card.split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(written) == config and "Recipe `stars_curriculum`, seed 3, from nano" in card
    scores = json.loads((run / "summary.json").read_text(encoding="utf-8"))["scores"]
    for mode, by_set in scores["after"].items():
        for name, one in by_set.items():
            (line,) = [line for line in card.splitlines() if line.startswith(f"| {name} | {mode} |")]
            assert f"{one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}], n {one['n']}" in line.split("|")[4]
    assert "that of the model it was trained from" in card and "license:" not in card


def test_a_checkpoint_without_a_run_has_a_card_without_figures() -> None:
    card = model_card("me/mine", "a nano", None, "apache-2.0")
    assert "license: apache-2.0" in card and "## Figures" not in card
