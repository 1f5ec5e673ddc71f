"""What `plan` finds, apart from what finds it: printing a plan needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uni_train.config.schema import StrategyConfig
from uni_train.plan.hardware import GIB, RESERVED, Gpu


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy with what it moves to the node's memory."""

    kind: str
    offload_optimizer: bool = False
    offload_weights: bool = False
    offload_averages: bool = False
    replicas: int = 1

    @property
    def name(self) -> str:
        """For tables."""
        copies = [f"{self.replicas} replicas"] if self.replicas > 1 else []
        return " + ".join([self.kind, *copies, *self._offloaded()])

    @property
    def keys(self) -> str:
        """As keys of a recipe."""
        copies = [f"strategy.replicas={self.replicas}"] if self.replicas > 1 else []
        return " ".join([f"strategy={self.kind}", *copies, *(f"strategy.{key}=true" for key in self._offloaded())])

    def _offloaded(self) -> list[str]:
        return [key for key in ("offload_optimizer", "offload_weights", "offload_averages") if getattr(self, key)]

    @classmethod
    def from_config(cls, config: StrategyConfig) -> Choice:
        """The strategy that a recipe configures."""
        offloaded = (config.offload_optimizer, config.offload_weights, config.offload_averages)
        return cls(config.kind, *offloaded, config.replicas)


@dataclass(frozen=True, slots=True)
class Share:
    """Memory and traffic of one GPU, bytes.

    Attributes:
        peak: the most at any time of an update. phase: when. parts: by kind at that time, `buffers` and kept
            `texts` beside them.
        host: of the node's own memory, for each GPU of it.
        wire: sent in an update, by collective. bus: between GPU and host in an update.
    """

    peak: int
    phase: str
    parts: Mapping[str, int]
    host: int
    wire: Mapping[str, int]
    bus: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of a training's files.

    Attributes:
        checkpoints: on the disk at most, all together.
        loading, saving: of host memory that a process holds while weights are read, and a checkpoint or the model is
            written; of the first process, which holds the most.
    """

    checkpoints: int
    loading: int
    saving: int


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One strategy on these GPUs. `largest`: units a micro-batch that fit (0: none does)."""

    choice: Choice
    share: Share
    storage: Storage
    fits: bool
    largest: int
    wire_seconds: float
    bus_seconds: float
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory in bytes a GPU, times in seconds, which are 0 where the speed of the GPU is unknown (`Gpu.timed`).

    Attributes:
        unit: what a micro-batch consists of. units: how many it has on one GPU. micros: micro-batches of an update.
        flops: of an update on one GPU. compute_seconds: of that at the utilisation.
        whole: bytes of all weights, which stages that sample or evaluate hold on each GPU (0: there are none).
        models: bytes on the disk of the models that stages leave.
        held_rows: bytes of training rows that each process keeps in memory; images beyond them stay on disk.
        images: that stages which train nothing draw at most. image_seconds: of one of them on a GPU.
        updates: of the training. draw_seconds: of the drawing of an epoch (flow_grpo), divided among its updates.
        rows: a row a strategy. chosen: the one that is meant, or the quickest that fits (None: none fits).
        assumptions: what was not known. advice: what to change.
    """

    recipe: str
    model: str
    gpu: Gpu
    nodes: int
    gpus_a_node: int
    utilisation: float
    parameters: int
    trained: int
    unit: str
    units: int
    micros: int
    flops: float
    compute_seconds: float
    draw_seconds: float
    images: int
    image_seconds: float
    whole: int
    models: int
    held_rows: int
    updates: int
    updates_per_epoch: int | None
    activation_checkpointing: bool
    activations: dict[str, int]
    rows: tuple[StrategyRow, ...]
    chosen: int | None
    assumptions: tuple[str, ...]
    advice: tuple[str, ...]

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_a_node

    def seconds(self, row: StrategyRow) -> float:
        """Of the whole training."""
        return self.updates * (row.step_seconds + self.draw_seconds)

    def gpu_hours(self, row: StrategyRow) -> float:
        """Of the whole training, all GPUs together."""
        return self.seconds(row) * self.gpus / 3600


@dataclass(frozen=True, slots=True)
class OneCardChoice:
    """A way onto one card. `keys`: of the recipe. `peak`: bytes of the card, `host`: of the machine."""

    keys: str
    peak: int
    host: int

    def fits(self, card: int) -> bool:
        """Onto a card of so many bytes."""
        return self.peak <= card - RESERVED


CARDS = (16 * GIB, 24 * GIB, 32 * GIB, 40 * GIB, 48 * GIB, 80 * GIB)
