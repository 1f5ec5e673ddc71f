"""teacher=CHECKPOINT: another model samples (STARS), or is followed (distillation), in the place of the run's own.

It draws in as many steps as the run's model, and images of its size. In distillation, or if it is of the run's family,
it has the run's other settings of `model.sampling`, too. Only runs with such a teacher import this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from uni_train.config.messages import check_draws, check_thinks
from uni_train.config.schema import ModelConfig
from uni_train.core.errors import UserError
from uni_train.models.base import ImageGenerator, UnifiedModel, expect_skill
from uni_train.models.checkpoint import model_config, on_disk, source_of
from uni_train.models.family import PublishedFamily, family_of
from uni_train.models.identity import identify
from uni_train.models.load import build_model, dtype_for
from uni_train.recipes.stars.config import RoundsConfig
from uni_train.stages.work import Work


def config_of(config: RoundsConfig, key: str) -> ModelConfig:
    """The configuration of a teacher. Raises UserError: it cannot be loaded."""
    own, known = config.model, model_config(config.other_teachers[key].checkpoint)
    alike = known.family == own.family or config.kind == "distil"
    sampling = own.sampling if alike else replace(known.sampling, steps=own.sampling.steps)
    if isinstance(family_of(known.family), PublishedFamily):  # whose folders say all sizes but that of images
        known = replace(known, architecture=replace(known.architecture, image_size=own.architecture.image_size))
    return replace(known, sampling=sampling, editing=known.editing and (own.editing or known.editing))


def load(work: Work[Any]) -> dict[str, UnifiedModel]:
    """Key -> each teacher, on the device that trains."""
    config, precision = work.config, dtype_for(work.config.strategy.precision)
    others = {key: config_of(config, key) for key in config.other_teachers}
    return {key: build_model(other, config.seed, precision, work.device) for key, other in others.items()}


def facts(work: Work[Any]) -> dict[str, Any]:
    """What manifests and summary.json say of teachers: the identity of each."""
    config = work.config
    if not config.other_teachers:
        return {}
    named = {key: config_of(config, key) for key in config.other_teachers}
    return {"teachers": work.ranks.from_main(lambda: {key: identify(it).to_dict() for key, it in named.items()})}


def expect(config: RoundsConfig) -> dict[str, UnifiedModel]:
    """Key -> each teacher without its weights. Where the checkpoint is not on this machine, `fit` says it.

    Raises:
        UserError: it cannot be loaded, has no tokenizer, or cannot draw or think as the run asks.
    """
    seen: dict[str, UnifiedModel] = {}
    for key, named in config.other_teachers.items():
        if source_of(named.checkpoint).is_absent:
            continue
        try:
            other = config_of(config, key)
            check_draws(other, [round_.task for round_ in config.rounds], lambda _: "")
            for name, without in (("thoughts", "none"), ("mode", "normal"), ("redraw", 1)):
                if (asked := getattr(config, name, without)) != without:
                    check_thinks(other, f"{name}={asked}", key, lambda _: "")
            model, guessed = family_of(other.family).skeleton(on_disk(other))
            if guessed:
                raise UserError(f"there is no tokenizer in {named.checkpoint}", "Copy its files beside the weights.")
            seen[key] = expect_skill(model, ImageGenerator)
        except UserError as error:
            raise UserError(f"{key}: {error.message}", error.hint) from error
    return seen


def in_memory(config: RoundsConfig) -> list[str]:
    """What the teachers add to the models in memory, a line each."""
    counts = {key: sum(weight.numel() for weight in model.parameters()) for key, model in expect(config).items()}
    return [f"{key} is another model in memory: {count:,} parameters more" for key, count in counts.items()]
