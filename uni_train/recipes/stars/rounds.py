"""Recipes that train in rounds (STARS, think-distillation): their stages, and the number of updates of each round."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from uni_train.config.kinds import PlannedStage, Updates, evaluation
from uni_train.data_gen.registry import set_name
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig
from uni_train.stages.kind import RecipeKind

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import Trainable
    from uni_train.recipes.stars.filtering import Outcome
    from uni_train.stages.work import StageRun, Work

R = TypeVar("R", bound=RoundsConfig)
OWN_MODELS = ("base", "current", "reference", "start", "ema")  # a `teacher` of another name is a checkpoint


class RoundsKind(RecipeKind[R]):
    """A kind whose rounds sample and train: one after the other, or all sample before one training.

    Attributes:
        training: the kind of the stages that train.
    """

    training: ClassVar[str]
    texts = ("teacher",)
    less_memory = "Lower batch.prompts or batch.noise_draws, or raise batch.accumulate."

    @abstractmethod
    def sampling(self, config: R, i: int) -> Iterator[PlannedStage]:
        """The stages of round i before its training."""

    @abstractmethod
    def learned(self, config: R, rounds: Sequence[int]) -> str:
        """What a training does, for `fit --dry-run`: how many updates, on what."""

    def complete(self, values: dict[str, Any]) -> None:
        fill_rounds(values)
        if isinstance(teacher := values.get("teacher"), str) and teacher not in OWN_MODELS:
            values["teacher"] = {"checkpoint": teacher}

    def trained(self, config: R) -> tuple[str, tuple[str, ...]]:
        return config.trained, ()

    def stages(self, config: R) -> Iterator[PlannedStage]:
        yield evaluation(config, "before")
        if config.schedule.kind == "sequential":
            for i, round_ in enumerate(config.rounds):
                yield from self.sampling(config, i)
                replay = ", ".join(f"{part:g} {name}" for name, part in round_.replay.items() if part)
                summary = f"{self.learned(config, (i,))}{f', replay {replay}' if replay else ''}"
                yield PlannedStage(self.training, f"{self.training}-{round_.set_name}", summary, (i,))
                if config.evaluation.every_round and i + 1 < len(config.rounds):
                    yield evaluation(config, f"round{i + 1}", (i,))
        else:
            everything = tuple(range(len(config.rounds)))
            for i in everything:
                yield from self.sampling(config, i)
            sets = ", ".join(round_.set_name for round_ in config.rounds)
            summary = f"{self.learned(config, everything)}, {config.schedule.kind} schedule over {sets}"
            yield PlannedStage(self.training, f"{self.training}-{config.schedule.kind}", summary, everything)
        yield evaluation(config, "after")

    def expect_items(self, work: Work[R]) -> None:
        from uni_train.recipes.stars.sampling import round_items
        from uni_train.stages.evaluate import watched

        for round_ in work.config.rounds:
            work.task(round_.task).validate(round_.level)
            if Path(round_.prompts_file or ".").exists():  # else it is told with other missing files
                round_items(work.config, round_)
            if work.config.schedule.kind == "threshold":
                watched(work, round_.set_name)

    def prepare(self, work: Work[R]) -> None:
        if work.config.other_teachers:
            from uni_train.recipes.stars.teachers import expect

            expect(work.config)

    def rows(self, config: R) -> Mapping[str, int]:
        return {"batch.prompts": config.batch.prompts}

    def updates(self, config: R) -> Updates:
        total = sum(most_updates(config, range(len(config.rounds))))
        notes: tuple[str, ...] = ()
        if any(round_.updates is None for round_ in config.rounds):
            kept = sum(most_kept(config, round_) for round_ in config.rounds)
            notes = (f"{total} updates in all, if all rounds together keep {kept:,} samples, the most they may",)
        return Updates(total, config.batch.accumulate, rows=config.batch.prompts, notes=notes)

    def remarks(self, config: R, model: Trainable) -> list[str]:
        from uni_train.recipes.stars.teachers import in_memory

        lines = in_memory(config)
        if model.replay_rows(()) is None and "pretrain" in config.replays:
            lines.append(f"model={config.model.name} has no pretraining rows: set pretrain_replay=0")
        return lines


def round_entry(
    filter: str,
    served: Sequence[RoundConfig],
    outcomes: Sequence[Outcome],
    stages: Sequence[StageRun],
    calls: Mapping[str, int],
) -> Round:
    """What summary.json says of a training, the last of `stages`, and of the rounds that it serves."""
    from uni_train.eval.summary import Round
    from uni_train.recipes.stars.filtering import reliability

    return Round(
        task="+".join(dict.fromkeys(round_.task for round_ in served)),
        level=served[0].level if len(served) == 1 else "+".join(str(round_.level) for round_ in served),
        sampled=len(outcomes),
        kept=sum(outcome.kept for outcome in outcomes),
        updates=int(stages[-1].facts()["updates"]),
        seconds=sum(stage.manifest.seconds for stage in stages if stage.manifest is not None),
        reliability=reliability(outcomes),
        filter=filter,
        calls=dict(calls),
        distinct=len({outcome.cluster for outcome in outcomes}),
        anchors=next((stage.facts()["anchors"] for stage in stages if "anchors" in stage.facts()), {}),
        teachers=next((stage.facts()["teachers"] for stage in stages if "teachers" in stage.facts()), {}),
    )


def fill_rounds(plain: dict[str, Any]) -> None:
    """Fill in what a round leaves out from the `budget` of its set; a round with updates or epochs takes neither."""
    budget, rounds = plain.get("budget"), plain.get("rounds")
    if not isinstance(budget, dict) or not isinstance(rounds, list):
        return
    for i, round_ in enumerate(rounds):
        if not isinstance(round_, dict):
            continue
        try:
            defaults = budget.get(set_name(str(round_.get("task")), round_.get("level", 0)), {})
        except (ValueError, TypeError):
            defaults = {"prompts": 1, "updates": 1}  # an unknown task or level is an error that build() reports
        if isinstance(defaults, dict):
            length = () if {"updates", "epochs"} & round_.keys() else ("updates", "epochs")
            rounds[i] = {**{key: defaults[key] for key in ("prompts", "kept", *length) if key in defaults}, **round_}


def updates(config: RoundsConfig, round_: RoundConfig, kept: int) -> int:
    """Updates of a round that trains on `kept` samples of its own.

    An epoch is as many draws of the round's own samples as there are; replayed rows come on top of it.
    """
    if round_.updates is not None:
        return round_.updates
    assert round_.epochs is not None, "config.py has checked that a round has one of the two"
    return max(1, math.ceil(round(round_.epochs * kept / (config.batch.prompts * own_share(config, round_)), 6)))


def most_updates(config: RoundsConfig, rounds: Sequence[int]) -> list[int]:
    """The most updates of each of these rounds: the filter keeps every sample that it may."""
    return [updates(config, config.rounds[i], most_kept(config, config.rounds[i])) for i in rounds]


def said_updates(config: RoundsConfig, rounds: Sequence[int]) -> str:
    """The number of updates of the training that serves these rounds, for the plan of a run."""
    known = all(config.rounds[i].updates is not None for i in rounds)
    return f"{'' if known else 'at most '}{sum(most_updates(config, rounds))} updates"


def most_kept(config: RoundsConfig, round_: RoundConfig) -> int:
    """The samples that a round trains on at most."""
    return round_.kept if round_.kept is not None else round_.prompts * config.candidates


def own_share(config: RoundsConfig, round_: RoundConfig) -> float:
    """The share of the round's own samples among an update's rows; with `schedule.kind=mixed`, of all rounds."""
    if config.schedule.kind == "mixed":
        return 1 - max(each.replay.get("pretrain", 0.0) for each in config.rounds)
    return 1 - sum(round_.replay.values())
