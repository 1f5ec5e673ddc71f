"""Flow-matching pipelines are trained: by their own velocities, by captions, and by rewards."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from tests.models.diffusers.conftest import build
from tests.tiny import finish, fit
from uni_train.config.compose import compose
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.flow.euler import euler_step
from uni_train.models.base import Example, Request, SkillMissing, Trainable, Turn, expect_skill
from uni_train.models.diffusers.condition import FlowCondition
from uni_train.models.diffusers.flow import FlowModel
from uni_train.models.family import family_of
from uni_train.models.load import build_model, load_weights, save_model
from uni_train.plan.hardware import GPUS
from uni_train.plan.plan import plan
from uni_train.training.lora import adapted, count_adapters, save_adapters
from uni_train.training.metric_log import read_metrics

TRAINED = ("flux", "stable_diffusion_3", "qwen_image")
SIDE = 32


def picture(seed: int, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def learner(folder: Path | str, **sampling: float) -> FlowModel:
    model = build(folder, **sampling)
    assert isinstance(model, FlowModel)
    model.side = SIDE
    return model


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("name", TRAINED)
def test_velocities_lead_to_the_pipelines_own_images(name: str, scale: float, folder: Callable[[str], Path]) -> None:
    model = learner(folder(name), steps=3, cfg_text_scale=scale)
    asked = [Request("a", "Draw a cup."), Request("b", "Draw two large cups.", seed=1, size=(64, SIDE))]
    with torch.no_grad():
        condition, x = model.encode(asked), model.noise(asked)
        schedules = [model.schedule(condition, row) for row in range(2)]
        for step in range(3):
            t, t_next = (torch.stack([one.step(step)[side] for one in schedules]) for side in (0, 1))
            x = euler_step(x, model.velocity(x, t, condition), t, t_next)
    for image, own in zip(model.decode(x, condition), model.draw(asked), strict=True):
        assert image.shape == own.shape and np.abs(image.astype(int) - own.astype(int)).max() <= 1
    with torch.no_grad():
        both = model.velocity(x, t, condition.repeat(2).select([0, 2]))
        torch.testing.assert_close(both, model.velocity(x, t, condition))


@pytest.mark.parametrize("name", TRAINED)
def test_a_fixed_noise_level_holds_for_all_copies_and_leaves_nothing_out(
    name: str, folder: Callable[[str], Path]
) -> None:
    model, row = learner(folder(name)), Example("Draw a cup.", target=picture(0), noise_draws=2, noise_level=0.3)
    losses = []
    for share in (0.0, 1.0):
        model.prepare_training(timestep_shift=2.0, text_dropout=share)
        batch = model.collate([row], 0)
        assert batch.levels.tolist() == [pytest.approx(0.3)] * 2
        with torch.no_grad():
            losses.append(float(model.supervised_loss(batch).mse_sum))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", TRAINED)
def test_adapters_lower_the_loss_and_load_in_diffusers(
    name: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = learner(folder(name))
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=True)
    rows = [Example(f"Draw a cup {i}.", target=picture(i, *size)) for i, size in enumerate([(32, 32), (48, 24)])]
    batch = model.collate([replace(row, noise_draws=2, seed=i) for i, row in enumerate(rows)], 0)
    request = Request("a", "Draw a cup 0.")
    before = model.draw([request])[0]
    config = LoraConfig(rank=4, alpha=8.0)
    with adapted(model, config, 0):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.02)
        losses = []
        for _ in range(6):
            loss = model.supervised_loss(batch)
            assert int(loss.mse_tokens) == batch.tokens == model.token_counts(batch)[1]
            losses.append((loss.mse_sum / loss.mse_tokens).item())
            optimizer.zero_grad()
            (loss.mse_sum / loss.mse_tokens).backward()
            optimizer.step()
        save_adapters(model, config, tmp_path / "adapter")
    assert losses[-1] < 0.98 * losses[0], losses
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=2)
    spare = model.supervised_loss(batch, passes=model.passes(batch) + 1).mse_sum
    torch.testing.assert_close(spare, model.supervised_loss(batch).mse_sum)

    own = type(model.pipeline).from_pretrained(folder(name))
    own.load_lora_weights(tmp_path / "adapter")
    words = {"negative_prompt": " "} if name == "qwen_image" else {}
    generator = torch.Generator().manual_seed(derive_seed(0, "draw"))
    theirs = own(request.prompt, num_inference_steps=2, height=SIDE, width=SIDE, generator=generator, **words).images[0]
    ours = model.draw([request])[0]
    assert np.abs(np.asarray(theirs).astype(int) - ours.astype(int)).max() <= 1
    assert np.abs(before.astype(int) - ours.astype(int)).max() > 1

    merged = learner(f"{folder(name)}+{tmp_path / 'adapter'}")
    assert np.abs(merged.draw([request])[0].astype(int) - ours.astype(int)).max() <= 1

    save_model(model, tmp_path / "model")
    again = learner(tmp_path / "model")
    assert np.array_equal(again.draw([request])[0], ours)
    load_weights(again, folder(name))
    assert np.abs(again.draw([request])[0].astype(int) - before.astype(int)).max() <= 1


def test_words_are_left_out_and_rows_of_another_kind_are_bad(folder: Callable[[str], Path]) -> None:
    model = learner(folder("stable_diffusion_3"))
    model.prepare_training(timestep_shift=2.0, text_dropout=1.0)
    row = Example("Draw a cup.", target=picture(0))
    batch = model.collate([row], 0)
    assert batch.inputs["prompt"] == [""] and model.example_tokens(row) == batch.tokens + 77 + 256 == 64 + 333
    for bad, reason in (
        (replace(row, images=(picture(1),)), "there is an input image"),
        (replace(row, target=None), "there is no image to learn"),
        (replace(row, answer="A cup."), "there is no image to learn"),
    ):
        with pytest.raises(UserError, match=reason):
            model.collate([bad], 0)
    with pytest.raises(UserError, match="cannot draw 33 x 32 pixels"):
        model.check_size(33, SIDE, "rollout.size")


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        ("flux", "<|endoftext|>"),
        ("flux", "</s>"),
        ("stable_diffusion_3", "<|startoftext|>"),
        ("stable_diffusion_3", "<pad>"),
        ("qwen_image", "<|im_end|>"),
        ("qwen_image", "<|image_pad|>"),
    ],
)
def test_a_marker_is_refused_in_training_as_in_drawing(name: str, marker: str, folder: Callable[[str], Path]) -> None:
    model = learner(folder(name))
    for example in (
        Example(f"Draw a {marker} cup.", target=picture(0)),
        Example("Draw it.", thought=f"A cup.{marker}", learn_thought=False, target=picture(0)),
        Example(turns=(Turn(f"Draw{marker}"), Turn(image=picture(0), learn=True))),
    ):
        with pytest.raises(UserError, match=re.escape(f"its text has the marker {marker} in it")):
            model.example_tokens(example)
    for request in (Request("a", f"Draw a {marker} cup."), Request("a", "Draw it.", thought=f"A cup.{marker}")):
        for ask in (model.draw, model.encode):
            with pytest.raises(UserError, match=re.escape(f"request a: its prompt has the marker {marker} in it")):
                ask([Request("b", "Draw a cup!"), request])


def test_an_image_that_is_longer_than_the_table_of_positions_is_refused(folder: Callable[[str], Path]) -> None:
    model = learner(folder("stable_diffusion_3"))
    for height, width in ((1, 400), (400, 1)):
        with pytest.raises(UserError, match=r"its image: .* cannot draw (32 x 640|640 x 32) pixels") as error:
            model.example_tokens(Example("Draw a cup.", target=picture(0, height, width)))
        assert "the nearest is" in error.value.hint and "384" in error.value.hint
    assert learner(folder("flux")).example_tokens(Example("Draw a cup.", target=picture(0, 1, 400)))


def test_other_classes_are_refused_before_anything_is_trained(folder: Callable[[str], Path], rows: Path) -> None:
    with pytest.raises(SkillMissing, match="StableDiffusionPipeline cannot be trained here, only FluxPipeline"):
        expect_skill(build(folder("stable_diffusion")), Trainable)
    for dry in ([], ["--dry-run"]):
        result = fit(rows, *sft(folder("stable_diffusion"), rows), *dry, recipe="sft")
        assert result.exit_code == 1
        assert "StableDiffusionPipeline cannot be trained here" in " ".join(result.output.split())


@pytest.mark.parametrize("name", TRAINED)
def test_plans_have_the_shapes_of_training(name: str, folder: Callable[[str], Path], rows: Path) -> None:
    def sizes(condition: FlowCondition) -> list[object]:
        words = [*condition.words, *(condition.empty or [])]
        texts = [{name: tuple(value.shape) for name, value in one.items()} for one in words]
        return [texts, [tuple(one.shape) for one in condition.shown], condition.shapes, list(condition.rows)]

    config, family, asked = compose("sft", sft(folder(name), rows)), family_of("diffusers"), Request("a", "Draw a cup.")
    model, _ = family.skeleton(config.model)
    shapes = family.shapes(model)
    assert sizes(shapes.condition(shapes.image_request(asked), 1, "meta")) == sizes(
        build_model(config.model).encode([asked])
    )
    planned = plan(config, GPUS["h100-80gb"], 1, 1, 0.4)
    assert planned.units == 2 and planned.trained == count_adapters(model, config.lora)
    assert planned.rows[0].share.parts["activations"] > 0


def test_a_dry_run_counts_images_and_tokens(folder: Callable[[str], Path], rows: Path) -> None:
    shown = fit(rows, *sft(folder("flux"), rows), "--dry-run", recipe="sft")
    assert shown.exit_code == 0, shown.output
    assert "one update: 2 images, 1,152 tokens; learned: 0 text tokens, 128 latent tokens" in shown.output
    assert "latents [2, 64, 16]" in shown.output


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    images = []
    for i in range(4):
        Image.fromarray(picture(i)).save(buffer := io.BytesIO(), "PNG")
        images.append(buffer.getvalue())
    captions = [json.dumps({"short": f"Draw a cup {i}."}) for i in range(4)]
    pq.write_table(pa.table({"image": images, "captions": captions}), place / "rows.parquet")
    return place


def keys(folder: Path) -> list[str]:
    size = f"model.architecture.image_size={SIDE}"
    return ["model=diffusers", f"model.checkpoint={folder}", size, "model.threads=1", "strategy.precision=32-true"]


def sft(folder: Path, rows: Path) -> list[str]:
    return [
        *keys(folder),
        *("sources.editing=null", "sources.vlm=null"),
        f"sources.t2i={{form:text_to_image,path:{rows}}}",
        *("updates=2", "batch.tokens=null", "batch.rows=2", "trained=lora", "optimizer.warmup_updates=0"),
    ]


def test_recipes_train_it(folder: Callable[[str], Path], rows: Path, tmp_path: Path) -> None:
    run = finish(tmp_path, *sft(folder("flux"), rows), recipe="sft")
    stage = run / "stages" / "00-sft"
    assert all(line["mse"] > 0 for line in read_metrics(stage / "metrics.jsonl"))
    assert (stage / "adapter" / "pytorch_lora_weights.safetensors").is_file()
    assert learner(stage / "model").draw([Request("a", "Draw a cup.")])[0].shape == (SIDE, SIDE, 3)


def test_rewards_train_it_and_the_first_ratio_is_one(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """The trainer refuses a first update whose log ratios are not 0."""
    (tmp_path / "red.py").write_text(
        "def red(completions, **columns):\n    return [float(image[..., 0].mean()) for image in completions]\n"
    )
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": f"Draw {i} cups."}) for i in range(4)))
    given = [
        *keys(folder("stable_diffusion_3")),
        *(f"prompts.path={tmp_path / 'prompts.jsonl'}", "prompts.task=null", "prompts.levels=[1]"),
        f"rewards={{solved:null,red:{{function:{tmp_path / 'red.py'}:red}}}}",
        *("epochs=2", "rows=4", "checkpoint_every=2", "trained=lora", "held_out.n=0"),
        *("rollout.prompts_per_epoch=2", "rollout.group_size=2", "rollout.steps=3", "rollout.last_step=2"),
    ]
    (metrics,) = (finish(tmp_path, *given, recipe="flow_grpo_maze") / "stages").glob("*/metrics.jsonl")
    first = next(iter(read_metrics(metrics)))
    assert first["log_ratio_max"] < 1e-4 and first["grad_norm"] > 0
