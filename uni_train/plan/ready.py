"""An update of a recipe with shapes alone: its model, its micro-batches, and how to follow them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from uni_train.config.kinds import Rollouts, Updates, kind_of
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.models.base import Example, FlowPolicy, Request, Trainable, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import family_of
from uni_train.models.meta import without_weights
from uni_train.models.shapes import CHARACTERS, Shapes

if TYPE_CHECKING:
    from uni_train.plan.updates import Cast, Settings, Traced

SAMPLE = 64
"""Examples that are followed in place of a micro-batch; activations grow with their number."""


@dataclass(slots=True)
class Work:
    """A recipe's update on one GPU.

    Attributes:
        unit, units: what a micro-batch consists of, and how many it has; `key` is the recipe's key for that number.
        micros: micro-batches of an update. updates: of the training.
        trace: traces the last micro-batch of an update, and the update, in each setting.
        draw_batches: model calls for an epoch's images (Flow-GRPO); updates_per_epoch: the updates that share them.
        times: units of a micro-batch / units traced. tokens: of a micro-batch, about.
    """

    unit: str
    units: int
    micros: int
    updates: int
    trace: Callable[[Settings], list[Traced]]
    key: str
    draw_batches: int = 0
    updates_per_epoch: int | None = None
    notes: list[str] = field(default_factory=list)
    tokens: float = 0.0
    times: float = 1.0


@dataclass(slots=True)
class Ready:
    """A recipe's update on one of so many GPUs, ready to be followed."""

    config: RunConfig
    model: Trainable
    shapes: Shapes
    work: Work
    cast: Cast | None
    rollouts: Rollouts | None
    kind: str
    notes: list[str]
    parameters: int

    def traced(self, *activation_checkpointing: int, on_step: Callable[[], object] = lambda: None) -> list[Traced]:
        """Followed with each of these settings, with the recipe's quantised weights and moments.

        on_step: called when each is begun.
        """
        from uni_train.plan.updates import lighter

        def prepared(every: int) -> None:
            on_step()
            self.model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=every)

        traces = self.work.trace([partial(prepared, every) for every in activation_checkpointing])
        weights, state = self.config.model.weights, self.config.optimizer.state
        return [lighter(traced, self.model, weights, state) for traced in traces]

    def image_flops(self) -> float:
        """Of drawing an image of the model's own size, for samples and evaluations."""
        from uni_train.plan.updates import image_flops

        config = self.config.model
        shown = (_blank(self.config),) if config.edits else ()
        request = self.shapes.image_request(Request("planned", self.shapes.prompt, shown))
        policy = expect_skill(self.model, FlowPolicy)
        return image_flops(policy, self.shapes, request, config.sampling.steps, self.cast)


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
    cast: Cast | None = None
    if config.strategy.precision == "bf16-true":
        from uni_train.plan.updates import half_weights as cast
    notes = [f"no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token"] if guessed else []
    total = sum(p.numel() for p in model.parameters())
    if kind == "lora":
        from uni_train.training.lora import add_adapters

        with without_weights():
            add_adapters(model, config.lora, 0)
    if rollouts is None:
        work = _supervised(config, model, shapes, cast, gpus, most)
    else:
        work = _reinforced(config, rollouts, expect_skill(model, FlowPolicy), shapes, cast, gpus, most)
    notes += work.notes
    return Ready(config, model, shapes, work, cast, rollouts, kind, notes, total)


def _supervised(
    config: RunConfig, model: Trainable, shapes: Shapes, cast: Cast | None, gpus: int, most: int | None
) -> Work:
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

    def trace(settings: Settings) -> list[Traced]:
        from uni_train.plan.updates import supervised

        loss = shapes.loss(here, config.ce_weight, config.mse_weight)
        traces = supervised(
            model, [loss], config, "meta", cast, trained, frozen, later=micros > 1, reference=recipe.reference,
            settings=settings,
        )  # fmt: skip
        return [replace(traced, texts=shapes.kept_texts()) for traced in traces]

    key = "batch.accumulate" if length.tokens is None else "batch.tokens"
    work = Work("examples", len(here), micros, length.total, trace, key, notes=notes)
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
    blank = _blank(config)
    example = Example(prompt, images=(blank,) if config.model.edits else (), target=blank)
    if length.tokens is not None:
        return [example] * max(-(-length.tokens // model.example_tokens(example)), 1)
    return [example] * (length.rows or 1)


def _reinforced(
    config: RunConfig,
    rollouts: Rollouts,
    model: FlowPolicy,
    shapes: Shapes,
    cast: Cast | None,
    gpus: int,
    most: int | None,
) -> Work:
    notes = [*rollouts.notes]
    trained, _ = kind_of(config).trained(config)
    draw_rows = config.model.draw_batch
    pictures = rollouts.images // gpus
    micros = rollouts.micro_batches(gpus) + rollouts.other_micro_batches
    if rollouts.guidance is not None:
        model.sampling = model.sampling_at(rollouts.guidance)
    rows = -(-rollouts.rows(rollouts.images) // (gpus * rollouts.micro_batches(gpus)))
    followed = min(rows, most or rows)
    request = shapes.image_request(_prompt(config, rollouts, shapes, notes))

    def trace(settings: Settings) -> list[Traced]:
        from uni_train.plan.updates import reinforced

        drawn = min(draw_rows, most or draw_rows)
        return reinforced(model, shapes, request, followed, rollouts, config, trained, drawn, cast, pictures, settings)

    return Work(
        "random steps of images",
        rows,
        micros,
        rollouts.updates,
        trace,
        "rows",
        draw_batches=-(-pictures // min(draw_rows, pictures)) * rollouts.steps,
        updates_per_epoch=rollouts.updates_per_epoch,
        notes=notes,
        times=rows / followed,
        tokens=(rows + draw_rows / 4 + pictures / 16) * (request.tokens + config.model.architecture.max_text_tokens),
    )


def _prompt(config: RunConfig, rollouts: Rollouts, shapes: Shapes, notes: list[str]) -> Request:
    """The first prompt of the recipe."""
    try:
        return rollouts.prompt()
    except UserError as error:
        side = config.model.architecture.image_size
        notes.append(f"{error.message}: prompts of one {side} x {side} image and 32 tokens instead")
        return Request("prompt", shapes.prompt, (_blank(config),))


def _blank(config: RunConfig) -> np.ndarray:
    side = config.model.architecture.image_size
    return np.zeros((side, side, 3), np.uint8)
