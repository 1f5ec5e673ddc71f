from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_gen.registry import get_task
from data_gen.task import Check, Verdict
from eval import store
from eval.sample import ScoredSample, decode_png, encode_png
from uni_train.errors import UserError


def samples() -> list[ScoredSample]:
    task = get_task("mapping")
    a, b = task.sample(seed=0, level=2)
    image = task.render(a, seed=1)
    doubtful = Verdict((Check("object", "unreadable", "a blend"), Check("count", "pass")))
    return [
        ScoredSample(a, "cot", seed=2**62, thought="", image=encode_png(image), verdict=task.verify(a, image)),
        ScoredSample(b, "cot", seed=1, k=3, thought="√ 9 = 3\n", image=encode_png(image), self_verdict=doubtful),
        ScoredSample(b, "normal", seed=1),
    ]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = store.write_shard(store.shard_path(tmp_path / "shards", 12), samples())
    assert path.name == "00012.parquet"
    assert store.read_shard(path) == samples()
    assert [one.status for one in store.read_shard(path)] == ["pass", "unscored", "generation_failed"]
    assert [one.status for one in store.read_shard(path, images=False)] == ["pass", "unscored", "generation_failed"]
    assert decode_png(store.read_shard(path)[0].image or b"").shape == (24, 24, 3)


def test_large_images_are_row_groups_of_their_own(tmp_path: Path) -> None:
    """So that training reads little to get one; small ones stay together."""
    large = [replace(samples()[0], k=k, image=bytes([k]) * 3_000_000) for k in range(4)]
    path = store.write_shard(store.shard_path(tmp_path, 0), large)
    assert pq.read_metadata(path).num_row_groups == 4 and store.read_shard(path) == large
    small = store.write_shard(store.shard_path(tmp_path, 1), samples())
    assert pq.read_metadata(small).num_row_groups == 1


def test_shards_are_read_in_order_and_strangers_ignored(tmp_path: Path) -> None:
    for index in (2, 0, 10):
        store.write_shard(store.shard_path(tmp_path, index), [samples()[index % 3]])
    (tmp_path / ".00001.0badcafe.partial.parquet").write_bytes(b"half")
    assert store.completed(tmp_path) == {0, 2, 10}
    assert list(store.read_shards(tmp_path)) == [samples()[0], samples()[2], samples()[1]]
    assert store.completed(tmp_path / "none yet") == set()


def test_a_finished_batch_is_never_written_twice(tmp_path: Path) -> None:
    path = store.write_shard(store.shard_path(tmp_path, 0), samples())
    with pytest.raises(FileExistsError, match="already complete"):
        store.write_shard(path, [])
    assert store.read_shard(path) == samples()


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_a_truncated_shard_is_named(tmp_path: Path, keep: float) -> None:
    path = store.write_shard(store.shard_path(tmp_path, 7), samples())
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep >= 1 else keep * len(data))])
    for read in (lambda: store.completed(tmp_path), lambda: store.read_shard(path)):
        with pytest.raises(store.DamagedShard, match=r"00007\.parquet.*(truncated|damaged)") as caught:
            read()
        assert isinstance(caught.value, UserError) and "Delete this file" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as it leaves a worker process


def test_a_flipped_bit_never_changes_what_is_read(tmp_path: Path) -> None:
    path = store.write_shard(store.shard_path(tmp_path, 7), samples())
    data, noticed = path.read_bytes(), 0
    for position in range(5, len(data), 97):
        spoilt = bytearray(data)
        spoilt[position] ^= 0x40
        path.write_bytes(spoilt)
        try:
            assert store.read_shard(path) == samples()  # some bytes carry nothing (offsets, statistics)
        except store.DamagedShard as error:
            assert "00007.parquet" in str(error)
            noticed += 1
    assert noticed > 20


def test_another_parquet_file_is_no_shard(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "00000.parquet")
    with pytest.raises(store.DamagedShard, match="not a shard of samples"):
        store.completed(tmp_path)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    # /dev/full takes no temporary neighbour, so the error comes from the place itself.
    with pytest.raises(UserError, match="run the same command again"):
        store.write_shard(full / "00000.parquet", samples())
    (tmp_path / "shards").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot be written"):
        store.write_shard(tmp_path / "shards" / "00000.parquet", samples())
