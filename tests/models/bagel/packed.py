"""Hidden states as published code has them: one row's tokens in the order in which they were packed."""

from __future__ import annotations

import torch
from torch import Tensor

from uni_train.models.bagel.packing import PackedBatch


def packed_order(batch: PackedBatch, x_BUD: Tensor, x_BGD: Tensor, row: int = 0) -> Tensor:
    """[tokens, D] of one row, without padding."""
    und, gen = batch.und_valid[row], batch.gen_valid[row]
    x = torch.cat([x_BUD[row][und], x_BGD[row][gen]])
    order = torch.cat([batch.und_mask.order[row][und], batch.gen_mask.order[row][gen]])
    return x[order.argsort()]
