"""Exponential moving average of the weights: W_ema <- decay * W_ema + (1 - decay) * W after every update.

Lightning's WeightAveraging does the work (both sets of weights are in every checkpoint; the averaged ones replace the
others when training ends). Added here: one fused operation instead of one per tensor, and a way to look at the averaged
weights in between. It holds a second copy of the whole model, frozen weights included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lightning.pytorch as pl
from lightning.pytorch.callbacks import WeightAveraging
from torch.optim.swa_utils import get_ema_multi_avg_fn


class Ema(WeightAveraging):
    """Averages after every update, starting from the weights after the first one; buffers are copied."""

    def __init__(self, decay: float) -> None:
        super().__init__(use_buffers=False, multi_avg_fn=get_ema_multi_avg_fn(decay))

    @contextmanager
    def averaged(self, module: pl.LightningModule) -> Iterator[None]:
        """Within this block `module` has the averaged weights."""
        self._swap_models(module)
        try:
            yield
        finally:
            self._swap_models(module)
