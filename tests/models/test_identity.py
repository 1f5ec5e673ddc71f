from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from uni_train.core.errors import UserError
from uni_train.models import identity
from uni_train.models.identity import CACHE, ModelIdentity, content_hash, hash_file, identify
from uni_train.models.load import model_config
from uni_train.models.nano.family import ASSETS


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS, tmp_path / "checkpoint"))


def test_content_counts_and_neither_place_nor_neighbours(checkpoint: Path, tmp_path: Path) -> None:
    before = content_hash(checkpoint)
    assert before == content_hash(ASSETS)
    (checkpoint / "README.md").write_text("notes")
    (checkpoint / ".hidden.json").write_text("{}")
    moved = Path(shutil.move(checkpoint, tmp_path / "moved"))
    assert content_hash(moved) == before
    (moved / "config.json").write_text((moved / "config.json").read_text() + " ")
    changed = content_hash(moved)
    (moved / "model.safetensors").rename(moved / "ema.safetensors")
    assert len({before, changed, content_hash(moved)}) == 3
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "missing", tmp_path / "empty"):
        with pytest.raises(UserError, match="no checkpoint at"):
            content_hash(nothing)


def test_linked_parts_count(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "config.json").write_text("{}")
    (checkpoint / "part").symlink_to(tmp_path / "part")
    (checkpoint / "circle").symlink_to(checkpoint)
    first = content_hash(checkpoint)
    (tmp_path / "part" / "config.json").write_text("{ }")
    assert content_hash(checkpoint) != first


def test_settings_and_dtype_are_part_of_the_key(checkpoint: Path) -> None:
    config = model_config(str(checkpoint))
    one = identify(config)
    assert one.key == identify(model_config("nano")).key and one.name == "checkpoint"
    others = [identify(replace(config, sampling=replace(config.sampling, steps=11))), identify(config, "bfloat16")]
    others += [identify(replace(config, sampling=replace(config.sampling, first_block_cache=x))) for x in (0.1, 0.2)]
    assert len({one.key, *(other.key for other in others)}) == 5
    assert {other.content for other in others} == {one.content}
    assert "first_block_cache" not in one.settings["sampling"]  # answers from before the key was there are found
    assert replace(one, name="x", source="y").key == one.key
    assert ModelIdentity.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_a_stage_of_a_run_is_named_after_both(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "stars" / "seed0" / "stages" / "05-finetune" / "model"
    shutil.copytree(ASSETS, folder)
    assert identify(model_config(str(folder))).name == "seed0-05-finetune"


def test_large_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_WORTH_KEEPING", 1000)
    monkeypatch.setattr(identity, "_SHARD", 512)  # several shards a file
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(range(256)) * 5)
    first = content_hash(tmp_path)
    stat = file.stat()

    def hashed(path: Path) -> str:
        raise AssertionError(f"{path} hashed again")

    with monkeypatch.context() as patched:
        patched.setattr(identity, "hash_file", hashed)
        assert content_hash(tmp_path) == first
    file.write_bytes(bytes(range(1, 256)) * 5 + bytes(5))  # as long as before, written later
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert content_hash(tmp_path) != first
    (tmp_path / CACHE).write_text("{ torn")
    content_hash(tmp_path)
    assert file.name in json.loads((tmp_path / CACHE).read_text())


def test_every_byte_counts_across_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_SHARD", 64)
    file, found = tmp_path / "x", set()
    for place in range(0, 201, 10):  # the last one is behind the end: all zero
        file.write_bytes(bytes(index == place for index in range(200)))
        found.add(hash_file(file))
    assert len(found) == 21
