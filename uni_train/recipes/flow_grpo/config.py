"""The keys of Flow-GRPO and its relatives, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from uni_train.config.kinds import check_fits
from uni_train.config.messages import Rule, Where, check_draws, check_known, check_rules, check_thinks
from uni_train.config.schema import Count, TaskLevel
from uni_train.config.training import ExtendableConfig
from uni_train.data_gen.registry import TASKS
from uni_train.rewards.config import RewardConfig
from uni_train.training.flow_grpo.config import GrpoConfig, ThoughtsConfig


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
class FlowGrpoConfig(GrpoConfig, ExtendableConfig):
    """Reinforcement of a flow by rewards on its images."""

    length: ClassVar[str] = "epochs"
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
    task = config.prompts.task
    check_known(task, TASKS.names(), "task", "prompts.task", where)
    if task is not None:
        check_draws(config.model, [task], where)
        check_fits(config, task, config.prompts.levels, "prompts.levels", where)
        if config.held_out.n and config.held_out.path is None:
            check_fits(config, task, config.held_out.levels or (), "held_out.levels", where)
    if config.thoughts is not None:
        check_thinks(config.model, "thoughts", "model", where)
    check_rules((*_source_rules(config), *_training_rules(config)), where)


def _source_rules(config: FlowGrpoConfig) -> list[Rule]:
    """Of prompts and rewards."""
    task, used = config.prompts.task, config.used_rewards
    unread = "no program can read images of the everyday world"
    blind = task is not None and config.data.world != "nano" and not TASKS.get(task).readable
    rules: list[Rule] = [
        ("prompts", (task is None) == (config.prompts.path is None), "prompts needs one of task and path",
         "prompts.task=maze, or prompts.path=items.jsonl."),
        ("prompts.levels", not config.prompts.levels, "prompts.levels is empty", None),
        ("held_out.levels", config.held_out.levels == (), "held_out.levels is empty", None),
        ("held_out.n", blind and bool(config.held_out.n) and config.held_out.path is None, f"held_out.n: {unread}",
         "held_out.n=0."),
        ("rewards", not used, "rewards is empty: there is nothing to learn", "rewards.v={function:verifier}."),
    ]  # fmt: skip
    for key, reward in ((f"rewards.{name}", reward) for name, reward in used.items()):
        judge = reward.judge
        rules += [
            (key, blind and reward.function.startswith("verifier"), f"{key}: {unread}",
             f"{key}.function=self_check, or a judge."),
            (f"{key}.weight", reward.weight == 0, f"{key}.weight is 0", f"{key}=null."),
            (f"{key}.judge", (reward.function == "judge") != (judge is not None),
             f"{key}: function=judge and a judge's address belong together",
             f"{key}={{function:judge,judge:{{model:'http://HOST:PORT/v1#MODEL'}}}}."),
            (f"{key}.judge", judge is not None and (judge.model is None or judge.dialect != "paper"),
             f"{key}.judge is asked in the recipe's words at an address",
             "Serve a checkpoint with `uni_train serve`, and give its address."),
            (f"{key}.python", (reward.python is not None and ":" not in reward.function) or reward.function == "python",
             f"{key}.python runs a function of yours, and function={reward.function} is none",
             f"{key}.function=FILE.py:FUNCTION, or MODULE:FUNCTION."),
            (f"{key}.address", (reward.function == "server") != (reward.address is not None),
             f"{key}: function=server and an address belong together",
             f"{key}={{function:server,address:'http://HOST:PORT/PATH'}}."),
            (f"{key}.model", reward.model is not None and reward.function not in ("pickscore", "clip_score"),
             f"{key}.model is of function=pickscore and function=clip_score", f"{key}.model=null."),
        ]  # fmt: skip
    return rules


def _training_rules(config: FlowGrpoConfig) -> list[Rule]:
    """Of thoughts, advantages, updates and random steps."""
    rollout, objective, images, updates = config.rollout, config.objective, config.images, config.updates_per_epoch
    passes, variant, level = config.passes, config.variant, rollout.noise_level
    frozen = config.lora.only_generation(config.trained)
    why = f"trained={config.trained} leaves what thinks as it is" if frozen else f"{variant} has none"
    near = [n * passes for n in range(1, min(images, 2 * updates) + 1) if images % n == 0]
    (first, last), forward = config.bounds, config.algorithm.forward
    steps, thoughts = objective.image_weight > 0, config.thoughts or ThoughtsConfig(weight=0)
    limit = rollout.steps - (not config.algorithm.noisy_end)
    return [
        ("thoughts", (bool(thoughts.weight) and frozen) or (config.thoughts is not None and forward),
         f"thoughts cannot be learned: {why}", "thoughts=null, or trained=all."),
        ("objective.image_weight", not steps and not thoughts.weight, "objective.image_weight is 0 and no thought is "
         "learned: there is nothing to learn", "objective.image_weight=1."),
        ("objective.kl", not steps and objective.kl > 0, "objective.kl is a penalty of the images' steps, which "
         "objective.image_weight=0 leaves out", "thoughts.kl, or objective.kl=0."),
        ("thoughts.loss", steps and thoughts.loss == "cross_entropy", "thoughts.loss=cross_entropy learns from good "
         "images only, so their steps cannot be learned beside it", "objective.image_weight=0."),
        ("thoughts.result_weight", not thoughts.weight and thoughts.result_weight != 1,
         "thoughts.result_weight weighs tokens that thoughts.weight=0 does not learn", "thoughts.result_weight=1."),
        ("objective.scale_rewards", objective.baseline == "batch" and objective.scale_rewards in ("group", "each"),
         f"objective.baseline=batch with scale_rewards={objective.scale_rewards}: groups of equal rewards have no "
         "deviation", "objective.scale_rewards=batch, or none."),
        ("updates_per_epoch", bool(updates % passes or images % config.updates_per_pass),
         f"rollout.prompts_per_epoch {rollout.prompts_per_epoch} x rollout.group_size {rollout.group_size}: {images} "
         f"images cannot be divided into {updates} equal updates{f' in {passes} passes' if passes > 1 else ''}",
         f"The nearest number is updates_per_epoch={min(near, key=lambda n: abs(n - updates))}."),
        ("rollout.shared_noise", forward and rollout.shared_noise,
         f"rollout.shared_noise: {variant} has no random step, so a group would be one image", None),
        ("rollout", not forward and (not first < last <= limit or (rollout.window or 1) > last - first),
         f"rollout.window {rollout.window} does not fit between step {first} and step {last} of {rollout.steps}",
         "Raise rollout.steps, or lower rollout.window. The last step of cps has no noise."),
        ("rollout.noise_level", not forward and level == 0, "rollout.noise_level 0 leaves no step random", None),
        ("rollout.noise_level", level is not None and level > config.algorithm.most_noise,
         f"rollout.noise_level of {variant} must be between 0 and {config.algorithm.most_noise:g}", None),
        ("objective.clip_low", not forward and objective.clip_low >= 1, "objective.clip_low must be below 1", None),
    ]  # fmt: skip
