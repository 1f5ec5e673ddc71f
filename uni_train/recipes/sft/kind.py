"""The stages of supervised fine-tuning: one training, between two evaluations where the recipe asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, Updates, recipe_kind
from uni_train.config.messages import Where
from uni_train.config.paths import missing_paths
from uni_train.recipes.sft.config import SftConfig, check, named_sources
from uni_train.stages.extension import span, spans
from uni_train.stages.kind import RecipeKind, Stages

if TYPE_CHECKING:
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


@recipe_kind("sft")
class Sft(RecipeKind[SftConfig]):
    """Supervised fine-tuning."""

    config = SftConfig
    texts = ("sources",)
    trains_editors = True
    keeps_rows = True
    less_memory = "Lower batch.tokens, batch.rows or batch.noise_draws, or raise batch.accumulate."
    report = "uni_train.eval.report.flow_grpo"

    def complete(self, values: dict[str, Any]) -> None:
        values["sources"] = named_sources(values.get("sources"))

    def check(self, config: SftConfig, where: Where) -> None:
        check(config, where)

    def evaluates(self, config: SftConfig) -> bool:
        return config.evaluate

    def trained(self, config: SftConfig) -> tuple[str, tuple[str, ...]]:
        return config.trained, tuple(config.frozen)

    def stages(self, config: SftConfig) -> Iterator[PlannedStage]:
        each = f"{config.batch.tokens} tokens" if config.batch.tokens is not None else f"{config.batch.rows} rows"
        trained = {"all": "all weights", "moe_gen": "the generation weights", "lora": "adapters"}[config.trained]
        from_ = ", ".join(config.used_sources)
        yield from spans(config, "sft", lambda updates: f"{updates} updates of {trained}, {each} each, from {from_}")

    def expect_items(self, work: Work[SftConfig]) -> None:
        from uni_train.recipes.sft.training import held_out
        from uni_train.stages.validation import check_levels

        section = work.config.held_out
        if section.task is not None:
            task = work.task(section.task)
            check_levels(task, section.levels, "held_out.levels")
            for level in section.levels:
                task.validate(level, section.split)
        held_out(work)

    def run(self, work: Work[SftConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        from uni_train.recipes.sft import training

        with span(work, planned, stage, before) as name:
            training.run(work, stage, name)

    def rows(self, config: SftConfig) -> Mapping[str, int]:
        return {} if config.batch.rows is None else {"batch.rows": config.batch.rows}

    def updates(self, config: SftConfig) -> Updates:
        from uni_train.recipes.sft.training import updates

        return updates(config)

    def remarks(self, config: SftConfig, model: Trainable) -> list[str]:
        from uni_train.recipes.sft.budget import described
        from uni_train.recipes.sft.held_out_rows import set_aside
        from uni_train.recipes.sft.training import held_out_file, sources

        rows = sources(config, model.example_tokens)
        if not any(missing_paths(config)):  # those are named beside the remarks
            other = held_out_file(config, model.example_tokens)
            if other is not None:
                other.check()
            if config.held_out_loss.share is not None or other is not None:
                set_aside(config, rows, other)
        return [*described(config, rows), *super().remarks(config, model)]

    def first_update(self, config: SftConfig, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        from uni_train.recipes.sft.training import schedule, sources
        from uni_train.stages.train_stage import first_batch

        rows, batch = sources(config, model.example_tokens), config.batch
        shares = schedule(config).mixture(0)
        return first_batch(model, rows, shares, config.seed, batch.rows or 1, batch.accumulate, batch.tokens, most)
