"""The keys of Flow-GRPO and its relatives, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from uni_train.config.messages import Where, check_draws, check_known, check_thinks, wrong
from uni_train.config.schema import (
    Count,
    GrpoConfig,
    RewardConfig,
    RunConfig,
    TaskLevel,
)
from uni_train.data_gen.registry import TASKS


@dataclass(frozen=True, kw_only=True)
class PromptsConfig:
    """What is asked. A task draws prompts of its train split; a file has rows as `data make` writes them."""

    task: str | None = None
    levels: tuple[TaskLevel, ...] = (1,)  # in turns
    n: Count | None = None  # draws of the task, asked again and again; null = new ones every epoch
    path: str | None = None  # a .jsonl or .parquet file, in place of a task's draws
    images: str | None = None  # the folder that its image paths start from; null = that of the file


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Success on prompts of the task that are not trained on, by the verifier, drawn as the model always draws. Of a
    file's prompts: the rewards."""

    path: str | None = None  # a .txt, .jsonl or .parquet file of prompts, without levels; null = draws of prompts.task
    n: Annotated[int, Interval(ge=0, le=100_000)] = 64  # prompts a level, or of the file; 0 = no validation
    levels: tuple[TaskLevel, ...] | None = None  # null = prompts.levels
    every: Count = 10  # epochs
    split: Literal["validation", "test"] = "validation"


@dataclass(frozen=True, kw_only=True)
class FlowGrpoConfig(GrpoConfig, RunConfig):
    """Reinforcement of a flow by rewards on its images."""

    kind: Literal["flow_grpo"] = "flow_grpo"
    prompts: PromptsConfig
    rewards: dict[str, RewardConfig | None]  # by a name of yours; null leaves one of a base recipe out
    held_out: HeldOutConfig = HeldOutConfig()
    trained: Literal["all", "moe_gen", "lora"] = "all"
    evaluate: bool = False  # Normal and CoT accuracy before and after

    @property
    def used_rewards(self) -> dict[str, RewardConfig]:
        """The rewards that are not null."""
        return {name: reward for name, reward in self.rewards.items() if reward is not None}


def check(config: FlowGrpoConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    check_known(config.prompts.task, TASKS.names(), "task", "prompts.task", where)
    if (config.prompts.task is None) == (config.prompts.path is None):
        raise wrong(
            "prompts needs one of task and path", "prompts", where, "prompts.task=maze, or prompts.path=items.jsonl."
        )
    if config.prompts.task is not None:
        check_draws(config.model, [config.prompts.task], where)
        _check_world(config, config.prompts.task, where)
    _check_rewards(config, where)
    for key, levels in (("prompts.levels", config.prompts.levels), ("held_out.levels", config.held_out.levels)):
        if levels is not None and not levels:
            raise wrong(f"{key} is empty", key, where)
    _check_thoughts(config, where)
    _check_baseline(config, where)
    rollout, images, passes = config.rollout, config.images, config.passes
    if config.updates_per_epoch % passes or images % config.updates_per_pass:
        limit = min(images, 2 * config.updates_per_epoch)
        near = min(
            (n * passes for n in range(1, limit + 1) if images % n == 0),
            key=lambda n: abs(n - config.updates_per_epoch),
        )
        raise wrong(
            f"rollout.prompts_per_epoch {rollout.prompts_per_epoch} x rollout.group_size {rollout.group_size}: "
            f"{images} images cannot be divided into {config.updates_per_epoch} equal updates"
            f"{f' in {passes} passes' if passes > 1 else ''}",
            "updates_per_epoch",
            where,
            f"The nearest number is updates_per_epoch={near}.",
        )
    if config.forward:
        if rollout.shared_noise:
            raise wrong(
                f"rollout.shared_noise: {config.variant} has no random step, so a group would be one image",
                "rollout.shared_noise",
                where,
            )
        return
    first, last = config.bounds
    limit = rollout.steps - 1 if config.variant == "cps" else rollout.steps
    if not first < last <= limit or (rollout.window or 1) > last - first:
        raise wrong(
            f"rollout.window {rollout.window} does not fit between step {first} and step {last} of {rollout.steps}",
            "rollout",
            where,
            "Raise rollout.steps, or lower rollout.window. The last step of cps has no noise.",
        )
    if rollout.noise_level == 0:
        raise wrong("rollout.noise_level 0 leaves no step random", "rollout.noise_level", where)
    if config.variant == "cps" and rollout.noise_level is not None and rollout.noise_level > 1:
        raise wrong("rollout.noise_level of cps must be between 0 and 1", "rollout.noise_level", where)
    if config.objective.clip_low >= 1:
        raise wrong("objective.clip_low must be below 1", "objective.clip_low", where)


def _check_baseline(config: FlowGrpoConfig, where: Where) -> None:
    if config.objective.baseline == "group":
        return
    scale = config.objective.scale_rewards
    if scale in ("group", "each"):
        raise wrong(
            f"objective.baseline=batch with scale_rewards={scale}: groups of equal rewards have no deviation",
            "objective.scale_rewards",
            where,
            "objective.scale_rewards=batch, or none.",
        )


def _check_world(config: FlowGrpoConfig, task: str, where: Where) -> None:
    if config.data.world == "nano" or TASKS.get(task).readable:
        return
    asked = {f"rewards.{name}": one.function.startswith("verifier") for name, one in config.used_rewards.items()}
    asked["held_out.n"] = bool(config.held_out.n) and config.held_out.path is None
    for key in (key for key, program in asked.items() if program):
        other = "held_out.n=0." if key == "held_out.n" else f"{key}.function=self_check, or a judge."
        raise wrong(f"{key}: no program can read images of the everyday world", key, where, other)


def _check_rewards(config: FlowGrpoConfig, where: Where) -> None:
    if not config.used_rewards:
        raise wrong("rewards is empty: there is nothing to learn", "rewards", where, "rewards.v={function:verifier}.")
    for name, reward in config.used_rewards.items():
        if reward.weight == 0:
            raise wrong(f"rewards.{name}.weight is 0", f"rewards.{name}.weight", where, f"rewards.{name}=null.")
        if (reward.function == "judge") != (reward.judge is not None):
            raise wrong(
                f"rewards.{name}: function=judge and a judge's address belong together",
                f"rewards.{name}.judge",
                where,
                f"rewards.{name}={{function:judge,judge:{{model:'http://HOST:PORT/v1#MODEL'}}}}.",
            )
        if reward.judge is not None and (reward.judge.model is None or reward.judge.dialect != "paper"):
            raise wrong(
                f"rewards.{name}.judge is asked in the recipe's words at an address",
                f"rewards.{name}.judge",
                where,
                "Serve a checkpoint with `uni_train serve`, and give its address.",
            )


def _check_thoughts(config: FlowGrpoConfig, where: Where) -> None:
    if config.thoughts is None:
        return
    check_thinks(config.model, "thoughts", "model", where)
    frozen = config.lora.only_generation(config.trained)
    if frozen or config.forward:
        why = f"trained={config.trained} leaves what thinks as it is" if frozen else f"{config.variant} has none"
        raise wrong(f"thoughts cannot be learned: {why}", "thoughts", where, "thoughts=null, or trained=all.")
