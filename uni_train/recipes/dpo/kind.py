"""The stages of direct preference optimisation: sample and filter as STARS does, then learn from pairs of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, Updates, evaluation, recipe_kind
from uni_train.config.messages import Where
from uni_train.recipes.dpo.config import PAIRS, DpoConfig, check
from uni_train.recipes.stars.kind import Stars, filtered
from uni_train.recipes.stars.rounds import said_updates
from uni_train.stages.kind import Stages

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


@recipe_kind("dpo")
class Dpo(Stars):
    """Direct preference optimisation. Configurations are DpoConfig."""

    config = DpoConfig  # type: ignore[assignment]
    training = "dpo"
    less_memory = "Lower batch.prompts or batch.noise_draws (a pair has two images), or raise batch.accumulate."

    def check(self, config: Any, where: Where) -> None:
        check(config, where)

    def evaluates(self, config: Any) -> bool:
        return bool(config.evaluate)

    def asks_judge(self, config: Any) -> bool:
        return config.pairs is None and super().asks_judge(config)

    def stages(self, config: Any) -> Iterator[PlannedStage]:
        if config.pairs is None:
            yield from super().stages(config)
            return
        length = f"{config.updates} updates" if config.updates is not None else f"{config.epochs:g} epochs"
        if config.evaluate:
            yield evaluation(config, "before")
        yield PlannedStage("dpo", f"dpo-{PAIRS}", f"{length} on the pairs of {config.pairs}")
        if config.evaluate:
            yield evaluation(config, "after")

    def learned(self, config: Any, rounds: Sequence[int]) -> str:
        return f"{said_updates(config, rounds)} on pairs of an accepted and a refused image"

    def run(self, work: Work[Any], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.dpo import training

        if planned.kind != self.training:
            super().run(work, planned, stage, before)
        elif work.config.pairs is not None:
            training.run_file(work, stage)
        else:
            training.run(work, stage, planned.rounds, filtered(work.config, planned.rounds, before))

    def rounds(self, work: Work[Any], runs: Stages) -> list[Round]:
        return [] if work.config.pairs is not None else super().rounds(work, runs)

    def updates(self, config: Any) -> Updates:
        if config.pairs is None:
            return super().updates(config)
        from uni_train.recipes.dpo.training import updates_of_file

        return Updates(updates_of_file(config), config.batch.accumulate, rows=config.batch.prompts)

    def first_update(self, config: Any, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.dpo.training import first_update

        return first_update(config, model, most)

    def remarks(self, config: Any, model: Trainable) -> list[str]:
        copied = [] if config.trained == "lora" else ["the reference is a second copy of the trained weights in memory"]
        return [*copied, *super().remarks(config, model)]
