"""What a recipe would train, told without weights: parameters, and tokens and shapes of its first batch.

BAGEL is built on the meta device, so a laptop answers for the 7B model; rows come from where training would take them.
Where there is no tokenizer to ask, texts are taken to have one token for every four characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from uni_train.config.kinds import kind_of
from uni_train.config.schema import RunConfig
from uni_train.errors import UserError
from uni_train.models.bagel.checkpoint import PARTS, part_of
from uni_train.models.bagel.examples import BatchShape
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import UnifiedModel
from uni_train.models.skeleton import CHARACTERS, bagel_skeleton, editor_skeleton
from uni_train.training.lora import LoraSettings, count_adapters
from uni_train.training.trained import select_parameters

if TYPE_CHECKING:
    from uni_train.training.flow_grpo.settings import FlowGrpoSettings


def describe(config: RunConfig) -> list[str]:
    """Lines for people.

    Raises:
        UserError: the checkpoint folder holds something else than this model.
    """
    if config.model.family == "qwen_image_edit":
        return _describe_editor(config)
    kind = kind_of(config)
    model, guessed = bagel_skeleton(config.model, config.seed)
    lines = _parameters(config, model, (*PARTS, "VAE"), _part_of)
    rollouts = kind.rollouts(config)
    if rollouts is not None:
        return [*lines, *_epoch(rollouts.settings)]
    try:
        batches = kind.first_update(config, model)
    except UserError as error:
        return [*lines, f"one update: unknown, because {error.message}"]
    shapes = [model.examples.shapes(examples) for examples in batches]
    lines += _update(model, [shape for micro in shapes for shape in micro], len(batches), sum(map(len, batches)))
    if guessed:
        lines.append(f"there is no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token")
    return [*lines, *kind.remarks(config, model)]


def _part_of(name: str) -> str:
    """Of a parameter of a BagelUnified."""
    return "VAE" if name.startswith("vae.") else part_of(name.removeprefix("bagel."))


def _parameters(
    config: RunConfig, model: UnifiedModel, parts: Sequence[str], part_of: Callable[[str], str]
) -> list[str]:
    """A table of parts: parameters, and how many of them are trained."""
    counts = dict.fromkeys(parts, 0)
    trained = dict.fromkeys(counts, 0)
    kind, frozen = kind_of(config).trained(config)
    chosen = set() if kind == "lora" else set(select_parameters(model, kind, frozen))
    for name, parameter in model.named_parameters():
        part = part_of(name)
        counts[part] += parameter.numel()
        trained[part] += parameter.numel() if name in chosen else 0
    total = sum(counts.values())
    lines = [f"model {config.model.name} (a {config.model.family}): {total:,} parameters, {counts['VAE']:,} in its VAE"]
    lines.append(f"  {'part':<16} {'parameters':>16} {'trained':>16}")
    lines += [f"  {part:<16} {n:>16,} {trained[part]:>16,}" for part, n in counts.items() if n]
    if kind == "lora":
        lora = LoraSettings(config.lora.rank, config.lora.alpha, config.lora.dropout, config.lora.targets)
        adapters = count_adapters(model, lora)
        lines.append(f"  {'adapters':<16} {adapters:>16,} {adapters:>16,}")
        return [*lines, f"  trained=lora: {adapters:,} parameters"]
    sum_trained = sum(trained.values())
    return [*lines, f"  trained={kind}: {sum_trained:,} parameters, {100 * sum_trained / total:.1f} %"]


def _describe_editor(config: RunConfig) -> list[str]:
    """The same for a Qwen-Image-Edit, on the meta device."""
    from uni_train.models.qwen_image_edit import checkpoint as editor
    from uni_train.models.qwen_image_edit.examples import edits_of

    model, guessed = editor_skeleton(config.model)
    lines = _parameters(config, model, editor.PARTS, editor.part_of)
    kind = kind_of(config)
    rollouts = kind.rollouts(config)
    if rollouts is not None:
        return [*lines, *_epoch(rollouts.settings)]
    if not kind.trains_editors:
        return [*lines, "one update: unknown, because this model edits, and the recipe's prompts have no image"]
    try:
        batches = kind.first_update(config, model)
    except UserError as error:
        return [*lines, f"one update: unknown, because {error.message}"]
    everything = [example for examples in batches for example in examples]
    edits = sum(len(edits_of(example)) for example in everything)
    tokens = sum(model.example_tokens(example) for example in everything)
    learned = sum(model.shape(edit)[0] * one.noise_draws for one in everything for edit in edits_of(one))
    lines.append(f"one update: {edits} edits, {tokens:,} tokens; learned: 0 text tokens, {learned:,} latent tokens")
    if len(batches) > 1:
        lines.append(f"  {len(batches)} micro-batches, the first of them:")
    first: Counter[tuple[int, int]] = Counter()
    for example in batches[0]:
        for edit in edits_of(example):
            first[model.shape(edit)] += example.noise_draws
    for (target, shown), rows in sorted(first.items()):
        lines.append(f"  latents [{rows}, {target:,} + {shown:,} shown, {model.latents.channels}]")
    if guessed:
        lines.append(f"there is no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token")
    return lines


def _update(model: BagelUnified, shapes: Sequence[BatchShape], micros: int, examples: int) -> list[str]:
    tokens, ce, mse = (sum(getattr(shape, key) for shape in shapes) for key in ("tokens", "ce", "mse"))
    config = model.bagel.config
    lines = [f"one update: {examples} examples, {tokens:,} tokens; learned: {ce:,} text tokens, {mse:,} latent tokens"]
    if micros > 1:
        lines.append(f"  {micros} micro-batches, the first of them:")
    for shape in shapes[: max(len(shapes) // micros, 1)]:
        vit = f", ViT [{shape.vit:,}, {config.vit.patch_dim}]" if shape.vit and config.vit is not None else ""
        und = f"text and ViT tokens [{shape.rows}, {shape.und:,}]"
        lines.append(f"  {und}, latents [{shape.rows}, {shape.gen:,}, {config.latent_dim}]{vit}")
    return lines


def _epoch(asked: FlowGrpoSettings) -> list[str]:
    """What an epoch of reinforcement draws and trains on."""
    pictures = asked.prompts_per_epoch * asked.group_size
    kind = "noise levels" if asked.variant == "diffusion_nft" else "random steps"
    return [
        f"one epoch: {asked.prompts_per_epoch} prompts x {asked.group_size} = {pictures} pictures of {asked.steps} "
        f"steps, {asked.window_size} {kind} each",
        f"  {asked.updates_per_epoch} updates of {pictures * asked.window_size // asked.updates_per_epoch} rows in "
        f"{asked.grad_accumulation_steps()} micro-batches; {asked.updates} updates in all",
    ]
