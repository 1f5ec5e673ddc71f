"""Think-distillation with an editor: given states are learned as noised images are; a tiny run by adapters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import picture
from tests.tiny import finish
from uni_train.models.base import Example, Request, States
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.training.distillation import trajectories, velocities_at
from uni_train.training.metric_log import read_metrics


def test_a_given_state_is_learned_as_a_noised_image_is(build: Callable[..., QwenImageEdit]) -> None:
    model = build()
    model.prepare_training(timestep_shift=2.0, text_dropout=0.0)
    shown, target = picture(0), picture(1)
    drawn = Example("turn it", (shown,), target=target, noise_draws=2, seed=3)
    noised = model.collate([drawn], 0)
    (clean,) = model.latents.encode(noised.targets[:1])
    both = clean.expand(2, -1, -1).numpy()
    size = model.picture_size(Request("x", "turn it", (target,)))
    states = States(noised.levels.double().numpy(), both, torch.stack(noised.noise).numpy(), size)
    given = Example("turn it", (shown,), states=states)
    assert model.example_tokens(given) == model.example_tokens(drawn)
    one, other = (model.supervised_loss(batch) for batch in (noised, model.collate([given], 0)))
    torch.testing.assert_close(one.mse_sum, other.mse_sum)
    assert int(one.mse_tokens) == int(other.mse_tokens) > 0


def test_a_fixed_noise_level_holds_for_all_copies_and_leaves_nothing_out(build: Callable[..., QwenImageEdit]) -> None:
    model, edit = build(), Example("turn it", (picture(0),), target=picture(1), noise_draws=2, noise_level=0.3, seed=3)
    losses = []
    for share in (0.0, 1.0):
        model.prepare_training(timestep_shift=2.0, text_dropout=share, vit_dropout=share, vae_dropout=share)
        batch = model.collate([edit], 0)
        assert batch.levels.tolist() == [pytest.approx(0.3)] * 2
        with torch.no_grad():
            losses.append(float(model.supervised_loss(batch).mse_sum))
    assert losses[0] == losses[1]


def test_images_of_two_sizes_are_drawn_and_asked_about_at_their_own_levels(model: QwenImageEdit) -> None:
    requests = [Request(str(i), "turn it", (picture(i, *size),), seed=i) for i, size in enumerate([(50, 80), (64, 64)])]
    states, levels = trajectories(model, requests)
    assert not torch.equal(levels[0], levels[1]), "a larger image has higher levels"
    for row, one in enumerate(requests):
        alone, own = trajectories(model, [one])
        assert torch.equal(own[0], levels[row])
        torch.testing.assert_close(states[row, :, : alone.shape[2]], alone[0], rtol=1e-3, atol=1e-3)
    t = torch.tensor([[0.8, 0.3], [0.6, 0.2]])
    found = velocities_at(model, requests, states[:, :2], t)
    direct = model.velocity(states[:, 0], t[:, 0], model.encode(requests))
    torch.testing.assert_close(found[:, 0], direct, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_an_editor_learns_from_itself_told_the_steps(folder: Path, tmp_path: Path) -> None:
    """As test_a_tiny_bagel_distils_edits in tests/recipes/distil, with states that have levels of their own."""
    given = [
        *(*tiny.KEYS, f"model.checkpoint={folder}", "model.draw_batch=4", "data.world=everyday", "guidance=1"),
        *(f"model.sampling.{key}" for key in ("steps=3", "max_think_tokens=3", "edit_text_scale=1")),
        *("rounds=[{task:maze,level:3,prompts:2,updates:2}]", "thoughts=model", "states=noised"),
        *("trained=lora", "lora.rank=2", "batch.prompts=2", "batch.accumulate=1", "optimizer.warmup_updates=0"),
        *("evaluation.sets=[maze3]", "evaluation.n=1"),
    ]
    run = finish(tmp_path, *given, recipe="distil_maze")
    (entry,) = json.loads((run / "summary.json").read_text())["rounds"]
    assert entry["calls"] == entry["calls"] | {"velocities": 2 * 3 + 2 * 2 * 2, "thoughts": 2}, "asked again"
    (stage,) = run.glob("stages/*-distil-maze3")
    assert all(np.isfinite(line["mse"]) and line["mse"] > 0 for line in read_metrics(stage / "metrics.jsonl"))
    assert (run / "stages" / "02-draw-maze3" / "shards" / "00000.safetensors").is_file()
    assert {path.name for path in (stage / "adapter").iterdir()} == {"pytorch_lora_weights.safetensors"}
