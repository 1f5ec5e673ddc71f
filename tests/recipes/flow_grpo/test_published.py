"""Reinforcement of tiny models in their published layouts: Qwen-Image-Edit-2511 by adapters, BAGEL whole; killed,
continued, exported; prompts that they cannot be asked."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import picture
from tests.tiny import finish, fit
from tests.training.keys import killed_after
from uni_train.eval.images import pixels
from uni_train.eval.validation import read_validation, rewards_of
from uni_train.models.bagel import mot
from uni_train.models.load import build_model, model_config
from uni_train.models.quantised import decoder_layers, plain, quantise
from uni_train.recipes.flow_grpo import training as grpo
from uni_train.training.flow_grpo.rollout import read_context
from uni_train.training.metric_log import read_metrics

pytest.importorskip("diffusers")

QUICK = ("model.threads=1", "prompts.task=null", "rewards.solved=null", "epochs=2", "updates_per_epoch=2", "rows=6")
QUICK += ("rollout.prompts_per_epoch=2", "rollout.group_size=2", "rollout.steps=3", "rollout.last_step=2", "sft.rows=2")
QUICK += ("objective.kl=0.01", "objective.clip_low=0.1", "objective.clip_high=0.1", "activation_checkpointing=true")
QUICK += ("alarms.diversity=null", "held_out.every=1", "checkpoint_every=1", "optimizer.lr=1e-3")
QUICK += ("strategy.precision=32-true",)
UNSHOWN = ("held_out.path=null", "held_out.n=0", "activation_checkpointing=false")
"""For tests that do not look at validations."""
EDITOR = ("model=qwen_image_edit_2511", "trained=lora", "lora.rank=2", "lora.targets=generation")
SIZES = ("architecture.image_size", "editing.latent_size", "editing.look_size")
EDITOR += tuple(f"model.{key}={tiny.SIDE}" for key in SIZES)
BAGEL = ("model=bagel_7b", "model.architecture.image_size=32", "ema=0.5", "trained=all")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models, prompts and a reward."""
    place = tmp_path_factory.mktemp("published")
    tiny.published(place / "qwen", zero_cond_t=True)
    published(FOLDER, place / "bagel")
    for i, size in enumerate([(50, 80), (50, 80), (90, 40)]):
        Image.fromarray(picture(i, *size)).save(place / f"{i}.png")
    rows = [{"id": f"row {i}", "prompt": f"make it bright {i}", "images": [f"{i}.png"]} for i in range(3)]
    files = {"alike": rows[:2], "mixed": rows[1:], "bare": [rows[0], {"id": "bare", "prompt": "a cat<|im_end|>"}]}
    for name, some in files.items():
        (place / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    solved = [{**row, "image": row["images"][0]} for row in rows]
    (place / "solved.jsonl").write_text("\n".join(map(json.dumps, solved)))
    (place / "mine.py").write_text(
        "def bright(prompts, completions, **columns):\n    return [float(i.mean()) / 255 for i in completions]\n"
    )
    return place


def given(place: Path, model: str, prompts: str = "alike") -> list[str]:
    files = [f"{key}.path={place / prompts}.jsonl" for key in ("prompts", "held_out")]
    files += [f"model.checkpoint={place / model}", f"sft.path={place / 'solved.jsonl'}"]
    files += [f"rewards.bright.function={place / 'mine.py'}:bright", "name=seed0"]
    return [*(EDITOR if model == "qwen" else BAGEL), *QUICK, *files]


def trained(out: Path, *overrides: str) -> Path:
    """The stage of a finished run."""
    return finish(out, *overrides, recipe="flow_grpo_maze") / "stages" / "00-grpo"


@pytest.mark.slow
def test_an_editors_adapters_are_trained_and_loaded_by_diffusers(place: Path, tmp_path: Path) -> None:
    stage = trained(tmp_path, *given(place, "qwen", "mixed"), "epochs=1", *UNSHOWN)
    merged = load_file(stage / "model/transformer/diffusion_pytorch_model.safetensors")
    lines = read_metrics(stage / "metrics.jsonl")
    assert len(lines) == 2 and lines[0]["kl"] == 0 and lines[1]["kl"] > 0 and lines[0]["log_ratio_max"] < 1e-5

    pipeline = tiny.pipeline(zero_cond_t=True)
    pipeline.load_lora_weights(stage / "adapter")
    pipeline.fuse_lora()
    pipeline.unload_lora_weights()
    moved = 0
    start = load_file(place / "qwen" / "transformer" / "diffusion_pytorch_model.safetensors")
    for name, value in pipeline.transformer.state_dict().items():
        assert torch.allclose(value, merged[name], atol=1e-6), name
        moved += not torch.equal(merged[name], start[name])
    assert moved == 2 * 6


@pytest.mark.slow
def test_a_bagel_is_trained_whole_on_pictures_of_mixed_sizes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recomputed, overrides = Mock(side_effect=mot.checkpoint), given(place, "bagel", "mixed")
    with monkeypatch.context() as during:
        during.setattr(mot, "checkpoint", recomputed)
        stage = trained(tmp_path / "whole", *overrides)
    assert recomputed.called, "activation_checkpointing=true"
    assert all(line["sft"] > 0 for line in read_metrics(stage / "metrics.jsonl"))
    with killed_after(3):  # the first update of the second epoch
        fit(tmp_path / "cut", *overrides, recipe="flow_grpo_maze")
    again = trained(tmp_path / "cut", *overrides)
    for log in ("metrics.jsonl", "held_out.jsonl"):
        assert (again / log).read_bytes() == (stage / log).read_bytes()
    before, after, ours = (
        load_file(folder / "ema.safetensors") for folder in (place / "bagel", stage / "model", again / "model")
    )
    assert before.keys() == after.keys() == ours.keys()
    assert all(torch.equal(ours[name], value) for name, value in after.items())
    changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert "llm2vae.weight" in changed and len(changed) > 20
    shown = read_validation(stage / "gallery" / "epoch-00000")
    assert len({pixels(one.sample.drawn[0]).shape for one in shown}) == 2

    held_out = read_metrics(stage / "held_out.jsonl")
    seen = rewards_of(read_validation(stage / "held_out" / "step=00000004"))["bright"]
    assert [line["step"] for line in held_out] == [0, 2, 4] and held_out[2]["held_out"] == np.mean(seen)
    assert held_out[2]["held_out"] != held_out[0]["held_out"]
    found = json.loads((stage / "manifest.json").read_text())["result"]["held_out"]["after"]
    assert found["bright"]["n"] == 2 and found["bright"]["value"] == pytest.approx(held_out[2]["held_out/bright"])
    page = (stage.parents[1] / "report.html").read_text(encoding="utf-8")
    assert "Rewards of held-out prompts" in page and "Held-out bright" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision"), [("qwen", "bf16-true"), ("bagel", "bf16-mixed"), ("bagel", "bf16-true")]
)
def test_half_precision_draws_and_trains_alike_and_keeps_its_reference(
    model: str, precision: str, place: Path, tmp_path: Path
) -> None:
    short = [f"strategy.precision={precision}", "epochs=1", "objective.clip_low=1e-3", "objective.clip_high=1e-3"]
    first, second = read_metrics(trained(tmp_path, *given(place, model), *short, *UNSHOWN) / "metrics.jsonl")
    assert first["log_ratio_max"] <= 5e-4 and first["kl"] == 0, "the check allows as much"
    assert second["log_ratio_max"] > 0 and second["kl"] > 0, "gradients came through the casts of the reference"


@pytest.mark.slow
def test_a_prompt_that_an_editor_cannot_be_asked_is_named(place: Path, tmp_path: Path) -> None:
    result = fit(tmp_path, *given(place, "qwen", "bare"), recipe="flow_grpo_maze")
    message = "its prompt has the marker <|im_end|> in it"
    assert result.exit_code == 1 and message in " ".join(result.output.split()), result.output


@pytest.mark.slow
def test_training_may_draw_smaller_and_unguided_while_validation_draws_as_the_model_does(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales, sizes = [], []
    evaluated = grpo.ValidationPrompts.evaluate

    def training(*arguments):
        context = read_context(*arguments)
        condition, _ = context(arguments[2])
        scales.append(condition.guidance.text_scale)
        sizes.append(set(condition.grids))
        return context

    def validating(self, model, *rest):
        scales.append(model.sampling.cfg_text_scale)
        return evaluated(self, model, *rest)

    monkeypatch.setattr("uni_train.training.flow_grpo.rollout.read_context", training)
    monkeypatch.setattr(grpo.ValidationPrompts, "evaluate", validating)
    small = ["evaluate=false", "model.threads=1", "epochs=1", "rollout.prompts_per_epoch=2", "held_out.n=2"]
    small += ["model.sampling.steps=2", "model.sampling.cfg_text_scale=3"]
    other = ["rollout.size=16", "rollout.guidance=1.5", "rewards.light.function=tests.training.flow_grpo.toy:bright"]
    finish(tmp_path, *small, *other, recipe="flow_grpo_math")
    assert scales[0] == scales[-1] == 3 and set(scales[1:-1]) == {1.5}
    assert all(one == {(2, 2)} for one in sizes)


@pytest.mark.slow
def test_a_bagels_adapters_are_reinforced_on_quantised_weights(place: Path, tmp_path: Path) -> None:
    """What is left is a plain checkpoint: the 4-bit weights, not the original ones, and on them the adapters."""
    pytest.importorskip("torchao")
    keys = ("trained=lora", "lora.rank=2", "model.weights=nf4", "ema=null", "epochs=1", "objective.kl=0")
    stage = trained(tmp_path, *given(place, "bagel"), *keys, *UNSHOWN)
    lines = read_metrics(stage / "metrics.jsonl")
    assert len(lines) == 2 and lines[0]["log_ratio_max"] < 1e-5 and lines[0]["grad_norm"] > 0

    model = build_model(model_config(str(place / "bagel")))
    quantise(model, "nf4")
    stored = load_file(stage / "model" / "ema.safetensors")
    moved = 0
    for name, layer in decoder_layers(model):
        change = (stored[f"{name.removeprefix('bagel.')}.weight"] - plain(layer.weight)).float()
        assert torch.linalg.matrix_rank(change, atol=1e-6) <= 2, name
        moved += bool(change.any())
    assert moved
