"""The stages of Flow-GRPO: one training by rewards, between two evaluations where the recipe asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from uni_train.config.kinds import PlannedStage, Rollouts, Updates, recipe_kind
from uni_train.config.messages import Where
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig, check
from uni_train.stages.extension import span, spans
from uni_train.stages.kind import RecipeKind, Stages

if TYPE_CHECKING:
    from uni_train.models.base import Request
    from uni_train.stages.work import StageRun, Work


@recipe_kind("flow_grpo")
class FlowGrpo(RecipeKind[FlowGrpoConfig]):
    """Reinforcement of a flow."""

    config = FlowGrpoConfig
    less_memory = "Lower rows, model.draw_batch, rollout.prompts_per_epoch or rollout.group_size."
    report = "uni_train.eval.report.flow_grpo"
    trains_editors = True

    def check(self, config: FlowGrpoConfig, where: Where) -> None:
        check(config, where)

    def check_ranks(self, config: FlowGrpoConfig, ranks: int) -> None:
        config.check_ranks(ranks)

    def evaluates(self, config: FlowGrpoConfig) -> bool:
        return config.evaluate

    def servers(self, config: FlowGrpoConfig) -> Mapping[str, Callable[[], object]]:
        from uni_train.rewards.registry import find_reward

        asked: dict[str, Callable[[], object]] = {}
        for name, reward in config.used_rewards.items():
            if reward.judge is not None:
                asked[f"rewards.{name}: {reward.judge.address}"] = partial(find_reward(reward.function), reward)
            if reward.address is not None:
                asked[f"rewards.{name}: {reward.address}"] = partial(_try_reward, config, name)
        return asked

    def trained(self, config: FlowGrpoConfig) -> tuple[str, tuple[str, ...]]:
        return config.trained, ()

    def stages(self, config: FlowGrpoConfig) -> Iterator[PlannedStage]:
        drawn = f"{config.rollout.prompts_per_epoch} prompts x {config.rollout.group_size} images"
        source = config.prompts.path or config.prompts.task
        rewards = ", ".join(config.used_rewards)
        each = f"epochs of {drawn} on {source}, rewarded by {rewards}"
        yield from spans(config, "grpo", lambda epochs: f"{config.variant}: {epochs} {each}", config.updates_per_epoch)

    def expect_items(self, work: Work[FlowGrpoConfig]) -> None:
        from uni_train.recipes.flow_grpo import training

        training.expect_items(work)

    def prepare(self, work: Work[FlowGrpoConfig]) -> None:
        from uni_train.recipes.flow_grpo import training

        training.check(work.config)

    def run(self, work: Work[FlowGrpoConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.flow_grpo import training

        with span(work, planned, stage, before) as name:
            training.run(work, stage, name)

    def updates(self, config: FlowGrpoConfig) -> Updates:
        return Updates(config.updates)

    def rollouts(self, config: FlowGrpoConfig) -> Rollouts:
        from uni_train.training.flow_grpo.planned import PlannedLosses

        notes = []
        if config.thoughts is not None:
            notes.append("a thought is planned as one more random step; the memory of its own logits is not in it")
        if config.sft is not None:
            notes.append("the rows of sft are planned as one more micro-batch of random steps")
        return Rollouts(
            prompt=partial(_first_request, config),
            images=config.images,
            steps=config.rollout.steps,
            guidance=config.rollout.guidance,
            updates=config.updates,
            updates_per_epoch=config.updates_per_epoch,
            rows=config.rows_of,
            micro_batches=config.micro_batches,
            other_micro_batches=int(config.sft is not None),
            losses=partial(PlannedLosses, config),
            described=partial(_epoch, config),
            notes=tuple(notes),
            unsharded=config.unsharded(config.trained),
        )


def _try_reward(config: FlowGrpoConfig, name: str) -> None:
    from uni_train.recipes.flow_grpo.training import try_rewards

    try_rewards(config, {name: config.used_rewards[name]})


def _first_request(config: FlowGrpoConfig) -> Request:
    from uni_train.recipes.flow_grpo.training import first_prompt
    from uni_train.training.flow_grpo.rollout import requests_of

    return requests_of([first_prompt(config)], config, "grpo", 0, range(1))[0]


def _epoch(config: FlowGrpoConfig, ranks: int) -> list[str]:
    """What an epoch of reinforcement draws and trains on."""
    rollout, pictures = config.rollout, config.images
    kind = "noise levels" if config.algorithm.forward else "random steps"
    each = f" on each of {ranks} ranks" if ranks > 1 else ""
    more = "" if config.sft is None else f" and {config.sft.rows} rows of sft"
    return [
        f"one epoch: {rollout.prompts_per_epoch} prompts x {rollout.group_size} = {pictures} images of "
        f"{rollout.steps} steps, {config.window_size} {kind} each",
        f"  {config.updates_per_epoch} updates of {pictures * config.window_size // config.updates_per_epoch} rows in "
        f"{config.micro_batches(ranks)} micro-batches{each}{more}; {config.updates} updates in all",
    ]
