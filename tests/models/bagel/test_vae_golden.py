"""The autoencoder against the released one: encode, decode, and the names of all its weights."""

from __future__ import annotations

import json

import pytest
import torch

from uni_train.models.bagel.vae import AutoEncoder, Tiles, VaeConfig, _blended
from uni_train.models.meta import without_weights
from uni_train.plan.trace import following

pytestmark = pytest.mark.golden


@torch.no_grad()
def test_bagel_vae_encodes_and_decodes_as_the_released_one(vae, golden, golden_folder, close) -> None:
    tiny = json.loads((golden_folder / "tiny_config.json").read_text())["vae"]
    sizes = VaeConfig(
        width=tiny["ch"],
        multipliers=tuple(tiny["ch_mult"]),
        blocks=tiny["num_res_blocks"],
        latent_channels=tiny["z_channels"],
        scale=tiny["scale_factor"],
        shift=tiny["shift_factor"],
    )
    assert vae.config == sizes and vae.downsample == tiny["downsample"]
    case = golden("vae")
    image, padded = case["in.image"], case["in.image"].clone()
    padded[1, :, 32:] = 0
    padded[1, :, :, -16:] = 0
    mean, logvar = vae.moments(image)
    sampled = vae.encode(image, case["in.noise"])
    for name, ours in {
        "moments": vae.encoder(image),
        "mean": mean,
        "logvar": logvar,
        "latent_mode": vae.encode(image),
        "latent_sampled": sampled,
        "decode_of_sampled": vae.decode(sampled),
        "decode_of_z": vae.decode(case["in.z"]),
        "decode_of_z_nopost": vae.decoder(case["in.z"]),
        "latent_mode_padded": vae.encode(padded),
    }.items():
        close(ours, case[f"out.{name}"], what=name)


def test_tiles_of_what_sees_each_place_alone_are_the_whole() -> None:
    x = torch.randn(2, 3, 45, 70)
    tiles = Tiles(16, 12), Tiles(24, 5)
    whole = _blended(lambda y, z: x[..., y, z].repeat_interleave(2, -1).repeat_interleave(2, -2), (45, 70), tiles)
    torch.testing.assert_close(whole, x.repeat_interleave(2, -1).repeat_interleave(2, -2), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_images_in_tiles_are_those_of_the_plain_path_where_norms_see_the_same(vae: AutoEncoder) -> None:
    """An image that repeats itself: group norms of a tile are about those of the whole."""
    random = torch.Generator().manual_seed(0)
    latents = torch.randn(1, vae.channels, 4, 4, generator=random).repeat(1, 1, 12, 12)
    image = (torch.rand(1, 3, 32, 32, generator=random) * 2 - 1).repeat(1, 1, 12, 12)
    tiled = AutoEncoder(vae.config)
    tiled.load_state_dict(vae.state_dict())
    tiled.enable_tiling(256, 256, 192, 192)
    small = latents[..., :32, :32], image[..., :256, :256]
    assert torch.equal(tiled.decode(small[0]), vae.decode(small[0]))
    assert torch.equal(tiled.encode(small[1]), vae.encode(small[1]))
    for whole, parts, mean, most in (
        (vae.decode(latents), tiled.decode(latents), 0.05, 0.2),
        (vae.encode(image), tiled.encode(image), 0.1, 0.35),
    ):
        difference = (whole - parts).abs() / whole.std()
        assert 0 < difference.mean() < mean and difference.max() < most


@pytest.mark.parametrize("tile", [None, 128])
@torch.no_grad()
def test_memory_of_tiles_does_not_grow_with_the_image(vae: AutoEncoder, tile: int | None) -> None:
    def peak(side: int) -> float:
        with without_weights():
            model = AutoEncoder(vae.config)
        if tile is not None:
            model.enable_tiling(tile, tile, tile * 3 // 4, tile * 3 // 4)
        with following("meta") as trace:
            model.decode(torch.empty(1, vae.channels, side // 8, side // 8, device="meta"))
            put_together = 4 * 3 * side**2 * 3  # the sum, the quotient, and less than as much of weights
            return trace.timeline().bytes[:, -1].max() - (0 if tile is None else put_together)

    grows = peak(384) / peak(192)
    assert grows > 3.9 if tile is None else grows < 1.2
