"""What each strategy leaves on a GPU, puts on the wire, and moves to the node's own memory.

N GPUs share the work. Of an update on one device (updates.Traced), each strategy keeps this share of

                     weights   gradients   optimizer's state   averages
    single, ddp      1         1           1                   1
    deepspeed_zero1  1         1           1/N                 1
    deepspeed_zero2  1         1/N         1/N                 1
    deepspeed_zero3  1/N       1/N         1/N                 1/N
    fsdp2            1/N       1/N         1/N                 1/N
      R replicas     R/N       R/N         R/N                 R/N

(Rajbhandari et al. 2020, ZeRO, figure 1; Zhao et al. 2023, PyTorch FSDP, section 3). Beside bfloat16 weights DeepSpeed
keeps float32 master weights and moments, 12 bytes a weight; without it the state is HalfAdamW's 10.

Bytes that one GPU sends in an update, with g bytes of gradients, w of weights and m micro-batches; ZeRO section 7. A
ring takes (N - 1) / N of each, and twice that for an all-reduce:

    ddp              2 g              all-reduce of the gradients, after the last micro-batch
    deepspeed_zero1  g + trained      reduce-scatter, then all-gather of what was updated
    deepspeed_zero2  m g + trained    gradients leave after each micro-batch
    deepspeed_zero3  m (2 w + g)      weights are gathered for the forward and for the backward pass
    fsdp2            m (2 w + g)
      R replicas     m (2 w + g) within a replica, and m 2 g R / N between replicas
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from uni_train.config.schema import SHARDED, StrategyConfig
from uni_train.plan.hardware import Gpu
from uni_train.plan.result import Choice, Share, Storage
from uni_train.plan.trace import KINDS, Kind
from uni_train.plan.updates import AVERAGE, DRAW, STEP, Traced

BUCKET = 200_000_000
"""Numbers in a bucket of DeepSpeed's (uni_train/training/strategies/deepspeed.py); on a GPU there are two."""
LIVE = 1_000_000_000
"""Numbers of weights that ZeRO-3 holds whole at most (DeepSpeed's stage3_max_live_parameters)."""
BETWEEN = "all-reduce of gradients between replicas"
_MASTER_AND_MOMENTS = 12
_CHECKPOINTS = 3  # two that stay, and the next while it is written (`keep` of training/fit.py)


CHOICES = (
    Choice("ddp"),
    Choice("deepspeed_zero1"),
    Choice("deepspeed_zero2"),
    Choice("deepspeed_zero2", offload_optimizer=True),
    Choice("deepspeed_zero3"),
    Choice("deepspeed_zero3", offload_optimizer=True),
    Choice("deepspeed_zero3", offload_optimizer=True, offload_weights=True),
    Choice("fsdp2"),
    Choice("fsdp2", offload_weights=True),
)


def run_by(config: StrategyConfig, gpus: int) -> Choice:
    """What a recipe's strategy is on so many GPUs: `single` on several is `ddp`."""
    wanted = Choice.from_config(config)
    return replace(wanted, kind="ddp") if wanted.kind == "single" and gpus > 1 else wanted


def choices_for(config: StrategyConfig, gpus: int, nodes: int = 1) -> tuple[Choice, ...]:
    """Those to compare for a recipe, its own among them; its averages are where it has them. One GPU shards nothing.
    Several nodes may each have all weights."""
    wanted = Choice.from_config(config)
    copies = [Choice("fsdp2", replicas=nodes)] if nodes > 1 else []
    known = (
        replace(choice, offload_averages=wanted.offload_averages) for choice in (Choice("single"), *CHOICES, *copies)
    )
    choices = dict.fromkeys((*known, wanted))
    if gpus > 1:
        return tuple(choice for choice in choices if choice.kind != "single")
    return tuple(
        choice for choice in choices if choice.kind == "single" or choice.offload_optimizer or choice.offload_weights
    )


def share(choice: Choice, traced: Traced, gpus: int, micros: int, half: bool) -> Share:
    """What a strategy leaves of `traced` on each of `gpus` GPUs. `half`: the weights are bfloat16."""
    n = 1 if choice.kind == "single" else gpus
    zero = choice.kind.startswith("deepspeed")
    sharded = choice.kind in SHARDED
    parted = {
        "weights": sharded,
        "averages": sharded,
        "gradients": sharded or choice.kind == "deepspeed_zero2",
        "optimizer": sharded or zero,
    }
    shards = n // choice.replicas or 1
    factor: dict[Kind, float] = {kind: 1 / shards if parted.get(kind) else 1.0 for kind in KINDS}
    if zero and half and traced.optimizer:
        factor["optimizer"] *= _MASTER_AND_MOMENTS * traced.parameters / traced.optimizer
    host = 0.0
    if choice.offload_optimizer or (choice.kind == "fsdp2" and choice.offload_weights):
        host += factor["optimizer"] * traced.optimizer
        factor["optimizer"] = 0.0
        if parted["gradients"]:  # they go where they are used
            host += factor["gradients"] * traced.gradients
            factor["gradients"] = 0.0
    if choice.offload_weights:
        host += factor["weights"] * traced.weights
        factor["weights"] = 0.0
    if choice.offload_averages:
        host += factor["averages"] * traced.averages
        factor["averages"] = 0.0
    factors = np.tile([factor[kind] for kind in KINDS], (len(traced.timeline.phases), 1))
    phases = np.array(traced.timeline.phases)
    # What the optimizer needs for a moment is of the size of what it updates.
    step = np.isin(phases, (STEP, AVERAGE))
    here = 1 / shards if parted["optimizer"] else 1.0
    factors[step, KINDS.index("activations")] = here if factor["optimizer"] else 0.0
    if sharded:  # images are drawn with weights that are whole, beside the parts (strategies/sharding.py)
        factors[phases == DRAW, KINDS.index("weights")] += 1.0
    phase, parts = traced.timeline.at_peak(factors)
    beside = {"buffers": _buffers(choice.kind, traced, n), "texts": 0 if sharded and n > 1 else traced.texts}
    return Share(
        peak=sum(parts.values()) + sum(beside.values()),
        phase=phase,
        parts={**{str(kind): size for kind, size in parts.items()}, **beside},
        host=int(host),
        wire=_wire(choice, traced, n, micros),
        bus=_bus(choice, traced, factor, shards, micros),
    )


def storage(choice: Choice, traced: Traced, gpus: int, half: bool) -> Storage:
    """The bytes of a strategy's checkpoints (uni_train/training/checkpoint_io.py), and of host memory for files."""
    n = 1 if choice.kind == "single" else gpus // choice.replicas or 1
    zero, sharded = choice.kind.startswith("deepspeed"), choice.kind in SHARDED
    optimizer = _MASTER_AND_MOMENTS * traced.parameters if zero and half else traced.optimizer
    others = traced.trained + traced.averages
    return Storage(
        checkpoints=_CHECKPOINTS * (optimizer + others),
        loading=0 if sharded else traced.weights,
        saving=max(
            int(optimizer / (n if zero or sharded else 1) + others / (n if sharded else 1)),
            traced.weights if sharded else 0,  # of the model, when it is trained
        ),
    )


def _buffers(kind: str, traced: Traced, n: int) -> int:
    """Copies for sending: DDP sends the gradients where they are, ZeRO has two buckets of a set size. Whole weights of
    a sharded model: ZeRO-3 as many as it may, FSDP2 the layer that computes, the one that is fetched meanwhile, what is
    in no layer, and the gradients of a layer until they are sent."""
    if n == 1 or kind == "ddp":
        return 0
    number = traced.gradients / max(traced.parameters, 1)
    bucket = int(number * min(BUCKET, traced.parameters))
    if kind in ("deepspeed_zero1", "deepspeed_zero2"):
        return 2 * bucket
    if kind == "deepspeed_zero3":
        return min(int(number * LIVE), traced.weights) + 2 * bucket
    return traced.beside + 2 * traced.layer + min(traced.layer, traced.gradients)


def _wire(choice: Choice, traced: Traced, n: int, micros: int) -> dict[str, int]:
    kind, replicas = choice.kind, min(choice.replicas, n)
    shards = n // replicas
    ring, between = (shards - 1) / shards, (replicas - 1) / replicas
    g, w, trained = traced.gradients * ring, traced.weights * ring, traced.trained * ring
    sent: dict[str, float] = {}
    if n == 1:
        return {}
    if kind == "ddp":
        sent = {"all-reduce of gradients": 2 * g}
    elif kind in ("deepspeed_zero1", "deepspeed_zero2"):
        times = micros if kind == "deepspeed_zero2" else 1
        sent = {"reduce-scatter of gradients": times * g, "all-gather of weights": trained}
    else:
        sent = {"all-gather of weights": 2 * micros * w, "reduce-scatter of gradients": micros * g}
        sent |= {BETWEEN: 2 * micros * traced.gradients / shards * between} if replicas > 1 else {}
    return {name: int(value) for name, value in sent.items()}


def _bus(choice: Choice, traced: Traced, factor: Mapping[Kind, float], n: int, micros: int) -> int:
    """Gradients to the host and updated weights back; with offloaded weights these for each pass; for averages there
    the weights."""
    moved = 0.0
    if choice.offload_optimizer or choice.offload_weights:
        moved += (traced.gradients + traced.trained) / n
    if choice.offload_weights:
        moved += 2 * micros * traced.weights / n
    if choice.offload_averages:
        moved += factor["weights"] * traced.trained if traced.averages else 0
    return int(moved)


def wire_seconds(share: Share, gpu: Gpu, gpus: int, gpus_a_node: int, replicas: int = 1) -> float:
    """Time of an update's traffic if nothing overlaps it. A ring leaves each node through all its network cards.
    Those between `replicas`, one for each shard, divide the cards."""
    if not gpu.timed:
        return 0.0
    shards = gpus // replicas or 1

    def speed(ranks: int, rings: int) -> float:
        return gpu.inside if ranks <= gpus_a_node else min(gpu.inside, gpu.outside * max(gpus_a_node // rings, 1))

    between = share.wire.get(BETWEEN, 0)
    return (sum(share.wire.values()) - between) / speed(shards, 1) + between / speed(gpus, shards)
