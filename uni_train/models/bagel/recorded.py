"""Text on a GPU, a step of which is one launch: a CUDA graph of PyTorch's own kernels, recorded once a text.

Without it a GPU waits for the launches of several hundred operators a token. The step has static shapes (compiled.py);
keys and values have room for the longest text that may be written. To record it takes the time of a few tokens.

Shapes: B rows, D width.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.compiled import CompiledText, StaticKeys, static_step

RECORD_AFTER = 8
"""Tokens that are written eagerly before a step is recorded: answers of a word end before."""
_ALIGNED = 8  # columns: fused kernels want rows of a mask to begin at multiples of 16 bytes
_ROUNDING = 0.05  # of the norm of hidden states; a wrong graph's share is about 1


class RecordedText:
    """Text behind a context, a column at a time: eagerly at first, then by a CUDA graph of the same kernels.

    The graph lives as long as the text, so no weight that is trained, merged or moved later can make it stale. Its
    first result is compared with the eager step's. Where it cannot be recorded, or differs, a warning says so and the
    model writes eagerly from then on.

    Args:
        columns: the most that are fed.
    """

    def __init__(self, bagel: Bagel, cache: KVCache, columns: int) -> None:
        self.bagel, self.begin, self.length = bagel, cache.length, cache.length
        room = -(-(cache.length + columns) // _ALIGNED) * _ALIGNED
        self.room = StaticKeys(cache.keys, cache.values, room)
        self.room.fill(cache.keys, cache.values, cache.valid, cache.next_rope)
        self.ids_B1 = torch.zeros_like(self.room.rope[:, None])
        self.valid_B1 = torch.zeros_like(self.ids_B1, dtype=torch.bool)
        self.graph: tuple[torch.cuda.CUDAGraph, Tensor] | None = None

    def feed(self, ids_B1: Tensor, valid_B1: Tensor) -> Tensor:
        """Hidden states [B, 1, D] after the final norm; the next call may write over them."""
        self.length += 1
        self.ids_B1.copy_(ids_B1)
        self.valid_B1.copy_(valid_B1)
        if self.graph is not None:
            self.graph[0].replay()
            return self.graph[1]
        if self.bagel.records_text and self.length > self.begin + RECORD_AFTER:
            return self._record()
        return self._step()

    def context(self) -> KVCache:
        room = self.room
        return KVCache(room.keys, room.values, room.valid[:, : self.length], room.rope)

    def _step(self) -> Tensor:
        attention = self.bagel.config.attention
        return static_step(self.bagel.language_model.model, attention, self.room, self.ids_B1, self.valid_B1)

    def _record(self) -> Tensor:
        """Feed a column eagerly, record the step, and feed the same column once more by what was recorded."""
        state = self.room.valid, self.room.rope, self.room.column
        before = [tensor.clone() for tensor in state]
        expected = self._step()
        after = [tensor.clone() for tensor in state]
        for tensor, earlier in zip(state, before, strict=True):
            tensor.copy_(earlier)
        device = expected.device
        stream = torch.cuda.current_stream(device)
        try:
            with torch.cuda.device(device):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=_stream(device), capture_error_mode="thread_local"):
                    hidden = self._step()
            hidden.zero_()  # what did not get into the graph is seen below
            graph.replay()
            if not bool((hidden - expected).float().norm() <= _ROUNDING * expected.float().norm()):
                raise RuntimeError("its numbers differ from those of the same step without a graph")
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a recording that fails does not leave its own
            self.bagel.records_text = False
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            warnings.warn(f"The model writes text without a CUDA graph, and so more slowly: {reason}", stacklevel=2)
            for tensor, later in zip(state, after, strict=True):
                tensor.copy_(later)
            return expected
        self.graph = graph, hidden
        return hidden


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """On which all steps of a device are recorded: cuBLAS keeps memory for each stream that it has seen."""
    return torch.cuda.Stream(device)


def static_text(bagel: Bagel, cache: KVCache, columns: int) -> CompiledText | RecordedText | None:
    """What feeds a text of at most so many columns in one launch a token; None: only operator by operator."""
    if bagel.static is not None:
        return bagel.static.text(bagel.language_model.model, bagel.config, cache)
    return RecordedText(bagel, cache, columns) if recordable(bagel) else None


def recordable(bagel: Bagel) -> bool:
    """Whether the decoder's weights lie still on a GPU while it writes.

    Those of fsdp2 and of ZeRO-3 are gathered anew for each layer; autocast keeps copies beyond the text.
    """
    if not bagel.records_text or torch.is_autocast_enabled("cuda"):
        return False
    weights = bagel.language_model.parameters()
    return all(x.device.type == "cuda" and not hasattr(x, "ds_tensor") and not isinstance(x, DTensor) for x in weights)
