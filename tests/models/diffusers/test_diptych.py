"""FLUX.1-Fill as ICEdit asks it: half of a diptych, with a LoRA merged or without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

from tests.models.diffusers import tiny
from tests.models.diffusers.conftest import build
from uni_train.cli.main import uni_train
from uni_train.core.seeds import derive_seed
from uni_train.models.base import Request, SkillMissing
from uni_train.models.checkpoint import inspect
from uni_train.models.load import model_config

SENTENCE = (
    "A diptych with two side-by-side images of the same scene. On the right, the scene is exactly the same as on the "
    "left but make it blue."
)
LAYER = "transformer_blocks.0.attn.to_q"


def flux_fill() -> Any:
    from diffusers import FluxFillPipeline, FluxTransformer2DModel

    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=288, out_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )  # fmt: skip
    words = tiny._clip_tokenizer(), tiny._t5(), tiny._t5_tokenizer()
    return FluxFillPipeline(tiny._flow(), tiny._vae(4), tiny._clip(), *words, transformer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fill") / "fill"
    flux_fill().save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As diffusers saves one."""
    place = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(1)
    pair = {"lora_A": torch.randn(4, 32), "lora_B": torch.randn(32, 4)}
    tensors = {f"transformer.{LAYER}.{name}.weight": value for name, value in pair.items()}
    save_file(tensors, place / "pytorch_lora_weights.safetensors", {"format": "pt"})
    return place


@pytest.mark.parametrize(("width", "height", "asked", "drawn"), [(1024, 80, 40, 32), (512, 16, 16, 16)])
def test_the_right_half_is_what_the_pipeline_fills(
    folder: Path, width: int, height: int, asked: int, drawn: int
) -> None:
    shown = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    request = Request("a", "make it blue.", (shown,), seed=3)
    (image,) = build(folder).draw([request])
    assert image.shape == (drawn, 512, 3)
    left = np.asarray(Image.fromarray(shown).resize((512, asked))) if width != 512 else shown
    mask = np.concatenate([np.zeros((asked, 512), np.uint8), np.full((asked, 512), 255, np.uint8)], 1)
    own = flux_fill().from_pretrained(folder)
    own.set_progress_bar_config(disable=True)
    whole = own(
        prompt=SENTENCE,
        image=Image.fromarray(np.concatenate([left, left], 1)),
        mask_image=Image.fromarray(mask),
        height=asked,
        width=1024,
        guidance_scale=50.0,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(derive_seed(3, "draw")),
    ).images[0]
    assert np.abs(np.asarray(whole)[:, 512:].astype(int) - image).max() <= 1


def test_sampling_is_that_of_icedit_and_words_thought_and_image_count(folder: Path) -> None:
    sampling = model_config(str(folder)).sampling
    assert (sampling.steps, sampling.edit_text_scale) == (28, 50.0)
    model = build(folder)
    request = Request("a", "make it blue.", (np.full((16, 512, 3), 99, np.uint8),))
    other = np.full((16, 512, 3), 200, np.uint8)
    changed = [
        request,
        replace(request, prompt="x"),
        replace(request, thought="So."),
        replace(request, images=(other,)),
    ]
    assert len({image.tobytes() for image in model.draw(changed)}) == 4
    for images, skill in (((), "draw without an image"), ((other, other), "draw from several images")):
        with pytest.raises(SkillMissing, match=f"FluxFillPipeline cannot {skill}"):
            model.draw([replace(request, images=images)])


def test_a_lora_is_merged_and_the_benchmark_asks_it(folder: Path, adapter: Path, tmp_path: Path) -> None:
    merged = f"{folder}+{adapter}"
    assert inspect(merged).loads and "a LoRA of diffusers, 1 layers" in inspect(merged).what
    plain, changed = (build(one).transformer.state_dict()[f"{LAYER}.weight"] for one in (folder, merged))
    assert not torch.equal(plain, changed)
    words = ["-b", "vigor", "--settings", "direct", "--sets", "maze_navigation", "--subset", "1", "world=nano"]
    asked = ["eval", merged, *words, "sampling.steps=1", "--out", str(tmp_path)]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(uni_train, asked)
    assert done.exit_code == 0, done.output
    (scores,) = tmp_path.rglob("scores.json")
    assert '"maze_navigation"' in scores.read_text()
