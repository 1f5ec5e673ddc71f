"""Keys that some kinds of training take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uni_train.config.schema import Count, Positive, Rows, RunConfig, Weight


@dataclass(frozen=True, kw_only=True)
class ExtendableConfig(RunConfig):
    """Keys of a recipe whose training goes on where it has ended, when the key `length` is raised."""

    length: ClassVar[str] = "updates"
    keep_state: bool = True  # optimizer, averages and position in the data, so that a finished run can be extended
    extended_from: tuple[Count, ...] = ()  # its lengths before it was extended; `fit` writes them

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where each of its trainings begins and ends, in the unit of `length`."""
        ends = (*self.extended_from, getattr(self, self.length))
        return list(zip((0, *ends), ends, strict=False))


@dataclass(frozen=True, kw_only=True)
class VaeConfig:
    """The tiny VAE, trained first."""

    updates: Count
    batch: Rows
    lr: Positive
    kl_weight: Weight = 1e-6
