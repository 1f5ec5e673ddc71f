"""The stages of preferences: sample and filter as STARS does, then learn from pairs of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, Updates, evaluation, recipe_kind
from uni_train.config.messages import Where
from uni_train.recipes.dpo.config import DpoConfig, check
from uni_train.recipes.stars.kind import Stars, filtered
from uni_train.recipes.stars.rounds import said_updates
from uni_train.stages.kind import Stages

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


@recipe_kind("dpo")
class Dpo(Stars):
    """Preferences. Configurations are DpoConfig."""

    config = DpoConfig  # type: ignore[assignment]
    training = "dpo"
    reference = True

    def check(self, config: Any, where: Where) -> None:
        check(config, where)

    def evaluates(self, config: Any) -> bool:
        return bool(config.evaluate)

    def stages(self, config: Any) -> Iterator[PlannedStage]:
        if config.pairs is None:
            yield from super().stages(config)
            return
        learned = PlannedStage("dpo", "dpo-pairs", f"{config.updates} updates on the pairs of {config.pairs}")
        around = [evaluation(config, label) for label in ("before", "after") if config.evaluate]
        yield from (*around[:1], learned, *around[1:])

    def learned(self, config: Any, rounds: Sequence[int]) -> str:
        return f"{said_updates(config, rounds)} on pairs of an accepted and a refused image"

    def run(self, work: Work[Any], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        if planned.kind != self.training:
            super().run(work, planned, stage, before)
            return
        from uni_train.recipes.dpo import training

        of = filtered(work.config, planned.rounds, before) if planned.rounds else {}
        training.run(work, stage, planned.rounds, of)

    def rounds(self, work: Work[Any], runs: Stages) -> list[Round]:
        return super().rounds(work, runs) if work.config.rounds else []

    def updates(self, config: Any) -> Updates:
        found = super().updates(config)
        return found if config.pairs is None else Updates(config.updates, found.accumulate, rows=found.rows)

    def first_update(self, config: Any, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.dpo.training import first_update

        return first_update(config, model, most)

    def remarks(self, config: Any, model: Trainable) -> list[str]:
        copied = [] if config.trained == "lora" else ["the reference is a second copy of the trained weights in memory"]
        return [*copied, *super().remarks(config, model)]
