"""First-block caching of denoising steps, by the hooks of diffusers (https://github.com/chengzeyi/ParaAttention).

Each step computes the first layer. A residual that has changed by less than a threshold since the last full step stands
for all layers: that step's residual of the others is added in place of computing them. The change is the mean absolute
difference over a batch, relative to the mean absolute residual. So images of one batch depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn

from uni_train.errors import UserError

HINT = "Leave sampling.first_block_cache out."
Branch = Callable[[str], AbstractContextManager[Any]]
"""By the name of a branch of guidance, the context in which it is computed: each has a cache of its own."""


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


@contextmanager
def cached_layers(layers: Any, threshold: float) -> Iterator[Branch]:
    """The same for the layers of BAGEL's decoder. Raises UserError: diffusers is missing."""
    try:
        from diffusers.hooks._helpers import TransformerBlockMetadata, TransformerBlockRegistry
        from diffusers.models.cache_utils import CacheMixin
    except ImportError as error:
        hint = "Install it: pip install -e '.[hf]'."
        raise UserError(f"sampling.first_block_cache needs diffusers ({error})", hint) from error

    class Layers(nn.Module, CacheMixin):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

    # Their arguments and results are (understanding tokens, generation tokens). The hook asks for them by names of its
    # own, so it is told their places.
    places = {"encoder_hidden_states": 0, "hidden_states": 1}
    known = TransformerBlockMetadata(1, 0, _cached_parameter_indices=places)
    TransformerBlockRegistry.register(type(layers[0]), known)
    cached: Any = Layers()
    with first_block_cache(cached, threshold):
        yield cached.cache_context
