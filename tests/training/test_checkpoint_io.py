"""Checkpoints come back exactly or not at all."""

from __future__ import annotations

import json
import math
import resource
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.errors import UserError
from uni_train.models.parts import TREE, DamagedCheckpoint, Parts
from uni_train.training.checkpoint_io import (
    FolderCheckpointIO,
    checkpoint_name,
    decode_tree,
    encode_tree,
    latest_checkpoint,
    load_folder,
    remove_leftovers,
    save_folder,
)

TENSORS = "state.safetensors"


def same(a, b) -> bool:
    """Equal in type and value, nan to nan, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return a == b


tensors = st.builds(
    lambda shape, dtype, seed: (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]),
    st.integers(0, 99),
)
plain = [st.none(), st.booleans(), st.integers(), st.text(max_size=8)]
keys = st.one_of(*plain, st.tuples(st.integers(), st.text(max_size=2)))
arrays = st.sampled_from([np.arange(6, dtype=np.uint32).reshape(2, 3).T, np.array(1.5, np.float32)])
leaves = st.one_of(*plain, st.floats(), st.just(math.nan), tensors, arrays)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$", "v", "a", "a/b"]), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(tree=trees)
def test_every_tree_survives_its_encoding(tree):
    encoded, kept = encode_tree(tree)
    assert same(decode_tree(json.loads(json.dumps(encoded, allow_nan=False)), kept), tree)


def test_shared_and_overlapping_tensors(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    tree = {"a": base, "tied": base, "row": base[1], "turned": base.T, "weight": torch.nn.Parameter(base)}
    save_folder(tree, tmp_path / "step=00000001")
    back = load_folder(tmp_path / "step=00000001")
    assert all(torch.equal(back[name], value) for name, value in tree.items())


def test_subclasses_come_back_as_the_plain_kind():
    tree = OrderedDict(size=torch.Size([2, 3]), reward=np.float64(0.1), steps=np.int64(7))
    encoded, kept = encode_tree(tree)
    assert same(decode_tree(encoded, kept), {"size": (2, 3), "reward": 0.1, "steps": 7})


def test_what_cannot_be_kept_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match=r"callbacks/Mine/1: Thing cannot be saved"):
        save_folder({"callbacks": {"Mine": [0, type("Thing", (), {})()]}}, tmp_path / "step=00000001")
    assert not list(tmp_path.iterdir())


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(bytes(content))


DAMAGE = {
    "tensors cut short": lambda p: (p / TENSORS).write_bytes((p / TENSORS).read_bytes()[:-1]),
    "tensors altered": lambda p: flip(p / TENSORS, 0.9),
    "tensors missing": lambda p: (p / TENSORS).unlink(),
    "tree cut short": lambda p: (p / TREE).write_bytes((p / TREE).read_bytes()[:-40]),
    "tree altered": lambda p: (p / TREE).write_text((p / TREE).read_text().replace('"step":7', '"step":8')),
    "tree missing": lambda p: (p / TREE).unlink(),
    "tree is a list": lambda p: (p / TREE).write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_reported_and_the_previous_one_is_used(tmp_path, damage):
    for step in (100, 200):
        save_folder({"step": 7, "weight": torch.ones(5)}, tmp_path / checkpoint_name(step))
    (tmp_path / ".step=00000300.new").mkdir()
    assert latest_checkpoint(tmp_path) == tmp_path / "step=00000200"
    DAMAGE[damage](tmp_path / "step=00000200")
    with pytest.raises(DamagedCheckpoint, match=r"step=00000200 is damaged: state\.") as error:
        load_folder(tmp_path / "step=00000200")
    assert "Delete it" in str(error.value) and "continues from the previous one" in str(error.value)
    with pytest.warns(UserWarning, match="step=00000200"):
        assert latest_checkpoint(tmp_path) == tmp_path / "step=00000100"
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step=00000100", "step=00000200"]

    DAMAGE[damage](tmp_path / "step=00000100")
    with pytest.warns(UserWarning), pytest.raises(DamagedCheckpoint, match=r"no checkpoint in .* can be used"):
        latest_checkpoint(tmp_path)


def test_a_newer_format_is_not_called_damage_and_nothing_is_nothing(tmp_path):
    assert latest_checkpoint(tmp_path / "nowhere") is None
    with pytest.raises(UserError, match="no checkpoint at"):
        load_folder(tmp_path / "step=00000001")
    save_folder({}, tmp_path / "step=00000001")
    state = json.loads((tmp_path / "step=00000001" / TREE).read_text())
    (tmp_path / "step=00000001" / TREE).write_text(json.dumps(state | {"format": 99}))
    with pytest.raises(UserError, match="has format 99"):
        latest_checkpoint(tmp_path)


def test_what_changes_after_saving_began_is_not_in_it_and_the_newest_are_kept(tmp_path):
    writer, weight = FolderCheckpointIO(keep=2), torch.zeros(100_000)
    for step in (1, 2, 3):
        weight += 1
        writer.save_checkpoint({"weight": weight}, tmp_path / checkpoint_name(step))
        weight += 1
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [checkpoint_name(2), checkpoint_name(3)]
    for step in (2, 3):
        assert bool((load_folder(tmp_path / checkpoint_name(step))["weight"] == 2 * step - 1).all())


@given(cuts=st.lists(st.integers(0, 24), max_size=5), begin=st.integers(0, 24), count=st.integers(0, 24))
def test_parts_give_any_run_of_their_tensor(cuts, begin, count):
    whole = torch.arange(24.0).view(2, 3, 4)
    places = sorted({0, *cuts})
    values = {a: whole.flatten()[a:b] for a, b in zip(places, [*places[1:], 24], strict=True)}
    parts = Parts(whole.shape, values)
    assert torch.equal(parts.whole(), whole)
    assert torch.equal(parts.numbers(begin, count), whole.flatten()[begin : begin + count])


def test_a_full_disk_keeps_what_was_there(tmp_path):
    path = tmp_path / "step=00000001"
    save_folder({"weight": torch.zeros(10)}, path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write the checkpoint .*step=00000001"):
            save_folder({"weight": torch.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert torch.equal(load_folder(path)["weight"], torch.zeros(10))
    assert [p.name for p in tmp_path.iterdir()] == ["step=00000001"]
