"""Other weights of the same model for a moment: the reference (where the run started) and the policy that samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def weights_of(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Within this block the parameters named in `weights` have those values; nothing is copied."""
    parameters = {name: p for name, p in module.named_parameters() if name in weights}
    kept = {name: p.data for name, p in parameters.items()}
    for name, parameter in parameters.items():
        parameter.data = weights[name].to(parameter.device)
    try:
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data = kept[name]


class Reference:
    """The weights that a run starts from: adapters switched off where adapters are trained, else a frozen copy."""

    def __init__(self, module: nn.Module, trained: set[str]) -> None:
        self.module = module
        self.adapters: list[Any] = []
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
            # Not peft's enable_adapters, which also changes what is trained.
            before = [layer._disable_adapters for layer in self.adapters]
            for layer in self.adapters:
                layer._disable_adapters = True
            try:
                yield
            finally:
                for layer, disabled in zip(self.adapters, before, strict=True):
                    layer._disable_adapters = disabled


def copy_of(module: nn.Module, names: set[str]) -> dict[str, Tensor]:
    """Copies of the named parameters."""
    return {name: p.detach().clone() for name, p in module.named_parameters() if name in names}
