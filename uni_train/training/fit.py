"""`fit_supervised`: one resumable supervised fit, from wherever its folder says it stopped.

    directory/checkpoints/step=00000100/    see checkpoint_io
    directory/metrics.jsonl                 see metric_log

The final weights are left in the model; saving them is the caller's business, as is the lock on the folder.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from uni_train.config.kinds import Updates
from uni_train.config.schema import SHARDED, TrainingConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.distributed.preemption import deferred
from uni_train.distributed.ranks import ALONE
from uni_train.models.base import Example, Trainable
from uni_train.models.parts import whole
from uni_train.training.callbacks import CurriculumCallback, Evaluate, PeriodicCheckpoint, SaveOnSignal, Unshard
from uni_train.training.checkpoint_io import (
    FolderCheckpointIO,
    checkpoint_step,
    latest_checkpoint,
    remove_leftovers,
)
from uni_train.training.curriculum import Curriculum
from uni_train.training.divergence import Stopped
from uni_train.training.ema import Ema
from uni_train.training.metric_log import JsonlLogger, MetricLog, read_metrics, truncate_metrics
from uni_train.training.progress import StepProgress
from uni_train.training.steps import Source, StepDataset, StepLoader
from uni_train.training.strategies.choice import current_ranks, group_for, make_plugins, make_strategy, on_ranks
from uni_train.training.supervised import FitOptions, SupervisedModule

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
HELD_OUT = "held_out.jsonl"  # of callbacks.Validation


Collate = Callable[[Sequence[Any], int], Any]
"""Examples of a micro-batch and a seed -> its content (see models.base.Trainable.collate). Where it takes others
than examples, as `distillation.Lesson`, these have an `example()` with the texts that are read."""


@dataclass(frozen=True)
class FitResult:
    """What a finished fit has to tell. `seconds` and `losses` (one per update) cover interrupted parts as well."""

    updates: int
    seconds: float
    losses: list[float]
    resumed_from: int
    """The update that this call began at: 0 for a fresh fit, `updates` when there was nothing left to do."""
    idle: int
    """Updates without a gradient: their rows reach no weight that is trained, as text where generation alone is."""

    def facts(self) -> dict[str, Any]:
        """For a manifest; the loss is the mean of the last 20 updates."""
        last = self.losses[-20:]
        facts = {"updates": self.updates, "seconds": self.seconds, "final_loss": sum(last) / max(len(last), 1)}
        return facts | ({"updates_without_gradient": self.idle} if self.idle else {})


def fit_supervised(
    model: Trainable,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    config: TrainingConfig,
    updates: Updates,
    directory: Path,
    options: FitOptions = FitOptions(),  # noqa: B008  # it is frozen
    *,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
    collate: Collate | None = None,
) -> FitResult:
    """Train `model` in place; afterwards it has the final weights, averaged ones if `config.ema`.

    Under strategies that shard weights the first rank alone has them, in host memory; elsewhere `model` is then on the
    meta device.

    A second run with the same arguments continues from the newest intact checkpoint in `directory`. It ends with the
    same weights and metrics.jsonl as a run that never stopped, on CPUs bit for bit.

    Args:
        sources: what `schedule` mixes, by name (see steps.Source).
        evaluate: needed by schedules that watch a metric: updates done -> metrics.
        callbacks: further Lightning callbacks; their state is in the checkpoints.
        collate: examples and a seed -> what the model trains on; None: the model's own. It is called when the update
            before is done.

    Raises:
        UsageError: updates, sources and schedule do not fit together.
        UserError: a damaged or foreign checkpoint, a full disk, a training that diverged or in which no update learned.
    """
    config, updates = on_ranks(config), updates.shared(current_ranks().world_size)
    if schedule.check_every is not None and evaluate is None:
        raise UsageError("this curriculum watches a validation metric, but no evaluation was given")

    def prepare(made: Run) -> SupervisedModule:
        module = MixedModule(model, config, updates, options)
        module.sources, module.schedule, module.collate = sources, schedule, collate or model.collate
        module.token_counts = getattr(model, "token_counts", None)
        model.train()
        made.callbacks += [CurriculumCallback(schedule, evaluate, made.log), *callbacks]
        return module

    return run(model, config, updates, directory, prepare, options, schedule=schedule)


@dataclass
class Run:
    """A fit that is about to start: what `prepare` may look at, and what it fills in.

    Attributes:
        done: updates that the checkpoint it continues from has seen.
        callbacks: run after log and averages, before progress and checkpoints.
    """

    done: int
    log: MetricLog
    ema: Ema | None
    callbacks: list[Callback] = field(default_factory=list)


def run(
    model: Trainable,
    config: TrainingConfig,
    updates: Updates,
    directory: Path,
    prepare: Callable[[Run], SupervisedModule],
    options: FitOptions,
    *,
    schedule: Curriculum | None = None,
    checkpoint_unit: int = 1,
) -> FitResult:
    """What all kinds of fits share: folder, resuming, metric log, averages, progress, checkpoints, Lightning's trainer.

    `prepare` makes the module and fills in callbacks. `schedule`: gets its state back where nothing is left to
    train. Which parameters want gradients, and the modules' modes, are afterwards as they were. Checkpoints are after
    multiples of `checkpoint_unit` updates, where a run can be continued.

    Raises:
        UserError: a damaged or foreign checkpoint, a full disk, a training that diverged or in which no update learned.
    """
    directory, strategy = Path(directory), config.strategy
    metrics = directory / METRICS
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write in {directory}: {error.strerror}") from error
    resume = current_ranks().from_main(lambda: latest_checkpoint(directory / CHECKPOINTS))
    done = checkpoint_step(resume) if resume else 0
    if done > updates.total:
        raise UserError(
            f"{resume} was written after {done} updates, but only {updates.total} are asked for",
            "Ask for at least as many, or start over under a new name.",
        )
    current_ranks().from_main(lambda: remove_leftovers(directory / CHECKPOINTS))
    current_ranks().from_main(lambda: truncate_metrics(metrics, done))
    given_up = strategy.kind in SHARDED and not current_ranks().is_main
    if resume is not None and done == updates.total:
        return _finished(None if given_up else model, schedule, resume, metrics)

    trainable = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    modes = {module: module.training for module in model.modules()}
    half = strategy.precision == "bf16-true"
    engine = strategy.kind.startswith("deepspeed_")
    ema = Ema(config.ema, offload=strategy.offload_averages) if config.ema is not None else None
    logger = options.logger
    say = print if options.progress and current_ranks().is_main else lambda text: None
    made = Run(done, MetricLog(options.log_every, say), ema)
    began = time.perf_counter()
    writer = FolderCheckpointIO(options.keep, current_ranks() if engine or strategy.kind == "fsdp2" else ALONE)
    try:
        with quiet_lightning(), group_for(strategy):
            module = prepare(made)
            trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            used = make_strategy(strategy, trained)
            parts: list[Callback] = [made.log, *([made.ema] if made.ema is not None else []), *made.callbacks]
            if options.progress:
                parts.append(StepProgress(options.description or options.stage, made.log))
            every = -(-config.checkpoint_every // checkpoint_unit) * checkpoint_unit
            parts.append(PeriodicCheckpoint(directory / CHECKPOINTS, every, made.log))
            parts.append(SaveOnSignal(directory / CHECKPOINTS, every, made.log, checkpoint_unit))
            if hasattr(used, "unshard"):
                parts.append(Unshard())
            trainer = pl.Trainer(
                accelerator=strategy.accelerator,
                devices=strategy.devices,
                num_nodes=strategy.nodes,
                strategy=used,
                precision=None if half or engine else strategy.precision,
                plugins=[writer, *make_plugins(strategy)],
                max_steps=updates.total,
                max_epochs=-1,
                accumulate_grad_batches=updates.accumulate,
                gradient_clip_val=config.optimizer.clip or None,
                logger=[JsonlLogger(metrics), *([logger] if logger is not None else [])],
                callbacks=parts,
                num_sanity_val_steps=0,
                limit_val_batches=0,
                use_distributed_sampler=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=str(directory),
            )
            with deferred():
                trainer.fit(module, ckpt_path=str(resume) if resume else None)
            if given_up:
                model.to("meta")
    except Stopped as stopped:
        writer.wait()
        raise stopped.going_on(directory / CHECKPOINTS) from stopped
    finally:
        writer.close()
        model.read_often(())
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trainable[name])
        for part, mode in modes.items():
            part.training = mode
    seconds = made.log.seconds or time.perf_counter() - began
    return _result(updates.total, seconds, metrics, done)


class MixedModule(SupervisedModule):
    """With batches of a curriculum's sources, made once Lightning knows the ranks and has restored its checkpoint."""

    sources: Mapping[str, Source]
    schedule: Curriculum
    collate: Collate
    token_counts: Callable[[Any], tuple[int, int]] | None
    dataset: StepDataset

    def rows_of_update(self) -> Sequence[str]:
        return self.dataset.read

    def train_dataloader(self) -> StepLoader:
        updates, model = self.updates, self.model
        dataset = StepDataset(
            self.collate,
            self.sources,
            self.schedule.mixture,
            rows=updates.rows or 1,
            updates=updates.total,
            seed=self.config.seed,
            stage=self.stage,
            rank=self.global_rank,
            world_size=self.trainer.world_size,
            grad_accumulation_steps=updates.accumulate,
            token_counts=self.token_counts,
            tokens=updates.tokens,
            example_tokens=model.example_tokens,
        )
        self.dataset = dataset
        if self.schedule.check_every is None:  # else what is read often depends on how far the training has come
            model.read_often(row if isinstance(row, Example) else row.example() for row in dataset.often())
        read: Any = map
        if self.device.type != "cpu" and model.thread_safe_tokenizer:
            from uni_train.training.read_ahead import read_ahead

            read = partial(read_ahead, mixture=self.schedule.mixture)
        return StepLoader(updates.total * updates.accumulate, lambda: dataset.batches(self.global_step, read))


def _finished(model: Trainable | None, schedule: Curriculum | None, checkpoint: Path, metrics: Path) -> FitResult:
    """Nothing is left to train: take the weights of the last checkpoint (the averaged ones, if there are such)."""
    state = FolderCheckpointIO(ranks=current_ranks()).load_checkpoint(checkpoint)
    callbacks = state["callbacks"]
    if model is not None:
        trained = state["state_dict"] | callbacks.get(Ema.__qualname__, {}).get("averages", {})
        new = {name.removeprefix("model."): whole(value) for name, value in trained.items()}
        model.load_state_dict(model.state_dict() | new)
    if schedule is not None and CurriculumCallback.__qualname__ in callbacks:
        schedule.load_state_dict(callbacks[CurriculumCallback.__qualname__])
    done = checkpoint_step(checkpoint)
    return _result(done, float(callbacks[MetricLog.__qualname__]["seconds"]), metrics, done)


def _result(updates: int, seconds: float, metrics: Path, resumed_from: int) -> FitResult:
    """From the log of metrics. Raises UserError where no update had a gradient."""
    lines = [line for line in read_metrics(metrics) if "loss" in line]
    idle = sum(line.get("grad_norm") == 0 for line in lines)
    if lines and idle == len(lines):
        raise UserError(
            f"nothing was learned: the gradient of all {idle} updates is 0 ({metrics})",
            "No row reaches a trained weight (trained, frozen, lora.targets, ce_weight, mse_weight), or all rewards of "
            "each group were equal.",
        )
    return FitResult(updates, seconds, [line["loss"] for line in lines], resumed_from, idle)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without the banners, tips and warnings of Lightning and DeepSpeed; their errors still come through."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(lightning|deepspeed)\.")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")  # what both call
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
