from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uni_train.core.errors import UserError
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.scored import (
    DamagedShard,
    completed,
    read_folder,
    read_scored,
    shard_path,
    without_images,
    write_scored,
)
from uni_train.eval.task_benchmark import item_case
from uni_train.models.pictures import encode_png


def samples() -> list[Scored]:
    task = get_task("mapping")
    a, b = task.sample(seed=0, level=2)
    image = task.render(a, seed=1)
    png, doubtful = encode_png(image), Verdict((Check("object", "unreadable", "a blend"), Check("count", "pass")))
    first, second = item_case(a), replace(item_case(b), images=(png, b""))
    return [
        Scored(Sample(Ask(first, "cot", 0, 2**62), prompt="p", thought="", parts=(png,)), task.verify(a, image)),
        Scored(
            Sample(Ask(second, "cot", 3, 1), thought="√ 9 = 3\n", parts=("a ", png, "b", png), facts={"length": 3}),
            by="judge", failure="unparseable", replies=("perhaps", "é"), cause="drawn wrong", filter_verdict=doubtful,
        ),
        Scored(Sample(Ask(second, "normal", 0, 1), "generation_failed", "refused")),
    ]  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = shard_path(tmp_path / "shards", 12)
    write_scored(path, samples())
    assert path.name == "00012.parquet"
    assert read_scored(path) == samples()
    light = read_scored(path, images=False)
    assert light == list(without_images(samples()))
    assert [one.outcome for one in light] == ["pass", "unparseable", "generation_failed"]
    assert [one.value for one in read_scored(path)] == [1.0, 0.0, 0.0]
    assert light[1].sample.parts == ("a ", b"", "b", b"") and read_scored(path)[1].sample.text == "a \nb"
    assert [one.sample.image for one in light] == [b"", b"", None] and light[1].sample.ask.case.images == (b"", b"")


def test_large_images_are_row_groups_of_their_own_where_that_is_asked_for(tmp_path: Path) -> None:
    """So that training reads little to get one; small ones stay together."""
    first = samples()[0]
    large = [replace(first, sample=replace(first.sample, parts=(bytes([k]) * 3_000_000,))) for k in range(4)]
    for name, scored, groups in (("a", large, 4), ("b", samples(), 1)):
        write_scored(tmp_path / name, scored)
        assert pq.read_metadata(tmp_path / name).num_row_groups == groups and read_scored(tmp_path / name) == scored


def test_shards_are_read_in_order_and_strangers_ignored(tmp_path: Path) -> None:
    for index in (2, 0, 10):
        write_scored(shard_path(tmp_path, index), [samples()[index % 3]])
    (tmp_path / ".00001.0badcafe.partial.parquet").write_bytes(b"half")
    assert completed(tmp_path) == {0, 2, 10}
    assert list(read_folder(tmp_path)) == [samples()[0], samples()[2], samples()[1]]
    assert completed(tmp_path / "none yet") == set()


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_a_truncated_shard_is_named(tmp_path: Path, keep: float) -> None:
    path = shard_path(tmp_path, 7)
    write_scored(path, samples())
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep >= 1 else keep * len(data))])
    for read in (lambda: completed(tmp_path), lambda: read_scored(path)):
        with pytest.raises(DamagedShard, match=r"00007\.parquet.*(truncated|damaged)") as caught:
            read()
        assert isinstance(caught.value, UserError) and "Delete this file" in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as it leaves a worker process


def test_a_flipped_bit_never_changes_what_is_read(tmp_path: Path) -> None:
    path = shard_path(tmp_path, 7)
    write_scored(path, samples())
    data, noticed = path.read_bytes(), 0
    for position in range(5, len(data), 211):
        spoilt = bytearray(data)
        spoilt[position] ^= 0x40
        path.write_bytes(spoilt)
        try:
            assert read_scored(path) == samples()  # some bytes carry nothing (offsets, statistics)
        except DamagedShard as error:
            assert "00007.parquet" in str(error)
            noticed += 1
    assert noticed > 8
    pq.write_table(pa.table({"a": [1]}), path)  # another file of Parquet
    with pytest.raises(DamagedShard, match="not a shard of scored"):
        completed(tmp_path)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "shards").write_text("a file where the folder should be")
    # /dev/full takes no temporary neighbour, so the error comes from the place itself.
    for folder, said in ((tmp_path / "shards", "cannot be written"), (Path("/dev/full"), "run the same command again")):
        with pytest.raises(UserError, match=said):
            write_scored(folder / "00000.parquet", samples())
