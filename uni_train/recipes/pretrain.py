"""Pretraining of nano, the shipped checkpoint: first its VAE, then mixtures of rows that data_gen makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval

from uni_train.config.kinds import PlannedStage, Updates, evaluation, recipe_kind
from uni_train.config.messages import Where, wrong
from uni_train.config.schema import LEVELS, Count, Draws, Level, Positive, RunConfig
from uni_train.config.training import VaeConfig
from uni_train.stages.kind import RecipeKind, Stages

if TYPE_CHECKING:
    from uni_train.models.base import Example, Trainable
    from uni_train.stages.work import StageRun, Work


RowsOrZero = Annotated[int, Interval(ge=0, le=65_536)]


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """Rows of each kind in one update. There is no kind (reasoning prompt -> image without a thought): that is
    what STARS is to teach."""

    text_to_image: RowsOrZero = 0
    control: RowsOrZero = 0  # text -> image behind rules or sums that do not matter
    cot_image: RowsOrZero = 0
    cot_text: RowsOrZero = 0
    mapping_answer: RowsOrZero = 0  # a mapping prompt answered in words at once
    maths_answer: RowsOrZero = 0  # a maths prompt answered in words at once
    meanings: RowsOrZero = 0  # what every symbol of a set of rules means in the end
    questions: RowsOrZero = 0  # the same, asked one after the other in the words of the prompts
    facts: RowsOrZero = 0  # expressions of one operation, of every split
    sums: RowsOrZero = 0  # expressions and their values
    compare: RowsOrZero = 0  # what is asked against what is seen, both in words
    caption: RowsOrZero = 0
    verify: RowsOrZero = 0
    noise_draws: Draws = 1  # for each row with a target image
    levels: tuple[Level, ...] = LEVELS  # of the answers; one named twice comes twice as often

    @property
    def rows(self) -> dict[str, int]:
        """Kind -> rows an update, of the kinds that there are."""
        kinds = {kind: n for kind, n in vars(self).items() if kind not in ("noise_draws", "levels")}
        return {kind: n for kind, n in kinds.items() if n}

    @property
    def images(self) -> int:
        """Noised images an update."""
        return self.noise_draws * (self.text_to_image + self.control + self.cot_image)


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """A stretch of the pretraining with a mixture and a rate of its own."""

    updates: Count
    lr: Positive | None = None  # null: optimizer.lr
    mixture: MixtureConfig


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """The shipped nano checkpoint, from data_gen alone."""

    kind: Literal["pretrain"] = "pretrain"
    vae: VaeConfig | None = None  # null: that of model.checkpoint
    parts: dict[str, PartConfig | None]  # name -> part, one after the other; null: left out
    timestep_shift: Positive = 1.0

    @property
    def kept(self) -> dict[str, PartConfig]:
        """The parts that are not left out."""
        return {name: part for name, part in self.parts.items() if part is not None}


@recipe_kind("pretrain")
class Pretrain(RecipeKind[PretrainConfig]):
    """Pretraining: a stage for the VAE, then one for each part of the recipe."""

    config = PretrainConfig
    less_memory = "Lower the rows in parts.*.mixture."

    def check(self, config: PretrainConfig, where: Where) -> None:
        if config.model.family != "nano" or config.model.edits:
            raise wrong(f"the mixture is nano's own: model={config.model.name} cannot learn it", "model", where)
        if config.vae is None and config.model.checkpoint is None:
            raise wrong("vae is null, and no model.checkpoint has one", "vae", where)
        if not config.kept:
            raise wrong("all parts are null: nothing would be trained", "parts", where)

    def stages(self, config: PretrainConfig) -> Iterator[PlannedStage]:
        if config.vae is not None:
            yield PlannedStage("vae", "vae", f"{config.vae.updates} updates of the VAE")
        for name, part in config.kept.items():
            rows = sorted(((n, kind) for kind, n in part.mixture.rows.items()), reverse=True)
            most = " and ".join(kind for _, kind in rows[:2])
            yield PlannedStage("pretrain", f"pretrain-{name}", f"{part.updates} updates, most on {most}")
        yield evaluation(config, "after")

    def run(self, work: Work[PretrainConfig], planned: PlannedStage, stage: StageRun, before: Stages) -> None:
        if planned.kind == "vae":
            _vae(work, stage)
        else:
            _part(work, stage, planned.name.removeprefix("pretrain-"))

    def rows(self, config: PretrainConfig) -> Mapping[str, int]:
        return {f"parts.{name}.mixture": sum(part.mixture.rows.values()) for name, part in config.kept.items()}

    def updates(self, config: PretrainConfig) -> Updates:
        return Updates(
            sum(mixture.updates for mixture in config.kept.values()), rows=sum(_largest(config).rows.values())
        )

    def first_update(
        self, config: PretrainConfig, model: Trainable, most: int | None = None
    ) -> list[Sequence[Example]]:
        """Of the part with the most rows and noised images."""
        from uni_train.models.nano import corpus
        from uni_train.stages.train_stage import first_batch

        mixture = _largest(config)
        rows = sum(mixture.rows.values())
        shares = {kind: count / rows for kind, count in mixture.rows.items()}
        return first_batch(model, corpus.sources(mixture.noise_draws), shares, config.seed, rows, most=most)


def _largest(config: PretrainConfig) -> MixtureConfig:
    """That of the part with the most rows and noised images."""
    return max(
        (part.mixture for part in config.kept.values()), key=lambda mixture: sum(mixture.rows.values()) + mixture.images
    )


def _vae(work: Work[PretrainConfig], stage: StageRun) -> None:
    """Train the VAE on rendered images and measure the scale of its latents."""
    from uni_train.models.load import save_model
    from uni_train.models.nano.train_vae import train_vae
    from uni_train.stages.work import MODEL

    config = work.config
    assert config.vae is not None
    model = work.model(work.weights)
    # Seconds of work: the first rank does it, the others take what it has found.
    if work.ranks.is_main:
        with work.progress.bar("vae", config.vae.updates) as bar:
            stage.result = train_vae(model.vae.cpu(), config.vae, config.seed, bar.advance)  # type: ignore[arg-type, operator]
        save_model(model, stage.path / MODEL)
    work.ranks.barrier()
    stage.outputs = sorted((stage.path / MODEL).iterdir())


def _part(work: Work[PretrainConfig], stage: StageRun, name: str) -> None:
    """Train everything but the VAE on the mixture of one part of the recipe."""
    from uni_train.models.nano import corpus
    from uni_train.stages.train_stage import train_stage
    from uni_train.training.curriculum import Constant

    config, asked = work.config, work.config.kept[name]
    model = work.trainable_model(work.weights, config.timestep_shift)
    rows = asked.mixture.rows
    total = sum(rows.values())
    sources = corpus.sources(asked.mixture.noise_draws, asked.mixture.levels)
    schedule = Constant({kind: count / total for kind, count in rows.items()})
    if asked.lr is not None:
        config = replace(config, optimizer=replace(config.optimizer, lr=asked.lr))
    used, updates = {kind: sources[kind] for kind in schedule.shares}, Updates(asked.updates, rows=total)
    result = train_stage(work, model, used, schedule, updates, stage.path, config=config)
    work.save_trained(model, stage)
    stage.result = result.facts()
