"""Reinforcement: images of the recipe's prompts, its rewards, and what both do to the model (docs/flow_grpo.md)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.config.kinds import run_task
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Task
from uni_train.eval.sample import Ask, Scored
from uni_train.eval.scored import shard_path, write_scored
from uni_train.models.base import Example, FlowPolicy, UnifiedModel, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import family_of
from uni_train.recipes.flow_grpo import known_images
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.contract import Prompt, Reward, Scoring, columns_of
from uni_train.rewards.registry import Trained, implementation_of, make_rewards
from uni_train.stages.gallery import case_of, log_images, rewarded, scored_image, write_sheet
from uni_train.stages.train_stage import adapters, run_logger, say_idle, skipped_rows
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
from uni_train.training.flow_grpo.rollout import PromptList, Prompts, Sampling, requests_of
from uni_train.training.trained import select_parameters

if TYPE_CHECKING:
    from uni_train.training.flow_grpo.rollout import ScoredImages

GALLERY = "gallery"
SHOWN_GROUPS, SHOWN_MEMBERS = 6, 12


def run(work: Work[FlowGrpoConfig], stage: StageRun, name: str) -> None:
    """Train by rewards; held-out success before and after is in the result. name: part of every seed."""
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.flow_grpo.trainer import fit_flow_grpo
    from uni_train.training.supervised import FitOptions

    config = work.config
    prompt_source = work.ranks.on_all(lambda: prompts(work))
    learner = work.trainable_model(work.weights, config.sft.timestep_shift if config.sft is not None else 1.0)
    model = expect_skill(learner, FlowPolicy)
    sampling = model.sampling
    solved = work.ranks.on_all(lambda: solved_rows(config, model.example_tokens))
    if solved is not None:
        work.ranks.from_main(solved.check)
    logger = run_logger(work, stage.path.name)

    def measure(step: int) -> Mapping[str, float]:
        assert held_out is not None
        guided, model.sampling = model.sampling, sampling
        scores = held_out.evaluate(model, step, stage.path, logger, work.ranks)
        model.sampling = guided
        return scores

    def show(epoch: int, images: ScoredImages) -> None:
        if epoch % config.held_out.every and epoch != config.epochs - 1:
            return
        step, folder = epoch * config.updates_per_epoch, stage.path / GALLERY / f"epoch-{epoch:05d}"
        own_groups = shown_groups(images, config.rollout.group_size, step)
        groups = [group for part in work.ranks.gather(own_groups) for group in part][:SHOWN_GROUPS]
        if not work.ranks.is_main:
            return
        scored = [answer for group in groups for answer in group]
        write_scored(shard_path(folder, 0), scored)
        write_sheet(groups, folder.with_suffix(".png"))
        log_images(logger, "gallery", scored, step)

    with adapters(work, model, name, stage.path), model.guided_at(config.rollout.guidance):
        logs = stage.path / "rewards" / f"rank{work.ranks.rank}"
        # Which may keep the weights beside adapters.
        rewarded = work.ranks.on_all(lambda: rewards(config, model, work.device, logs))
        known = known_images.measure(work, stage, rewarded)
        held_out = work.ranks.on_all(lambda: held_out_prompts(work, rewarded))
        sampled = Sampling(prompt_source, rewarded, config.model.draw_batch, config.model.think_batch, show)
        options = FitOptions(stage=name, trained=config.trained, logger=logger, description="  updates")
        result = fit_flow_grpo(
            model, sampled, config, stage.path, options,
            evaluate=measure if held_out is not None else None, evaluate_every=config.held_out.every, sft_rows=solved,
        )  # fmt: skip
    say_idle(work, result)
    work.save_trained(model, stage)
    skipped = {} if solved is None else skipped_rows(work, [solved])
    facts = result.facts()
    del facts["final_loss"]  # which says little of a policy
    stage.result = {**facts, **({"known_images": known} if known else {}), **_report(work, stage), **skipped}


def _report(work: Work[FlowGrpoConfig], stage: StageRun) -> dict[str, Any]:
    """Print and return the results: seconds by part, first and last reward, held-out scores."""
    from uni_train.training.flow_grpo.trainer import ROLLOUTS
    from uni_train.training.metric_log import read_metrics

    epochs = read_metrics(stage.path / ROLLOUTS)
    seconds = {part: sum(line["seconds"].get(part, 0.0) for line in epochs) for part in ("rollout", "reward", "update")}
    rewarded = {"first": epochs[0]["reward"], "last": epochs[-1]["reward"]}
    scores, held_out = intervals(stage.path), work.config.held_out
    parts = ", ".join(f"{part} {value:.0f} s" for part, value in seconds.items())
    work.progress.say(f"  reward {rewarded['first']:z.3f} -> {rewarded['last']:z.3f}; {parts}")
    if scores:
        title = f"Success on {held_out.split} prompts" if held_out.path is None else f"Rewards of {held_out.path}"
        work.progress.table(title, *table(scores))
    work.progress.say(f"  model: {stage.path / MODEL}")
    return {"split": seconds, "reward": rewarded, "held_out": scores}


def rewards(config: FlowGrpoConfig, model: UnifiedModel, device: str = "cpu", logs: Path | None = None) -> list[Reward]:
    """The recipe's rewards. To be called with the weights that the run starts from in `model`.

    Raises:
        UsageError: an unknown reward. UserError: its module cannot be imported, or a judge does not answer.
    """
    from uni_train.training.second_weights import Reference

    def keep() -> Callable[[], AbstractContextManager[None]]:
        # What draws takes no part in an answer, so there is nothing to be kept where it alone is trained.
        if config.trained == "moe_gen":
            return nullcontext
        return Reference(model, set(select_parameters(model, config.trained))).active

    trained = Trained(model, keep, config.model.think_batch, device=device, folder=logs)
    return make_rewards(config.used_rewards, trained)


def check(config: FlowGrpoConfig) -> None:
    """What can be refused before anything runs.

    Raises:
        UsageError: an unknown reward. UserError: a size that the model cannot draw; a reward that cannot be imported or
            called; no rows for `sft`, or a first one without an image; prompts that cannot be read.
    """
    own = {}
    for name, reward in config.used_rewards.items():
        implementation = implementation_of(reward)
        # Other classes are made with the model that is trained.
        ours = isinstance(implementation, type) or implementation.__module__.startswith("uni_train.")
        if getattr(implementation, "tried", not ours):
            own[name] = reward
    if side := config.rollout.size:
        _drawer(config).check_size(side, side, f"rollout.size={side}")
    if own:
        try_rewards(config, own)
    solved = solved_rows(config)
    if solved is not None:
        solved.draw(0, random.Random(0))


def _drawer(config: FlowGrpoConfig) -> FlowPolicy:
    """The model without weights."""
    return expect_skill(family_of(config.model.family).skeleton(on_disk(config.model), config.seed)[0], FlowPolicy)


def try_rewards(config: FlowGrpoConfig, some: Mapping[str, RewardConfig]) -> None:
    """Ask rewards that need no trained model about two blank images. Raises as they do."""
    prompt, drawer = first_prompt(config), _drawer(config)
    size = drawer.picture_size(requests_of([prompt], config, "grpo", 0, range(1))[0])
    columns = columns_of([prompt], 2, 0) | ({} if config.thoughts is None else {"thought": ["", ""]})
    with Scoring(make_rewards(some, Trained(drawer, lambda: nullcontext, 1)), 2) as scoring:
        scoring.add([prompt.text] * 2, [np.zeros((*size, 3), np.uint8)] * 2, columns)
        scoring.scores()


def expect_items(work: Work[FlowGrpoConfig]) -> None:
    """Raises UserError: the task lacks a level or has too few items, or a bad file. DataError: the task fails."""
    config = work.config
    if config.prompts.task is not None:
        task, levels = work.task(config.prompts.task), config.held_out.levels or config.prompts.levels
        check_levels(task, config.prompts.levels, "prompts.levels")
        check_levels(task, levels, "held_out.levels")
        for split, some in (("train", config.prompts.levels), (config.held_out.split, levels)):
            for level in some:
                task.validate(level, split)
        prompts(work)
    held_out_prompts(work)


def solved_rows(config: FlowGrpoConfig, tokens: Callable[[Example], int] | None = None) -> Rows | None:
    """The rows of `sft`; one whose `tokens` the model cannot count is bad. Raises UserError: a missing file."""
    if config.sft is None:
        return None
    return items.images_of(
        open_rows(config.sft.path), config.sft.noise_draws, bad=config.data.bad_rows, tokens=tokens,
        symmetries=config.sft.augment is not None,
    )  # fmt: skip


# --- prompts ----------------------------------------------------------------------------------------------------------


def task_prompts(task: Task, levels: Sequence[int], seed: int, epoch: int, count: int) -> list[Prompt]:
    """New draws of a task in every epoch; prompt i of an epoch has the level whose turn it is."""
    prompts = []
    for i in range(count):
        at = derive_seed("grpo prompts", seed, epoch, i)
        items = task.sample(at, levels[(epoch * count + i) % len(levels)], "train")
        prompts.append(prompt_of(items[at % len(items)]))
    return prompts


def first_prompt(config: FlowGrpoConfig) -> Prompt:
    """The first row of the file of prompts, or the first draw of the task. Raises UserError: it cannot be read."""
    section = config.prompts
    if section.path is not None:
        return read_prompts(section.path, section.images, most=1)[0]
    return task_prompts(run_task(config, section.task or "maze"), section.levels, config.seed, 0, 1)[0]


def prompts(work: Work[FlowGrpoConfig]) -> Prompts:
    """The recipe's prompts. Raises UserError: their file is missing or has a bad row, or the task has too few items."""
    seed, section = work.config.seed, work.config.prompts
    if section.path is not None:
        return PromptList(read_prompts(section.path, section.images), seed)
    task = work.task(section.task or "maze")
    check_levels(task, section.levels, "prompts.levels")
    if section.n is None:
        return partial(task_prompts, task, section.levels, seed)
    share = -(-section.n // len(section.levels))
    items = [item for level in section.levels for item in generate(task, share, level, "train", seed)]
    return PromptList([prompt_of(item) for item in items[: section.n]], seed)


def held_out_prompts(work: Work[FlowGrpoConfig], rewarded: Sequence[Reward] = ()) -> ValidationPrompts | None:
    """Prompts of a file, or of the task, that are never trained on. Raises UserError: a bad file, too few prompts."""
    config, section = work.config, work.config.held_out
    think, seed, batch = config.thoughts is not None, config.evaluation.seed, config.model.draw_batch
    if not section.n or (section.path is None and config.prompts.task is None):
        return None
    if section.path is None:
        task, levels = work.task(config.prompts.task or ""), section.levels or config.prompts.levels
        return validation_prompts(task, levels, section.n, section.split, seed, batch, think)
    rows = read_prompts(section.path, most=section.n, held_out=True)
    if len(rows) < LEAST:
        raise UserError(f"{section.path}: {len(rows)} prompts", MORE)
    return ValidationPrompts({section.path: rows}, seed, batch, think, rewarded)


def shown_groups(drawn: ScoredImages, group_size: int, step: int) -> list[list[Scored]]:
    """The first groups of an epoch and their first images: chosen by their place, not by how they turned out."""
    groups: list[list[Scored]] = []
    for g, prompt in enumerate(drawn.prompts[:SHOWN_GROUPS]):
        case, group = case_of(prompt), list[Scored]()
        for k in range(min(group_size, SHOWN_MEMBERS)):
            i = g * group_size + k
            ask = Ask(case if k == 0 else replace(case, images=()), "rollout", k, 0)  # its images are stored once
            group.append(rewarded(scored_image(step, prompt, ask, drawn.images[i]), drawn.scores, i))
        groups.append(group)
    return groups
