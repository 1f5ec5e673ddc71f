"""First-block caching of denoising steps, by the hooks of diffusers (https://github.com/chengzeyi/ParaAttention).

Each step computes the first layer. A residual that has changed by less than a threshold since the last full step stands
for all layers: that step's residual of the others is added in place of computing them. The change is the mean absolute
difference over a batch, relative to the mean absolute residual. So images of one batch depend on one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from uni_train.core.errors import UserError

HINT = "Leave sampling.first_block_cache out."


@contextmanager
def first_block_cache(transformer: Any, threshold: float | None) -> Iterator[None]:
    """Within this block the steps of a transformer of diffusers are cached, from an empty cache on; None: exact.

    Raises:
        UserError: its layers are unknown to diffusers.
    """
    if threshold is None:
        yield
        return
    from diffusers.hooks import FirstBlockCacheConfig

    try:
        transformer.enable_cache(FirstBlockCacheConfig(threshold))
    except ValueError as error:
        raise UserError(f"diffusers cannot cache these steps: {error}", HINT) from error
    try:
        yield
    finally:
        transformer.disable_cache()
