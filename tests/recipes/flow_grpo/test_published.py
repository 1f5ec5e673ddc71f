"""Reinforcement of tiny models in their published layouts: Qwen-Image-Edit-2511 by adapters, BAGEL whole; killed,
continued, exported; prompts that they cannot be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image
from safetensors.torch import load_file

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import picture
from tests.training.keys import killed_after
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.eval.images import pixels
from uni_train.eval.validation import read_validation, rewards_of
from uni_train.models.bagel import mot
from uni_train.models.load import build_model
from uni_train.models.quantised import decoder_layers, plain, quantise
from uni_train.training.metric_log import read_metrics

pytest.importorskip("diffusers")

QUICK = (
    "model.threads=1",
    "prompts.task=null",
    "rewards.solved=null",
    "epochs=2",
    "updates_per_epoch=2",
    "rows=6",
    "rollout.prompts_per_epoch=2",
    "rollout.group_size=3",
    "rollout.steps=3",
    "rollout.last_step=2",
    "objective.kl=0.01",
    "objective.clip_low=0.1",
    "objective.clip_high=0.1",
    "sft.rows=2",
    "activation_checkpointing=true",
    "alarms.diversity=null",
    "held_out.every=1",
    "checkpoint_every=1",
    "optimizer.lr=1e-3",
    "strategy.precision=32-true",
)
EDITOR = (
    "model=qwen_image_edit_2511",
    *(f"model.{key}={tiny.SIDE}" for key in ("architecture.image_size", "editing.latent_size", "editing.look_size")),
    "trained=lora",
    "lora.rank=2",
    "lora.targets=generation",
)
BAGEL = ("model=bagel_7b", "ema=0.5", "trained=all")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models, prompts and a reward."""
    place = tmp_path_factory.mktemp("published")
    tiny.published(place / "qwen", zero_cond_t=True)
    published(FOLDER, place / "bagel")
    for i, size in enumerate([(50, 80), (50, 80), (90, 40)]):
        Image.fromarray(picture(i, *size)).save(place / f"{i}.png")
    rows = [{"id": f"row {i}", "prompt": f"make it bright {i}", "images": [f"{i}.png"]} for i in range(3)]
    for name, some in (
        ("alike", rows[:2]),
        ("mixed", rows[1:]),
        ("bare", [rows[0], {"id": "bare", "prompt": "a cat"}]),
    ):
        (place / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    solved = [{**row, "image": row["images"][0]} for row in rows]
    (place / "solved.jsonl").write_text("\n".join(map(json.dumps, solved)))
    (place / "mine.py").write_text(
        "def bright(prompts, completions, **columns):\n    return [float(i.mean()) / 255 for i in completions]\n"
    )
    return place


def fit(place: Path, out: Path, model: str, *overrides: str, prompts: str = "alike") -> Result:
    given = (EDITOR if model == "qwen" else BAGEL) + QUICK
    files = [
        f"model.checkpoint={place / model}",
        f"prompts.path={place / prompts}.jsonl",
        f"held_out.path={place / prompts}.jsonl",
        f"sft.path={place / 'solved.jsonl'}",
        f"rewards.bright.function={place / 'mine.py'}:bright",
        f"out={out}",
        "name=seed0",
    ]
    arguments = ["fit", "--recipe", "flow_grpo_maze", *given, *files, *overrides]
    return CliRunner().invoke(uni_train, arguments, terminal_width=100)


def finish(place: Path, out: Path, model: str, prompts: str = "alike") -> Path:
    result = fit(place, out, model, prompts=prompts)
    assert result.exit_code == 0, result.output
    return out / "flow_grpo_maze" / "seed0" / "stages" / "00-grpo"


def killed_and_continued(place: Path, out: Path, model: str, prompts: str = "alike") -> Path:
    """After the first update of the second epoch."""
    with killed_after(3):
        fit(place, out, model, prompts=prompts)
    return finish(place, out, model, prompts=prompts)


def same(one: Path, other: Path, file: str) -> dict[str, torch.Tensor]:
    first, second = load_file(one / file), load_file(other / file)
    assert first.keys() == second.keys() and all(torch.equal(second[name], value) for name, value in first.items())
    return first


@pytest.mark.slow
def test_an_editors_adapters_are_trained_and_loaded_by_diffusers(place: Path, tmp_path: Path) -> None:
    stage = finish(place, tmp_path, "qwen", prompts="mixed")
    merged = load_file(stage / "model/transformer/diffusion_pytorch_model.safetensors")
    lines = read_metrics(stage / "metrics.jsonl")
    assert len(lines) == 4 and lines[0]["kl"] == 0 and lines[3]["kl"] > 0 and lines[0]["log_ratio_max"] < 1e-5

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
    recomputed = Mock(side_effect=mot.checkpoint)
    with monkeypatch.context() as during:
        during.setattr(mot, "checkpoint", recomputed)
        stage = finish(place, tmp_path / "whole", "bagel", prompts="mixed")
    assert recomputed.called, "activation_checkpointing=true"
    assert all(line["sft"] > 0 for line in read_metrics(stage / "metrics.jsonl"))
    again = killed_and_continued(place, tmp_path / "cut", "bagel", prompts="mixed")
    for log in ("metrics.jsonl", "held_out.jsonl"):
        assert (again / log).read_bytes() == (stage / log).read_bytes()
    after = same(stage, again, "model/ema.safetensors")
    before = load_file(place / "bagel" / "ema.safetensors")
    changed = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert before.keys() == after.keys() and "llm2vae.weight" in changed and len(changed) > 20
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
    ("model", "precision"),
    [("qwen", "bf16-true"), ("bagel", "bf16-mixed"), ("bagel", "bf16-true"), ("nano", "bf16-true")],
)
def test_half_precision_draws_and_trains_alike_and_keeps_its_reference(
    model: str, precision: str, place: Path, tmp_path: Path
) -> None:
    short = [f"strategy.precision={precision}", "epochs=1", "objective.clip_low=1e-3", "objective.clip_high=1e-3"]
    if model == "nano":
        sizes = ["rows=7", "rollout.prompts_per_epoch=3", "updates_per_epoch=2", "objective.kl=0.01", "held_out.n=0"]
        arguments = ["--recipe", "flow_grpo_math", f"out={tmp_path}", "evaluate=false", "model.threads=1"]
        result, recipe = CliRunner().invoke(uni_train, ["fit", *arguments, *sizes, *short]), "flow_grpo_math"
    else:
        result, recipe = fit(place, tmp_path, model, *short), "flow_grpo_maze"
    assert result.exit_code == 0, result.output
    first, second = read_metrics(tmp_path / recipe / "seed0" / "stages" / "00-grpo" / "metrics.jsonl")
    assert first["log_ratio_max"] <= 5e-4 and first["kl"] == 0, "the check allows as much"
    assert second["log_ratio_max"] > 0 and second["kl"] > 0, "gradients came through the casts of the reference"


@pytest.mark.slow
def test_a_prompt_that_an_editor_cannot_be_asked_is_named(place: Path, tmp_path: Path) -> None:
    result = fit(place, tmp_path, "qwen", prompts="bare")
    message = "request bare shows no image, but qwen_image_edit_2511 draws by editing one"
    assert result.exit_code == 1 and message in " ".join(result.output.split()), result.output


@pytest.mark.slow
def test_training_may_draw_smaller_and_unguided_while_validation_draws_as_the_model_does(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uni_train.recipes.flow_grpo import training as grpo
    from uni_train.training.flow_grpo.rollout import read_context

    scales, sizes = [], []
    common, evaluated = read_context, grpo.ValidationPrompts.evaluate

    def training(model, requests, images, config):
        context = common(model, requests, images, config)
        condition, _ = context(images)
        scales.append(condition.guidance.text_scale)
        sizes.append(set(condition.grids))
        return context

    def validating(self, model, *rest):
        scales.append(model.sampling.cfg_text_scale)
        return evaluated(self, model, *rest)

    monkeypatch.setattr("uni_train.training.flow_grpo.rollout.read_context", training)
    monkeypatch.setattr(grpo.ValidationPrompts, "evaluate", validating)
    arguments = ["--recipe", "flow_grpo_math", f"out={tmp_path}", "evaluate=false", "model.threads=1", "epochs=1"]
    small = ["rollout.prompts_per_epoch=2", "held_out.n=2", "model.sampling.cfg_text_scale=3"]
    apart = ["rollout.size=16", "rollout.guidance=1.5", "rewards.right.function=tests.training.flow_grpo.toy:bright"]
    result = CliRunner().invoke(uni_train, ["fit", *arguments, *small, *apart])
    assert result.exit_code == 0, result.output
    assert scales[0] == scales[-1] == 3 and set(scales[1:-1]) == {1.5}
    assert all(one == {(2, 2)} for one in sizes)


@pytest.mark.slow
def test_a_bagels_adapters_are_reinforced_on_quantised_weights(place: Path, tmp_path: Path) -> None:
    """What is left is a plain checkpoint: the 4-bit weights, not the original ones, and on them the adapters."""
    pytest.importorskip("torchao")
    keys = ("trained=lora", "lora.rank=2", "model.weights=nf4", "ema=null", "epochs=1", "objective.kl=0")
    result = fit(place, tmp_path, "bagel", *keys)
    assert result.exit_code == 0, result.output
    stage = tmp_path / "flow_grpo_maze" / "seed0" / "stages" / "00-grpo"
    lines = read_metrics(stage / "metrics.jsonl")
    assert len(lines) == 2 and lines[0]["log_ratio_max"] < 1e-5 and lines[0]["grad_norm"] > 0

    model = build_model(replace(compose("sft", ["model=bagel_7b"]).model, checkpoint=str(place / "bagel")))
    quantise(model, "nf4")
    layers = dict(decoder_layers(model))
    stored = {f"bagel.{name}": value for name, value in load_file(stage / "model" / "ema.safetensors").items()}
    moved = 0
    for name, layer in layers.items():
        change = (stored[f"{name}.weight"] - plain(layer.weight)).float()
        assert torch.linalg.matrix_rank(change, atol=1e-6) <= 2, name
        moved += bool(change.any())
    assert moved
