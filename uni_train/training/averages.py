"""Exponential moving average of the weights: W_ema <- decay * W_ema + (1 - decay) * W after every update.

Only what is trained is averaged; frozen weights are their own average. The average is kept in float32 also where the
weights are in half precision: there a step of (1 - decay) would be rounded away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from uni_train.training.strategies.sharding import part


class Averages:
    """By name; they start from the weights at the first update, unless `start` says from what.

    offload: they are in the memory of the CPU, and move there.
    """

    def __init__(self, decay: float, *, offload: bool = False) -> None:
        self.decay, self.offload = decay, offload
        self.averages: dict[str, Tensor] = {}

    def start(self, module: nn.Module, names: Collection[str]) -> None:
        """Begin with the weights of `module` that have these names."""
        weights = {name: part(p) for name, p in module.named_parameters() if name in names}
        self.averages = {name: _at_least_float32(self._placed(value)).clone() for name, value in weights.items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Update the averages by the current weights."""
        weights = {name: part(p) for name, p in module.named_parameters() if p.requires_grad}
        if not self.averages:
            self.start(module, weights.keys())
            return
        places = {name: "cpu" if self.offload else value.device for name, value in weights.items()}
        self.averages = {name: self.averages[name].to(place) for name, place in places.items()}
        alike = [] if self.offload else [n for n, value in weights.items() if value.dtype == self.averages[n].dtype]
        if alike:
            averages, values = [self.averages[name] for name in alike], [weights[name] for name in alike]
            torch._foreach_lerp_(averages, values, 1 - self.decay)
        for name in weights.keys() - alike:  # one by one: all their float32 copies together are as large as the model
            self.averages[name].lerp_(_at_least_float32(self._placed(weights[name])), 1 - self.decay)

    def _placed(self, value: Tensor) -> Tensor:
        return value.cpu() if self.offload else value


@torch.no_grad()
def put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite this rank's part of the parameters that `weights` names."""
    for name, parameter in module.named_parameters():
        if name in weights:
            part(parameter).copy_(weights[name])


def _at_least_float32(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))
