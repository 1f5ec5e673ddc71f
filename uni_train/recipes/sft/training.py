"""Supervised fine-tuning on rows of text and images, in BAGEL's data forms and in ours (uni_train/training/data)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.models.base import Example, ImageSizes
from uni_train.recipes.sft.budget import described
from uni_train.recipes.sft.config import SftConfig, SourceConfig
from uni_train.stages.train_stage import run_logger, skipped_rows, train_stage
from uni_train.stages.validation import ValidationPrompts, intervals, read_prompts, table, validation_prompts
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.curriculum import Constant
from uni_train.training.data import conversations, edit, inferred, items, text_to_image
from uni_train.training.data.pairs import referenced
from uni_train.training.data.rows import Parse, Row, Rows, open_rows

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback


def run(work: Work[SftConfig], stage: StageRun, name: str) -> None:
    """Train on the recipe's sources. name: part of every seed."""
    config = work.config
    dropouts = {"vit_dropout": config.vit_dropout, "vae_dropout": config.vae_dropout}
    model = work.trainable_model(work.weights, config.timestep_shift, **dropouts)
    rows_by_source = sources(config, model.example_tokens)
    begins = not (stage.path / "metrics.jsonl").exists()
    if begins:
        for rows in rows_by_source.values():
            work.ranks.from_main(rows.check)
    watched, keys = held_out(work), config.held_out_loss
    logger = run_logger(work, stage.path.name)
    callbacks: list[Callback] = []
    losses, other = None, held_out_file(config, model.example_tokens)
    if keys.share is not None or other is not None:
        from uni_train.recipes.sft.held_out_loss import HeldOutLoss

        losses = HeldOutLoss(work, model, rows_by_source, other, stage)
        callbacks.append(losses)
    if begins:  # of the rows that are left to train on
        for line in work.ranks.from_main(lambda: described(config, rows_by_source, work.ranks.world_size)):
            work.progress.say(f"  {line}")
    if watched is not None:
        # Lightning takes seconds to import, which --dry-run need not wait for.
        from uni_train.training.callbacks import Validation
        from uni_train.training.fit import HELD_OUT

        def evaluate(step: int) -> Mapping[str, float]:
            return watched.evaluate(model, step, stage.path, logger, work.ranks)

        callbacks.append(Validation(evaluate, config.held_out.every, stage.path / HELD_OUT))
    result = train_stage(
        work, model, rows_by_source, schedule(config), updates(config), stage.path, stage=name, callbacks=callbacks,
        finish=None if losses is None else losses.finish,
    )  # fmt: skip
    work.save_trained(model, stage)
    stage.result = {
        **result.facts(),
        "rows": {name: len(rows) for name, rows in rows_by_source.items()},
        **skipped_rows(work, filter(None, [*rows_by_source.values(), other])),
        **({} if losses is None else {"held_out_loss": losses.result, "kept_update": losses.result["step"]}),
    }
    if watched is not None:
        stage.result["held_out"] = success = intervals(stage.path)
        if success:
            work.progress.table(f"Success on {config.held_out.path or config.held_out.split} prompts", *table(success))
    work.progress.say(f"  model: {stage.path / MODEL}")


def sources(config: SftConfig, example_tokens: Callable[[Example], int]) -> dict[str, Rows]:
    """The recipe's rows by the name of their source.

    Raises:
        UserError: a file is missing, damaged or of another kind.
    """
    return {name: _rows(config, source, example_tokens) for name, source in config.used_sources.items()}


def held_out_file(config: SftConfig, example_tokens: Callable[[Example], int]) -> Rows | None:
    """Rows of `held_out_loss.path`, in the form of the first source; None without it. Raises UserError."""
    if config.held_out_loss.path is None:
        return None
    like = replace(next(iter(config.used_sources.values())), path=config.held_out_loss.path)
    return _rows(config, like, example_tokens, held_out=True)


def _rows(
    config: SftConfig, source: SourceConfig, example_tokens: Callable[[Example], int], held_out: bool = False
) -> Rows:
    longest = config.batch.example_tokens or config.model.architecture.max_text_tokens
    paths = source.path if isinstance(source.path, str) else list(source.path)
    rows = open_rows(paths, Path(source.images) if source.images is not None else None, held_out)
    if source.references is not None:
        rows = referenced(rows, source.references)
    parse = _drawn(_parser(source), source, config.batch.noise_draws)
    return Rows(rows, parse, config.data.bad_rows, example_tokens, longest)


def schedule(config: SftConfig) -> Constant:
    """Each source's share of a batch."""
    total = sum(source.weight for source in config.used_sources.values())
    return Constant({name: source.weight / total for name, source in config.used_sources.items()})


def updates(config: SftConfig) -> Updates:
    batch = config.batch
    return Updates(config.updates, batch.accumulate, rows=batch.rows, tokens=batch.tokens)


def held_out(work: Work[SftConfig]) -> ValidationPrompts | None:
    """Prompts of the task or the file that the recipe watches.

    Raises:
        UserError: the task has too few, or no such level; a file without prompts, a bad row, an id that comes twice.
    """
    config, section = work.config, work.config.held_out
    seed, batch = config.evaluation.seed, config.model.draw_batch
    if section.task is not None:
        return validation_prompts(work.task(section.task), section.levels, section.n, section.split, seed, batch)
    if section.path is None:
        return None
    prompts = read_prompts(section.path, most=section.n, rewarded=False, held_out=True)
    if not prompts:
        raise UserError(f"{section.path} has no prompts", "Write one a line, or rows with the key prompt.")
    name, times = Counter(prompt.id for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise UserError(f"{section.path}: {times} prompts have the id {name}", "Give each an id of its own, or none.")
    return ValidationPrompts({section.path: prompts}, seed, batch)


def _parser(source: SourceConfig) -> Parse:
    if source.of_items:
        return items.parser(source.learn, source.show_thought, source.augment is not None)
    forms = {"text_to_image": text_to_image, "edit": edit, "conversations": conversations, None: inferred}
    return forms[source.form].parse


def _drawn(parse: Parse, source: SourceConfig, draws: int) -> Parse:
    """Examples with the recipe's noise draws and their source's sizes."""
    sizes = ImageSizes(source.image_size, source.vit_size, source.vit_pixels)

    def whole(row: Row, random_: random.Random) -> Example:
        return replace(parse(row, random_), noise_draws=draws, sizes=sizes)

    return whole
