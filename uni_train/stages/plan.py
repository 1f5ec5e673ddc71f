"""What a recipe would train, told without weights: parameters, and tokens and shapes of its first batch.

Models are built on the meta device, so a laptop answers for the 7B ones; rows come from where training would take them.
Where there is no tokenizer to ask, texts are taken to have one token for every four characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_gen.registry import get_task
from data_gen.registry import sources as set_sources
from uni_train.config.rounds import most_updates
from uni_train.config.schema import (
    Config,
    FlowGrpoConfig,
    KnowledgeConfig,
    PretrainConfig,
    SftConfig,
    StarsConfig,
)
from uni_train.config.stage_list import stage_list
from uni_train.errors import UserError
from uni_train.models.base import Example, UnifiedModel
from uni_train.models.family import Family, family_of
from uni_train.models.shapes import CHARACTERS
from uni_train.stages import grpo, knowledge, sft
from uni_train.stages.finetune import PRETRAIN, any_of, curriculum
from uni_train.training.curriculum import Constant
from uni_train.training.lora import LoraSettings, count_adapters
from uni_train.training.steps import Source, StepDataset
from uni_train.training.trained import select_parameters


def describe(config: Config) -> list[str]:
    """Lines for people.

    Raises:
        UserError: the checkpoint folder holds something else than this model.
    """
    family = family_of(config.model.family)
    model, guessed = family.skeleton(config.model, config.seed)
    lines = _parameters(config, model, family)
    if isinstance(config, FlowGrpoConfig):
        return [*lines, *_epoch(config)]
    if config.model.edits and not isinstance(config, SftConfig):
        return [*lines, "one update: unknown, because this model edits, and the recipe's prompts have no image"]
    try:
        batches = first_update(config, model)
    except UserError as error:
        return [*lines, f"one update: unknown, because {error.message}"]
    lines += family.shapes(model).describe(batches)
    if guessed:
        lines.append(f"there is no tokenizer in {config.model.checkpoint}: {CHARACTERS} characters count as a token")
    replayed = isinstance(config, StarsConfig) and any(one.replay.get(PRETRAIN) for one in config.rounds)
    if replayed and model.replay_rows() is None:
        lines.append(f"model={config.model.name} has no pretraining rows: set pretrain_replay=0")
    return lines


def _parameters(config: Config, model: UnifiedModel, family: Family) -> list[str]:
    """A table of parts: parameters, and how many of them are trained."""
    counts = dict.fromkeys(family.parts, 0)
    trained = dict.fromkeys(counts, 0)
    kind = "all" if isinstance(config, PretrainConfig) else config.trained
    frozen: Sequence[str] = config.frozen if isinstance(config, SftConfig) else ()
    if kind == "understanding":
        kind, frozen = "all", knowledge.FROZEN
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
        lora = LoraSettings(config.lora.rank, config.lora.alpha, config.lora.dropout, config.lora.targets)
        adapters = count_adapters(model, lora)
        lines.append(f"  {'adapters':<16} {adapters:>16,} {adapters:>16,}")
        return [*lines, f"  trained=lora: {adapters:,} parameters"]
    sum_trained = sum(trained.values())
    return [*lines, f"  trained={kind}: {sum_trained:,} parameters, {100 * sum_trained / total:.1f} %"]


def _epoch(config: FlowGrpoConfig) -> list[str]:
    """What an epoch of reinforcement draws and trains on."""
    grpo.check(config)
    asked = grpo.settings(config, "grpo")
    rollout, pictures = config.rollout, asked.prompts_per_epoch * asked.group_size
    kind = "noise levels" if config.variant == "diffusion_nft" else "random steps"
    return [
        f"one epoch: {asked.prompts_per_epoch} prompts x {asked.group_size} = {pictures} pictures of {rollout.steps} "
        f"steps, {asked.window_size} {kind} each",
        f"  {asked.updates_per_epoch} updates of {pictures * asked.window_size // asked.updates_per_epoch} rows in "
        f"{asked.grad_accumulation_steps()} micro-batches; {asked.updates} updates in all",
    ]


# --- where the first batch comes from ---------------------------------------------------------------------------------


def first_update(
    config: StarsConfig | PretrainConfig | SftConfig | KnowledgeConfig, model: UnifiedModel
) -> list[Sequence[Example]]:
    """The examples of the first update of the first training, by micro-batch.

    Raises:
        UserError: rows of a source are missing or bad.
    """
    tokens, micros = None, 1
    if isinstance(config, SftConfig):
        sources: dict[str, Source] = dict(sft.sources(config, model.example_tokens))
        shares = dict(sft.schedule(config).mixture(0))
        rows, tokens, micros = config.batch.rows or 1, config.batch.tokens, config.batch.accumulate
    elif isinstance(config, PretrainConfig):
        from uni_train.models.nano import corpus

        mixture = max((part.mixture for part in config.parts.values()), key=lambda one: one.images)
        counts = mixture.rows
        rows = sum(counts.values())
        sources = dict(corpus.sources(mixture.noise_draws))
        shares = dict(Constant({kind: count / rows for kind, count in counts.items()}).mixture(0))
    elif isinstance(config, KnowledgeConfig):
        sources = {"lessons": knowledge.lessons(knowledge.people(config)[0])}
        shares = {"lessons": 1.0}
        rows, micros = config.rows, config.accumulate
    else:
        sources, shares = _stars(config, model)
        rows, micros = config.batch.prompts, config.batch.accumulate
    dataset = StepDataset(
        lambda examples, seed: list(examples),
        {name: sources[name] for name in shares},
        lambda step: shares,
        rows=rows,
        updates=1,
        seed=config.seed,
        grad_accumulation_steps=micros,
        token_counts=lambda examples: (0, 0),
        tokens=tokens,
        example_tokens=model.example_tokens,
    )
    return [micro.content for micro in dataset[0]]


def _stars(config: StarsConfig, model: UnifiedModel) -> tuple[dict[str, Source], dict[str, float]]:
    """Prompts of the first training's sets with blank pictures, and its mixture as far as there are rows for it."""
    first = next(stage for stage in stage_list(config) if stage.kind == "finetune")
    shares = dict(curriculum(config, first.rounds, most_updates(config, first.rounds)).mixture(0))
    blank = np.zeros((config.model.architecture.image_size,) * 2 + (3,), np.uint8)
    sources: dict[str, Source] = {}
    for name in list(shares):
        if name == PRETRAIN:
            replay = model.replay_rows()
            if replay is None:
                del shares[name]
            else:
                sources[name] = any_of(replay)
            continue
        source = set_sources()[name]
        items = get_task(source.task, config.data.world).generate(64, source.level, "train", config.seed)
        sources[name] = [Example(item.prompt, target=blank, noise_draws=config.batch.noise_draws) for item in items]
    return sources, shares
