"""The context of every stage: the configuration, the run folder, and the models of earlier stages.

All ranks run the same stages at the same time and share batches and updates. Only rank 0 writes manifests and models.
"""

from __future__ import annotations

import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from uni_train.config.kinds import PlannedStage, kind_of, run_task
from uni_train.config.schema import SHARDED, RunConfig
from uni_train.data_gen.task import Task
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.models.load import build_model, compile_steps, dtype_for, load_weights, save_model
from uni_train.run_folder import Manifest, RunFolder, stage_key

if TYPE_CHECKING:
    from uni_train.config.schema import JudgeConfig
    from uni_train.console.progress import Bar, ConsoleProgress
    from uni_train.models.base import Trainable, UnifiedModel

C = TypeVar("C", bound=RunConfig)
T = TypeVar("T")
SHARDS = "shards"
MODEL = "model"
ADAPTERS = "adapter"  # of trained=lora, beside the model that they are merged into
CHECKPOINTS = "checkpoints"  # of training, with the optimizer's state
STORE = "store"  # of an evaluation: its calls, and replies of the judge
PEAK = "peak_rss_bytes"  # in every manifest: a run's peak is that of all its starts


@dataclass
class Work(Generic[C]):
    """The state of a run in progress.

    Attributes:
        weights: where the current weights are: None for the model that the recipe starts from, else a stage's
            model folder.
        ranks: the processes that run these stages; this one.
        judge: who is asked about images, known to answer (uni_train.stages.judging); None until it is needed.
        answered: whether all servers that the run needs have answered.
    """

    config: C
    folder: RunFolder
    progress: ConsoleProgress
    weights: Path | None = None
    ranks: Ranks = ALONE
    judge: JudgeConfig | None = None
    answered: bool = False
    _key: str = ""
    _loaded: tuple[Path | None, UnifiedModel] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._key = self.folder.key

    def task(self, name: str) -> Task:
        """A task in the world of this run."""
        return run_task(self.config, name)

    def model(self, weights: Path | None) -> UnifiedModel:
        """The model with the weights of a stage (None: those that the recipe starts from), loaded once, on the device
        that trains."""
        at, model = self._loaded or (None, self.initial_model())
        if at != weights:
            if weights is None:
                model = self.initial_model()
            else:
                load_weights(model, weights)
        self._loaded = (weights, self.to_device(model))
        if self.config.model.compile:
            compile_steps(model, True)
        return model

    def initial_model(self) -> UnifiedModel:
        """The model that the recipe starts from, loaded again."""
        precision = dtype_for(self.config.strategy.precision)
        return build_model(self.config.model, self.config.seed, precision, self.device)

    @property
    def device(self) -> str:
        """This rank's device, such as "cuda:1"."""
        import torch

        gpu = self.config.strategy.accelerator != "cpu" and torch.cuda.is_available()
        return f"cuda:{self.ranks.local_rank}" if gpu else "cpu"

    def trainable_model(self, weights: Path | None, timestep_shift: float = 1.0, **dropouts: float) -> Trainable:
        """`model(weights)`, ready to be trained as the recipe says; nothing of it is compiled.

        To be sharded, its weights stay in their files (uni_train.models.weights.mapped), from which the strategy takes
        each rank's part. Adapters begin with the dtype of what they are on, which is therefore that of training.
        """
        from uni_train.models.base import Trainable, expect_skill
        from uni_train.models.weights import mapped

        config = self.config
        if config.strategy.kind in SHARDED:
            self._loaded = None  # the one that draws is whole, on the device
            lora = kind_of(config).trained(config)[0] == "lora"
            with mapped():
                model = build_model(config.model, config.seed, dtype_for(config.strategy.precision) if lora else None)
                if weights is not None:
                    load_weights(model, weights)
        else:
            model = self.model(weights)
        if config.model.compile:
            compile_steps(model, False)
        text, checkpointing = config.text_dropout, config.checkpointed_every
        model = expect_skill(model, Trainable)
        model.prepare_training(
            timestep_shift=timestep_shift, text_dropout=text, activation_checkpointing=checkpointing, **dropouts
        )
        return model

    def to_device(self, model: UnifiedModel) -> UnifiedModel:
        """`model`, quantised as the recipe says, on this rank's device."""
        if self.config.model.weights is not None:
            from uni_train.models.quantised import quantise

            quantise(model, self.config.model.weights, self.device)
        return model.to(self.device)

    def save_trained(self, model: UnifiedModel, stage: StageRun) -> None:
        """Save the trained `model` in the folder of `stage`."""
        folder = stage.path / MODEL
        self.ranks.from_main(lambda: save_model(model, folder))
        # Where weights were sharded the first rank alone has them.
        self._loaded = None if self.config.strategy.kind in SHARDED else (folder, self.to_device(model))
        written = [*folder.rglob("*"), *(stage.path / ADAPTERS).rglob("*")]
        stage.outputs = sorted(file for file in written if file.is_file())

    def share(self, batches: int, done: Set[int]) -> list[int]:
        """The batches of this rank, among those of `batches` that are not done."""
        missing = [index for index in range(batches) if index not in done]
        return missing[self.ranks.rank :: self.ranks.world_size]

    def bar(self, title: str, mine: int, done: int = 0) -> AbstractContextManager[Bar]:
        """A progress bar over this rank's work; `done` counts what earlier starts finished."""
        part = f", rank {self.ranks.rank} of {self.ranks.world_size}" if self.ranks.world_size > 1 else ""
        return self.progress.bar(f"{title}{part}", done + mine, done)

    @contextmanager
    def stage(self, planned: PlannedStage, total: int) -> Iterator[StageRun]:
        """Run one stage: yields its StageRun, and writes the manifest afterwards unless it was there already."""
        note()
        key, folder, ranks = stage_key(stage=planned.name, after=self._key), self.folder, self.ranks
        manifest = ranks.from_main(lambda: folder.read_manifest(planned.index, planned.name, key))
        self.progress.stage(
            planned.index + 1, total, f"{planned.name}: {planned.summary}", finished=manifest is not None
        )
        run = StageRun(folder.stage_dir(planned.index, planned.name), manifest)
        earlier = 0.0
        if manifest is None:
            earlier = ranks.from_main(lambda: folder.start_clock(planned.index, planned.name))
        began = time.perf_counter()
        yield run
        if manifest is None:
            peak = max(ranks.gather(peak_rss()))
            run.manifest = ranks.from_main(
                lambda: folder.write_manifest(
                    planned.index,
                    planned.name,
                    key=key,
                    seconds=earlier + time.perf_counter() - began,
                    outputs=[path.relative_to(run.path) for path in run.outputs],
                    result={**run.result, PEAK: peak},
                )
            )
        # A finished stage never resumes: all read its model, and only a training that extends it takes its checkpoint.
        extended = planned.rounds and planned.rounds[0] < len(getattr(self.config, "extended_from", ()))
        kept = extended or getattr(self.config, "keep_state", False)
        for unneeded in (f"{STORE}/calls", *([] if kept else [CHECKPOINTS])):
            ranks.from_main(partial(shutil.rmtree, run.path / unneeded, ignore_errors=True))
        self._key = key


@dataclass
class StageRun:
    """One stage's folder, and the outputs and results for its manifest."""

    path: Path
    manifest: Manifest | None
    outputs: list[Path] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name without the stage's number, which changes when a recipe adds an evaluation before it."""
        return self.path.name.partition("-")[2]

    @property
    def done(self) -> bool:
        return self.manifest is not None

    @property
    def shards(self) -> Path:
        return self.path / SHARDS

    def facts(self) -> Mapping[str, Any]:
        """The result of this start, or of the earlier start that finished the stage."""
        return self.manifest.result if self.manifest is not None else self.result


def in_batches(items: Sequence[T], size: int) -> Iterator[tuple[int, Sequence[T]]]:
    """Index and items of each batch of at most `size`."""
    for index, start in enumerate(range(0, len(items), size)):
        yield index, items[start : start + size]


def peak_rss() -> int:
    """Largest resident memory of this process so far, in bytes (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
