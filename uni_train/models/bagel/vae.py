"""BAGEL's autoencoder (that of FLUX.1): RGB in [-1, 1] to 16 latent channels at an eighth of the side, and back.

A convolutional VAE: residual blocks of group norm (32 groups), SiLU and 3 x 3 convolutions. A level has `multipliers`
times `width` channels, and the side is halved between levels. The lowest level has one attention layer over all
positions. Latents are ``scale * (z - shift)`` of a *sampled* ``z = mean + exp(logvar / 2) * noise``, also for condition
images.

Written here, and not taken from diffusers, although its AutoencoderKL has the same layers: its 244 keys would need
translating in both directions, and importing it takes longer than importing torch. Equality is what the
golden tests prove.

The group norms and the attention see the whole image, so padding changes latents. Images of one size are therefore
encoded together, others on their own. In training, however, BAGEL pads a pack (see `examples.py`). With tiles
(`enable_tiling`) they see one tile at a time. Images then differ from whole ones, and memory is that of one tile.

Shapes: B images, H, W pixels, C channels, h, w latents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class VaeConfig:
    """Sizes; the defaults are those of the released autoencoder (83,819,683 parameters)."""

    width: int = 128
    multipliers: tuple[int, ...] = (1, 2, 4, 4)
    blocks: int = 2
    latent_channels: int = 16
    scale: float = 0.3611
    shift: float = 0.1159

    @classmethod
    def from_shapes(cls, shapes: Mapping[str, Sequence[int]]) -> VaeConfig:
        """The sizes of a stored autoencoder: `ae.safetensors` comes without a JSON file of its own.

        Raises:
            KeyError: the tensors are not those of such an autoencoder; the argument is the first name missed.
        """
        width = shapes["encoder.conv_in.weight"][0]
        levels = range(_count(shapes, "encoder.down.{}.block.0.conv1.weight"))
        return cls(
            width=width,
            multipliers=tuple(shapes[f"encoder.down.{i}.block.0.conv1.weight"][0] // width for i in levels),
            blocks=_count(shapes, "encoder.down.0.block.{}.conv1.weight"),
            latent_channels=shapes["encoder.conv_out.weight"][0] // 2,
        )


def _count(shapes: Mapping[str, Sequence[int]], name: str) -> int:
    count = 0
    while name.format(count) in shapes:
        count += 1
    if not count:
        raise KeyError(name.format(0))
    return count


class AutoEncoder(nn.Module):
    """Parameter names are those of `ae.safetensors`.

    Attributes:
        downsample: pixels a side of one latent.
        channels: of the latent.
    """

    def __init__(self, config: VaeConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else VaeConfig()
        self.channels = self.config.latent_channels
        self.downsample = 2 ** (len(self.config.multipliers) - 1)
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)
        self._tiles: tuple[Tiles, Tiles] | None = None

    def enable_tiling(self, height: int, width: int, stride_height: int, stride_width: int) -> None:
        """From now on larger images go in tiles, blended where they overlap; the signature is that of diffusers.

        Args:
            height, width, stride_height, stride_width: of tiles in pixels; latents that are cut are left out.
        """
        down = self.downsample
        self._tiles = Tiles(height // down, stride_height // down), Tiles(width // down, stride_width // down)

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of z, [B, C, h, w] each, of images [B, 3, H, W] in [-1, 1].

        H and W must be multiples of `downsample`. Computed in the dtype of the weights.
        """
        images = images.to(self.encoder.conv_in.weight.dtype)
        if self._tiles is None:
            mean, logvar = self.encoder(images).chunk(2, dim=1)
        else:
            down = self.downsample
            size = (images.shape[-2] // down, images.shape[-1] // down)
            blended = _blended(
                lambda y, x: self.encoder(images[..., _span(y, down), _span(x, down)]), size, self._tiles
            )
            mean, logvar = blended.chunk(2, dim=1)
        return mean, logvar

    def encode(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Scaled latents [B, C, h, w] of images [B, 3, H, W] in [-1, 1]; with `noise` (same shape) z is sampled."""
        mean, logvar = self.moments(images)
        z = mean if noise is None else mean + torch.exp(0.5 * logvar) * noise
        return self.config.scale * (z - self.config.shift)

    def decode(self, latents: Tensor) -> Tensor:
        """Images [B, 3, H, W], about in [-1, 1], of scaled latents [B, C, h, w].

        On CPU with channels last in memory, which all layers keep: one thread, the tiny released autoencoder, 16
        images of 128 x 128: 48 ms each instead of 57. Encoding must not do that: PyTorch's group norm then computes the
        variance as a difference of two means. This loses three digits where most of an image is one colour.
        """
        z = latents / self.config.scale + self.config.shift
        layout = torch.channels_last if z.device.type == "cpu" else torch.contiguous_format
        z = z.to(self.decoder.conv_in.weight.dtype, memory_format=layout)
        if self._tiles is None:
            return self.decoder(z)
        return _blended(lambda y, x: self.decoder(z[..., y, x]), (z.shape[-2], z.shape[-1]), self._tiles)


@dataclass(frozen=True, slots=True)
class Tiles:
    """In one direction, in latents."""

    side: int
    stride: int

    def slices(self, whole: int) -> list[slice]:
        """The last one ends with the image."""
        if whole <= self.side:
            return [slice(0, whole)]
        starts = [*range(0, whole - self.side, self.stride), whole - self.side]
        return [slice(start, start + self.side) for start in starts]


def _blended(make: Callable[[slice, slice], Tensor], size: tuple[int, int], tiles: tuple[Tiles, Tiles]) -> Tensor:
    """What `make` makes of tiles, put together: where they overlap a mean, weighted by the distance from their edges.

    Args:
        make: rows and columns of latents -> [B, C, h, w], with as many pixels (or latents) for each.
        size: of all latents.
    """
    rows, columns = (tile.slices(whole) for tile, whole in zip(tiles, size, strict=True))
    if len(rows) == len(columns) == 1:
        return make(rows[0], columns[0])
    total = weights = torch.empty(0)
    for y in rows:
        for x in columns:
            made = make(y, x)
            times = made.shape[-1] // (x.stop - x.start)
            if not weights.numel():
                total = made.new_zeros(*made.shape[:2], size[0] * times, size[1] * times)
                weights = made.new_zeros(total.shape[-2:])
            weight = torch.outer(_ramp(made.shape[-2]), _ramp(made.shape[-1])).to(made)
            total[..., _span(y, times), _span(x, times)] += made * weight
            weights[_span(y, times), _span(x, times)] += weight
    return total / weights


def _span(of: slice, times: int) -> slice:
    return slice(of.start * times, of.stop * times)


def _ramp(n: int) -> Tensor:
    """float32 [n]: distances from the nearer end, from 1 on."""
    distance = torch.arange(1, n + 1)
    return torch.minimum(distance, distance.flip(0)).float()


class Encoder(nn.Module):
    """Images -> mean and log-variance, stacked along the channels."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        widths = [config.width * multiplier for multiplier in config.multipliers]
        self.conv_in = nn.Conv2d(3, config.width, 3, padding=1)
        self.down = nn.ModuleList()
        before = config.width
        for i, width in enumerate(widths):
            self.down.append(Level(before, width, config.blocks, "down" if i < len(widths) - 1 else None))
            before = width
        self.mid = Middle(before)
        self.norm_out = _norm(before)
        self.conv_out = nn.Conv2d(before, 2 * config.latent_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(self.mid(x))))


class Decoder(nn.Module):
    """z -> images. Level i of `up` has the width of level i of the encoder; the last one runs first."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        widths = [config.width * multiplier for multiplier in config.multipliers]
        self.conv_in = nn.Conv2d(config.latent_channels, widths[-1], 3, padding=1)
        self.mid = Middle(widths[-1])
        levels: list[nn.Module] = []
        before = widths[-1]
        for i in reversed(range(len(widths))):
            levels.append(Level(before, widths[i], config.blocks + 1, "up" if i else None))
            before = widths[i]
        self.up = nn.ModuleList(reversed(levels))
        self.norm_out = _norm(before)
        self.conv_out = nn.Conv2d(before, 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.mid(self.conv_in(z))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Level(nn.Module):
    """Residual blocks of one width, then half or twice the side (`resample` "down" or "up"), or neither."""

    def __init__(self, before: int, width: int, blocks: int, resample: str | None) -> None:
        super().__init__()
        self.block = nn.ModuleList(ResidualBlock(width if i else before, width) for i in range(blocks))
        self.resample = resample
        if resample == "down":
            self.downsample = Downsample(width)
        elif resample == "up":
            self.upsample = Upsample(width)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        if self.resample == "down":
            return self.downsample(x)
        return self.upsample(x) if self.resample == "up" else x


class Middle(nn.Module):
    """Block, attention, block at the lowest resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1 = ResidualBlock(width, width)
        self.attn_1 = PositionAttention(width)
        self.block_2 = ResidualBlock(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.block_2(self.attn_1(self.block_1(x)))


class ResidualBlock(nn.Module):
    """``shortcut(x) + conv(silu(norm(conv(silu(norm(x))))))``."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.norm1 = _norm(before)
        self.conv1 = nn.Conv2d(before, width, 3, padding=1)
        self.norm2 = _norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(before, width, 1) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.silu(self.norm1(x)))
        out = self.conv2(F.silu(self.norm2(out)))
        return out + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class PositionAttention(nn.Module):
    """One head over all positions of an image; the projections are 1 x 1 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.q = nn.Conv2d(width, width, 1)
        self.k = nn.Conv2d(width, width, 1)
        self.v = nn.Conv2d(width, width, 1)
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        q, k, v = (project(normed).flatten(2).transpose(1, 2)[:, None] for project in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).reshape(x.shape)
        return x + self.proj_out(mixed)


class Downsample(nn.Module):
    """A 3 x 3 convolution of stride 2 after one zero at the right and at the bottom."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Upsample(nn.Module):
    """Each pixel twice in both directions, then a 3 x 3 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width, eps=1e-6)
