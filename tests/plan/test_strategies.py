"""What strategies leave on a GPU and put on the wire, by the formulas of their papers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uni_train.plan.hardware import GPUS
from uni_train.plan.result import Choice
from uni_train.plan.strategies import BETWEEN, BUCKET, CHOICES, share, storage, wire_seconds
from uni_train.plan.trace import KINDS, Timeline
from uni_train.plan.updates import BACKWARD, DRAW, STEP, Traced
from uni_train.training.strategies import deepspeed

PSI = 7_500_000_000  # the ZeRO paper's example, figure 1


def traced(activations: int = 0, parameters: int = PSI, optimizer: int = 12, averages: int = 0) -> Traced:
    """An update in mixed precision: 2 bytes a weight, 2 a gradient, 12 of optimizer's state."""
    values = {"weights": 2 * parameters, "gradients": 2 * parameters, "optimizer": optimizer * parameters}
    values["averages"] = averages * parameters
    moment = [values.get(kind, activations if kind == "activations" else 0) for kind in KINDS]
    return Traced(
        timeline=Timeline((BACKWARD,), np.array([moment], np.int64)),
        flops=0.0,
        draw_flops=0.0,
        parameters=parameters,
        trained=2 * parameters,
        weights=2 * parameters,
        gradients=2 * parameters,
        optimizer=optimizer * parameters,
        averages=averages * parameters,
        layer=parameters // 10,
        beside=parameters // 100,
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ddp", 120), ("deepspeed_zero1", 31.4), ("deepspeed_zero2", 16.6), ("deepspeed_zero3", 1.9)],
)
def test_model_states_are_those_of_figure_1_of_the_zero_paper(kind, expected):
    found = share(Choice(kind), traced(), gpus=64, micros=1, half=True)
    states = sum(size for name, size in found.parts.items() if name != "buffers")
    assert states / 1e9 == pytest.approx(expected, abs=0.05)
    assert found.peak == states + found.parts["buffers"]


def test_traffic_is_that_of_section_7_of_the_zero_paper():
    ring = 63 / 64

    def sent(kind: str, micros: int = 1) -> float:
        return sum(share(Choice(kind), traced(), 64, micros, half=True).wire.values()) / (2 * PSI * ring)

    assert [sent(kind) for kind in ("ddp", "deepspeed_zero1", "deepspeed_zero2")] == pytest.approx([2, 2, 2])
    assert [sent(kind) for kind in ("deepspeed_zero3", "fsdp2")] == pytest.approx([3, 3])
    assert [sent(kind, 4) for kind in ("ddp", "deepspeed_zero1", "deepspeed_zero2")] == pytest.approx([2, 2, 5])
    assert sent("deepspeed_zero3", 4) == pytest.approx(12)
    assert share(Choice("single"), traced(), 1, 1, half=True).wire == {}
    assert BUCKET == deepspeed.BUCKET


def test_what_is_offloaded_is_in_the_node_s_memory():
    plain = share(Choice("deepspeed_zero3"), traced(), 8, 1, half=True)
    away = share(Choice("deepspeed_zero3", True, True), traced(), 8, 1, half=True)
    assert away.host == (2 + 2 + 12) * PSI // 8
    assert plain.peak - away.peak == away.host
    assert plain.bus == 0 < away.bus
    there, here = (
        share(Choice("ddp", offload_averages=away), traced(averages=4), 8, 1, True) for away in (True, False)
    )
    assert (there.host, here.peak - there.peak, there.bus) == (4 * PSI, 4 * PSI, 2 * PSI)


def test_masters_are_counted_where_deepspeed_keeps_them_alone():
    own = traced(optimizer=10)  # HalfAdamW's
    assert share(Choice("fsdp2"), own, 8, 1, half=True).parts["optimizer"] == 10 * PSI // 8
    assert share(Choice("deepspeed_zero1"), own, 8, 1, half=True).parts["optimizer"] == 12 * PSI // 8
    assert share(Choice("deepspeed_zero1"), own, 8, 1, half=False).parts["optimizer"] == 10 * PSI // 8


def test_pictures_are_drawn_with_whole_weights():
    bytes_ = np.array([[2 * PSI if kind == "weights" else 0 for kind in KINDS]] * 2, np.int64)
    one = Traced(Timeline((DRAW, STEP), bytes_), 0.0, 0.0, PSI, 2 * PSI, 2 * PSI, 2 * PSI, 0, 0, 0, 0)
    found = share(Choice("fsdp2"), one, 8, 1, half=True)
    assert (found.phase, found.parts["weights"]) == (DRAW, 2 * PSI * 9 // 8)


@given(gpus=st.integers(2, 512), activations=st.integers(0, 10**11), parameters=st.integers(10**6, 10**11))
def test_sharing_out_more_never_needs_more(gpus, activations, parameters):
    one = traced(activations, parameters)
    states = [
        sum(size for name, size in share(Choice(kind), one, gpus, 1, half=True).parts.items() if name != "buffers")
        for kind in ("ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3")
    ]
    assert states == sorted(states, reverse=True)
    assert all(found >= activations for found in states)
    for choice in CHOICES:
        assert share(choice, one, gpus, 1, half=True).parts["buffers"] >= 0


def test_nodes_are_joined_by_all_their_cards():
    found, gpu = share(Choice("ddp"), traced(), 16, 1, half=True), GPUS["h100-80gb"]
    sent = sum(found.wire.values())
    assert wire_seconds(found, gpu, 8, 8) == pytest.approx(sent / 450e9)
    assert wire_seconds(found, gpu, 16, 8) == pytest.approx(sent / 400e9)
    assert wire_seconds(found, gpu, 16, 1) == pytest.approx(sent / 50e9)


def test_replicas_shard_within_themselves_and_reduce_what_a_rank_holds_between_them():
    """Four nodes of eight GPUs, a copy of the weights on each."""
    hybrid, one_node, gpu = Choice("fsdp2", replicas=4), Choice("fsdp2"), GPUS["h100-80gb"]
    found, alone = share(hybrid, traced(), 32, 2, half=True), share(one_node, traced(), 8, 2, half=True)
    assert (found.peak, storage(hybrid, traced(), 32, True)) == (alone.peak, storage(one_node, traced(), 8, True))
    between = found.wire[BETWEEN]
    assert between == pytest.approx(2 * 2 * (2 * PSI / 8) * 3 / 4)
    inside = sum(alone.wire.values())
    assert sum(found.wire.values()) == between + inside
    assert wire_seconds(found, gpu, 32, 8, 4) == pytest.approx(inside / 450e9 + between / 50e9)
    assert share(hybrid, traced(), 1, 1, half=True) == share(one_node, traced(), 1, 1, half=True)


@pytest.mark.parametrize(("kind", "saving"), [("ddp", 18), ("deepspeed_zero2", 6 + 12 / 8), ("fsdp2", 18 / 8)])
def test_checkpoints_are_copied_by_those_that_hold_their_parts(kind, saving):
    """Weights of 2 bytes, averages of 4, optimizer of 12; on many GPUs the whole model at the end takes more."""
    found = storage(Choice(kind), traced(averages=4), 8, half=True)
    if kind == "fsdp2":
        assert storage(Choice(kind), traced(averages=4), 64, half=True).saving == 2 * PSI
    assert found.saving == pytest.approx(saving * PSI)
    assert found.checkpoints == 3 * 18 * PSI
    assert found.loading == (0 if kind == "fsdp2" else 2 * PSI)
