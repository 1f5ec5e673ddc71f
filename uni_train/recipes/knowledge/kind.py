"""The stages of knowledge injection: the model as it is, then one model for each character and each pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, Updates, recipe_kind
from uni_train.config.messages import Where
from uni_train.recipes.knowledge.config import FROZEN, KnowledgeConfig, check
from uni_train.stages.kind import RecipeKind, Stages

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Table
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


@recipe_kind("knowledge")
class Knowledge(RecipeKind[KnowledgeConfig]):
    """Knowledge injection."""

    config = KnowledgeConfig
    trains_texts = True
    less_memory = "Lower rows, or raise accumulate."
    report = "uni_train.recipes.knowledge.injected"

    def check(self, config: KnowledgeConfig, where: Where) -> None:
        check(config, where)

    def trained(self, config: KnowledgeConfig) -> tuple[str, tuple[str, ...]]:
        return "lora" if config.trained == "lora" else "all", FROZEN

    def stages(self, config: KnowledgeConfig) -> Iterator[PlannedStage]:
        modes = " and ".join(config.modes)
        asked = f"{config.draws} images of each question, {modes}, from the model as it is"
        if config.form.updates:
            others = f"{config.form.updates} updates on {config.form.characters} other characters, told of and drawn"
            yield PlannedStage("form", "form", others)
        yield PlannedStage("ask", "ask-before", asked)
        for direction, models, whom in (
            ("forward", config.characters.n, "a character"),
            ("inverse", config.characters.n // 2, "a pair"),
        ):
            taught = f"at most {config.epochs} epochs on the lessons about {whom}, then {modes} images"
            for number in range(1, models + 1) if direction in config.directions else ():
                yield PlannedStage("inject", f"inject-{direction}{number}", taught, base=False)

    def prepare(self, work: Work[KnowledgeConfig]) -> None:
        from uni_train.recipes.knowledge import injection

        injection.people(work.config)

    def run(self, work: Work[KnowledgeConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.knowledge import injection

        if planned.kind == "form":
            from uni_train.recipes.knowledge import form

            form.teach(work, stage)
        elif planned.kind == "ask":
            injection.before(work, stage)
        else:
            injection.inject(work, stage, sum(earlier.kind == "inject" for earlier, _ in before))

    def conclude(self, work: Work[KnowledgeConfig], runs: Stages) -> tuple[Mapping[str, Any], list[Table]]:
        from uni_train.recipes.knowledge import injection

        return injection.conclude(work, runs)

    def rows(self, config: KnowledgeConfig) -> Mapping[str, int]:
        return {"rows": config.rows} | ({"form.rows": config.form.rows} if config.form.updates else {})

    def updates(self, config: KnowledgeConfig) -> Updates:
        from uni_train.recipes.knowledge import injection

        lessons = len(injection.people(config)[0].lessons)
        total = injection.updates(config, config.epochs, lessons)
        return Updates(total, config.accumulate, rows=config.rows)

    def first_update(
        self, config: KnowledgeConfig, model: Trainable, most: int | None = None
    ) -> list[Sequence[Example]]:
        from uni_train.recipes.knowledge import injection
        from uni_train.stages.train_stage import first_batch

        lessons = injection.lessons(injection.people(config)[0])
        shares, rows = {"lessons": 1.0}, config.rows
        return first_batch(model, {"lessons": lessons}, shares, config.seed, rows, config.accumulate, most=most)
