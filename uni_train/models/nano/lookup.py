"""Look-up heads to start with: nano's understanding weights follow a chain of rules before they are trained.

Such heads follow prompts like "@ means 7 . 7 means apple . ... what @ means". One layer stores at every token what
stood before it. Each link takes one further layer that matches what was stored (Olsson et al. 2022, arXiv:2209.11895).
Training found one link from random weights slowly, and three links in single prompts not at all; large language models
come with such heads. So these weights are initialised by hand, like mimetic initialisation (Trockman and Kolter 2023,
arXiv:2305.09828). Everything is trained from there:

    layer 0, heads 0 and 1     attend one and two tokens back, by rope alone, and write a copy of what they find
    layers 1 to HOPS, head 0   ask for the token whose two-back copy equals the own one-back copy, later on what the
                               layer before has found, and copy it

With QK norm the norm's gain bounds the attention logits, so all layers begin with `GAIN`. With a gain of 1 no later
layer attends sharply enough to look up an earlier layer's result. Contents are compared in the slow channels of rope
only, which distance does not turn.
"""

from __future__ import annotations

from typing import cast

import torch

from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.mot import MotLayer

GAIN = 2.0
HOPS = 3  # links of the longest chain
_NOTE = 1.5  # length of a note against that of an embedding's projection
_COPY = 2.0
_SLOW = 0.02  # radians a token: channels slower than this hold contents, those above 0.05 positions
_FAST = 0.05


@torch.no_grad()
def add_lookup_heads(bagel: Bagel, seed: int) -> None:
    """Overwrite heads of the first understanding layers, in place.

    Sizes without room for them (fewer than two layers or heads, keys shared by heads) are left as they are.
    """
    llm = bagel.config.llm
    heads = llm.num_attention_heads
    if llm.num_hidden_layers < 2 or heads < 2 or llm.num_key_value_heads != heads:
        return
    d, half, width = llm.head_dim, llm.head_dim // 2, llm.hidden_size
    turn = llm.rope_theta ** (-torch.arange(half) / half)
    basis, _ = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))
    slow = torch.cat([turn < _SLOW, turn < _SLOW]).nonzero()[: width // (3 + HOPS), 0]
    n = len(slow)
    read, one_back, two_back = basis[:, :n].T, basis[:, n : 2 * n], basis[:, 2 * n : 3 * n]

    layers = cast("list[MotLayer]", list(bagel.language_model.model.layers))
    first = layers[0].self_attn
    for layer in layers:
        layer.self_attn.q_norm.weight.fill_(GAIN)
        layer.self_attn.k_norm.weight.fill_(GAIN)
    strength = torch.where(turn > _FAST, torch.linspace(1.0, 0.3, half), torch.zeros(half))
    still = torch.zeros(half)
    for head, (back, note) in enumerate(((1, one_back), (2, two_back))):
        rows = slice(head * d, (head + 1) * d)
        for projection in (first.q_proj, first.k_proj, first.v_proj):
            projection.weight[rows] = 0
        first.o_proj.weight[:, rows] = 0
        first.k_proj.bias[rows] = torch.cat([strength, still])
        # Turned so that the score is largest for the key `back` tokens earlier.
        first.q_proj.bias[rows] = torch.cat([strength * torch.cos(back * turn), -strength * torch.sin(back * turn)])
        first.v_proj.weight[head * d : head * d + n] = read
        first.o_proj.weight[:, head * d : head * d + n] = _NOTE * note

    # Layer 1 asks with the note of the token before, each later hop with what the hop before it has found.
    query = one_back
    for hop, layer in enumerate(layers[1 : 1 + HOPS]):
        result = basis[:, (3 + hop) * n : (4 + hop) * n]
        attention = layer.self_attn
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            projection.weight[:d] = 0
        attention.o_proj.weight[:, :d] = 0
        attention.q_proj.weight[slow] = query.T
        attention.k_proj.weight[slow] = two_back.T
        attention.v_proj.weight[:n] = read
        attention.o_proj.weight[:, :n] = _COPY * result
        query = result
