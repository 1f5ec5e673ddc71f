"""The stages that a recipe stands for, in order: what `fit --dry-run` shows and what names the stages' folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from data_gen.registry import TASKS
from uni_train.config.rounds import most_updates
from uni_train.config.schema import Config, FlowGrpoConfig, KnowledgeConfig, PretrainConfig, RoundConfig, SftConfig

StageKind = Literal["vae", "pretrain", "evaluate", "sample", "filter", "finetune", "sft", "grpo", "ask", "inject"]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage. Its folder is stages/<index>-<name>; `rounds` are the indices of the rounds that it serves."""

    index: int
    kind: StageKind
    name: str
    summary: str
    rounds: tuple[int, ...] = ()


def stage_list(config: Config) -> tuple[PlannedStage, ...]:
    """All stages of a run, from index 0 on."""
    stages: list[PlannedStage] = []

    def add(kind: StageKind, suffix: str, summary: str, rounds: tuple[int, ...] = ()) -> None:
        stages.append(PlannedStage(len(stages), kind, f"{kind}-{suffix}" if suffix else kind, summary, rounds))

    evaluated = f"{' and '.join(config.evaluation.modes)} accuracy on {', '.join(config.evaluation.sets)}"
    if isinstance(config, PretrainConfig):
        add("vae", "", f"{config.vae.updates} updates of the VAE")
        for name, part in config.parts.items():
            rows = sorted(((n, kind) for kind, n in part.mixture.rows.items()), reverse=True)
            add("pretrain", name, f"{part.updates} updates, most on {' and '.join(kind for _, kind in rows[:2])}")
        add("evaluate", "after", evaluated)
        return tuple(stages)

    if isinstance(config, SftConfig):
        if config.evaluate:
            add("evaluate", "before", evaluated)
        each = f"{config.batch.tokens} tokens" if config.batch.tokens is not None else f"{config.batch.rows} rows"
        trained = {"all": "all weights", "moe_gen": "the generation weights", "lora": "adapters"}[config.trained]
        add("sft", "", f"{config.updates} updates of {trained}, {each} each, from {', '.join(config.used_sources)}")
        if config.evaluate:
            add("evaluate", "after", evaluated)
        return tuple(stages)

    if isinstance(config, FlowGrpoConfig):
        if config.evaluate:
            add("evaluate", "before", evaluated)
        drawn = f"{config.rollout.prompts_per_epoch} prompts x {config.rollout.group_size} pictures"
        asked = config.prompts.path or config.prompts.task
        rewards = ", ".join(config.used_rewards)
        add("grpo", "", f"{config.variant}: {config.epochs} epochs of {drawn} on {asked}, rewarded by {rewards}")
        if config.evaluate:
            add("evaluate", "after", evaluated)
        return tuple(stages)

    if isinstance(config, KnowledgeConfig):
        modes = " and ".join(config.modes)
        add("ask", "before", f"{config.draws} pictures of each question, {modes}, from the model as it is")
        for direction, models, whom in (
            ("forward", config.characters.n, "a character"),
            ("inverse", config.characters.n // 2, "a pair"),
        ):
            taught = f"at most {config.epochs} epochs on the lessons about {whom}, then {modes} pictures"
            for number in range(1, models + 1) if direction in config.directions else ():
                add("inject", f"{direction}{number}", taught)
        return tuple(stages)

    def sample_and_filter(i: int, one: RoundConfig) -> None:
        images = f", {config.candidates} images each" if config.candidates > 1 else ""
        whole = ", whole pairs alone" if config.whole_pairs and TASKS.get(one.task).items_per_draw == 2 else ""
        keep = f"keep what {_FILTERS[config.filter]}{whole}"
        if one.kept is not None:
            asked = f"at most {one.prompts} prompts{images}: think, draw, {keep}, until {one.kept} samples are kept"
            add("sample", one.set_name, asked, (i,))
            return
        add("sample", one.set_name, f"{one.prompts} prompts{images}: think, then draw", (i,))
        add("filter", one.set_name, keep, (i,))

    def length(rounds: tuple[int, ...]) -> str:
        known = all(config.rounds[i].updates is not None for i in rounds)
        epochs = {config.rounds[i].epochs for i in rounds}
        said = f" ({epochs.pop():g} epochs)" if len(epochs) == 1 and not known else ""
        return f"{'' if known else 'at most '}{sum(most_updates(config, rounds))} updates{said} on prompt -> image"

    add("evaluate", "before", evaluated)
    if config.schedule.kind == "sequential":
        for i, one in enumerate(config.rounds):
            sample_and_filter(i, one)
            replay = ", ".join(f"{part:g} {name}" for name, part in one.replay.items() if part)
            summary = f"{length((i,))}{f', replay {replay}' if replay else ''}"
            add("finetune", one.set_name, summary, (i,))
            if config.evaluation.every_round and i + 1 < len(config.rounds):
                add("evaluate", f"round{i + 1}", evaluated, (i,))
    else:
        for i, one in enumerate(config.rounds):
            sample_and_filter(i, one)
        everything = tuple(range(len(config.rounds)))
        sets = ", ".join(one.set_name for one in config.rounds)
        summary = f"{length(everything)}, {config.schedule.kind} schedule over {sets}"
        add("finetune", config.schedule.kind, summary, everything)
    add("evaluate", "after", evaluated)
    return tuple(stages)


_FILTERS = {
    "self": "the model's own understanding accepts",
    "judge": "the judge accepts",
    "verifier": "the exact verifier accepts",
    "none": "there is: everything",
}
