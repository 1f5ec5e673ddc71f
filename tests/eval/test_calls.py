from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uni_train.core.errors import UserError
from uni_train.eval import images
from uni_train.eval.calls import CallFailed, StoredModel
from uni_train.eval.images import StoredImage, encoded
from uni_train.eval.store import Call, Log, Speed, Store, call_key, machine
from uni_train.models.base import Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import decode_png, encode_png

NANO = ModelIdentity("nano", "somewhere", "content", {"steps": 10})


class Painter:
    """A model that paints its seed and repeats its prompt, and keeps the batches that reached it."""

    name = "painter"

    def __init__(self, refuses: str = "", down: bool = False) -> None:
        self.batches: list[list[str]] = []
        self.refuses, self.down = refuses, down

    def draw(self, requests: Sequence[Request], *, on_step: Any = None) -> list[np.ndarray]:
        self._see(requests)
        return [np.full((4, 4, 3), request.seed % 256, np.uint8) for request in requests]

    def answer(self, requests: Sequence[Request], *, on_step: Any = None) -> list[str | Exception]:
        self._see(requests)
        return [ValueError("a reply of nothing") if "nothing" in r.prompt else r.prompt for r in requests]

    def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[str]:
        raise SkillMissing(self.name, "think")

    def _see(self, requests: Sequence[Request]) -> None:
        if self.down:
            raise ModelDown("painter is away")
        for request in requests:
            if self.refuses and self.refuses in request.prompt:
                raise UserError(f"painter does not know {self.refuses}")
        self.batches.append([request.id for request in requests])


def requests(n: int, **changes: Any) -> list[Request]:
    return [Request(f"r{i}", f"draw {i}", seed=i, **changes) for i in range(n)]


def stored(folder: Path, model: Painter, **options: Any) -> StoredModel:
    return StoredModel(NANO, Store(folder), lambda: model, think_batch=4, draw_batch=4, **options)


def pixels(pictures: Sequence[StoredImage | Exception]) -> list[list[int]]:
    return [images.pixels(one).ravel().tolist() for one in pictures if not isinstance(one, Exception)]


def test_a_finished_call_never_reaches_the_model_again_and_another_model_is_asked_anew(tmp_path: Path) -> None:
    def load() -> Painter:
        raise AssertionError("loaded")

    first = Painter()
    drawn = stored(tmp_path, first).draw(requests(10))
    again = StoredModel(NANO, Store(tmp_path), load).draw(requests(10))
    assert [len(batch) for batch in first.batches] == [4, 4, 2]
    assert pixels(drawn) == pixels(again) == [[i] * 48 for i in range(10)]
    for changes, asked in (
        ({"content": "overwritten"}, ["r0", "r10"]),
        ({"settings": {"steps": 20}}, ["r0", "r10"]),
        ({"name": "moved", "source": "elsewhere"}, ["r10"]),
    ):
        painter, (one, *_, last) = Painter(), requests(11)
        StoredModel(replace(NANO, **changes), Store(tmp_path), lambda painter=painter: painter).draw([one, last])
        assert painter.batches == [asked], changes


class Muser(Painter):
    """A painter that thinks, draws what it thought in one go, and gives answers in parts."""

    def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[str]:
        return [self._see(requests) or f"of {r.id}" for r in requests]

    def think_and_draw(self, requests: Sequence[Request], *, on_step: Any = None) -> tuple[list[str], list[np.ndarray]]:
        return [f"of {r.id}" for r in requests], self.draw(requests)

    def compose(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        return [[r.prompt, p, "[3]", p + np.uint8(1)] for r, p in zip(requests, self.draw(requests), strict=True)]


def test_a_thought_and_its_picture_are_made_in_one_go_and_stored_as_two_calls(tmp_path: Path) -> None:
    first, second = Muser(), Muser()
    model = stored(tmp_path, first)
    thoughts, images = model.think_and_draw(requests(10))
    assert [len(batch) for batch in first.batches] == [4, 4, 2]
    assert [(c.made, c.stored, c.failed) for c in (model.counts["think"], model.counts["draw"])] == [(10, 0, 0)] * 2
    again = stored(tmp_path, second)
    assert again.think(requests(10)) == thoughts == [f"of r{i}" for i in range(10)]
    drawn = again.draw([replace(one, thought=text) for one, text in zip(requests(10), thoughts, strict=True)])
    assert pixels(drawn) == pixels(images) and second.batches == [] and again.counts["draw"].stored == 10
    # One that is refused does not spoil its batch.
    thoughts, images = stored(tmp_path / "refused", Muser(refuses="draw 2")).think_and_draw(requests(4))
    assert [isinstance(text, str) for text in thoughts] == [True, True, False, True]
    assert "does not know draw 2" in str(images[2]) and len(pixels(images)) == 3


def test_an_answer_in_parts_keeps_their_order_and_is_made_once(tmp_path: Path) -> None:
    model = Muser(refuses="draw 2")
    first = stored(tmp_path, model).compose(requests(3))
    again = stored(tmp_path, model)
    (one, zero, _, more), other, refused = again.compose(requests(3))
    assert one == "draw 0" and isinstance(refused, CallFailed) and first[1] == other
    assert np.all(images.pixels(zero) == 0) and np.all(images.pixels(more) == 1)
    assert again.counts["compose"].made == 0 and len(model.batches) == 2  # halves, as one was refused


def test_what_calls_have_taken_is_added_up_by_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(perf_counter=count().__next__)  # a second a batch
    monkeypatch.setattr("uni_train.eval.calls.time", clock)
    store = Store(tmp_path)
    assert not store.measured() and store.speed_of(NANO, machine()) == {}
    stored(tmp_path, Painter()).draw(requests(6))
    stored(tmp_path, Painter()).draw(requests(10))  # two of a batch and two more are new
    assert store.speed_of(NANO, machine()) == {"draw": Speed(6 + 4, 4.0)} and store.measured()
    assert Speed(10, 4.0).each == 0.4
    assert store.speed_of(NANO, "elsewhere, CPU") == {} == store.speed_of(replace(NANO, content="x"), machine())


def test_processes_share_a_store_and_equal_requests_are_one_call(tmp_path: Path) -> None:
    one, two = (stored(tmp_path / "two", Painter()) for _ in range(2))  # both see an empty store
    assert one.answer(requests(6) + requests(1) * 3)[6:] == ["draw 0"] * 3
    two.answer(requests(8))
    assert len(Store(tmp_path / "two").calls(NANO)) == 8
    store = Store(tmp_path)  # several ranks add at the same time
    ranks = [store.calls(NANO) for _ in range(4)]

    def add(rank: int) -> None:
        for k in range(5):
            ranks[rank].add([Call(f"{rank}-{k}", "draw", "a", "x", 0, parts=("text",))], 0.5)

    with ThreadPoolExecutor(len(ranks)) as pool:
        list(pool.map(add, range(4)))
    assert store.speed_of(NANO, machine())["draw"] == Speed(20, 10.0) and len(store.calls(NANO)) == 20
    ranks[0].reread()
    assert len(ranks[0]) == 20 and ranks[0].get("3-4") == ranks[3].get("3-4")
    assert not list(tmp_path.rglob(".*partial*"))


def test_a_stopped_run_asks_the_rest_in_the_same_company(tmp_path: Path) -> None:
    """Pictures depend on their batch by rounding: what is missing must not move into the places of what is there."""
    whole, rest = Painter(), Painter()
    stored(tmp_path / "whole", whole).draw(requests(12))
    part = stored(tmp_path / "killed", Painter())
    part.draw(requests(12)[4:8])
    stored(tmp_path / "killed", rest).draw(requests(12))
    assert whole.batches == [["r0", "r1", "r2", "r3"], ["r4", "r5", "r6", "r7"], ["r8", "r9", "r10", "r11"]]
    assert rest.batches == [whole.batches[0], whole.batches[2]]


def test_a_failure_is_stored_and_tried_again_only_when_asked_to(tmp_path: Path) -> None:
    asked = [Request("a", "nothing"), Request("b", "something")]
    answers = stored(tmp_path, Painter()).answer(asked)
    assert str(answers[0]) == "ValueError: a reply of nothing" and answers[1] == "something"

    later = Painter()
    model = stored(tmp_path, later)
    assert str(model.answer(asked)[0]) == "ValueError: a reply of nothing" and later.batches == []
    assert (model.counts["answer"].stored, model.counts["answer"].made) == (2, 0)

    patient = stored(tmp_path, later, retry_failed=True)
    patient.answer(asked)
    patient.answer(asked)
    assert later.batches == [["a"]]  # once a run, and nothing but the failed one


def test_an_answer_replaces_a_failure_in_whatever_order_they_are_read(tmp_path: Path) -> None:
    key = call_key(NANO, "answer", Request("a", "why"))
    failed = Call(key, "answer", "a", "why", 0, error="no reply")
    answered = Call(key, "answer", "a", "why", 0, parts=("so",))
    for name, order in (("one", (failed, answered)), ("two", (answered, failed))):
        calls = Store(tmp_path / name).calls(NANO)
        for call in order:
            calls.add([call])
        for seen in (calls, Store(tmp_path / name).calls(NANO)):
            assert seen.get(key) == answered


def test_a_missing_skill_and_an_absent_endpoint_are_not_answers(tmp_path: Path) -> None:
    with pytest.raises(SkillMissing, match="cannot think"):
        stored(tmp_path, Painter()).think(requests(2))
    with pytest.raises(ModelDown):
        stored(tmp_path, Painter(down=True)).draw(requests(2))
    assert len(Store(tmp_path).calls(NANO)) == 0


@pytest.mark.parametrize("damage", ["torn", "altered", "image lost", "image empty"])
def test_a_damaged_batch_is_named_and_made_anew_in_the_same_company(tmp_path: Path, damage: str) -> None:
    drawn = stored(tmp_path, Painter()).draw(requests(12))
    (file,) = tmp_path.rglob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    image = tmp_path / "images" / drawn[1].digest[:2] / drawn[1].digest  # type: ignore[union-attr]
    if damage == "image lost":
        image.unlink()
    elif damage == "image empty":  # as a power failure leaves it
        image.write_bytes(b"")
    else:
        file.write_bytes(b"".join(lines[:2]) + (lines[2][:-30] if damage == "torn" else lines[2].replace(b"r9", b"r8")))
    painter = Painter()
    model = stored(tmp_path, painter)
    assert model.damaged == ([] if "image" in damage else [f"{file}:3"])
    assert pixels(model.draw(requests(12))) == pixels(drawn)
    assert painter.batches == [["r1"] if "image" in damage else ["r8", "r9", "r10", "r11"]]
    assert pixels(stored(tmp_path, Painter(down=True)).draw(requests(12))) == pixels(drawn)


def test_a_full_disk_loses_the_batch_in_flight_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.append({"n": 1})
    write, written = os.write, list[int]()

    def full(file: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write(file, data[:5]))
        return written[0]

    with monkeypatch.context() as patched, pytest.raises(UserError, match="the disk is full"):
        patched.setattr(os, "write", full)
        log.append({"n": 2})
    log.append({"n": 3})
    again = Log(tmp_path)
    assert list(again.read(lambda record: record["n"])) == [1, 3] and len(again.damaged) == 1
    (tmp_path / "calls").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"model\.json: cannot be written"):
        stored(tmp_path, Painter())


def test_an_image_is_read_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stored(tmp_path, Painter())
    (image,) = model.draw([Request("a", "x", seed=7)])
    assert isinstance(image, StoredImage) and encoded(image) is image
    (file,) = (path for path in (tmp_path / "images").rglob("*") if path.is_file())
    hidden = file.rename(file.with_suffix(".hidden"))
    (again,) = model.draw([Request("a", "x", seed=7)])  # it is known without its file
    hidden.rename(file)
    decoded: list[bytes] = []
    monkeypatch.setattr(images, "_rgb", lambda data: decoded.append(data) or decode_png(data))
    monkeypatch.setattr(images, "_DECODED", images._Decoded(1 << 20))
    first = images.pixels(image)
    assert images.pixels(again) is first and len(decoded) == 1 and image == again == encode_png(first)
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0, 0] = 1
    grey = encode_png(np.arange(64, dtype=np.uint8).reshape(8, 8))
    assert np.array_equal(images.pixels(grey), decode_png(grey))


def test_everything_that_decides_an_answer_is_in_its_key() -> None:
    picture = np.zeros((2, 3, 3), np.uint8)
    request = Request("id", "prompt", (picture,), "thought", 3, (8, 8))
    changes: list[dict[str, Any]] = [
        {"id": "id2"}, {"prompt": "prompt2"}, {"thought": "thought2"}, {"thought": None}, {"seed": 4},
        {"size": (9, 8)}, {"size": None}, {"images": (picture + np.uint8(1),)}, {"images": (picture.reshape(3, 2, 3),)},
    ]  # fmt: skip
    others = [request, *(replace(request, **change) for change in changes)]
    keys = {call_key(NANO, "answer", request), *(call_key(NANO, "draw", one) for one in others)}
    assert len(keys) == len(others) + 1
    assert call_key(NANO, "draw", replace(request, images=(picture.copy(),))) in keys
