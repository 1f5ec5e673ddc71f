"""Traces: what is held when, to the byte, and FLOPs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from uni_train.models.bagel.attention import computed_share, prepare
from uni_train.models.bagel.masks import TokenMask
from uni_train.plan.trace import KINDS, following, place

ROW = 4 * 1000


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_memory_is_counted_from_the_operation_that_makes_it_until_nothing_refers_to_it(device):
    with following(device) as trace:
        x = torch.empty(1000, device=device)
        trace.start("three at once")
        y = torch.cat([x, x])
        del y
        trace.start("two")
        y = x + x
        z = y.view(10, 100)  # no memory of its own
        del x, y
        assert trace.live["activations"] == ROW
        del z
        assert trace.live["activations"] == 0
    line = trace.timeline()
    assert line.peak() == 3 * ROW
    assert line.at_peak()[0] == "three at once"
    held = [sum(row) for row, phase in zip(line.bytes.tolist(), line.phases, strict=True) if phase == "two"]
    assert max(held) == 2 * ROW


def test_kinds_follow_names_and_factors_scale_them():
    with following("meta") as trace:
        layer = nn.Linear(10, 100, bias=False)
        place(layer, "meta", lambda name, dtype: torch.bfloat16)
        trace.name(list(layer.parameters()), "weights")
        with trace.gradients_of(list(layer.parameters())):
            layer(torch.empty(1, 10, dtype=torch.bfloat16, device="meta")).sum().backward()
    line = trace.timeline()
    assert (trace.live["weights"], trace.live["gradients"]) == (2000, 2000)
    only = [float(kind == "gradients") / 2 for kind in KINDS]
    assert line.peak(only) == 1000


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_checkpointing_shows_in_what_is_kept_and_in_the_flops(device):
    def run(activation_checkpointing: bool) -> tuple[int, float]:
        with following(device) as trace:
            layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)) for _ in range(4))
            place(layers, device)
            trace.name(list(layers.parameters()), "weights")
            x = torch.empty(1000, 64, device=device)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if activation_checkpointing else layer(x)
            held = trace.live["activations"]
            x.sum().backward()
        return held, trace.flops

    kept, flops = run(False)
    less, more = run(True)
    # Every layer keeps its input and the output of tanh; checkpointed, its input alone. The last output is there, too.
    assert kept == 4 * (1000 * 64 + 1000 * 256) * 4 + 1000 * 64 * 4
    assert less == 5 * 1000 * 64 * 4
    one = 2 * 1000 * 64 * 256 * 2
    assert flops == 4 * one * 3 - one / 2  # nobody wants the gradient of the first input
    assert more >= flops + 4 * one / 2  # at least what the backward pass needs is computed again


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("groups", [2, 4])
def test_attention_on_a_gpu_keeps_scores_where_no_kernel_is_fused(groups, dtype, masked):
    """Fused are: no mask in half precision, and a head of keys for each of queries."""
    with following("meta") as trace:
        q = torch.empty(2, 4, 100, 16, device="meta", requires_grad=True, dtype=dtype)
        k, v = (torch.empty(2, groups, 300, 16, device="meta", requires_grad=True, dtype=dtype) for _ in range(2))
        allowed = torch.ones(1, 1, 100, 300, dtype=torch.bool, device="meta") if masked else None
        before = trace.live["activations"]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=groups != 4)
        forward, kept = trace.flops, trace.live["activations"] - before
        bias = 100 * 300 * q.element_size() if masked else 0
        fused = groups == 4 or (dtype == torch.bfloat16 and not masked)
        if fused:
            assert kept == out.nbytes + bias + 2 * 4 * 100 * 4
        else:
            assert kept > 2 * 4 * 100 * 300 * q.element_size()
        out.sum().backward()
    assert forward == 4 * 2 * 4 * 100 * 300 * 16
    assert trace.flops == (3.5 if fused else 3) * forward
    assert k.grad.shape == k.shape


def test_long_packed_rows_of_a_bagel_have_no_mask_on_a_gpu():
    integers = torch.zeros(2, 600, device="meta", dtype=torch.int32)
    with following("meta") as trace:
        q = torch.empty(2, 4, 600, 16, device="meta", requires_grad=True)
        k = torch.empty(2, 2, 600, 16, device="meta", requires_grad=True)
        attend, before = prepare(TokenMask(*[integers] * 4), "auto", q.dtype), trace.live["activations"]
        out = attend(q, k, k)
        assert trace.live["activations"] - before == out.nbytes + 2 * 4 * 600 * 4
        assert trace.flops == 4 * 2 * 4 * 600 * 600 * 16
        token = computed_share.set(0.25)  # of the blocks flex looks at a quarter
        prepare(TokenMask(*[integers] * 4), "auto", q.dtype)(q, k, k)
        computed_share.reset(token)
        assert trace.flops == 1.25 * 4 * 2 * 4 * 600 * 600 * 16


def test_stand_ins_are_gone_afterwards():
    kept = F.scaled_dot_product_attention, F.rms_norm, torch.Tensor.tolist
    with following("meta"):
        assert torch.empty(2, device="meta").tolist() == [1.0, 1.0]
    assert kept == (F.scaled_dot_product_attention, F.rms_norm, torch.Tensor.tolist)
    assert torch.tensor([3.0]).tolist() == [3.0]


def test_an_empty_timeline_has_no_peak() -> None:
    with following("meta") as trace:
        pass
    line = trace.timeline()
    assert (line.peak(), line.at_peak()) == (0, ("", dict.fromkeys(KINDS, 0)))
    assert line.bytes.shape == (0, len(KINDS)) and line.bytes.dtype == np.int64
