"""`plan`: what a recipe needs on so many GPUs under each strategy, and what to change where it does not fit."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from uni_train.config.kinds import Rollouts, Updates, kind_of, stage_list
from uni_train.config.schema import SHARDED, RunConfig
from uni_train.errors import UsageError, UserError
from uni_train.models.base import Example, FlowPolicy, Request, Trainable, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import family_of
from uni_train.models.meta import without_weights
from uni_train.models.quantised import Quantised, decoder_layers
from uni_train.models.shapes import CHARACTERS, Shapes
from uni_train.plan import drawing
from uni_train.plan.hardware import GIB, Gpu
from uni_train.plan.one_card import lighter
from uni_train.plan.result import Choice, OneCardChoice, Plan, StrategyRow
from uni_train.plan.strategies import choices_for, run_by, share, storage, wire_seconds
from uni_train.plan.trace import KINDS
from uni_train.plan.updates import AVERAGE, STEP, Cast, Traced, half_weights, supervised
from uni_train.training.data.rows import KEPT_BYTES
from uni_train.training.lora import add_adapters


@dataclass(slots=True)
class _Work:
    """A recipe's update on one GPU.

    Attributes:
        unit, units: what a micro-batch consists of, and how many it has; `key` is the recipe's key for that number.
        micros: micro-batches of an update. updates: of the training.
        trace: traces the last micro-batch of an update, and the update.
        draw_batches: model calls for an epoch's images (Flow-GRPO); updates_per_epoch: the updates that share them.
        times: units of a micro-batch / units traced. tokens: of a micro-batch, about.
    """

    unit: str
    units: int
    micros: int
    updates: int
    trace: Callable[[], Traced]
    key: str
    draw_batches: int = 0
    updates_per_epoch: int | None = None
    notes: list[str] = field(default_factory=list)
    tokens: float = 0.0
    times: float = 1.0


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
    on_step()
    activation_checkpointing = config.activation_checkpointing
    traces = {}
    for on in (activation_checkpointing, not activation_checkpointing):
        traces[on] = made_ready.traced(on)
        on_step()
    traced = traces[activation_checkpointing]
    half = cast is not None
    rate = (gpu.single if precision == "32-true" else gpu.half) * utilisation or math.inf
    compute = traced.flops * work.micros / rate
    draw = traced.draw_flops * work.draw_batches / rate / (work.updates_per_epoch or 1)
    wanted = Choice.from_config(config.strategy)
    choices = choices_for(config.strategy, gpus, nodes)
    refused = _refused(rollouts, model) if gpus > 1 and rollouts is not None else None
    if refused is not None:
        choices = tuple(one for one in choices if one.kind not in SHARDED)
        notes.append(f"{' and '.join(SHARDED)} are left out, because they cannot do {refused}")
    stages = stage_list(config)
    images, asking = sum(stage.images for stage in stages), [one.name for one in stages if one.kind in _ASKING]
    whole = whole_weights(config, traced)
    rows = tuple(_row(one, traced, work, gpu, gpus, gpus_a_node, half, compute, whole) for one in choices)
    chosen: int | None
    if wanted.kind != "single" and wanted in choices:
        chosen = choices.index(wanted)
    else:
        fitting = [number for number, row in enumerate(rows) if row.fits]
        chosen = min(fitting, key=lambda number: (rows[number].step_seconds, rows[number].share.host), default=None)
    activations = {
        "checkpointed" if on else "kept": int(one.timeline.bytes[:, KINDS.index("activations")][~_steps(one)].max())
        for on, one in traces.items()
    }
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
    return replace(made, advice=(*made.advice, *_advice(made, work.key, config.ema is not None, kind, best)))


@dataclass(slots=True)
class Ready:
    """A recipe's update on one of so many GPUs, ready to be followed."""

    config: RunConfig
    model: Trainable
    shapes: Shapes
    work: _Work
    cast: Cast | None
    rollouts: Rollouts | None
    kind: str
    notes: list[str]
    parameters: int

    def traced(self, activation_checkpointing: bool) -> Traced:
        """Followed, with the recipe's quantised weights and moments."""
        self.model.prepare_training(
            timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=activation_checkpointing
        )
        return lighter(self.work.trace(), self.model, self.config.model.weights, self.config.optimizer.state)

    def image_flops(self) -> float:
        """Of drawing an image of the model's own size, for samples and evaluations."""
        config = self.config.model
        side = config.architecture.image_size
        shown = (np.zeros((side, side, 3), np.uint8),) if config.edits else ()
        one = self.shapes.image_request(Request("planned", self.shapes.prompt, shown))
        policy = expect_skill(self.model, FlowPolicy)
        return drawing.image_flops(policy, self.shapes, one, config.sampling.steps, self.cast)


def ready(config: RunConfig, gpus: int, most: int | None = None) -> Ready:
    """`most`: examples that stand for a micro-batch, which may be too large to make. Raises UserError as `plan`."""
    recipe = kind_of(config)
    if config.model.edits and not recipe.trains_editors:
        raise UserError(
            f"model={config.model.name} edits, and the prompts of {config.recipe} have no image",
            "Plan sft, sft_maze or flow_grpo_maze with it.",
        )
    family = family_of(config.model.family)
    skeleton, guessed = family.skeleton(on_disk(config.model), config.seed)
    shapes, model = family.shapes(skeleton), expect_skill(skeleton, Trainable)
    kind, _ = recipe.trained(config)
    rollouts = recipe.rollouts(config)
    cast: Cast | None = half_weights if config.strategy.precision == "bf16-true" else None
    notes = [f"no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token"] if guessed else []
    total = sum(p.numel() for p in model.parameters())
    if kind == "lora":
        with without_weights():
            add_adapters(model, config.lora, 0)
    if rollouts is None:
        work = _supervised(config, model, shapes, cast, gpus, most)
    else:
        work = _reinforced(config, rollouts, expect_skill(model, FlowPolicy), shapes, cast, gpus, most)
    notes += work.notes
    return Ready(config, model, shapes, work, cast, rollouts, kind, notes, total)


def _row(
    choice: Choice,
    traced: Traced,
    work: _Work,
    gpu: Gpu,
    gpus: int,
    gpus_a_node: int,
    half: bool,
    compute: float,
    whole: int,
) -> StrategyRow:
    found = share(choice, traced, gpus, work.micros, half)
    wire, bus = wire_seconds(found, gpu, gpus, gpus_a_node, choice.replicas), found.bus / gpu.bus if gpu.timed else 0.0
    return StrategyRow(
        choice=choice,
        share=found,
        storage=storage(choice, traced, gpus, half),
        fits=max(found.peak, whole) <= gpu.usable,
        largest=_largest(choice, traced, work, gpu, gpus, half),
        wire_seconds=wire,
        bus_seconds=bus,
        step_seconds=max(compute, wire) + bus,
    )


def whole_weights(config: RunConfig, traced: Traced) -> int:
    """Bytes of weights that stages which train nothing hold on each GPU, whatever the strategy (0: no such stage)."""
    return traced.weights if any(stage.kind in _ASKING for stage in stage_list(config)) else 0


def _steps(traced: Traced) -> np.ndarray:
    return np.isin(np.array(traced.timeline.phases), (STEP, AVERAGE))


def scaled(traced: Traced, times: float) -> Traced:
    """With so many times the units in a micro-batch: activations grow with them, all else stays."""
    grown = traced.timeline.bytes.astype(np.float64)
    grown[~_steps(traced), KINDS.index("activations")] *= times
    return replace(traced, timeline=replace(traced.timeline, bytes=grown))


def _largest(choice: Choice, traced: Traced, work: _Work, gpu: Gpu, gpus: int, half: bool) -> int:
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


# --- what an update is ------------------------------------------------------------------------------------------------


def _supervised(
    config: RunConfig, model: Trainable, shapes: Shapes, cast: Cast | None, gpus: int, most: int | None
) -> _Work:
    recipe = kind_of(config)
    notes: list[str] = []
    length = recipe.updates(config)
    try:
        batches: Sequence[Sequence[Example]] = recipe.first_update(config, model, most)
    except UserError as error:
        batches = [_assumed(config, length, model, shapes.prompt)[:most]]
        side = config.model.architecture.image_size
        notes.append(f"{error.message}: examples of one {side} x {side} image and 32 tokens of text instead")
    everything = [example for batch in batches for example in batch]
    micros = length.shared(gpus).accumulate
    if most is not None or length.tokens is not None:
        each = None if length.rows is None else -(-length.rows // (gpus * micros))
        here = list(batches[0])[:each]
    else:
        here = everything[: -(-len(everything) // (gpus * micros))]
    notes += length.notes
    trained, frozen = recipe.trained(config)

    def trace() -> Traced:
        loss = shapes.loss(here, config.ce_weight, config.mse_weight)
        traced = supervised(model, [loss], config, "meta", cast, trained, frozen, later=micros > 1)
        return replace(traced, texts=shapes.kept_texts())

    key = "batch.accumulate" if length.tokens is None else "batch.tokens"
    work = _Work("examples", len(here), micros, length.total, trace, key, notes=notes)
    if most is not None:
        tokens = sum(model.example_tokens(example) for example in here)
        whole = (
            length.tokens / tokens if length.tokens is not None else (length.rows or 1) / (len(here) * gpus * micros)
        )
        work.times = max(whole, 1.0)
        work.units, work.tokens = math.ceil(len(here) * work.times), tokens * work.times
    return work


def _assumed(config: RunConfig, length: Updates, model: Trainable, prompt: str) -> list[Example]:
    """Examples in place of rows that are not there: as many as an update asks for."""
    side = config.model.architecture.image_size
    blank = np.zeros((side, side, 3), np.uint8)
    shown = (blank,) if config.model.edits else ()
    one = Example(prompt, images=shown, target=blank)
    if length.tokens is not None:
        return [one] * max(-(-length.tokens // model.example_tokens(one)), 1)
    return [one] * (length.rows or 1)


def _reinforced(
    config: RunConfig,
    rollouts: Rollouts,
    model: FlowPolicy,
    shapes: Shapes,
    cast: Cast | None,
    gpus: int,
    most: int | None,
) -> _Work:
    notes: list[str] = []
    asked, (trained, _) = rollouts.config, kind_of(config).trained(config)
    draw_rows = config.model.draw_batch
    pictures = asked.images // gpus
    micros = asked.micro_batches(gpus) + (asked.sft is not None)
    if asked.rollout.guidance is not None:
        model.sampling = model.sampling_at(asked.rollout.guidance)
    if asked.thoughts is not None:
        notes.append("a thought is planned as one more random step; the memory of its own logits is not in it")
    if asked.sft is not None:
        notes.append("the rows of sft are planned as one more micro-batch of random steps")
    rows = -(-(asked.images * asked.rows_an_image // asked.updates_per_pass) // (gpus * asked.micro_batches(gpus)))
    followed = min(rows, most or rows)
    one = shapes.image_request(_prompt(config, rollouts, shapes, notes))
    return _Work(
        "random steps of images",
        rows,
        micros,
        asked.updates,
        lambda: drawing.reinforced(
            model, shapes, one, followed, asked, trained, min(draw_rows, most or draw_rows), cast, pictures
        ),
        "rows",
        draw_batches=-(-pictures // min(draw_rows, pictures)) * asked.rollout.steps,
        updates_per_epoch=asked.updates_per_epoch,
        notes=notes,
        times=rows / followed,
        tokens=(rows + draw_rows / 4 + pictures / 16) * (one.tokens + config.model.architecture.max_text_tokens),
    )


def _refused(rollouts: Rollouts, model: Trainable) -> str | None:
    """What Flow-GRPO refuses where weights are sharded (uni_train/training/flow_grpo/trainer.py)."""
    if rollouts.unsharded is None and getattr(model, "guided", False):
        return "guidance at some noise levels alone (cfg_text_scale, edit_text_scale)"
    return rollouts.unsharded


def _prompt(config: RunConfig, rollouts: Rollouts, shapes: Shapes, notes: list[str]) -> Request:
    """The first prompt of the recipe."""
    try:
        return rollouts.prompt()
    except UserError as error:
        side = config.model.architecture.image_size
        notes.append(f"{error.message}: prompts of one {side} x {side} image and 32 tokens instead")
        return Request("prompt", shapes.prompt, (np.zeros((side, side, 3), np.uint8),))


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
    found: list[str] = []
    of = [row] if row is not None else list(made.rows)
    name = of[0].choice.name if row is not None else "any strategy"
    found.append(
        f"{name} does not fit: {min(one.share.peak for one in of) / GIB:.0f} GiB of {made.gpu.usable / GIB:.0f} GiB."
    )
    fitting = [one.choice.name for one in made.rows if one.fits]
    if fitting:
        found.append(f"These fit as it is: {', '.join(fitting)}.")
    if not made.activation_checkpointing:
        saved = made.activations["kept"] - made.activations["checkpointed"]
        found.append(
            f"activation_checkpointing=true keeps {saved / GIB:.1f} GiB less of activations; then {checkpointed} "
            f"{made.unit} fit into a micro-batch under one strategy at least."
        )
    largest = max(one.largest for one in of)
    if 0 < largest < made.units:
        found.append(f"{largest} {made.unit} fit into a micro-batch, in place of {made.units}: see {key}.")
    if kind == "all":
        found.append("trained=lora needs no gradients, optimizer's state or averages of the weights themselves.")
    if averages and kind != "lora":
        found.append(
            f"ema=null leaves out {4 * made.trained / GIB:.0f} GiB of averages (sharded: of all GPUs together); "
            "strategy.offload_averages=true keeps them in the machine's memory."
        )
    return found


WAYS = 2  # traced by `one_card`


def one_card(config: RunConfig, on_step: Callable[[], object] = lambda: None) -> tuple[OneCardChoice, ...]:
    """Configurations that train a recipe on one card, from the smallest change to the least memory.

    All use activation checkpointing and no averages. Empty where the recipe or its model cannot choose (`trained`, a
    decoder).

    Raises:
        UserError: as `plan`.
    """
    if not hasattr(config, "trained") or not {"all", "lora"} <= set(_trained_values(config)):
        return ()
    found: list[OneCardChoice] = []
    alone = replace(config.strategy, kind="single", offload_optimizer=False, offload_weights=False)
    for trained in ("all", "lora"):
        changed: Any = replace(config, trained=trained, ema=None, strategy=alone)  # type: ignore[call-arg]
        made = ready(replace(changed, model=replace(config.model, weights=None)), 1)
        made.model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=True)
        traced = made.work.trace()
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
            found.append(OneCardChoice(" ".join(keys), light.peak, light.host))
        if trained == "all":
            away = Choice("deepspeed_zero2", offload_optimizer=True)
            kept = share(away, traced, 1, 1, made.cast is not None)
            said = "trained=all strategy=deepspeed_zero2 strategy.offload_optimizer=true"
            found.append(OneCardChoice(said, kept.peak, kept.host))
    return tuple(found)


def _trained_values(config: RunConfig) -> tuple[str, ...]:
    """What the key `trained` of a recipe may be."""
    return typing.get_args(typing.get_type_hints(type(config))["trained"])
