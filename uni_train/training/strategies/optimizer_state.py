"""The state of AdamW as one device has it, whatever the strategy: what checkpoints hold.

    {"state": {3: {"step": 120, "exp_avg": [...], "exp_avg_sq": [...]}, ...},
     "param_groups": [{"lr": 1e-3, ..., "params": [0, 1, ...]}, ...]}

Numbers are places in `configure_optimizers`' groups, one after the other; that is PyTorch's own form. So a run goes on
under another strategy, or on another number of ranks. Left out on purpose: checkpoints in pieces, one a rank; the whole
has to fit into the memory of the first rank's machine (12 bytes a trained weight).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from uni_train.training.strategies.sharding import cut, join

MOMENTS = ("exp_avg", "exp_avg_sq")


def numbered(optimizer: Optimizer) -> list[list[nn.Parameter]]:
    """The parameters of each group, in order."""
    return [list(group["params"]) for group in optimizer.param_groups]


def options(groups: Sequence[Mapping[str, Any]], numbers: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Groups without their parameters, whose places they get: `params` counts from group to group."""
    found, first = [], 0
    for group, members in zip(groups, numbers, strict=True):
        plain = {name: value for name, value in group.items() if name != "params"}
        found.append({**plain, "params": list(range(first, first + len(members)))})
        first += len(members)
    return found


def full_state(optimizer: Optimizer, keep: bool) -> dict[str, Any]:
    """The state of an optimizer over DTensors, joined on all ranks; empty where `keep` is false."""
    numbers = numbered(optimizer)
    state: dict[int, dict[str, Any]] = {}
    for number, weight in enumerate(weight for group in numbers for weight in group):
        entry: dict[str, Any] = {}
        for name, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, DTensor):
                value = join(weight, value.to_local())
                value = value.cpu() if keep else None
            entry[name] = value
        if entry and keep:
            state[number] = entry
    return {"state": state, "param_groups": options(optimizer.param_groups, numbers)} if keep else {}


def sharded_state(optimizer: Optimizer, saved: Mapping[str, Any]) -> dict[str, Any]:
    """`saved` as `optimizer.load_state_dict` of an optimizer over DTensors wants it."""
    state: dict[int, dict[str, Any]] = {}
    for number, weight in enumerate(weight for group in numbered(optimizer) for weight in group):
        assert isinstance(weight, DTensor)
        entry = dict(saved["state"].get(number, {}))
        for name, value in entry.items():
            if isinstance(value, Tensor) and value.ndim:
                mine = cut(weight, value).to(weight.to_local().device)
                mesh, places = weight.device_mesh, weight.placements
                entry[name] = DTensor.from_local(
                    mine, mesh, places, run_check=False, shape=weight.shape, stride=weight.stride()
                )
        if entry:
            state[number] = entry
    return {"state": state, "param_groups": saved["param_groups"]}
