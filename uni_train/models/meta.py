"""Modules without weights, for counting and for loading tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def without_weights() -> Iterator[None]:
    """What is built in this block lies on the meta device."""
    with torch.device("meta"), _WithoutDraws():
        yield


class _WithoutDraws(TorchFunctionMode):
    """Leaves initial random values out: on the meta device, drawing them means nothing but importing torch._dynamo."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
