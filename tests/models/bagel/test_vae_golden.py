"""The autoencoder against the released one: encode, decode, and the names of all its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from uni_train.models.bagel.vae import AutoEncoder, VaeConfig

pytestmark = pytest.mark.golden


@pytest.fixture(scope="module")
def vae(golden_folder: Path) -> AutoEncoder:
    tiny = json.loads((golden_folder / "tiny_config.json").read_text())["vae"]
    config = VaeConfig(
        width=tiny["ch"],
        multipliers=tuple(tiny["ch_mult"]),
        blocks=tiny["num_res_blocks"],
        latent_channels=tiny["z_channels"],
        scale=tiny["scale_factor"],
        shift=tiny["shift_factor"],
    )
    weights = load_file(golden_folder / "ae.safetensors")
    assert VaeConfig.from_shapes({name: value.shape for name, value in weights.items()}) == config
    model = AutoEncoder(config)
    model.load_state_dict(weights, strict=True)
    assert model.downsample == tiny["downsample"]
    return model


@torch.no_grad()
def test_bagel_vae_encodes_and_decodes_as_the_released_one(
    vae: AutoEncoder, golden: Callable, close: Callable[..., None]
) -> None:
    case = golden("vae")
    image = case["in.image"]
    close(vae.encoder(image), case["out.moments"], what="moments")
    mean, logvar = vae.moments(image)
    close(mean, case["out.mean"], what="mean")
    close(logvar, case["out.logvar"], what="logvar")
    close(vae.encode(image), case["out.latent_mode"], what="latent of the mean")
    sampled = vae.encode(image, case["in.noise"])
    close(sampled, case["out.latent_sampled"], what="sampled latent")
    close(vae.decode(sampled), case["out.decode_of_sampled"], what="decoded sample")
    close(vae.decode(case["in.z"]), case["out.decode_of_z"], what="decoded latent")
    close(vae.decoder(case["in.z"]), case["out.decode_of_z_nopost"], what="decoder alone")


@torch.no_grad()
def test_bagel_vae_sees_the_padding_of_a_pack(vae: AutoEncoder, golden: Callable, close: Callable[..., None]) -> None:
    case = golden("vae")
    padded = case["in.image"].clone()
    padded[1, :, 32:] = 0
    padded[1, :, :, -16:] = 0
    close(vae.encode(padded), case["out.latent_mode_padded"], what="latents of a padded pack")


def test_bagel_vae_at_full_size_has_the_released_names_and_shapes(golden_folder: Path) -> None:
    full = json.loads((golden_folder / "full_state_dict.json").read_text())
    sizes = full["config"]["vae"]
    with torch.device("meta"):
        model = AutoEncoder()
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    assert shapes == full["vae_shapes"]
    assert sum(value.numel() for value in model.parameters()) == full["vae_total_params"]
    assert VaeConfig.from_shapes(shapes) == model.config
    assert (model.downsample, model.channels) == (sizes["downsample"], sizes["z_channels"])
