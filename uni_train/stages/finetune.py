"""Stage (III) of STARS, fine-tuning: prompt -> image, with the thought forgotten (paper 004, eq. 3).

A batch mixes the accepted samples of this round, those of earlier rounds (replay), and rows of the pretraining mixture,
which keep thinking, captioning and verifying alive. What is mixed when is the curriculum's business.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from data_gen.seeds import derive_seed
from eval.scored import completed, shard_path
from uni_train.config.build import to_plain
from uni_train.config.rounds import updates
from uni_train.config.schema import RoundConfig, RunConfig, StarsConfig
from uni_train.errors import UserError
from uni_train.models.base import Example, UnifiedModel
from uni_train.stages.evaluate import normal_accuracy
from uni_train.stages.filter import kept_rows
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.curriculum import Constant, Curriculum, Level, Ramp, Threshold
from uni_train.training.data import items
from uni_train.training.data.rows import Chosen, Row, Rows, open_rows
from uni_train.training.lora import LoraSettings, adapted, save_adapters
from uni_train.training.settings import SupervisedSettings
from uni_train.training.steps import Source

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger

    from uni_train.training.callbacks import Evaluate
    from uni_train.training.fit import FitResult

PRETRAIN = "pretrain"
ADAPTERS = "adapter"


Filtered = Mapping[str, tuple[RoundConfig, StageRun]]
"""Set name -> the round that sampled it last, and its finished stage with the filter's verdicts."""


def run(work: Work[StarsConfig], stage: StageRun, rounds: Sequence[int], filtered: Filtered) -> None:
    """Train on what the filter kept. `filtered`: of this and earlier rounds."""
    config = work.config
    model = work.model(work.weights)
    model.prepare_training(
        timestep_shift=config.timestep_shift,
        text_dropout=config.text_dropout,
        activation_checkpointing=config.activation_checkpointing,
    )
    sources = _sources(work, model, filtered)
    lengths = [updates(config, one, len(sources[one.set_name])) for one in (config.rounds[i] for i in rounds)]  # type: ignore[arg-type]
    settings = replace(
        supervised_settings(config, sum(lengths), config.batch.prompts, stage.path.name, trained=config.trained),
        accumulate=config.batch.accumulate,
    )
    schedule = curriculum(config, rounds, lengths)

    def watch(step: int) -> Mapping[str, float]:
        folder = stage.path / "checks" / f"step={step:08d}"  # every check asks the same validation prompts
        names = [config.rounds[i].set_name for i in rounds]
        was_training = model.training
        model.eval()
        with torch.no_grad():
            found: dict[str, float] = {name: normal_accuracy(model, work, name, folder / name) for name in names}
        model.train(was_training)
        return found

    result = fit(work, model, sources, schedule, settings, stage.path, watch if schedule.check_every else None)
    work.trained(model, stage)
    stage.outputs = sorted(file for file in (stage.path / MODEL).rglob("*") if file.is_file())
    stage.result = {
        "updates": result.updates,
        "seconds": result.seconds,
        "examples": {name: len(source) for name, source in sources.items() if isinstance(source, Rows)},
        "final_loss": sum(result.losses[-20:]) / max(len(result.losses[-20:]), 1),
    }


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


def _sources(work: Work[StarsConfig], model: UnifiedModel, filtered: Filtered) -> dict[str, Source]:
    config = work.config
    sources: dict[str, Source] = {}
    for name, (one, stage) in filtered.items():
        kept = work.ranks.from_main(partial(kept_rows, stage.shards, config, one))
        if not kept:
            raise UserError(
                f"the filter kept none of the samples of {name}, so there is nothing to train on ({stage.path})",
                "Sample more prompts or candidates, start from a better model, or use filter=verifier or filter=none.",
            )
        sources[name] = kept_samples(stage.shards, kept, config.batch.noise_draws)
    if any(one.replay.get(PRETRAIN) for one in config.rounds):
        replay = model.replay_rows()
        if replay is None:
            raise UserError(
                f"{model.name} has no pretraining rows to replay",
                "Set pretrain_replay=0, or replay sets of earlier rounds alone.",
            )
        sources[PRETRAIN] = any_of(replay)
    return sources


def kept_samples(shards: Path, kept: Sequence[int], noise_draws: int) -> Rows:
    """Samples of a filtered stage, prompt -> image, by their rows over all its shards. Images stay on disk until a
    batch needs them."""
    parse, files = items.parser(("image",)), [str(shard_path(shards, index)) for index in sorted(completed(shards))]

    def without_thought(row: Row, random_: random.Random) -> Example:
        return replace(parse(row, random_), noise_draws=noise_draws)

    return Rows(Chosen(open_rows(files), kept), without_thought, "error", lambda example: 0, 0)


def any_of(makers: Mapping[str, tuple[float, Callable[[random.Random], Example]]]) -> Source:
    names = list(makers)
    weights = [share for share, _ in makers.values()]

    def draw(random_: random.Random) -> Example:
        return makers[random_.choices(names, weights)[0]][1](random_)

    return draw


def curriculum(config: StarsConfig, rounds: Sequence[int], lengths: Sequence[int]) -> Curriculum:
    """The curriculum of one fine-tuning: a round's own mixture, or one over all rounds. lengths: updates of each."""
    parts = []
    for i in rounds:
        one = config.rounds[i]
        rest = sum(one.replay.values())
        replayed = {name: share for name, share in one.replay.items() if share}
        parts.append({one.set_name: max(1 - rest, 0.0), **replayed})
    kind = config.schedule.kind
    if kind == "sequential":
        return Constant(parts[0])
    if kind == "mixed":
        even = {config.rounds[i].set_name: 1 / len(rounds) for i in rounds}
        replay = max(part.get(PRETRAIN, 0.0) for part in parts)
        shares: dict[str, float] = {name: share * (1 - replay) for name, share in even.items()}
        if replay:
            shares[PRETRAIN] = replay
        return Constant(shares)
    if kind == "ramp":
        return Ramp(parts, sum(lengths))
    levels = [
        Level(part, config.rounds[i].set_name, config.schedule.threshold, length)
        for i, part, length in zip(rounds, parts, lengths, strict=True)
    ]
    return Threshold(levels, config.schedule.check_every)
