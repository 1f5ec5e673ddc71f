"""A cache of denoising steps: fewer layers, images that depend on no batch, branches apart, and never in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("diffusers")

from tests.models.diffusers import tiny as pipelines
from tests.models.diffusers.conftest import build as build_pipeline
from tests.models.qwen_image_edit import tiny as editor
from tests.models.qwen_image_edit.conftest import config_of, picture
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError, UserError
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.load import build_model

STEPS = 6
Drawer = tuple[UnifiedModel, nn.Module, list[Request]]
"""A model, its last layer, and requests."""


def qwen_image_edit(folder: Path) -> Drawer:
    config = config_of(editor.published(folder / "editor", zero_cond_t=True))
    sampling = replace(config.sampling, steps=STEPS, edit_text_scale=4.0)
    model = build_model(replace(config, sampling=sampling))
    shown = (picture(0),)
    return model, model.transformer.transformer_blocks[-1].attn, [
        Request("a", "make it red", shown, seed=1, size=(32, 32)), Request("b", "bend", shown, seed=2, size=(32, 48)),
    ]  # fmt: skip


def qwen_image(folder: Path) -> Drawer:
    pipelines.pipeline("qwen_image").save_pretrained(folder / "pipeline")
    model = build_pipeline(folder / "pipeline", steps=STEPS, cfg_text_scale=4.0)
    asked = [Request(str(i), "Draw a cup. " * (i + 1), seed=i, size=(32, 32)) for i in range(2)]
    return model, model.transformer.transformer_blocks[-1].attn, asked


@pytest.fixture(scope="module", params=[qwen_image_edit, qwen_image], ids=lambda make: make.__name__)
def drawer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drawer:
    make: Callable[[Path], Drawer] = request.param
    return make(tmp_path_factory.mktemp(make.__name__))


def drawn(drawer: Drawer, threshold: float | None, rows: slice = slice(None)) -> tuple[list[np.ndarray], int]:
    """Images, and how often the last layer was computed."""
    model, last, requests = drawer
    calls: list[None] = []
    hook = last.register_forward_hook(lambda *_: calls.append(None))
    before, model.sampling = model.sampling, replace(model.sampling, first_block_cache=threshold)
    images = model.draw(requests[rows])
    model.sampling = before
    hook.remove()
    return images, len(calls)


def equal(some: list[np.ndarray], others: list[np.ndarray], most: int = 0) -> bool:
    return all(np.abs(a.astype(int) - b).max() <= most for a, b in zip(some, others, strict=True))


def test_it_spares_layers_and_leaves_nothing_behind(drawer: Drawer) -> None:
    exact, all_layers = drawn(drawer, None)
    nearly, as_many = drawn(drawer, 1e-12)
    assert as_many >= all_layers and equal(nearly, exact, most=1)
    cached, fewer = drawn(drawer, 1.0)
    assert fewer == len(cached) * 2  # each branch in its first step alone
    assert not equal(cached, exact)
    assert equal(drawn(drawer, 1.0, slice(1, None))[0], cached[1:])
    assert equal(drawn(drawer, None)[0], exact)


def test_velocities_of_training_are_never_cached(drawer: Drawer) -> None:
    """Those whose log-probabilities Flow-GRPO compares."""
    model, last, requests = drawer
    calls: list[None] = []

    def velocities(threshold: float | None) -> list[torch.Tensor]:
        before, model.sampling = model.sampling, replace(model.sampling, first_block_cache=threshold)
        condition, x = model.encode(requests[:1]), model.noise(requests[:1])
        found = [model.velocity(x, t, condition).detach() for t in (0.9, 0.8999)]
        model.sampling = before
        return found

    exact = velocities(None)
    drawn(drawer, 1.0)
    hook = last.register_forward_hook(lambda *_: calls.append(None))
    assert all(torch.equal(one, other) for one, other in zip(velocities(1.0), exact, strict=True))
    hook.remove()
    assert len(calls) == 2 * 2


def test_models_without_known_layers_refuse_it(tmp_path: Path) -> None:
    config = compose("sft_nano", ["model.sampling.first_block_cache=0.1"]).model
    for family in ("bagel", "janus", "nano"):
        with pytest.raises(UsageError, match=rf"model\.sampling\.first_block_cache has no meaning for model={family}"):
            build_model(replace(config, family=family, name=family))
    pipelines.pipeline("stable_diffusion_3").save_pretrained(tmp_path / "sd3")
    with pytest.raises(UserError, match="diffusers caches no steps of StableDiffusion3Pipeline"):
        build_pipeline(tmp_path / "sd3", first_block_cache=0.1)
