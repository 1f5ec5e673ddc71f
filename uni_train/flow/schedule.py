"""Noise levels of a rectified flow: t = 0 is the clean image, t = 1 is noise.

The shift (Esser et al. 2024, "Scaling Rectified Flow Transformers", section 5.3.2, eq. 23) moves probability towards
high noise levels, which large images need. BAGEL uses the same formula for training and for sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def shift_timestep(t: Tensor, shift: float) -> Tensor:
    """``t -> s t / (1 + (s - 1) t)``, a bijection of [0, 1]; the identity at ``s = 1``."""
    return shift * t / (1 + (shift - 1) * t)


def train_timestep(logit: Tensor, shift: float) -> Tensor:
    """Noise level of training from a pre-sigmoid draw: ``shift(sigmoid(logit))``.

    BAGEL draws ``logit ~ N(0, 1)`` once per target image (logit-normal sampling); ``-inf`` marks a clean image and
    gives exactly 0.
    """
    return shift_timestep(torch.sigmoid(logit), shift)


def train_logit(t: Tensor, shift: float) -> Tensor:
    """The pre-sigmoid draw, float32, whose `train_timestep` is t in (0, 1); float64 within, for t near its ends."""
    t = t.double()
    return torch.logit(t / (shift - (shift - 1) * t)).float()


def inference_timesteps(num_timesteps: int, shift: float) -> Tensor:
    """The N points of a sampling run, from 1 to 0, float32: ``shift(linspace(1, 0, N))``. N points are N - 1 steps."""
    if num_timesteps < 2:
        raise ValueError(f"num_timesteps must be at least 2 (2 points are 1 step), got {num_timesteps}")
    return shift_timestep(torch.linspace(1, 0, num_timesteps), shift)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The noise levels that a sampling run goes through; step i leads from level i to level i + 1.

    Attributes:
        levels: [N + 1], falling, the last one 0; or [N + 1, B], where B images have levels of their own. Models with a
            time of 0 to 1000 are given 1000 times a level.
    """

    levels: Tensor

    def __post_init__(self) -> None:
        if self.levels.ndim not in (1, 2) or len(self.levels) < 2:
            raise ValueError(f"a schedule needs at least two levels, got shape {tuple(self.levels.shape)}")
        if not bool((self.levels.diff(dim=0) < 0).all()):
            raise ValueError(f"noise levels must fall from step to step, got {self.levels.tolist()}")

    @classmethod
    def together(cls, each: Sequence[Schedule]) -> Schedule:
        """Those of some images in one, with a column for each unless all are the same."""
        first = each[0].levels
        if all(torch.equal(schedule.levels, first) for schedule in each[1:]):
            return each[0]
        return cls(torch.stack([schedule.levels for schedule in each], 1))

    def select(self, rows: Sequence[int]) -> Schedule:
        """The columns of some images, in this order."""
        return self if self.levels.ndim == 1 else Schedule(self.levels[:, list(rows)])

    @property
    def steps(self) -> int:
        """N, the number of steps."""
        return len(self.levels) - 1

    @property
    def ceiling(self) -> Tensor:
        """Scalar or [B]: the second level, which stands in for 1 where 1 would be a pole (see `steps.FlowSDE`)."""
        return self.levels[1]

    def step(self, index: Tensor | int) -> tuple[Tensor, Tensor]:
        """Levels before and after step `index` in [0, N): an int gives scalars (or [B], of B columns), int64 [B] gives
        [B], one a row."""
        if isinstance(index, int) or self.levels.ndim == 1:
            return self.levels[index], self.levels[index + 1]
        rows = torch.arange(len(index), device=self.levels.device)
        return self.levels[index, rows], self.levels[index + 1, rows]

    def before(self) -> Sequence[float | Tensor]:
        """The level before each step: numbers where images share them, which a GPU is asked for once, else [B]."""
        return self.levels[:-1].tolist() if self.levels.ndim == 1 else list(self.levels[:-1])

    def to(self, device: torch.device | str) -> Schedule:
        """The same levels on another device."""
        return Schedule(self.levels.to(device))


def bagel_schedule(num_timesteps: int, shift: float) -> Schedule:
    """BAGEL's, as in `inference_timesteps`: `num_timesteps` levels are one step less."""
    return Schedule(inference_timesteps(num_timesteps, shift))


@dataclass(frozen=True, slots=True)
class DynamicShift:
    """A shift that grows with the image, as in Qwen-Image's scheduler_config.json (the defaults here).

        mu(n) = base_shift + (max_shift - base_shift) (n - base_tokens) / (max_tokens - base_tokens)
        t -> e^mu / (e^mu + 1/t - 1)

    which is `shift_timestep` with ``s = e^mu``; then the levels are stretched so that the last one above 0 is
    `terminal`.
    """

    base_tokens: int = 256
    max_tokens: int = 8192
    base_shift: float = 0.5
    max_shift: float = 0.9
    terminal: float | None = 0.02

    def mu(self, tokens: int) -> float:
        """For an image of `tokens` latent tokens; linear, also outside the two given points."""
        slope = (self.max_shift - self.base_shift) / (self.max_tokens - self.base_tokens)
        return self.base_shift + slope * (tokens - self.base_tokens)

    def schedule(self, num_steps: int, tokens: int) -> Schedule:
        """`num_steps` levels from 1 to `terminal` (evenly spaced down to 1 / num_steps before the shift), and 0.

        Shifted and stretched in float32, as diffusers does: the same bits, so the same log probabilities.
        """
        even = torch.linspace(1, 1 / num_steps, num_steps, dtype=torch.double).float()
        t = shift_timestep(even, math.exp(self.mu(tokens)))
        if self.terminal is not None and num_steps > 1:
            t = 1 - (1 - t) / ((1 - t[-1]) / (1 - self.terminal))
        return Schedule(_closed(t))


def _closed(t: Tensor) -> Tensor:
    """float32, with 0 behind."""
    return torch.cat([t, t.new_zeros(1)]).float()
