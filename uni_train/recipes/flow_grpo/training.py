"""Reinforcement: images of the recipe's prompts, its rewards, and what both do to the model (docs/flow_grpo.md)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.data_gen.registry import get_task
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Task
from uni_train.errors import UserError
from uni_train.eval.scored import shard_path, write_scored
from uni_train.models.base import Example, UnifiedModel
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import family_of
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig, HeldOutConfig
from uni_train.rewards.contract import Reward, Scoring
from uni_train.rewards.registry import Trained, find_reward, make_rewards
from uni_train.stages.finetune import adapters, run_logger, skipped_rows
from uni_train.stages.gallery import SHOWN_GROUPS, log_images, shown_groups, write_sheet
from uni_train.stages.validation import (
    LEAST,
    MORE,
    ValidationPrompts,
    check_levels,
    generate,
    intervals,
    prompt_of,
    read_prompts,
    table,
    validation_prompts,
)
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.data import items
from uni_train.training.data.rows import Rows, open_rows
from uni_train.training.flow_grpo.rollout import Prompt, PromptList, Prompts, columns_of
from uni_train.training.trained import select_parameters

if TYPE_CHECKING:
    from uni_train.training.flow_grpo.rollout import ScoredImages

GALLERY = "gallery"


def run(work: Work[FlowGrpoConfig], stage: StageRun) -> None:
    """Train by rewards; held-out success before and after is in the result."""
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.flow_grpo.trainer import fit_flow_grpo

    config = work.config
    prompt_source = work.ranks.on_all(lambda: prompts(work))
    model = work.learner(work.weights, config.sft.timestep_shift if config.sft is not None else 1.0)
    sampling = model.sampling
    solved = work.ranks.on_all(lambda: solved_rows(config, model.example_tokens))
    if solved is not None:
        work.ranks.from_main(solved.check)
    logger = run_logger(work, stage.path.name)

    def measure(step: int) -> Mapping[str, float]:
        assert held_out is not None
        with _sampling(model, sampling):
            return held_out.evaluate(model, step, stage.path, logger, work.ranks)

    def show(epoch: int, images: ScoredImages) -> None:
        if epoch % config.held_out.every and epoch != config.epochs - 1:
            return
        step, folder = epoch * config.updates_per_epoch, stage.path / GALLERY / f"epoch-{epoch:05d}"
        own_groups = shown_groups(images, config.rollout.group_size, step)
        groups = [group for part in work.ranks.gather(own_groups) for group in part][:SHOWN_GROUPS]
        if not work.ranks.is_main:
            return
        scored = [one for group in groups for one in group]
        write_scored(shard_path(folder, 0), scored)
        write_sheet(groups, folder.with_suffix(".png"))
        log_images(logger, "gallery", scored, step)

    lora = adapters(work, model, stage.path.name, stage.path) if config.trained == "lora" else nullcontext()
    with lora, model.guided_at(config.rollout.guidance):
        rewarded = work.ranks.on_all(lambda: rewards(config, model))  # which may keep the weights beside adapters
        held_out = work.ranks.on_all(lambda: held_out_prompts(work, rewarded))
        result = fit_flow_grpo(
            model,
            prompt_source,
            rewarded,
            config,
            stage.path,
            stage=stage.path.name,
            trained=config.trained,
            draw_rows=config.model.draw_batch,
            evaluate=measure if held_out is not None else None,
            evaluate_every=config.held_out.every,
            on_images=show,
            sft_rows=solved,
            logger=logger,
            description="  updates",
        )
    work.trained(model, stage)
    stage.result = {
        "updates": result.updates,
        "seconds": result.seconds,
        **_report(work, stage),
        **({} if solved is None else skipped_rows(work, [solved])),
    }


def _report(work: Work[FlowGrpoConfig], stage: StageRun) -> dict[str, Any]:
    """Print and return the results: seconds by part, first and last reward, held-out scores."""
    from uni_train.training.flow_grpo.trainer import ROLLOUTS
    from uni_train.training.metric_log import read_metrics

    epochs = read_metrics(stage.path / ROLLOUTS)
    seconds = {part: sum(line["seconds"].get(part, 0.0) for line in epochs) for part in ("rollout", "reward", "update")}
    scores, held_out = intervals(stage.path), work.config.held_out
    parts = ", ".join(f"{part} {value:.0f} s" for part, value in seconds.items())
    work.progress.say(f"  reward {epochs[0]['reward']:.3f} -> {epochs[-1]['reward']:.3f}; {parts}")
    if scores:
        title = f"Success on {held_out.split} prompts" if held_out.path is None else f"Rewards of {held_out.path}"
        work.progress.table(title, *table(scores))
    work.progress.say(f"  model: {stage.path / MODEL}")
    rewarded = {"first": epochs[0]["reward"], "last": epochs[-1]["reward"]}
    return {"split": seconds, "reward": rewarded, "held_out": scores}


@contextmanager
def _sampling(model: UnifiedModel, sampling: Any) -> Iterator[None]:
    """Within this block the model draws with these settings."""
    before, model.sampling = model.sampling, sampling
    try:
        yield
    finally:
        model.sampling = before


def rewards(config: FlowGrpoConfig, model: UnifiedModel) -> list[Reward]:
    """The recipe's rewards. To be called with the weights that the run starts from in `model`.

    Raises:
        UsageError: an unknown reward. UserError: its module cannot be imported, or a judge does not answer.
    """
    from uni_train.training.flow_grpo.losses import Reference

    def keep() -> Callable[[], AbstractContextManager[None]]:
        # What draws takes no part in an answer, so there is nothing to be kept where it alone is trained.
        if config.trained == "moe_gen":
            return nullcontext
        return Reference(model, set(select_parameters(model, config.trained))).active

    return make_rewards(config.used_rewards, Trained(model, keep, config.model.think_batch))


def check(config: FlowGrpoConfig) -> None:
    """What can be refused before anything runs.

    Raises:
        UsageError: an unknown reward. UserError: a size that the model cannot draw; a reward that cannot be imported or
            called; no rows for `sft`, or a first one without an image; prompts that cannot be read.
    """
    side = config.rollout.size
    if side is not None:
        model, _ = family_of(config.model.family).skeleton(on_disk(config.model), config.seed)
        model.check_size(side, side, f"rollout.size={side}")
    functions = {name: find_reward(reward.function) for name, reward in config.used_rewards.items()}
    _try(config, [Reward(name, function) for name, function in functions.items() if _is_own(function)])
    solved = solved_rows(config)
    if solved is not None:
        solved.draw(0, random.Random(0))
    _file_of(config.held_out)


def expect_items(work: Work[FlowGrpoConfig]) -> None:
    """Raises UserError where the task lacks a level or has too few items, DataError where it fails."""
    config = work.config
    if config.prompts.task is None:
        return
    task, levels = work.task(config.prompts.task), config.held_out.levels or config.prompts.levels
    check_levels(task, config.prompts.levels, "prompts.levels")
    check_levels(task, levels, "held_out.levels")
    for split, some in (("train", config.prompts.levels), (config.held_out.split, levels)):
        for level in some:
            task.validate(level, split)
    prompts(work)
    held_out_prompts(work)


def _is_own(function: Any) -> bool:
    """Whether a reward is a person's own function; a class is made with the model that is trained."""
    return not isinstance(function, type) and not getattr(function, "__module__", "").startswith("uni_train.")


def _try(config: FlowGrpoConfig, functions: Sequence[Reward]) -> None:
    """Ask about two blank images of the first prompt. Raises UserError: a reward fails, or a bad file of prompts."""
    if not functions:
        return
    prompt, side = first_prompt(config), config.rollout.size or config.model.architecture.image_size
    columns = columns_of([prompt], 2, 0) | ({} if config.thoughts is None else {"thought": ["", ""]})
    with Scoring(functions, 2) as scoring:
        scoring.add([prompt.text] * 2, [np.zeros((side, side, 3), np.uint8)] * 2, columns)
        scoring.scores()


def first_prompt(config: FlowGrpoConfig) -> Prompt:
    """The first row of the file of prompts, or the first draw of the task. Raises UserError: it cannot be read."""
    section = config.prompts
    if section.path is not None:
        return read_prompts(section.path, section.images, most=1)[0]
    return TaskPrompts(get_task(section.task or "maze", config.data.world), section.levels, config.seed).epoch(0, 1)[0]


def solved_rows(config: FlowGrpoConfig, tokens: Callable[[Example], int] | None = None) -> Rows | None:
    """The rows of `sft`; one whose `tokens` the model cannot count is bad. Raises UserError: a missing file."""
    if config.sft is None:
        return None
    return items.images_of(open_rows(config.sft.path), config.sft.noise_draws, bad=config.data.bad_rows, tokens=tokens)


# --- prompts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskPrompts:
    """New draws of a task in every epoch; prompt i of an epoch has the level whose turn it is."""

    task: Task
    levels: tuple[int, ...]
    seed: int

    def epoch(self, epoch: int, count: int) -> list[Prompt]:
        prompts = []
        for i in range(count):
            level = self.levels[(epoch * count + i) % len(self.levels)]
            seed = derive_seed("grpo prompts", self.seed, epoch, i)
            items = self.task.sample(seed, level, "train")
            prompts.append(prompt_of(items[seed % len(items)]))
        return prompts


def prompts(work: Work[FlowGrpoConfig]) -> Prompts:
    """What the recipe asks.

    Raises:
        UserError: a file of prompts is missing or has a bad row, or a task has too few items.
    """
    config = work.config
    section = config.prompts
    if section.path is not None:
        return PromptList(read_prompts(section.path, section.images), config.seed)
    task = work.task(section.task or "maze")
    check_levels(task, section.levels, "prompts.levels")
    if section.n is None:
        return TaskPrompts(task, section.levels, config.seed)
    share = -(-section.n // len(section.levels))
    items = [item for level in section.levels for item in generate(task, share, level, "train", config.seed)]
    return PromptList([prompt_of(item) for item in items[: section.n]], config.seed)


def _file_of(section: HeldOutConfig) -> list[Prompt]:
    """The prompts of `held_out.path`, if there is one. Raises UserError: a bad file, or too few prompts."""
    if section.path is None or not section.n:
        return []
    rows = read_prompts(section.path, most=section.n)
    if len(rows) < LEAST:
        raise UserError(f"{section.path}: {len(rows)} prompts", MORE)
    return rows


def held_out_prompts(work: Work[FlowGrpoConfig], rewarded: Sequence[Reward] = ()) -> ValidationPrompts | None:
    """Prompts of a file, or of the task, that are never trained on. Raises UserError: a bad file, too few prompts."""
    config, section = work.config, work.config.held_out
    think, seed, batch = config.thoughts is not None, config.evaluation.seed, config.model.draw_batch
    if not section.n or (section.path is None and config.prompts.task is None):
        return None
    if section.path is not None:
        return ValidationPrompts({section.path: _file_of(section)}, seed, batch, think, rewarded)
    task, levels = work.task(config.prompts.task or ""), section.levels or config.prompts.levels
    return validation_prompts(task, levels, section.n, section.split, seed, batch, think)
