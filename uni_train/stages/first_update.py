"""What a recipe would train, told without weights: parameters, and tokens and shapes of its first batch.

Models are built on the meta device, so a laptop answers for the 7B ones; rows come from where training would take them.
Where there is no tokenizer to ask, texts are taken to have one token for every four characters.
"""

from __future__ import annotations

from uni_train.config.kinds import kind_of
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.models.base import Trainable, UnifiedModel, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import Family, family_of
from uni_train.models.shapes import CHARACTERS
from uni_train.stages.data import described, opened
from uni_train.training.lora import count_adapters
from uni_train.training.trained import select_parameters


def describe(config: RunConfig) -> list[str]:
    """Lines for people.

    Raises:
        UserError: the checkpoint folder holds something else than this model, or one that is not trained.
    """
    kind, family = kind_of(config), family_of(config.model.family)
    model, guessed = family.skeleton(on_disk(config.model), config.seed)
    model = expect_skill(model, Trainable)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    lines = [*_parameters(config, model, family), *described(opened(config))]
    rollouts = kind.rollouts(config)
    ranks = config.strategy.devices * config.strategy.nodes
    if rollouts is not None:
        return [*lines, *rollouts.described(ranks)]
    if config.model.edits and not kind.trains_editors:
        return [*lines, "one update: unknown, because this model edits, and the recipe's prompts have no image"]
    try:
        batches = kind.first_update(config, model)
    except UserError as error:
        return [*lines, f"one update: unknown, because {error.message}"]
    lines += family.shapes(model).describe(batches)
    if ranks > 1 and (each := kind.updates(config).shared(ranks)).rows is not None and each.tokens is None:
        share = f"{each.accumulate} micro-batches of {each.rows // ranks} examples together"
        lines.append(f"  on each of {ranks} ranks: {share}")
    if guessed:
        lines.append(f"there is no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token")
    return [*lines, *kind.remarks(config, model)]


def _parameters(config: RunConfig, model: UnifiedModel, family: Family) -> list[str]:
    """A table of parts: parameters, and how many of them are trained."""
    counts = dict.fromkeys(family.parts, 0)
    trained = dict.fromkeys(counts, 0)
    kind, frozen = kind_of(config).trained(config)
    chosen = set() if kind == "lora" else set(select_parameters(model, kind, frozen))
    for name, parameter in model.named_parameters():
        part = family.part_of(name)
        counts[part] += parameter.numel()
        trained[part] += parameter.numel() if name in chosen else 0
    total = sum(counts.values())
    vae = counts.get("VAE", 0)
    lines = [f"model {config.model.name} (a {config.model.family}): {total:,} parameters, {vae:,} in its VAE"]
    lines.append(f"  {'part':<16} {'parameters':>16} {'trained':>16}")
    lines += [f"  {part:<16} {n:>16,} {trained[part]:>16,}" for part, n in counts.items() if n]
    if kind == "lora":
        adapters = count_adapters(model, config.lora)
        lines.append(f"  {'adapters':<16} {adapters:>16,} {adapters:>16,}")
        return [*lines, f"  trained=lora: {adapters:,} parameters"]
    sum_trained = sum(trained.values())
    return [*lines, f"  trained={kind}: {sum_trained:,} parameters, {100 * sum_trained / total:.1f} %"]
