"""The golden cases of BAGEL: files, the tiny model, and our segments from their sample plans.

`UNI_TRAIN_GOLDEN` names another folder with the same files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.bagel.published import published
from uni_train.flow.guidance import Guidance
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, SpecialTokens
from uni_train.models.bagel.packing import PackedBatch, Segment, Text, VaeImage, VitImage
from uni_train.models.bagel.positions import patchify
from uni_train.models.bagel.vae import AutoEncoder, VaeConfig

FOLDER = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[2] / "data" / "golden")) / "bagel"

MARKERS = ("bos_token_id", "eos_token_id", "start_of_image", "end_of_image")


@dataclass(frozen=True)
class Golden:
    """A stored case: what its JSON file says, and its tensors."""

    about: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, folder: Path, name: str) -> Golden:
        return cls(json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors"))

    @property
    def settings(self) -> dict[str, Any]:
        return self.about["settings"]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    return FOLDER


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as people get the large one; read-only."""
    return published(FOLDER, tmp_path_factory.mktemp("published") / "BAGEL")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """A case by its name."""
    return partial(Golden.read, FOLDER)


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., BagelConfig]:
    """The tiny model's configuration from its files; keywords override what the released loader sets."""

    def build(**changes: Any) -> BagelConfig:
        llm, vit, tiny = (json.loads((FOLDER / f"{n}_config.json").read_text()) for n in ("llm", "vit", "tiny"))
        names = ("latent_patch_size", "max_latent_size", "vit_max_num_patch_per_side", "timestep_shift")
        bagel = {name: tiny["bagel"][name] for name in names} | {"latent_channels": tiny["vae"]["z_channels"]} | changes
        return BagelConfig.from_official(llm, vit, SpecialTokens(*map(tiny["new_token_ids"].get, MARKERS)), **bagel)

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
            height, width = tensors[f"in.image.{item['image']}"].shape[1:]
            vit = item["type"] == "vit_image"
            dropped = bool(item["enable_cfg"] and (vit_drop if vit else vae_drop))
            more: dict[str, Any] = {"dropped": dropped, "end_label": end_label}
            if vit:
                p = config.vit.patch_size
                patches = patchify(tensors[f"in.image.{item['image']}"], p).numpy()
                sample.append(VitImage((height // p, width // p), patches, **more))
                continue
            grid, p, latent = (height // stride, width // stride), config.latent_patch_size, None
            if latents is not None and not dropped:
                latent = patchify(latents[next(images)][:, : grid[0] * p, : grid[1] * p], p)
            noised = bool(item["loss"])
            sample.append(VaeImage(grid, latent, noised=noised, logit=next(draws) if noised else 0.0, **more))
        samples.append(sample)
    return samples


@pytest.fixture(scope="session")
def plan() -> Callable[..., list[list[Segment]]]:
    return segments_of


def guidance_of(values: dict[str, Any], norm_scope: Literal["row", "batch"] = "batch") -> Guidance:
    """The guidance that a case's settings name."""
    names = ("cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min")
    text, image, interval, renorm, least = (values[name] for name in names)
    return Guidance(text, image, tuple(interval), renorm, least, norm_scope)


def packed_order(batch: PackedBatch, x_BUD: Tensor, x_BGD: Tensor, row: int = 0) -> Tensor:
    """[tokens, D] of one row in the order in which published code packs it, without padding."""
    und, gen = batch.und_valid[row], batch.gen_valid[row]
    x = torch.cat([x_BUD[row][und], x_BGD[row][gen]])
    order = torch.cat([batch.und_mask.order[row][und], batch.gen_mask.order[row][gen]])
    return x[order.argsort()]


def noised(batch: PackedBatch) -> PackedBatch:
    """The same batch with flow noise of its own."""
    batch.noise_BGC = torch.randn(batch.clean_BGC.shape, generator=torch.Generator().manual_seed(0))
    return batch


@pytest.fixture(scope="session")
def vae() -> AutoEncoder:
    """The tiny autoencoder with its stored weights."""
    state = load_file(FOLDER / "ae.safetensors")
    model = AutoEncoder(VaeConfig.from_shapes({name: list(tensor.shape) for name, tensor in state.items()}))
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """Fails unless max |a - b| is within a tolerance of max |b|."""

    def check(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5, what: str = "") -> None:
        assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
        if theirs.numel():
            most = (ours.detach().double() - theirs.double()).abs().max()
            error = float(most / theirs.double().abs().max().clamp_min(1e-30))
            assert error <= tolerance, f"{what}: relative error {error:.2e}, allowed {tolerance:.0e}"

    return check


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
