"""Texts that frozen weights have read: keys, values and hidden states, kept for the next batch with the same text.

A training of generation weights reads the same prompts again and again by weights that stay as they are. A text is its
token ids and rope positions: tokens see earlier tokens of their sample alone, so nothing else decides its numbers.

Their rounding depends on how many texts are read together, as kernels are chosen by the number of rows. So texts that
are kept are read in groups which the training's rows alone decide. A training that continues has the bits of one that
never stopped, whatever it reads first. Other texts of a batch are read together, anew each time.

Shapes: B rows, T tokens of the longest text, D width; K key/value heads, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from uni_train.models.bagel.attention import prepare
from uni_train.models.bagel.config import AttentionImpl
from uni_train.models.bagel.masks import TokenMask
from uni_train.models.bagel.mot import Decoder

MOST_BYTES = 2**28
_TOGETHER = 32  # texts


class LayerKeys:
    """Keys and values of the tokens that were read first, per layer, in front of those that ask.

    Attributes:
        reading: whether tokens ask now; before, what is given is kept.
    """

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.reading = False

    def extend(self, layer: int, k_BKLd: Tensor, v_BKLd: Tensor) -> tuple[Tensor, Tensor]:
        """Those that are kept, with these behind them."""
        if not self.reading:
            self.layers[layer] = (k_BKLd, v_BKLd)
        if not self.reading or layer not in self.layers:
            return k_BKLd, v_BKLd
        k, v = self.layers[layer]
        return torch.cat([k, k_BKLd], dim=2), torch.cat([v, v_BKLd], dim=2)


class PrefixStore:
    """What a decoder has computed of texts that are read often, from the first batch on that needs them.

    Its length is the number of texts that it keeps.

    Args:
        texts: as `PackedBatch.prefixes`; those from which on `most_bytes` would be exceeded are not asked for.
    """

    def __init__(self, decoder: Decoder, impl: AttentionImpl, texts: Iterable[bytes], most_bytes: int = MOST_BYTES):
        self.decoder, self.impl = decoder, impl
        llm, size = decoder.config, decoder.embed_tokens.weight.itemsize
        token_bytes = (2 * llm.num_hidden_layers * llm.num_key_value_heads * llm.head_dim + llm.hidden_size) * size
        kept: dict[bytes, None] = {}
        for text in texts:
            if not text or text in kept:
                continue
            most_bytes -= _tokens(text) * token_bytes
            if most_bytes < 0:
                break
            kept[text] = None
        in_order = sorted(kept, key=lambda text: (len(text), text))
        groups = [in_order[start : start + _TOGETHER] for start in range(0, len(in_order), _TOGETHER)]
        self._group = {text: group for group in groups for text in group}
        self._kept: dict[bytes, _Computed] = {}
        self._state = (-1, False)

    def __len__(self) -> int:
        return len(self._group)

    @torch.no_grad()
    def read(self, rows: Sequence[Sequence[bytes]], length: int) -> tuple[Tensor, LayerKeys]:
        """Hidden states after the final norm [B, length, D], and the keys and values of all layers.

        What was kept is forgotten where frozen weights have been written to since.

        Args:
            rows: of each row the texts of its samples (`PackedBatch.prefixes`), zeros behind them.
        """
        self._forget_other()
        texts = [[text for text in row if text] for row in rows]
        distinct = dict.fromkeys(text for row in texts for text in row)
        for text in distinct:
            if text in self._group and text not in self._kept:
                self._kept |= self._compute(self._group[text])
        others = [text for text in distinct if text not in self._group]
        computed = self._kept | self._compute(others) if others else self._kept
        some_keys, some_hidden = computed[next(iter(distinct))]
        layers, heads, _, channels = some_keys.shape
        keys = some_keys.new_zeros(layers, len(rows), heads, length, channels)
        hidden = some_hidden.new_zeros(len(rows), length, some_hidden.shape[1])
        for i, row in enumerate(texts):
            end = 0
            for text in row:
                begin, end = end, end + _tokens(text)
                keys[:, i, :, begin:end], hidden[i, begin:end] = computed[text]
        read = LayerKeys()
        read.layers = {i // 2: (keys[i], keys[i + 1]) for i in range(0, layers, 2)}
        return hidden, read

    def _forget_other(self) -> None:
        """Empty the store where weights or their precision are not those of the call before."""
        writes = sum(parameter._version for parameter in self.decoder.parameters() if not parameter.requires_grad)
        state = writes, torch.is_autocast_enabled(self.decoder.embed_tokens.weight.device.type)
        if state != self._state:
            self._kept, self._state = {}, state

    def _compute(self, texts: Sequence[bytes]) -> dict[bytes, _Computed]:
        """Read texts as the rows of one batch."""
        device = self.decoder.embed_tokens.weight.device
        tables = [torch.from_numpy(np.frombuffer(text, np.int32).reshape(2, -1).copy()) for text in texts]
        longest = max(map(_tokens, texts))
        ids, rope = torch.stack([F.pad(table, (0, longest - table.shape[1])) for table in tables], 1).to(device).long()
        order = torch.arange(longest, dtype=torch.int32, device=device).expand(len(texts), -1)
        nothing = torch.zeros_like(order)
        x_BUD = self.decoder.embed_tokens(ids)
        read = LayerKeys()
        attend = prepare(TokenMask(order, nothing, order, nothing), self.impl, x_BUD.dtype)
        hidden, _ = self.decoder(x_BUD, x_BUD[:, :0], rope, rope[:, :0], attend, read)
        keys = torch.stack([part for layer in range(len(read.layers)) for part in read.layers[layer]])
        return {
            text: (keys[:, row, :, : _tokens(text)].clone(), hidden[row, : _tokens(text)].clone())
            for row, text in enumerate(texts)
        }


_Computed = tuple[Tensor, Tensor]
"""Keys and values of all layers in turn [2 layers, K, T, d]; hidden states [T, D]."""


def _tokens(text: bytes) -> int:
    return len(text) // 8  # two int32 a token
