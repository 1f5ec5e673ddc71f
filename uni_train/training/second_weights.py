"""A second set of weights within an update: those that a run starts from, or those that sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def weights_of(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Within this block the parameters named in `weights` have those values; nothing is copied, unless it is
    of another precision."""
    parameters = {name: p for name, p in module.named_parameters() if name in weights}
    torch.clear_autocast_cache()  # it knows parameters by their place in memory, whatever their values
    kept = {name: p.data for name, p in parameters.items()}
    for name, parameter in parameters.items():
        parameter.data = weights[name].to(parameter)  # as precise, too: copies are older than bf16-true
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        for name, parameter in parameters.items():
            parameter.data = kept[name]


def copy_of(module: nn.Module, names: set[str]) -> dict[str, Tensor]:
    """Copies of the named parameters."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if name in names}


class Reference:
    """The weights that a run starts from: adapters switched off where adapters are trained, else a frozen copy."""

    def __init__(self, module: nn.Module, trained: set[str]) -> None:
        self.module, self.adapters = module, list[Any]()
        if all("lora_" in name for name in trained):
            from peft.tuners.lora import LoraLayer

            self.adapters = [layer for layer in module.modules() if isinstance(layer, LoraLayer)]
        self.copy = {} if self.adapters else copy_of(module, trained)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this block the module is the reference, without gradients."""
        with torch.no_grad():
            if not self.adapters:
                with weights_of(self.module, self.copy):
                    yield
                return
            for layer in self.adapters:
                layer._disable_adapters = True  # not peft's enable_adapters, which also changes what is trained
            try:
                yield
            finally:
                torch.clear_autocast_cache()  # of casts without gradients
                for layer in self.adapters:
                    layer._disable_adapters = False
