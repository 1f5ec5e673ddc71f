"""Images by content: equal to their bytes, read when they are asked for, each stored once."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.eval.test_scored import samples
from uni_train.core.errors import UserError
from uni_train.eval.images import ImageStore, digest_of
from uni_train.eval.scored import read_scored, stored, write_scored


def test_equal_images_are_one_file_and_stand_for_their_bytes(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "images")
    one, two, other = store.put(b"a"), store.put(b"a"), store.put(b"b")
    assert one == two == b"a" == one and one != other != b"a" and len({one, two, other}) == 2
    assert one.read() == b"a" and pickle.loads(pickle.dumps(one)) == one
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    assert ImageStore(tmp_path / "images").get(digest_of(b"b")).read() == b"b"


def test_a_lost_or_damaged_image_is_named_and_comes_back(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    image = store.put(b"a")
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(b"b")
    with pytest.raises(UserError, match=f"{path.name}: a damaged image"):
        image.read()
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        image.read()
    assert ImageStore(tmp_path).put(b"a").read() == image.read() == b"a"


def test_scored_rows_hold_hashes_and_no_bytes(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store" / "images")
    noise = bytes(range(256)) * 400
    first = samples()[0]
    many = [replace(first, sample=replace(first.sample, parts=(noise, "and", noise)))] * 20
    case = replace(many[0].sample.ask.case, references=(noise[:-1],))
    many[0] = replace(first, sample=replace(many[0].sample, ask=replace(many[0].sample.ask, case=case)))
    kept = [replace(one, sample=stored(one.sample, store)) for one in (*many, *samples())]
    path = tmp_path / "evaluation" / "scored" / "0.parquet"
    write_scored(path, kept, store)
    assert path.stat().st_size < len(noise) / 2
    moved = (tmp_path / "evaluation").rename(tmp_path / "renamed") / "scored" / "0.parquet"
    read = read_scored(moved)
    assert read == [*many, *samples()] and read[-1].sample.ask.case.images == samples()[-1].sample.ask.case.images
    assert [one.sample.key for one in read] == [one.sample.key for one in (*many, *samples())]
    assert read[0].sample.image == noise and read[0].sample.text == "and"
    assert [one.read() for one in read[0].sample.ask.case.references] == [noise[:-1]]
