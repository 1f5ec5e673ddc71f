"""What every stage is given: the configuration, the run folder, and the models that earlier stages left behind."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from data_gen.mapping import Mapping as Mapping_
from data_gen.task import Task, get_task
from uni_train.config.build import to_plain
from uni_train.config.schema import Config
from uni_train.config.stage_list import PlannedStage
from uni_train.run_folder import FREE_KEYS, Manifest, RunFolder, stage_key

if TYPE_CHECKING:
    from uni_train.cli.progress import ConsoleProgress
    from uni_train.models.base import UnifiedModel

C = TypeVar("C", bound=Config)
T = TypeVar("T")
SHARDS = "shards"
MODEL = "model"
PEAK = "peak_rss_bytes"  # in every manifest: a run's peak is that of all its starts


@dataclass
class Work(Generic[C]):
    """A run while it runs.

    Attributes:
        weights: where the current weights are: None for the model that the recipe starts from, else a stage's
            model folder.
    """

    config: C
    folder: RunFolder
    progress: ConsoleProgress
    weights: Path | None = None
    _key: str = ""
    _loaded: tuple[Path | None, UnifiedModel] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        plain = {key: value for key, value in to_plain(self.config).items() if key not in FREE_KEYS}
        self._key = stage_key(config=plain)

    def task(self, name: str) -> Task:
        """A task in the world of this run."""
        task = get_task(name, self.config.data.world)
        if isinstance(task, Mapping_):
            data = self.config.data
            return replace(task, distractors=data.distractors, shuffle=data.rule_order == "random")
        return task

    def model(self, weights: Path | None) -> UnifiedModel:
        """The model with the weights of a stage (None: those that the recipe starts from), loaded once."""
        from uni_train.models.load import build_model, load_weights

        if self._loaded is None:
            self._loaded = (None, build_model(self.config.model, self.config.seed))
            if weights is None:
                return self._loaded[1]
        at, model = self._loaded
        if at != weights:
            if weights is None:
                model = build_model(self.config.model, self.config.seed)
            else:
                load_weights(model, weights)
        self._loaded = (weights, model)
        return model

    def changed(self, model: UnifiedModel, weights: Path) -> None:
        """Note that training has turned `model` into what is stored at `weights`."""
        self.weights = weights
        self._loaded = (weights, model)

    @contextmanager
    def stage(self, planned: PlannedStage, total: int) -> Iterator[StageRun]:
        """A stage's turn: yields whether it is already finished, and takes the manifest's content otherwise."""
        key = stage_key(stage=planned.name, after=self._key)
        manifest = self.folder.read_manifest(planned.index, planned.name, key)
        self.progress.stage(
            planned.index + 1, total, f"{planned.name}: {planned.summary}", finished=manifest is not None
        )
        run = StageRun(self.folder.stage_dir(planned.index, planned.name), manifest)
        earlier = self.folder.start_clock(planned.index, planned.name) if manifest is None else 0.0
        began = time.perf_counter()
        yield run
        if manifest is None:
            run.manifest = self.folder.write_manifest(
                planned.index,
                planned.name,
                key=key,
                seconds=earlier + time.perf_counter() - began,
                outputs=[path.relative_to(run.path) for path in run.outputs],
                result={**run.result, PEAK: peak_rss()},
            )
        self._key = key


@dataclass
class StageRun:
    """One stage's folder, and what it will say when it is finished."""

    path: Path
    manifest: Manifest | None
    outputs: list[Path] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.manifest is not None

    @property
    def shards(self) -> Path:
        return self.path / SHARDS

    def facts(self) -> Mapping[str, Any]:
        """The result, whether this start or an earlier one has found it."""
        return self.manifest.result if self.manifest is not None else self.result


def in_batches(items: Sequence[T], size: int) -> Iterator[tuple[int, Sequence[T]]]:
    """Index and items of each batch of at most `size`."""
    for index, start in enumerate(range(0, len(items), size)):
        yield index, items[start : start + size]


def peak_rss() -> int:
    """Largest resident memory of this process so far, in bytes (Linux counts in KiB, macOS in bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
