"""nano's VAE: 24 x 24 pixels to 3 x 3 latents of 16 channels, and back.

Each 8 x 8 patch is encoded on its own: the first convolution's stride is its size. The nano world needs no more. The
interface is that of BAGEL's autoencoder: `encode` samples z and returns scale * (z - shift), `decode` undoes it; here
scale and shift are measured after training, so that latents have mean 0 and standard deviation 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchVAE(nn.Module):
    """A convolutional VAE whose first and last layers map whole patches.

    Args:
        channels: of the latent.
        hidden: width of the inner layers.
        downsample: patch side in pixels.
    """

    def __init__(self, channels: int = 16, hidden: int = 96, downsample: int = 8) -> None:
        super().__init__()
        self.channels, self.downsample = channels, downsample
        self.encoder = nn.Sequential(
            nn.Conv2d(3, hidden, downsample, stride=downsample),
            nn.SiLU(),
            nn.Conv2d(hidden, hidden, 1),
            nn.SiLU(),
            nn.Conv2d(hidden, 2 * channels, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(channels, hidden, 1),
            nn.SiLU(),
            nn.Conv2d(hidden, hidden, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(hidden, 3, downsample, stride=downsample),
        )
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("shift", torch.zeros(()))
        self.scale: Tensor
        self.shift: Tensor

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance, [B, C, h, w] each, of images [B, 3, H, W] in [-1, 1]."""
        mean, logvar = self.encoder(images).chunk(2, dim=1)
        return mean, logvar.clamp(-20, 10)

    def encode(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Latents [B, C, h, w] of images [B, 3, H, W] in [-1, 1]; sampled with `noise` (same shape), else the mean."""
        mean, logvar = self.moments(images)
        z = mean if noise is None else mean + torch.exp(0.5 * logvar) * noise
        return self.scale * (z - self.shift)

    def decode(self, latents: Tensor) -> Tensor:
        """Images [B, 3, H, W], about in [-1, 1], of latents [B, C, h, w]."""
        return self.decoder(latents / self.scale + self.shift)

    def loss(self, images: Tensor, noise: Tensor, kl_weight: float) -> tuple[Tensor, Tensor]:
        """Reconstruction error (mean square, images in [-1, 1]) plus kl_weight * KL to N(0, 1) (mean over latents)."""
        mean, logvar = self.moments(images)
        reconstruction = self.decoder(mean + torch.exp(0.5 * logvar) * noise)
        mse = F.mse_loss(reconstruction, images)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
        return mse + kl_weight * kl, mse

    @torch.no_grad()
    def measure_scale(self, images: Tensor) -> None:
        """Set scale and shift so that the latents of these images have mean 0 and standard deviation 1."""
        mean, _ = self.moments(images)
        self.shift.copy_(mean.mean())
        self.scale.copy_(1 / mean.std())


class Pixels(nn.Module):
    """The interface of an autoencoder, with pixels for latents: [B, 3, H, W] in [-1, 1], whatever the noise."""

    downsample = 1

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)

    def encode(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """As they are."""
        return images * self.scale

    def decode(self, latents: Tensor) -> Tensor:
        """As they are."""
        return latents / self.scale
