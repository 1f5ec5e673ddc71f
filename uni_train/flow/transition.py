"""One random step of sampling, as a density: what reinforcement learning calls the policy.

    p(x' | x) = N(mean(x), std^2 I)

Everything is per row and averaged over the row's elements, not summed, as all published flow trainers do. A log
probability then has the same scale for small and large images. So does the clip range of its ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Density = Literal["gaussian", "quadratic", "squared_error"]
"""What is called log probability of x', with d = x' - mean:

gaussian        -d^2 / (2 std^2) - log std - log(2 pi) / 2       the logarithm of the density
quadratic       -d^2 / (2 std^2)                                 equal ratios, as std does not depend on the weights
squared_error   -d^2                                             Flow-CPS: every noise level weighs the same
"""


def row_mean(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """[B]: mean over all other dimensions of [B, ...], of those elements that a broadcast bool `mask` keeps."""
    dims = tuple(range(1, values.ndim))
    if mask is None:
        return values.mean(dims)
    kept = mask.expand_as(values)
    return (values * kept).sum(dims) / kept.sum(dims)


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """Where one step leads.

    Attributes:
        mean: [B, ...], with gradients to the velocity.
        std: [B or 1, 1, ...], of x'.
        diffusion: like `std`, without the length of the step: what published code calls std_dev_t. It scales `kl`.
        density: how `log_prob` counts; None where the step has no noise.
        mask: bool, broadcasts to `mean`: which elements belong to an image (rows of smaller images are padded).
    """

    mean: Tensor
    std: Tensor
    diffusion: Tensor
    density: Density | None
    mask: Tensor | None = None

    def sample(self, noise: Tensor) -> Tensor:
        """``x' = mean + std noise`` [B, ...]; padding stays as it is in `mean`."""
        moved = self.std * noise.to(self.mean.dtype)
        return self.mean + (moved if self.mask is None else moved * self.mask)

    def log_prob(self, value: Tensor) -> Tensor:
        """[B], mean over a row's elements. Gradients go to `mean` alone: `value` is what once was sampled.

        Raises:
            ValueError: a step without noise has no density.
        """
        if self.density is None:
            raise ValueError("a step at noise level 0 has no density: keep it out of the window that is trained on")
        squared = (value.detach().to(self.mean.dtype) - self.mean).square()
        if self.density == "squared_error":
            return -row_mean(squared, self.mask)
        quadratic = -row_mean(squared / (2 * self.std.square()), self.mask)
        if self.density == "quadratic":
            return quadratic
        return quadratic - self.std.log().flatten() - math.log(2 * math.pi) / 2

    def kl(self, reference_mean: Tensor) -> Tensor:
        """[B]: ``mean (mean - reference)^2 / (2 diffusion^2)``, to a policy with the same noise.

        As in Flow-GRPO's code, it omits the length of the step. For an SDE it is the Kullback-Leibler divergence of the
        step times ``t - t'``; for CPS it is that divergence.
        """
        squared = (self.mean - reference_mean.to(self.mean.dtype)).square()
        return row_mean(squared / (2 * self.diffusion.square()), self.mask)
