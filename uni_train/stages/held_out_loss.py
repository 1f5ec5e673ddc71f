"""Losses of single rows at fixed noise levels, to compare them before and after a training, or beside other rows.

The noise of a row at a level comes from the seed, the row and the level alone, and nothing of the row is left out. So
all moments of a training, and all trainings, are compared row by row. A row is scored alone: its loss does not depend
on its neighbours, or on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device

from uni_train.core.seeds import derive_seed
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.models.base import Example, Trainable


@torch.no_grad()
def row_losses(
    model: Trainable, examples: Mapping[str, Example], levels: Sequence[float], seed: int, ranks: Ranks = ALONE
) -> tuple[np.ndarray, np.ndarray]:
    """The losses of N rows, by their ids, at each of L `levels` within (0, 1).

    The model is in eval mode and whole on each of `ranks`, which all call it, share the rows and get the same.

    Returns:
        float64 [N], nats a learned text token; float64 [N, L], squared velocity error a latent token. Each is nan
        where a row has no such part.

    Raises:
        UserError: a row is one that this model cannot learn.
    """
    mine = [*examples][ranks.rank :: ranks.world_size]
    every = ranks.gather(ranks.on_all(lambda: [_losses(model, row, examples[row], levels, seed) for row in mine]))
    rows = [every[place % ranks.world_size][place // ranks.world_size] for place in range(len(examples))]
    table = np.array(rows).reshape(len(rows), 1 + len(levels))
    return table[:, 0], table[:, 1:]


def _losses(model: Trainable, row: str, example: Example, levels: Sequence[float], seed: int) -> list[float]:
    """Of the text, and of the images at each level."""
    ce, mse = math.nan, [math.nan] * len(levels)
    for place, level in enumerate(levels):
        own = derive_seed("held-out loss", seed, row, repr(level))
        noised = replace(example, noise_draws=1, noise_level=level, seed=own)
        loss = model.supervised_loss(move_data_to_device(model.collate([noised], own), model.device))
        note()
        if place == 0 and loss.ce_tokens:
            ce = float(loss.ce_sum / loss.ce_tokens)
        if not loss.mse_tokens:
            break
        mse[place] = float(loss.mse_sum / loss.mse_tokens)
    return [ce, *mse]
