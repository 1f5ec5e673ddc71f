"""The tiny pipeline as a folder, and the model of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.qwen_image_edit import tiny
from uni_train.config.compose import compose
from uni_train.config.schema import ModelConfig
from uni_train.models.load import build_model
from uni_train.models.qwen_image_edit.unified import QwenImageEdit

pytest.importorskip("diffusers")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.published(tmp_path_factory.mktemp("editor") / "Qwen-Image-Edit-2511", zero_cond_t=True)


@pytest.fixture(scope="session")
def two_others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Qwen-Image-Edit-2509, and the first one, which takes one image."""
    place = tmp_path_factory.mktemp("editors")
    return tiny.published(place / "2509"), tiny.published(place / "first", plus=False)


def config_of(folder: Path, name: str = "qwen_image_edit_2511", **editing: object) -> ModelConfig:
    """Tiny pictures, three steps, few tokens."""
    full = compose("sft", [f"model={name}"]).model
    assert full.editing is not None
    return replace(
        full,
        checkpoint=str(folder),
        architecture=replace(full.architecture, image_size=tiny.SIDE),
        editing=replace(full.editing, latent_size=tiny.SIDE, look_size=tiny.SIDE, **editing),
        sampling=replace(full.sampling, steps=3, max_think_tokens=5),
    )


@pytest.fixture(scope="session")
def build(folder: Path) -> Callable[..., QwenImageEdit]:
    def made(place: Path = folder, name: str = "qwen_image_edit_2511", **editing: object) -> QwenImageEdit:
        model = build_model(config_of(place, name, **editing))
        assert isinstance(model, QwenImageEdit)
        return model

    return made


@pytest.fixture(scope="session")
def model(build: Callable[..., QwenImageEdit]) -> QwenImageEdit:
    """Not to be changed."""
    return build()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """diffusers' pipelines resize to a megapixel whatever is asked."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as edit
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    monkeypatch.setattr(plus, "VAE_IMAGE_SIZE", tiny.SIDE**2)
    monkeypatch.setattr(plus, "CONDITION_IMAGE_SIZE", tiny.SIDE**2)
    rule = edit.calculate_dimensions
    monkeypatch.setattr(edit, "calculate_dimensions", lambda area, ratio: rule(tiny.SIDE**2, ratio))


def picture(seed: int, height: int = 50, width: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
