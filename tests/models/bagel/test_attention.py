"""Attention of grouped heads under masks, and masks in blocks."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

from uni_train.models.bagel.attention import prepare_bool
from uni_train.models.bagel.masks import BLOCK
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack


@pytest.mark.parametrize("queries", (1, 5))
@pytest.mark.parametrize("full", (False, True))
def test_grouped_heads_attend_as_each_alone_and_without_enable_gqa(queries, full, monkeypatch):
    """The mask is one row for all queries, or a row for each; where it is full, kernels get none."""
    generator = torch.Generator().manual_seed(queries)
    q, k, v = (torch.randn(2, heads, 5 if heads == 6 else 9, 8, generator=generator) for heads in (6, 2, 2))
    allowed = torch.rand(2, 1, queries, 9, generator=generator) > (-1 if full else 0.4)
    allowed[..., 0] = True
    fused, seen = F.scaled_dot_product_attention, []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **b: seen.append(b) or fused(*a, **b))
    found = prepare_bool(allowed, "sdpa", q.dtype, full=full)(q, k, v)
    scores = (q @ k.repeat_interleave(3, 1).mT / 8**0.5).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(found, scores.softmax(-1) @ v.repeat_interleave(3, 1), atol=1e-6, rtol=1e-5)
    assert [(one["attn_mask"] is None, one.get("enable_gqa", False)) for one in seen] == [(full, False)]


def blocks(number, index, columns):
    """bool [B, Q, K]: the blocks that flex_attention's lists name."""
    first = torch.arange(columns) < number[:, 0, :, None]
    return torch.zeros_like(first).scatter(-1, index[:, 0].long(), first)


def test_blocks_of_a_mask_are_left_out_and_taken_whole_only_where_all_their_tokens_agree(tiny_config):
    config, draw = tiny_config(max_latent_size=32), random.Random(5)

    def segment():
        kind, grid = draw.choice(("text", "text", "vit", "clean", "noised", "noised")), (draw.choice((2, 8, 16)), 16)
        if kind == "text":
            return Text([7] * draw.choice((3, 40, 300)))
        if kind == "vit":
            return VitImage((draw.choice((2, 8)), 8))
        return VaeImage(grid, noised=kind == "noised")

    rows = [[encode([segment() for _ in range(5)], config) for _ in range(2)] for _ in range(2)]
    mask = pack(rows, config).mask
    found = mask.block_mask()
    columns = -(-mask.order.shape[1] // BLOCK)
    some, every = (
        blocks(*lists, columns)
        for lists in (
            (found.kv_num_blocks, found.kv_indices),
            (found.full_kv_num_blocks, found.full_kv_indices),
        )
    )
    dense = mask.allowed()[:, 0]
    b, q, k = (torch.arange(n) for n in dense.shape)
    assert torch.equal(found.mask_mod(b[:, None, None], None, q[None, :, None], k[None, None, :]), dense)
    padding = columns * BLOCK - len(k)
    tiles = F.pad(dense, (0, padding, 0, padding)).unflatten(2, (columns, BLOCK)).unflatten(1, (columns, BLOCK))
    any_seen, all_seen = tiles.any(4).any(2), tiles.all(4).all(2)
    assert not (any_seen & ~(some | every)).any(), "a block with a visible token is left out"
    assert not (every & (~all_seen | some)).any(), "a block with an invisible token is taken whole"
    assert every.any() and (some | every).float().mean() < 1.3 * any_seen.float().mean(), "hardly a block is spared"
    assert mask.computed_share() == pytest.approx(float((some | every).float().mean()))
