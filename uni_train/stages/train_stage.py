"""What the trainings of all kinds of recipes share: adapters, loggers, the first batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.build import to_plain
from uni_train.config.kinds import Updates, kind_of
from uni_train.config.schema import RunConfig
from uni_train.core.seeds import derive_seed
from uni_train.models.base import Example, Trainable
from uni_train.stages.work import ADAPTERS, Work
from uni_train.training.curriculum import Curriculum
from uni_train.training.data.rows import Rows
from uni_train.training.steps import Source, StepDataset

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

    from uni_train.training.fit import FitResult


def train_stage(
    work: Work[Any],
    model: Trainable,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    updates: Updates,
    folder: Path,
    *,
    stage: str | None = None,
    config: RunConfig | None = None,
    trained: tuple[str, tuple[str, ...]] | None = None,
    keep: int = 2,
    log_every: int = 10,
    finish: Callable[[], None] | None = None,
    **hooks: Any,
) -> FitResult:
    """`fit_supervised` with this run's configuration (or another one), logger and progress display.

    `stage`, part of every seed, is the folder's name where it is not given; `trained` (which weights, and which parts
    are not) what the recipe's kind says; `hooks` are `evaluate`, `callbacks` and `collate` of `fit_supervised`.

    `finish` may put other weights into the trained model. With trained=lora the adapters are then left in
    `folder`/adapter and merged into the model.
    """
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.fit import fit_supervised
    from uni_train.training.supervised import FitOptions

    stage, (which, frozen) = stage or folder.name, trained or kind_of(work.config).trained(work.config)
    with adapters(work, model, stage, folder) if which == "lora" else nullcontext():
        options = FitOptions(
            stage=stage, trained=which, frozen=frozen, logger=run_logger(work, stage), description="  updates",
            keep=keep, log_every=log_every,
        )  # fmt: skip
        result = fit_supervised(model, sources, schedule, config or work.config, updates, folder, options, **hooks)
        if finish is not None:
            finish()
    say_idle(work, result)
    return result


def say_idle(work: Work[Any], result: FitResult) -> None:
    """Say in how many updates nothing was learned."""
    if result.idle:
        work.progress.say(f"  {result.idle} of {result.updates} updates taught nothing: their gradient is 0")


def skipped_rows(work: Work[Any], sources: Iterable[Rows]) -> dict[str, Any]:
    """Say how many bad rows were left out, and return them for the stage's result."""
    skipped = {where: reason for rows in sources for where, reason in rows.skipped.items()}
    first = [f"{where}: {reason}" for where, reason in list(skipped.items())[:10]]
    if skipped:
        work.progress.say(f"  skipped {len(skipped)} bad rows; the first: {first[0]}")
    return {"bad_rows": len(skipped), "first_bad_rows": first}


def run_logger(work: Work[Any], stage: str) -> Logger | None:
    """The further logger that the recipe asks for, on the first rank; metrics under the stage's name."""
    if work.config.logger.kind != "wandb" or not work.ranks.is_main:
        return None
    from uni_train.training.wandb_run import wandb_logger

    return wandb_logger(work.folder.path, prefix=stage, **wandb_names(work))


def wandb_names(work: Work[Any]) -> dict[str, Any]:
    """What the W&B run of this run is called, and what is kept of its configuration."""
    from uni_train.training.wandb_run import group_of

    wanted, folder = work.config.logger, work.folder
    names = {"project": wanted.project, "group": group_of(wanted.group, folder.path), "name": folder.name}
    return {**names, "config": to_plain(work.config), "offline": wanted.offline}


@contextmanager
def adapters(work: Work[Any], model: Trainable, stage: str, folder: Path) -> Iterator[None]:
    """With trained=lora the model has adapters within this block; behind it they are in `folder`/adapter and merged."""
    config = work.config
    if kind_of(config).trained(config)[0] != "lora":
        yield
        return
    from uni_train.training.lora import adapted, save_adapters

    with adapted(model, config.lora, derive_seed(config.seed, stage, "lora")):
        yield
        work.ranks.from_main(lambda: save_adapters(model, config.lora, folder / ADAPTERS))


def first_batch(
    model: Trainable,
    sources: Mapping[str, Source],
    shares: Mapping[str, float],
    seed: int,
    rows: int,
    accumulate: int = 1,
    tokens: int | None = None,
    most: int | None = None,
) -> list[Sequence[Example]]:
    """The examples of the first update of a training on one rank, by micro-batch; no weights are needed.

    most: only so many, as one micro-batch.

    Raises:
        UserError: rows of a source are missing or bad.
    """
    if most is not None:
        rows, accumulate, tokens = most if tokens is not None else min(rows, most), 1, None
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
    return [*dataset.drawn(0).examples]
