"""How ZeRO-3 and FSDP2 are undone: the module as it was before, with the weights of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from uni_train.models.parts import Parts, whole
from uni_train.training.strategies.sharding import HOOKS, cut, is_sharded, join, part


@torch.no_grad()
def load_trained(module: nn.Module, state: Mapping[str, Tensor | Parts]) -> None:
    """Of each trained weight what this rank holds, and the buffers that are there."""
    for name, weight in module.named_parameters():
        if weight.requires_grad:
            part(weight).copy_(cut(weight, state[name]))
    for name, buffer in module.named_buffers():
        if name in state:
            buffer.copy_(whole(state[name]))


class Plain:
    """Remembers an unsharded module, so that it can be restored with the trained weights.

    Modules and parameters are the same objects before and after; in between no values are held here. A VAE that is not
    trained stays whole on each rank: until `again` the strategy does not see it.

    Args:
        module: its `model` is what is trained, with the VAE in it.
        dtype: of that VAE from now on; None: its own.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype | None = None) -> None:
        model: Any = module.model
        self.module, self.model, self.children = module, model, dict(model._modules)
        vae = self.children.get("vae")
        if vae is not None and not any(weight.requires_grad for weight in vae.parameters()):
            del model._modules["vae"]
            model.__dict__["vae"] = vae.to(device, dtype)
        self.modules = [
            (
                submodule,
                type(submodule),
                set(submodule.__dict__),
                {name: submodule.__dict__[name].copy() for name in HOOKS},
                submodule._parameters.copy(),
            )
            for submodule in module.modules()
        ]
        self.attributes = {weight: dict(weight.__dict__) for weight in module.parameters()}
        self.trained = {weight: weight.requires_grad for weight in self.attributes}

    @torch.no_grad()
    def values(self) -> dict[str, Tensor]:
        """Today's weights, whole, by name; each in memory of its own, not in one of DeepSpeed's flat buffers.

        Sharded ones are whole on the first rank, in host memory; elsewhere a zero stands for all of their numbers.
        """
        values: dict[str, Tensor] = {}
        for name, weight in self.module.named_parameters():
            value = join(weight, part(weight))
            if is_sharded(weight) and dist.get_rank():
                values[name] = torch.zeros((), dtype=value.dtype).expand(value.shape)
                continue
            value = value.cpu() if is_sharded(weight) else value
            values[name] = value if value.untyped_storage().nbytes() == value.nbytes else value.clone()
        return values

    @torch.no_grad()
    def again(self, values: Mapping[str, Tensor]) -> None:
        """Plain parameters with these values."""
        for module, kind, attributes, hooks, parameters in self.modules:
            module.__class__ = kind
            for name in set(module.__dict__) - attributes - {"vae"}:
                del module.__dict__[name]
            module.__dict__.update(hooks)
            module.__dict__["_parameters"] = parameters
        for weight, before in self.attributes.items():
            weight.__dict__.clear()
            weight.__dict__.update(before)
            weight.requires_grad_(self.trained[weight])
            weight.grad = None
        for name, weight in self.module.named_parameters():
            weight.data = values[name]
        self.model.__dict__.pop("vae", None)
        self.model._modules.clear()
        self.model._modules.update(self.children)
