"""What the trainings of all kinds of recipes share: settings, adapters, loggers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.seeds import derive_seed
from uni_train.config.build import to_plain
from uni_train.config.schema import RunConfig
from uni_train.models.base import Example, UnifiedModel
from uni_train.stages.work import Work
from uni_train.training.curriculum import Curriculum
from uni_train.training.lora import LoraSettings, adapted, save_adapters
from uni_train.training.settings import SupervisedSettings
from uni_train.training.steps import Source, StepDataset

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger

    from uni_train.training.callbacks import Evaluate
    from uni_train.training.fit import FitResult

ADAPTERS = "adapter"


def fit(
    work: Work[Any],
    model: UnifiedModel,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    settings: SupervisedSettings,
    folder: Path,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
) -> FitResult:
    """`fit_supervised` with this run's logger and progress display.

    With trained=lora the adapters are left in `folder`/adapter and merged into the model.
    """
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.fit import fit_supervised

    logger = run_logger(work, settings.stage)
    with adapters(work, model, settings, folder):
        return fit_supervised(
            model,
            sources,
            schedule,
            settings,
            folder,
            evaluate=evaluate,
            logger=logger,
            callbacks=callbacks,
            description="  updates",
        )


def run_logger(work: Work[Any], stage: str) -> Logger | None:
    """The further logger that the recipe asks for, on the first rank; metrics under the stage's name."""
    if work.config.logger.kind != "wandb" or not work.ranks.is_main:
        return None
    from uni_train.training.wandb_run import group_of, wandb_logger

    wanted = work.config.logger
    return wandb_logger(
        work.folder.path,
        project=wanted.project,
        group=group_of(wanted.group, work.folder.path),
        name=work.folder.name,
        config=to_plain(work.config),
        offline=wanted.offline,
        prefix=stage,
    )


@contextmanager
def adapters(work: Work[Any], model: UnifiedModel, settings: SupervisedSettings, folder: Path) -> Iterator[None]:
    """With trained=lora the model has adapters within this block; behind it they are in `folder`/adapter and merged."""
    if settings.trained != "lora":
        yield
        return
    wanted = work.config.lora
    lora = LoraSettings(wanted.rank, wanted.alpha, wanted.dropout, wanted.targets)
    with adapted(model, lora, derive_seed(settings.seed, settings.stage, "lora")):
        yield
        work.ranks.from_main(lambda: save_adapters(model, lora, folder / ADAPTERS))


def supervised_settings(config: RunConfig, updates: int, rows: int, stage: str, trained: str) -> SupervisedSettings:
    """A recipe's optimizer and strategy in the trainer's terms."""
    optimizer = config.optimizer
    return SupervisedSettings(
        updates=updates,
        rows=rows,
        lr=optimizer.lr,
        betas=optimizer.betas,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        warmup_updates=min(optimizer.warmup_updates, updates - 1),
        schedule=optimizer.decay,
        decay_from=1 - optimizer.decay_share,
        final_lr=optimizer.final_lr,
        clip=optimizer.clip,
        state=optimizer.state,
        ce_weight=config.ce_weight,
        mse_weight=config.mse_weight,
        trained=trained,
        precision=config.strategy.precision,
        accelerator=config.strategy.accelerator,
        devices=config.strategy.devices,
        num_nodes=config.strategy.nodes,
        strategy=config.strategy.kind,
        offload_optimizer=config.strategy.offload_optimizer,
        offload_weights=config.strategy.offload_weights,
        ema=config.ema,
        checkpoint_every=config.checkpoint_every,
        seed=config.seed,
        stage=stage,
    )


def first_batch(
    model: UnifiedModel,
    sources: Mapping[str, Source],
    shares: Mapping[str, float],
    seed: int,
    rows: int,
    accumulate: int = 1,
    tokens: int | None = None,
) -> list[Sequence[Example]]:
    """The examples of the first update of a training on one rank, by micro-batch; no weights are needed.

    Raises:
        UserError: rows of a source are missing or bad.
    """
    dataset = StepDataset(
        lambda examples, seed: list(examples),
        {name: sources[name] for name in shares},
        lambda step: shares,
        rows=rows,
        updates=1,
        seed=seed,
        grad_accumulation_steps=accumulate,
        token_counts=lambda examples: (0, 0),
        tokens=tokens,
        example_tokens=model.example_tokens,
    )
    return [micro.content for micro in dataset[0]]
