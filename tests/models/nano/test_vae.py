"""nano's VAE: shapes, scale and shift, and that its training works and can be repeated."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uni_train.config.training import VaeConfig
from uni_train.data_gen import sprites
from uni_train.models.nano.train_vae import train_vae
from uni_train.models.nano.vae import PatchVAE


def pictures(count: int) -> torch.Tensor:
    drawn = [sprites.render(sprites.SPRITES[i % 12], 1 + i % 9, i) for i in range(count)]
    return torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float() / 127.5 - 1


def fresh(seed: int = 0, **sizes: int) -> PatchVAE:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PatchVAE(**sizes).requires_grad_(False)


def test_a_latent_is_a_function_of_its_own_patch_alone() -> None:
    images = pictures(1)
    for channels, downsample in ((16, 8), (4, 4), (5, 12)):
        vae, side = fresh(channels=channels, downsample=downsample, hidden=8), sprites.SIZE // downsample
        assert vae.encode(images).shape == (1, channels, side, side)
        assert vae.decode(vae.encode(images)).shape == images.shape
        changed = images.clone()
        changed[:, :, -downsample:, :downsample] = 0
        differs = (vae.encode(images) != vae.encode(changed)).any(1)[0]
        assert differs.nonzero().tolist() == [[side - 1, 0]]


def test_scale_and_shift_cancel_and_act_as_the_formula_says() -> None:
    vae, images = fresh(), pictures(64)
    mean, logvar = vae.moments(images)
    plain = vae.decode(vae.encode(images))
    vae.scale.fill_(3.0)
    vae.shift.fill_(-0.4)
    assert torch.allclose(vae.encode(images), 3.0 * (mean + 0.4))
    assert torch.allclose(vae.decode(vae.encode(images)), plain, atol=1e-5)
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
    sampled = vae.encode(images, noise)
    assert torch.allclose(sampled, 3.0 * (mean + torch.exp(logvar / 2) * noise + 0.4), atol=1e-5)
    vae.measure_scale(images)
    latents = vae.encode(images)
    assert [float(latents.mean()), float(latents.std())] == pytest.approx([0, 1], abs=1e-4)


def test_the_loss_is_reconstruction_plus_weighted_kl() -> None:
    vae, images = fresh(), pictures(4)
    mean, logvar = vae.moments(images)
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
    loss, mse = vae.loss(images, noise, kl_weight=0.5)
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(mean, torch.exp(logvar / 2)), normal(0.0, 1.0)).mean()
    assert float(loss - mse) == pytest.approx(0.5 * float(kl), rel=1e-4)
    again = vae.decode(vae.encode(images, noise))
    assert float(mse) == pytest.approx(float((again - images).square().mean()), rel=1e-4)


def test_a_few_updates_lower_the_error_and_the_same_seed_repeats_them() -> None:
    def trained(seed: int, updates: int = 25) -> tuple[PatchVAE, dict[str, float], list[float]]:
        vae, errors = fresh(), []
        config = VaeConfig(updates=updates, batch=32, lr=3e-3)
        result = train_vae(vae, config, seed, lambda **figures: errors.append(figures["mse"]))
        return vae, result, errors

    vae, result, errors = trained(1)
    assert len(errors) == 25
    assert result["mse"] == errors[-1] < errors[0] / 2
    again, _, repeated = trained(1)
    assert repeated == errors
    assert all(torch.equal(a, b) for a, b in zip(vae.state_dict().values(), again.state_dict().values(), strict=True))
    assert trained(2, 1)[2] != errors[:1]
    latents = vae.encode(pictures(64))
    assert abs(float(latents.mean())) < 0.3 and 0.6 < float(latents.std()) < 1.5
    assert not vae.training and not any(parameter.requires_grad for parameter in vae.parameters())
