"""What an image is drawn under: the transformer's text inputs, and shown images as latents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uni_train.models.batches import rows_by
from uni_train.models.diffusers.latents import Grid
from uni_train.models.transfer import upload

Words = Mapping[str, Tensor]
"""The transformer's text inputs, without the dimension of rows; `encoder_hidden_states` is [L, D]."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowCondition:
    """R readings, and B rows that are drawn under them; a row is an index, so that a group shares one reading.

    Attributes:
        words: text inputs of each reading.
        empty: the same with the negative prompt; None: no guidance by it.
        shown: [K_r, C] a reading, latents of the shown images one after the other (K_r may be 0).
        shapes: the grids of a reading: that of the image to be drawn, then those of the shown images.
        rows: which reading each row has.
    """

    words: Sequence[Words]
    empty: Sequence[Words] | None
    shown: Sequence[Tensor]
    shapes: Sequence[tuple[Grid, ...]]
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def grids(self) -> list[Grid]:
        """Of each row's image."""
        return [self.shapes[reading][0] for reading in self.rows]

    def select(self, rows: Sequence[int] | Tensor) -> FlowCondition:
        """The given rows, in that order; nothing is copied but indices."""
        return replace(self, rows=[self.rows[int(row)] for row in rows])

    def repeat(self, times: int) -> FlowCondition:
        """Every row `times` times in a row."""
        return replace(self, rows=[row for row in self.rows for _ in range(times)])

    def alike(self) -> list[list[int]]:
        """Rows whose grids are all equal: the transformer gives all rows of a batch the same positions."""
        return list(rows_by(self.shapes[reading] for reading in self.rows).values())


def padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """[B, L, D] with zeros behind shorter rows, and which tokens count, bool [B, L] (None: all)."""
    lengths = [len(row) for row in rows]
    stacked = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    if min(lengths) == max(lengths):
        return stacked, None
    places = torch.arange(max(lengths), device=stacked.device)
    return stacked, places < upload(torch.tensor(lengths), stacked.device)[:, None]
