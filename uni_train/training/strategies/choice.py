"""From a recipe's `strategy` to Lightning's: which one, on which ranks, and what each of them does not do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import ClusterEnvironment, LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.plugins import Precision
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch import Tensor

from uni_train.config.schema import SHARDED, StrategyConfig, TrainingConfig
from uni_train.core.errors import UsageError
from uni_train.distributed.ranks import ALONE, Ranks

C = TypeVar("C", bound=TrainingConfig)


def current_ranks() -> Ranks:
    """The ranks that this process has joined (uni_train.distributed.ranks.joined); alone where it has not."""
    return Ranks.from_environment() if dist.is_available() and dist.is_initialized() else ALONE


def reduced(tensor: Tensor, op: Literal["sum", "max"] = "sum") -> Tensor:
    """The sum or largest of all ranks' tensors, a new one without gradient.

    Lightning's `Strategy.reduce` does the same behind a barrier, for which each device waits.
    """
    result = tensor.detach().clone()
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(result, {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}[op])
    return result


def on_ranks(config: C) -> C:
    """With the devices and nodes of the ranks that are joined, where they are: what runs counts, not what was asked."""
    ranks = current_ranks()
    if ranks.world_size == 1:
        return config
    devices, nodes = ranks.local_world_size, ranks.world_size // ranks.local_world_size
    return replace(config, strategy=replace(config.strategy, devices=devices, nodes=nodes))


def check_second_weights(strategy: StrategyConfig, what: str | None) -> None:
    """`what` needs a second set of weights within an update, which sharded weights cannot have.

    Raises:
        UsageError: names the strategies that can.
    """
    if what is not None and strategy.kind in SHARDED:
        raise UsageError(
            f"strategy={strategy.kind} cannot do {what}: weights are sharded, and a second set of "
            "them is needed within an update",
            "Use strategy=ddp, deepspeed_zero1 or deepspeed_zero2, or train adapters (trained=lora) with a kl penalty.",
        )


def check_guided(strategy: StrategyConfig, guided: bool) -> None:
    """Raises UsageError: a model that samples under guidance cannot train on sharded weights."""
    if guided and strategy.devices * strategy.nodes > 1 and strategy.kind in SHARDED:
        raise UsageError(
            f"strategy={strategy.kind} cannot train under guidance: it acts at some noise levels only, so devices "
            "that shard the weights would gather them unequally often",
            "Set model.sampling.cfg_text_scale=1 and edit_text_scale=1, or use strategy=deepspeed_zero2.",
        )


def make_strategy(strategy: StrategyConfig, trained: int) -> str | Strategy:
    """Lightning's strategy.

    Args:
        trained: how many numbers are trained.

    Raises:
        UserError: deepspeed is not installed.
    """
    match strategy.kind:
        case "deepspeed_zero1" | "deepspeed_zero2" | "deepspeed_zero3":
            from uni_train.training.strategies.deepspeed import EnginePrecision, Zero

            return Zero(
                int(strategy.kind[-1]),
                trained=trained,
                precision=EnginePrecision(strategy.precision),
                offload_optimizer=strategy.offload_optimizer,
                offload_weights=strategy.offload_weights,
            )
        case "fsdp2":
            from uni_train.training.strategies.fsdp2 import Fsdp2

            half = strategy.precision == "bf16-true"
            dtype = torch.bfloat16 if half else torch.float32
            return Fsdp2(dtype=dtype, offload_weights=strategy.offload_weights, replicas=strategy.replicas)
        case "single" | "ddp":
            if strategy.devices * strategy.nodes == 1:
                return "auto"
            # A rank may get no image rows, or no text: plain DDP takes weights without gradient for an error. Buffers
            # are tables, which no update changes.
            return DDPStrategy(find_unused_parameters=True, broadcast_buffers=False, gradient_as_bucket_view=True)
        case other:
            return other  # type: ignore[unreachable]  # a name of Lightning's, from Python


def make_plugins(strategy: StrategyConfig) -> list[Precision | ClusterEnvironment]:
    """Precision where Lightning's own is not ours, and the ranks that are joined."""
    plugins: list[Precision | ClusterEnvironment] = []
    if strategy.precision == "bf16-true" and not strategy.kind.startswith(("deepspeed_", "fsdp2")):
        from uni_train.training.precision import HalfWeights

        plugins.append(HalfWeights())
    if current_ranks().world_size > 1:
        plugins.append(TorchElasticEnvironment())  # RANK, WORLD_SIZE and LOCAL_RANK, by which they have joined
    elif strategy.devices == strategy.nodes == 1:
        # A job's variables say nothing of one process: SLURM's would stop Lightning within `salloc`.
        plugins.append(LightningEnvironment())
    return plugins


@contextmanager
def group_for(strategy: StrategyConfig) -> Iterator[None]:
    """A context with a process group if the strategy needs one; a process that is alone forms its own.

    Such a group stays until the process ends, because DeepSpeed holds on to it.
    """
    if not strategy.kind.startswith(("deepspeed_", "fsdp2")):
        yield
        return
    if not dist.is_initialized():
        cuda = strategy.accelerator != "cpu" and torch.cuda.is_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    lacking = "LOCAL_RANK" not in os.environ  # DeepSpeed asks the environment
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        yield
    finally:
        if lacking:
            del os.environ["LOCAL_RANK"]
