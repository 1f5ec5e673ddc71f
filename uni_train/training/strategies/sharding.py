"""Sharded weights of ZeRO-3 and FSDP2: this rank's part, and the whole weight.

For a weight that is not sharded (one device, DDP, ZeRO-1 and 2) the part is the whole. So calling code need not know
the strategy.

    ZeRO-3   the flattened weight, padded and cut into equal pieces, one a rank (`ds_tensor`)
    FSDP2    rows of the first dimension, a DTensor; with replicas (HSDP) its mesh is [replicas, shards]

`unsharded` and `join` are collectives: all ranks call them, in the same order.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from uni_train.models.parts import Part, Parts, numbers, whole

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""Where ZeRO-3 and FSDP2 hang what fetches and frees a layer's weights."""


def _zero3(weight: Tensor) -> Any:
    """The weight with the attributes that ZeRO-3 gave it, or None."""
    return weight if hasattr(weight, "ds_tensor") else None


def _dtensor(weight: Tensor) -> Any:
    """The weight as FSDP2's DTensor, or None. Whoever has made one has imported its module, which takes a second."""
    made = sys.modules.get("torch.distributed.tensor")
    return weight if made is not None and isinstance(weight, made.DTensor) else None


def is_sharded(weight: Tensor) -> bool:
    """Whether this rank holds only a part of it."""
    return _zero3(weight) is not None or _dtensor(weight) is not None


def shape_of(weight: Tensor) -> torch.Size:
    """The shape of the whole."""
    zero3 = _zero3(weight)
    return weight.shape if zero3 is None else torch.Size(zero3.ds_shape)


def part(weight: Tensor) -> Tensor:
    """What this rank holds, without gradient; writing to it changes the weight."""
    zero3 = _zero3(weight)
    if zero3 is not None:
        return zero3.ds_tensor.detach()
    dtensor = _dtensor(weight)
    if dtensor is not None:
        return dtensor.to_local().detach()
    return weight.detach()


def span(weight: Tensor) -> tuple[int, int]:
    """Where what this rank holds begins in the flattened whole, and how many numbers it has."""
    zero3 = _zero3(weight)
    if zero3 is not None:
        size = zero3.ds_tensor.numel()
        begin = min(size * dist.get_rank(), zero3.ds_numel)
        return begin, min(size, zero3.ds_numel - begin)
    dtensor = _dtensor(weight)
    if dtensor is not None:
        rows, mesh = len(weight), dtensor.device_mesh
        first = min(-(-rows // mesh.size(-1)) * mesh.get_local_rank(mesh.ndim - 1), rows)
        return first * math.prod(weight.shape[1:]), dtensor.to_local().numel()
    return 0, weight.numel()


def _is_replica(weight: Tensor) -> bool:
    """Whether this rank's part is another rank's, too, that comes before it."""
    dtensor = _dtensor(weight)
    return dtensor is not None and dtensor.device_mesh.ndim > 1 and dtensor.device_mesh.get_local_rank(0) > 0


def held(weight: Tensor, mine: Tensor | None = None) -> Tensor | Part:
    """What a checkpoint gets of it from this rank. `mine`: the same of another tensor, cut as that of `weight`."""
    mine = part(weight) if mine is None else mine
    if not is_sharded(weight):
        return mine
    begin, count = span(weight)
    if _is_replica(weight):
        count = 0  # the first copy is written
    return Part(mine.reshape(-1)[:count], begin, shape_of(weight))


def cut(weight: Tensor, value: Tensor | Parts) -> Tensor:
    """This rank's part of `value`, a whole tensor of the weight's shape or what a checkpoint has of it."""
    zero3 = _zero3(weight)
    if zero3 is not None:
        mine = numbers(value, *span(weight))
        return nn.functional.pad(mine, (0, zero3.ds_tensor.numel() - len(mine)))
    dtensor = _dtensor(weight)
    if dtensor is not None:
        return numbers(value, *span(weight)).view(dtensor.to_local().shape)
    return whole(value)


def join(weight: Tensor, mine: Tensor) -> Tensor:
    """The whole tensor of which `mine` is this rank's part, cut as that of `weight`."""
    zero3 = _zero3(weight)
    if zero3 is not None:
        mine = mine.to(_device())
        gathered = mine.new_empty(len(mine) * dist.get_world_size())
        dist.all_gather_into_tensor(gathered, mine.contiguous())
        return gathered[: zero3.ds_numel].view(shape_of(weight))
    dtensor = _dtensor(weight)
    if dtensor is not None:
        mine = mine.to(_device())
        mesh, places = dtensor.device_mesh, dtensor.placements
        shape, stride = weight.shape, weight.stride()
        parted = type(dtensor).from_local(mine, mesh, places, run_check=False, shape=shape, stride=stride)
        return parted.full_tensor()
    return mine


@contextmanager
def unsharded(module: nn.Module, instead: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Within this block every weight of `module` is whole on every rank. For sampling, not for training.

    Args:
        instead: parts of other values, by names of parameters; averages for example.
    """
    instead = instead or {}
    named = dict(module.named_parameters())
    if not any(is_sharded(weight) for weight in named.values()):
        kept = {name: named[name].data for name in instead}
        for name, value in instead.items():
            named[name].data = value.to(named[name])
        try:
            yield
        finally:
            for name, value in kept.items():
                named[name].data = value
        return
    full: dict[Tensor, nn.Parameter] = {}
    for name, weight in named.items():
        mine = instead[name].to(weight.dtype) if name in instead else part(weight)
        full[weight] = nn.Parameter(join(weight, mine), requires_grad=False)
    hooks = [(submodule, {name: submodule.__dict__[name] for name in HOOKS}) for submodule in module.modules()]
    places = [
        (submodule._parameters, name, weight)
        for submodule in module.modules()
        for name, weight in dict.items(submodule._parameters)
        if weight is not None
    ]
    for hook, _ in hooks:
        hook.__dict__.update({name: OrderedDict() for name in HOOKS})
    for parameters, name, weight in places:
        parameters[name] = full[weight]
    try:
        yield
    finally:
        for parameters, name, weight in places:
            parameters[name] = weight
        for hook, before in hooks:
            hook.__dict__.update(before)


def _device() -> torch.device:
    """Where collectives on weights take place."""
    if torch.cuda.is_available() and "nccl" in str(dist.get_backend_config()):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def layers(module: nn.Module) -> Iterator[nn.Module]:
    """The members of the outermost stacks that have parts of their own."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            for member in child:
                if any(True for _ in member.children()):
                    yield member
                else:
                    yield from layers(member)
        else:
            yield from layers(child)
