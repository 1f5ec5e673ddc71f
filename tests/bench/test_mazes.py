"""The maze table: what is run for how long, and what is not run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.experiments import mazes
from uni_train.config.compose import compose
from uni_train.training.metric_log import read_metrics


def test_every_arm_composes_and_begins_with_the_model_of_its_seed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mazes, "FRESH", 3)
    plan = mazes.Plan(tmp_path, n=2)
    for key, arm in mazes.ARMS.items():
        _, recipe, *overrides = mazes.arguments(plan, 1, key, f"seed1-{key}")
        config = compose(recipe, [*overrides, plan.lasting(arm, 7)])
        assert (config.recipe, config.seed, config.out) == (arm.recipe, 1, str(tmp_path))
        name = f"seed1-{arm.begins}"
        model = None if arm.begins is None else str(tmp_path / "sft_maze" / name / "stages" / "00-sft" / "model")
        assert config.model.checkpoint == model
        if key == "stars":
            assert [one.draw for one in config.rounds] == [1, 2, 3, 4, 5, 6, 7] and config.solved is not None
    first, more = (read_metrics(tmp_path / f"{kind}-seed1" / "items.jsonl") for kind in ("limited", "more"))
    assert (len(first), len(more)) == (2, 3)
    assert {item["split"] for item in (*first, *more)} == {"train"}
