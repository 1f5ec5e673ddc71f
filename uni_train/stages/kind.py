"""A kind of recipe: beside its keys, what each of its stages does. Nothing heavy is imported here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from uni_train.config.kinds import PlannedStage, RecipeKeys, kind_of
from uni_train.config.schema import RunConfig

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Table
    from uni_train.eval.summary import Round
    from uni_train.stages.work import StageRun, Work

C = TypeVar("C", bound=RunConfig)
Stages = Sequence[tuple[PlannedStage, "StageRun"]]
"""Finished stages, in order."""


class RecipeKind(RecipeKeys[C]):
    """What the modules of `uni_train.recipes` register."""

    def expect_items(self, work: Work[C]) -> None:
        """Draw the items that stages and validations ask tasks for. Raises UserError where there are too few."""

    def prepare(self, work: Work[C]) -> None:
        """Refuse what else can be refused before anything is written. Raises UserError."""

    @abstractmethod
    def run(self, work: Work[C], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        """Do one stage, which is none of evaluation. `before`: the stages before it. Raises UserError."""

    def rounds(self, work: Work[C], runs: Stages) -> list[Round]:
        """What summary.json says of the recipe's rounds."""
        return []

    def conclude(self, work: Work[C], runs: Stages) -> tuple[Mapping[str, Any], list[Table]] | None:
        """What summary.json says in place of evaluations, and the tables of it; None where evaluations say all."""
        return None


def stages_of(config: RunConfig) -> RecipeKind[Any]:
    """The kind of a recipe, with what its stages do."""
    return cast("RecipeKind[Any]", kind_of(config))
