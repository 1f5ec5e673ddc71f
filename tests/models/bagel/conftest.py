"""The golden cases of BAGEL: files, the tiny model, and our segments from their sample plans.

`UNI_TRAIN_GOLDEN` names another folder with the same files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig
from uni_train.models.bagel.packing import Segment, Text, VaeImage, VitImage
from uni_train.models.bagel.positions import patchify

FOLDER = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[2] / "data" / "golden")) / "bagel"


@dataclass(frozen=True)
class Golden:
    settings: dict[str, Any]
    results: dict[str, Any]
    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    return FOLDER


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """A case by its name."""

    def load(name: str) -> Golden:
        about = json.loads((FOLDER / f"{name}.json").read_text())
        tensors = load_file(FOLDER / f"{name}.safetensors")
        return Golden(about.get("settings", {}), about.get("results", {}), tensors)

    return load


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., BagelConfig]:
    """The tiny model's configuration from its files; keywords override what the released loader sets."""

    def build(**changes: Any) -> BagelConfig:
        llm, vit, tiny = (json.loads((FOLDER / f"{n}_config.json").read_text()) for n in ("llm", "vit", "tiny"))
        names = ("latent_patch_size", "max_latent_size", "vit_max_num_patch_per_side", "timestep_shift")
        bagel = {name: tiny["bagel"][name] for name in names} | {"latent_channels": tiny["vae"]["z_channels"]} | changes
        return BagelConfig.from_official(llm, vit, tiny["new_token_ids"], **bagel)

    return build


@pytest.fixture(scope="session")
def tiny_model(tiny_config: Callable[..., BagelConfig]) -> Callable[..., Bagel]:
    """The tiny model with its stored weights; strict, so the parameter names are the official ones."""

    def build(**changes: Any) -> Bagel:
        model = Bagel(tiny_config(**changes))
        model.load_state_dict(load_file(FOLDER / "ema.safetensors"), strict=True)
        return model

    return build


def segments_of(
    case: dict[str, Any], tensors: dict[str, Tensor], config: BagelConfig, latents: Tensor | None = None
) -> list[list[Segment]]:
    """The plan of a case as segments, with its forced dropout; `latents` [images, C, H, W] in order of VAE images."""
    text_drop, vit_drop, vae_drop = case.get("drop", [0, 0, 0])
    draws = iter(case["timestep_draws"])
    images = iter(range(1000))
    stride = 8 * config.latent_patch_size
    samples: list[list[Segment]] = []
    for plan in case["samples"]:
        sample: list[Segment] = []
        for item in plan:
            end_label = item["special_token_label"] if item["special_token_loss"] else None
            if item["type"] == "text":
                if not (item["enable_cfg"] and text_drop):
                    sample.append(Text(item["text_ids"], loss=bool(item["loss"]), end_label=end_label))
                continue
            image = tensors[f"in.image.{item['image']}"]
            if item["type"] == "vit_image":
                p = config.vit.patch_size
                grid = (image.shape[1] // p, image.shape[2] // p)
                dropped = bool(item["enable_cfg"] and vit_drop)
                sample.append(VitImage(grid, patchify(image, p).numpy(), dropped=dropped, end_label=end_label))
            else:
                grid = (image.shape[1] // stride, image.shape[2] // stride)
                dropped = bool(item["enable_cfg"] and vae_drop)
                latent = None
                if latents is not None and not dropped:
                    p = config.latent_patch_size
                    latent = patchify(latents[next(images)][:, : grid[0] * p, : grid[1] * p], p).numpy()
                noised = bool(item["loss"])
                logit = next(draws) if noised else 0.0
                sample.append(VaeImage(grid, latent, noised=noised, logit=logit, dropped=dropped, end_label=end_label))
        samples.append(sample)
    return samples


@pytest.fixture(scope="session")
def plan() -> Callable[..., list[list[Segment]]]:
    return segments_of


def relative(ours: Tensor, theirs: Tensor) -> float:
    """max |a - b| / max |b|."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if not theirs.numel():
        return 0.0
    ours = ours.detach()
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-30))


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """Fails unless two tensors agree to a tolerance relative to the largest magnitude."""

    def check(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5, what: str = "") -> None:
        error = relative(ours, theirs)
        assert error <= tolerance, f"{what}: relative error {error:.2e}, allowed {tolerance:.0e}"

    return check


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
