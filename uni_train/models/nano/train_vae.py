"""Training of nano's VAE on rendered pictures: reconstruction plus a little KL, in about half a minute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from uni_train.config.training import VaeConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import sprites
from uni_train.models.nano.vae import PatchVAE

POOL = 2000  # pictures that the batches are drawn from: each holds up to nine of the 49 cells there are


def train_vae(vae: PatchVAE, config: VaeConfig, seed: int, advance: Callable[..., None]) -> dict[str, float]:
    """Train in place, then set scale and shift. Returns the last reconstruction error (images in [-1, 1]).

    Raises:
        UserError: the weights are not finite.
    """
    pictures = _pictures(seed)
    vae.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(vae.parameters(), config.lr)
    generator = torch.Generator().manual_seed(derive_seed(seed, "vae"))
    half = config.updates / 2
    mse = torch.zeros(())
    for update in range(config.updates):
        optimizer.param_groups[0]["lr"] = config.lr * min(1.0, (config.updates - update) / half)
        images = pictures[torch.randint(0, POOL, (config.batch,), generator=generator)]
        side = images.shape[-1] // vae.downsample
        noise = torch.randn(len(images), vae.channels, side, side, generator=generator)
        loss, mse = vae.loss(images, noise, config.kl_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        advance(mse=float(mse.detach()))
    vae.eval().requires_grad_(False)
    vae.measure_scale(pictures)
    if not all(value.isfinite().all() for value in vae.state_dict().values()):
        raise UserError("the training of the VAE diverged: its weights are not finite", "Lower vae.lr.")
    return {"mse": float(mse.detach()), "scale": float(vae.scale), "shift": float(vae.shift)}


def _pictures(seed: int) -> torch.Tensor:
    drawn = []
    for index in range(POOL):
        random_ = rng("vae pictures", seed, index)
        name, count = random_.choice(sprites.SPRITES), random_.randint(1, sprites.MAX_COUNT)
        drawn.append(sprites.render(name, count, random_.getrandbits(60)))
    return torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float() / 127.5 - 1
