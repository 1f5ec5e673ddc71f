"""`plan`: what a recipe needs on so many GPUs under each strategy, and what to change where it does not fit."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from uni_train.config.kinds import kind_of, stage_list
from uni_train.config.schema import SHARDED, RunConfig
from uni_train.core.errors import UsageError
from uni_train.models.quantised import Quantised, decoder_layers
from uni_train.plan.hardware import GIB, GPUS, Gpu
from uni_train.plan.ready import SAMPLE, Ready, Work, ready
from uni_train.plan.result import Choice, OneCardChoice, Plan, StrategyRow
from uni_train.plan.strategies import choices_for, run_by, share, storage, wire_seconds
from uni_train.plan.trace import KINDS
from uni_train.plan.updates import AS_IT_IS, AVERAGE, STEP, Traced, lighter
from uni_train.training.data.rows import KEPT_BYTES

_ASKING = ("evaluate", "sample", "filter", "think", "draw", "ask")
"""Kinds of stages that train nothing."""
STEPS = 3
"""Of `plan`: the model, its update as configured, and the same with the other setting of activation checkpointing."""


def plan(
    config: RunConfig,
    gpu: Gpu,
    nodes: int,
    gpus_a_node: int,
    utilisation: float,
    on_step: Callable[[], object] = lambda: None,
) -> Plan:
    """The plan of a recipe.

    Args:
        on_step: called after each of the STEPS, which may take half a minute.
        utilisation: the share of the GPU's peak FLOP a second that training reaches.

    Raises:
        UsageError: bfloat16 on a GPU that has none. UserError: a checkpoint folder that holds something else; a recipe
            that this model cannot do.
    """
    precision = config.strategy.precision
    if gpu.timed and not gpu.half and precision != "32-true":
        raise UsageError(
            f"{gpu.name} computes no bfloat16, and strategy.precision is {precision}",
            "Plan with strategy.precision=32-true, or for a GPU from Ampere (2020) on.",
        )
    gpus = nodes * gpus_a_node
    recipe = kind_of(config)
    made_ready = ready(config, gpus)
    model, work, cast = made_ready.model, made_ready.work, made_ready.cast
    rollouts, kind, notes, total = made_ready.rollouts, made_ready.kind, made_ready.notes, made_ready.parameters
    activation_checkpointing = config.activation_checkpointing
    every = config.checkpointed_every, int(not activation_checkpointing)
    traces = {n > 0: traced for n, traced in zip(every, made_ready.traced(*every, on_step=on_step), strict=True)}
    on_step()
    traced = traces[activation_checkpointing]
    half = cast is not None
    rate = (gpu.single if precision == "32-true" else gpu.half) * utilisation or math.inf
    compute = traced.flops * work.micros / rate
    draw = traced.draw_flops * work.draw_batches / rate / (work.updates_per_epoch or 1)
    wanted = Choice.from_config(config.strategy)
    choices = _taken(config, choices_for(config.strategy, gpus, nodes), notes)
    refused = None
    if gpus > 1 and rollouts is not None:  # as uni_train/training/flow_grpo/trainer.py refuses it
        partly = "guidance at some noise levels alone (cfg_text_scale, edit_text_scale)"
        refused = rollouts.unsharded or (partly if getattr(model, "guided", False) else None)
    if refused is not None:
        choices = tuple(choice for choice in choices if choice.kind not in SHARDED)
        notes.append(f"{' and '.join(SHARDED)} are left out, because they cannot do {refused}")
    stages = stage_list(config)
    images, asking = sum(stage.images for stage in stages), [stage.name for stage in stages if stage.kind in _ASKING]
    whole = whole_weights(config, traced)

    def row_of(choice: Choice) -> StrategyRow:
        own = share(choice, traced, gpus, work.micros, half)
        wire = wire_seconds(own, gpu, gpus, gpus_a_node, choice.replicas)
        bus = own.bus / gpu.bus if gpu.timed else 0.0
        return StrategyRow(
            choice=choice,
            share=own,
            storage=storage(choice, traced, gpus, half),
            fits=max(own.peak, whole) <= gpu.usable,
            largest=_largest(choice, traced, work, gpu, gpus, half),
            wire_seconds=wire,
            bus_seconds=bus,
            step_seconds=max(compute, wire) + bus,
        )

    rows = tuple(map(row_of, choices))
    chosen: int | None
    if wanted.kind != "single" and wanted in choices:
        chosen = choices.index(wanted)
    else:
        fitting = [number for number, row in enumerate(rows) if row.fits]
        chosen = min(fitting, key=lambda number: (rows[number].step_seconds, rows[number].share.host), default=None)
    activations = {"checkpointed" if on else "kept": _activations(trace) for on, trace in traces.items()}
    if asking:
        notes.append(f"hours are of training alone, without {', '.join(asking)}")
        if images:
            notes.append(f"images of those take {config.model.sampling.steps} steps each; thoughts come on top")
        notes.append(f"these hold all weights on each GPU, {whole / GIB:.1f} GiB; their batches are not planned")
    made = Plan(
        recipe=config.recipe,
        model=config.model.name,
        gpu=gpu,
        nodes=nodes,
        gpus_a_node=gpus_a_node,
        utilisation=utilisation,
        parameters=total,
        trained=traced.parameters,
        unit=work.unit,
        units=work.units,
        micros=work.micros,
        flops=traced.flops * work.micros,
        compute_seconds=compute,
        draw_seconds=draw,
        images=images,
        image_seconds=made_ready.image_flops() / rate if images else 0.0,
        whole=whole,
        models=total * (2 if half else 4) * (len(stages) - len(asking)),  # stored unquantised
        held_rows=KEPT_BYTES if recipe.keeps_rows else 0,
        updates=work.updates,
        updates_per_epoch=work.updates_per_epoch,
        activation_checkpointing=activation_checkpointing,
        activations=activations,
        rows=rows,
        chosen=chosen,
        assumptions=tuple(notes),
        advice=(),
    )
    own = run_by(config.strategy, gpus)
    if chosen is not None and wanted.kind == "single" and rows[chosen].choice not in (own, wanted):
        key = f" strategy.devices={gpus_a_node}" if nodes == 1 else ""
        start = f"To train so add {rows[chosen].choice.keys}{key}: without a strategy it would be {own.name}."
        made = replace(made, advice=(start,))
    other = traces[not activation_checkpointing]
    best = (
        max(_largest(row.choice, other, work, gpu, gpus, half) for row in rows) if not activation_checkpointing else 0
    )
    faster = _kept_activations(rows[chosen], traces, gpu) if chosen is not None and every[0] == 1 else []
    advice = _advice(made, work.key, config.ema is not None, kind, best)
    return replace(made, advice=(*made.advice, *advice, *faster))


def _kept_activations(row: StrategyRow, traces: dict[bool, Traced], gpu: Gpu) -> list[str]:
    """How many layers need not be computed twice on this GPU, and what that saves: between both settings memory and
    FLOP grow with the layers."""
    once, twice = traces[False], traces[True]
    if not row.fits or once.flops >= twice.flops:
        return []
    for every in (None, 4, 3, 2):
        kept = 1 - 1 / every if every else 1.0
        extra = kept * (_activations(once) - _activations(twice))
        if row.share.peak + extra <= gpu.usable:
            key = f"activation_checkpointing_every={every}" if every else "activation_checkpointing=false"
            less = 1 - kept * (1 - once.flops / twice.flops)
            return [f"{key} fits too: about {extra / GIB:.1f} GiB more, and {less:.2f} of the FLOP of an update."]
    return []


def _activations(traced: Traced) -> int:
    return int(traced.timeline.bytes[:, KINDS.index("activations")][~_steps(traced)].max())


def whole_weights(config: RunConfig, traced: Traced) -> int:
    """Bytes of weights that stages which train nothing hold on each GPU, whatever the strategy (0: no such stage)."""
    return traced.weights if any(stage.kind in _ASKING for stage in stage_list(config)) else 0


def on_gpus(config: RunConfig, gpus: int, made: Ready | None = None, gpu: Gpu = GPUS["h100-80gb"]) -> str:
    """What an update takes on cards of this kind, as `uni_train plan` counts.

    It counts under the recipe's strategy. If the recipe names none and that does not fit, it names the first that does.
    """
    made = made or ready(config, gpus, SAMPLE)
    traced = scaled(made.traced(config.checkpointed_every)[0], made.work.times)
    own = run_by(config.strategy, gpus)
    others = choices_for(config.strategy, gpus) if config.strategy.kind == "single" else ()
    choices = (own, *_taken(config, others, []))
    peaks = {choice: share(choice, traced, gpus, made.work.micros, made.cast is not None).peak for choice in choices}
    whole = whole_weights(config, traced)
    fitting = next((choice for choice, peak in peaks.items() if max(peak, whole) <= gpu.usable), None)
    fits = "does not fit: `uni_train plan` compares strategies and GPUs"
    if fitting is not None:
        less = f"does not fit; add {fitting.keys}, with which it takes {peaks[fitting] / GIB:.1f} GiB"
        fits = "fits" if fitting == own else less
    cards = f"{f'each of {gpus}' if gpus > 1 else 'one'} {gpu.name}"
    takes = f"an update takes {peaks[own] / GIB:.1f} GiB of {gpu.usable / GIB:.0f} on {cards} with {own.name}"
    return f"{takes}, which {fits}"


def _taken(config: RunConfig, choices: Sequence[Choice], notes: list[str]) -> tuple[Choice, ...]:
    """Those that the rules of the recipe's kind allow; `notes` gets why it refuses the others."""
    taken = []
    for choice in choices:
        try:
            strategy: Any = replace(config.strategy, kind=choice.kind)  # type: ignore[arg-type]
            kind_of(config).check(replace(config, strategy=strategy), lambda _: "")
            taken.append(choice)
        except UsageError as error:
            notes.append(f"left out: {error.message}")
    notes[:] = dict.fromkeys(notes)
    return tuple(taken)


def _steps(traced: Traced) -> np.ndarray:
    return np.isin(np.array(traced.timeline.phases), (STEP, AVERAGE))


def scaled(traced: Traced, times: float) -> Traced:
    """With so many times the units in a micro-batch: activations grow with them, all else stays."""
    grown = traced.timeline.bytes.astype(np.float64)
    grown[~_steps(traced), KINDS.index("activations")] *= times
    return replace(traced, timeline=replace(traced.timeline, bytes=grown))


def _largest(choice: Choice, traced: Traced, work: Work, gpu: Gpu, gpus: int, half: bool) -> int:
    """Most units a micro-batch, by bisection."""

    def fits(units: int) -> bool:
        return share(choice, scaled(traced, units / work.units), gpus, work.micros, half).peak <= gpu.usable

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high) and high < 2**20:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# --- advice -----------------------------------------------------------------------------------------------------------


def _advice(made: Plan, key: str, averages: bool, kind: str, checkpointed: int) -> list[str]:
    """What to change, each with what it brings.

    Args:
        key: of the recipe, for fewer units in a micro-batch.
        averages: whether the weights are averaged. kind: of the weights that are trained.
        checkpointed: most units that fit with activation checkpointing.
    """
    row = made.rows[made.chosen] if made.chosen is not None else None
    if row is not None and row.fits:
        if row.largest >= 2 * made.units and made.micros > 1:
            return [f"{row.largest} {made.unit} fit into a micro-batch: fewer, larger micro-batches would do."]
        return []
    if made.whole > made.gpu.usable:
        return [
            f"Stages that sample or evaluate hold all weights on each GPU: {made.whole / GIB:.1f} GiB of "
            f"{made.gpu.usable / GIB:.1f} GiB. Take larger cards, or strategy=ddp trained=lora model.weights=nf4."
        ]
    advice: list[str] = []
    of = [row] if row is not None else list(made.rows)
    name = of[0].choice.name if row is not None else "any strategy"
    advice.append(
        f"{name} does not fit: {min(row.share.peak for row in of) / GIB:.0f} GiB of {made.gpu.usable / GIB:.0f} GiB."
    )
    fitting = [row.choice.name for row in made.rows if row.fits]
    if fitting:
        advice.append(f"These fit as it is: {', '.join(fitting)}.")
    if not made.activation_checkpointing:
        saved = made.activations["kept"] - made.activations["checkpointed"]
        advice.append(
            f"activation_checkpointing=true keeps {saved / GIB:.1f} GiB less of activations; then {checkpointed} "
            f"{made.unit} fit into a micro-batch under one strategy at least."
        )
    largest = max(option.largest for option in of)
    if 0 < largest < made.units:
        advice.append(f"{largest} {made.unit} fit into a micro-batch, in place of {made.units}: see {key}.")
    if kind == "all":
        advice.append("trained=lora needs no gradients, optimizer's state or averages of the weights themselves.")
    if averages and kind != "lora":
        advice.append(
            f"ema=null leaves out {4 * made.trained / GIB:.0f} GiB of averages (sharded: of all GPUs together); "
            "strategy.offload_averages=true keeps them in the machine's memory."
        )
    return advice


WAYS = 2  # traced by `one_card`


def one_card(config: RunConfig, on_step: Callable[[], object] = lambda: None) -> tuple[OneCardChoice, ...]:
    """Configurations that train a recipe on one card, from the smallest change to the least memory.

    All use activation checkpointing and no averages. Empty where the recipe or its model cannot choose (`trained`, a
    decoder).

    Raises:
        UserError: as `plan`.
    """
    choices = typing.get_type_hints(type(config)).get("trained")  # what this key of the recipe may be
    if not {"all", "lora"} <= set(typing.get_args(choices)):
        return ()
    ways: list[OneCardChoice] = []
    alone = replace(config.strategy, kind="single", offload_optimizer=False, offload_weights=False)
    for trained in ("all", "lora"):
        changed: Any = replace(config, trained=trained, ema=None, strategy=alone)  # type: ignore[call-arg]
        made = ready(replace(changed, model=replace(config.model, weights=None)), 1)
        made.model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=True)
        (traced,) = made.work.trace(AS_IT_IS)
        on_step()
        if not decoder_layers(made.model):
            return ()
        forms: list[tuple[Quantised | None, str]] = [(None, "full"), (None, "8bit")]
        if trained == "lora":
            forms = [(None, "full"), ("int8", "full"), ("nf4", "full"), ("nf4", "8bit")]
        for weights, state in forms:
            light = share(Choice("single"), lighter(traced, made.model, weights, state), 1, 1, made.cast is not None)
            keys = [f"trained={trained}"]
            keys += [f"model.weights={weights}"] if weights else []
            keys += ["optimizer.state=8bit"] if state == "8bit" else []
            ways.append(OneCardChoice(" ".join(keys), light.peak, light.host))
        if trained == "all":
            away = Choice("deepspeed_zero2", offload_optimizer=True)
            kept = share(away, traced, 1, 1, made.cast is not None)
            offloaded = "trained=all strategy=deepspeed_zero2 strategy.offload_optimizer=true"
            ways.append(OneCardChoice(offloaded, kept.peak, kept.host))
    return tuple(ways)
