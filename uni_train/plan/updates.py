"""An update of a training, traced, with what the one before it has left behind.

The order is Lightning's: gradients of the update before are given back after the next forward pass, not before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.models.quantised import Quantised, decoder_layers, stored_bytes
from uni_train.plan.kernels import fused_adamw
from uni_train.plan.trace import KINDS, StandIn, Timeline, Trace, following, place
from uni_train.training.averages import Averages
from uni_train.training.low_bit_adamw import moments
from uni_train.training.optimizer import make_optimizer
from uni_train.training.second_weights import Reference
from uni_train.training.strategies.sharding import layers
from uni_train.training.trained import train_only

if TYPE_CHECKING:
    from uni_train.config.kinds import Rollouts
    from uni_train.config.schema import TrainingConfig
    from uni_train.models.base import FlowPolicy, UnifiedModel
    from uni_train.models.shapes import ImageRequest, Shapes

Cast = Callable[[str, torch.dtype], torch.dtype]
Loss = Callable[[], Tensor]
Settings = Sequence[Callable[[], object]]
"""Each prepares the model for an update that is traced, such as by activation checkpointing."""
AS_IT_IS: Settings = (lambda: None,)
_COPIES = 3
"""Weights of the largest layer in the compute dtype that a product with a quantised one holds. An assumption."""
DRAW, FORWARD, BACKWARD, STEP, AVERAGE = "drawing", "forward", "backward", "optimizer step", "averages"


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """What an update on one device is; all but counts is in bytes.

    Attributes:
        timeline: of the update; sharding scales its columns.
        flops: of an update, all its micro-batches together. draw_flops: of one step of drawing (flow_grpo).
        parameters: how many numbers are trained. trained, weights: their weights, and all weights.
        gradients, optimizer, averages: held after an update. layer: the weights of the largest layer. beside: those in
        no layer. texts: kept of texts that frozen weights have read, where weights are not sharded.
    """

    timeline: Timeline
    flops: float
    draw_flops: float
    parameters: int
    trained: int
    weights: int
    gradients: int
    optimizer: int
    averages: int
    layer: int
    beside: int
    texts: int = 0


def half_weights(name: str, dtype: torch.dtype) -> torch.dtype:
    """bf16-true: all weights but the VAE's (uni_train/training/precision.py)."""
    return dtype if name.startswith("vae.") or not dtype.is_floating_point else torch.bfloat16


def supervised(
    model: UnifiedModel,
    losses: Sequence[Loss],
    config: TrainingConfig,
    device: StandIn,
    cast: Cast | None = None,
    trained: str = "all",
    frozen: Sequence[str] = (),
    *,
    later: bool = False,
    reference: bool = False,
    settings: Settings = AS_IT_IS,
) -> list[Traced]:
    """A supervised update on micro-batches with these losses (`Shapes.loss`), in each setting. `model` has no weights
    then.

    Args:
        cast: the dtypes of weights; None: half ones for bf16-true, else as `model` has them.
        later, settings: as in `updates`. reference: whether a `Reference` computes each loss first.

    Raises:
        UsageError: no parameter is left to train.
    """
    with following(device) as trace:
        place(model, device, cast or (half_weights if config.strategy.precision == "bf16-true" else None))
        train_only(model, trained, frozen)
        learned = losses
        if reference:
            start = Reference(model, {name for name, p in model.named_parameters() if p.requires_grad})
            trace.name(start.copy, "reference")
            learned = [partial(_behind, start, loss) for loss in losses]
        return updates(trace, model, config, learned, device, later=later, settings=settings)


def _behind(reference: Reference, loss: Loss) -> Tensor:
    """A loss after what the reference computes."""
    with reference.active():
        loss()
    return loss()


def updates(
    trace: Trace,
    model: UnifiedModel,
    config: TrainingConfig,
    losses: Sequence[Loss],
    device: StandIn,
    draw: Callable[[], Any] | None = None,
    *,
    later: bool = False,
    settings: Settings = AS_IT_IS,
) -> list[Traced]:
    """An update of what `model` has to train on these micro-batches inside `following`, after one on the same.

    On a GPU that is left out but for what it leaves: a gradient and a state for every trained weight, as after many
    batches of all kinds. The optimizer's step, which no setting changes, is traced once for all of them.

    Args:
        draw: what comes between the two (flow_grpo).
        later: others of the update came before these micro-batches, whose gradients are there.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    trained = list(named.values())
    trace.name([*model.parameters(), *model.buffers()], "weights")
    vae = getattr(model, "vae", None)
    if vae is not None:
        trace.name([*vae.parameters(), *vae.buffers()], "vae")
    optimizer = make_optimizer(named, replace(config.optimizer, state="full"))  # 8-bit ones: `lighter`
    averages = Averages(config.ema) if config.ema is not None else None

    def learn() -> None:
        for number, loss in enumerate(losses):
            trace.start(FORWARD)
            with _autocast(config.strategy.precision, device):
                value = loss()
            if number == 0 and not later:
                optimizer.zero_grad()
            trace.start(BACKWARD)
            if value.requires_grad:  # text has no gradient where generation alone is trained
                value.backward()
            del value

    def step() -> None:
        trace.start(STEP)
        nn.utils.clip_grad_norm_([p for p in trained if p.grad is not None], config.optimizer.clip or math.inf)
        if device == "meta" and optimizer.param_groups[0].get("fused"):
            fused_adamw(optimizer)
        else:
            optimizer.step()
        trace.name([list(state.values()) for state in optimizer.state.values()], "optimizer")
        if averages is not None:
            trace.start(AVERAGE)
            averages.update(model)
            trace.name(averages.averages, "averages")

    with trace.gradients_of(trained):
        if device == "cpu":
            learn()
        else:
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
                trace.name(parameter.grad, "gradients")
        step()
        begin, flops = len(trace.timeline().phases), trace.flops
        step()  # now the optimizer's state is there from the beginning
        if draw is not None:
            trace.start(DRAW)
            with torch.no_grad():
                draw()
        before, drawn = trace.timeline(), trace.flops - flops
        common = Timeline(before.phases[begin:], before.bytes[begin:])
        made = []
        for prepare in settings:
            prepare()
            seen, flops = len(trace.timeline().phases), trace.flops
            learn()
            line = trace.timeline()
            own = Timeline(common.phases + line.phases[seen:], np.concatenate([common.bytes, line.bytes[seen:]]))
            made.append(_traced(trace, model, trained, own, trace.flops - flops, drawn))
    return made


def _traced(
    trace: Trace, model: UnifiedModel, trained: Sequence[nn.Parameter], timeline: Timeline, flops: float, drawn: float
) -> Traced:
    """With what there is now. `flops`, `drawn`: of training and of drawing."""
    sizes = [_size(layer) for layer in layers(model)]
    return Traced(
        timeline=timeline,
        flops=flops,
        draw_flops=drawn,
        parameters=sum(p.numel() for p in trained),
        trained=sum(map(nbytes, trained)),
        weights=sum(map(nbytes, model.parameters())),
        gradients=sum(nbytes(p.grad) for p in trained if p.grad is not None),
        optimizer=trace.live["optimizer"],
        averages=trace.live["averages"],
        layer=max(sizes, default=0),
        beside=_size(model) - sum(sizes),
    )


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's numbers."""
    return tensor.numel() * tensor.element_size()


def _autocast(precision: str, device: StandIn) -> AbstractContextManager[Any]:
    """bf16-mixed on a CPU. The meta device has no autocast: activations there count as float32."""
    mixed = precision == "bf16-mixed" and device == "cpu"
    return torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext()


def _size(module: nn.Module) -> int:
    return sum(map(nbytes, module.parameters()))


# --- reinforcement ---------------------------------------------------------------------------------------------------


def reinforced(
    model: FlowPolicy,
    shapes: Shapes,
    image: ImageRequest,
    rows: int,
    rollouts: Rollouts,
    config: TrainingConfig,
    trained: str,
    draw_rows: int,
    cast: Cast | None,
    pictures: int,
    settings: Settings,
) -> list[Traced]:
    """An epoch's drawing and an update on its last micro-batch of `rows` random steps, in each setting.

    Args:
        pictures: of this GPU, in an epoch.
    """
    with following("meta") as trace:
        place(model, "meta", cast)
        losses = rollouts.losses(model, train_only(model, trained))
        trace.name(losses.others, "reference")
        under = shapes.condition(image, losses.requests(pictures), "meta")
        stored = losses.stored(image, pictures)  # held until the update is traced
        trace.name(stored, "rollouts")
        trace.name(shapes.tensors(under), "rollouts")
        drawn = min(draw_rows, pictures)

        def draw() -> None:
            x = torch.empty(drawn, image.tokens, image.channels, device="meta")
            with losses.sampling():
                model.velocity(x, torch.ones((), device="meta"), _picked(under, drawn))

        def loss() -> Tensor:
            return losses.loss(image, rows, _picked(under, rows))

        later = rollouts.rows(pictures) > rows
        return updates(trace, model, config, [loss], "meta", draw, later=later, settings=settings)


def image_flops(model: FlowPolicy, shapes: Shapes, image: ImageRequest, steps: int, cast: Cast | None) -> float:
    """Of drawing an image with all branches of the guidance, without reading the prompt and without the VAE."""
    with following("meta") as trace:
        place(model, "meta", cast)
        x = torch.empty(1, image.tokens, image.channels, device="meta")
        with torch.no_grad():
            model.velocity(x, torch.ones((), device="meta"), shapes.condition(image, 1, "meta"))
    return trace.flops * steps


def _picked(under: Any, rows: int) -> Any:
    """`rows` rows of a condition of one row a group."""
    return under.select([row % len(under) for row in range(rows)])


# --- on one card -----------------------------------------------------------------------------------------------------


def lighter(traced: Traced, model: nn.Module, weights: Quantised | None, state: str) -> Traced:
    """`traced`, an update of `model` on plain weights with whole moments, as it is with others.

    Args:
        weights: of the decoder. state: "full" or "8bit", of AdamW's moments.
    """
    line = traced.timeline
    held, saved, optimizer = line.bytes.astype(np.float64), 0, traced.optimizer
    if weights is not None:
        layers = [layer for _, layer in decoder_layers(model)]
        saved = sum(nbytes(layer.weight) - stored_bytes(layer, weights) for layer in layers)
        held[:, KINDS.index("weights")] -= saved
        computing = ~np.isin(np.array(line.phases), (STEP, AVERAGE))
        held[computing, KINDS.index("activations")] += _COPIES * max(nbytes(layer.weight) for layer in layers)
    if state == "8bit" and optimizer:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = sum(nbytes(tensor) for weight in trained for tensor in moments(weight))
        held[:, KINDS.index("optimizer")] *= optimizer / traced.optimizer
    return replace(
        traced, timeline=replace(line, bytes=held.astype(np.int64)), weights=traced.weights - saved, optimizer=optimizer
    )
