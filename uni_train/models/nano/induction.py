"""An induction head to start with: nano's understanding weights can look things up before they are trained.

Finding what a symbol stands for ("@ means 7 ... what @ means") takes two layers that only pay off together: one that
notes at every token what stood before it, one that matches those notes (Olsson et al. 2022, "In-context learning and
induction heads"). From random weights a throw-away pretraining of 1,000 updates (one seed) had not found them; large
language models come with them. So the start is made by hand, in the spirit of mimetic initialisation
(Trockman and Kolter 2023), and everything is trained from there:

    layer 0, heads 0 and 1   attend one and two tokens back, by rope alone, and write a copy of what they find
    layer 1, head 0          asks for the token whose two-back copy equals the own one-back copy, and copies it

With QK norm the norm's gain bounds the attention logits, so all layers begin with `GAIN`: with a gain of 1 no later
layer can attend sharply enough to look up what an earlier one has found. Contents are compared in the slow channels of
rope only, which distance does not turn.
"""

from __future__ import annotations

from typing import cast

import torch

from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.mot import MotLayer

GAIN = 2.0
_NOTE = 1.5  # length of a note against that of an embedding's projection
_COPY = 2.0
_SLOW = 0.02  # radians a token: channels slower than this hold contents, those above 0.05 positions
_FAST = 0.05


@torch.no_grad()
def add_induction_head(bagel: Bagel, seed: int) -> None:
    """Overwrite three heads of the first two understanding layers, in place.

    Sizes without room for them (fewer than two layers or heads, keys shared by heads) are left as they are.
    """
    llm = bagel.config.llm
    heads = llm.num_attention_heads
    if llm.num_hidden_layers < 2 or heads < 2 or llm.num_key_value_heads != heads:
        return
    d, half, width = llm.head_dim, llm.head_dim // 2, llm.hidden_size
    turn = llm.rope_theta ** (-torch.arange(half) / half)
    basis, _ = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))
    slow = torch.cat([turn < _SLOW, turn < _SLOW]).nonzero()[: width // 3, 0]
    n = len(slow)
    read, one_back, two_back = basis[:, :n].T, basis[:, n : 2 * n], basis[:, 2 * n : 3 * n]

    layers = cast("list[MotLayer]", list(bagel.language_model.model.layers))
    first, second = layers[0].self_attn, layers[1].self_attn
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

    second.q_proj.weight[:d] = 0
    second.k_proj.weight[:d] = 0
    second.q_proj.weight[slow] = one_back.T
    second.k_proj.weight[slow] = two_back.T
    copied = basis[:, -d:].T
    second.v_proj.weight[:d] = copied
    second.o_proj.weight[:, :d] = _COPY * copied.T
