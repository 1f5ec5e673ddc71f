"""Validation prompts of a file: drawn before, during and after training from the same noise, killed or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.tiny import MODEL, save_drawer
from uni_train.cli.main import uni_train
from uni_train.eval.images import pixels
from uni_train.eval.sample import Scored
from uni_train.eval.scored import read_folder
from uni_train.models.pictures import encode_png
from uni_train.training.metric_log import read_metrics

PROMPTS = "Draw 2 apples .\n\nDraw 3 trees .\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny nano that draws, rows of its own, and two files of prompts."""
    place = tmp_path_factory.mktemp("held_out")
    save_drawer(place / "nano")
    (place / "a.png").write_bytes(encode_png(np.zeros((24, 24, 3), np.uint8)))
    (place / "a.txt").write_text("Draw 2 apples .")
    (place / "prompts.txt").write_text(PROMPTS)
    return place


def fit(place: Path, out: Path, *overrides: str) -> Result:
    quick = ("updates=4", "checkpoint_every=1", "batch.tokens=50", "evaluate=false", "ema=0.5", "held_out.every=2")
    given = (f"sources={place}", *MODEL, f"model.checkpoint={place / 'nano'}", f"held_out.path={place / 'prompts.txt'}")
    arguments = [*given, *quick, f"out={out}", "optimizer.lr=1e-2", "optimizer.warmup_updates=0", *overrides]
    return CliRunner().invoke(uni_train, ["fit", "sft_nano", *arguments], terminal_width=200)


def finish(place: Path, out: Path, *overrides: str) -> Path:
    result = fit(place, out, *overrides)
    assert result.exit_code == 0, result.output
    return out / "sft_nano" / "seed0" / "stages" / "00-sft"


def drawn(stage: Path, step: int) -> Sequence[Scored]:
    return [*read_folder(stage / "held_out" / f"step={step:08d}")]


@pytest.fixture(scope="module")
def stage(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(place, tmp_path_factory.mktemp("runs"))


def test_images_are_drawn_before_during_and_after_and_the_report_shows_them(stage: Path) -> None:
    assert [line["step"] for line in read_metrics(stage / "held_out.jsonl")] == [0, 2, 4]
    moments = [drawn(stage, step) for step in (0, 2, 4)]
    assert all([one.sample.prompt for one in some] == PROMPTS.split("\n")[::2] for some in moments)
    images = [pixels(some[0].sample.drawn[0]) for some in moments]
    assert all(image.shape == (24, 24, 3) for image in images) and not np.array_equal(images[0], images[2])
    assert len({one.sample.ask.seed for some in moments for one in some}) == 2
    page = (stage.parents[1] / "report.html").read_text(encoding="utf-8")
    assert "Images of held-out prompts" in page and "Draw 3 trees ." in page
    assert page.count('<figure class="member') == 6
    assert json.loads((stage / "manifest.json").read_text())["result"]["held_out"] == {}


def test_view_serves_the_images_of_a_prompt_by_update(stage: Path) -> None:
    view = pytest.importorskip("uni_train.view")
    address = view.serve(stage.parents[2], 0)

    def get(what: str) -> bytes:
        with urlopen(f"{address}data/plugin/images/{what}") as reply:
            return reply.read()

    tags = json.loads(get("tags"))["seed0/00-sft"]
    assert [*tags] == ["held_out/line1 Draw 2 apples .", "held_out/line3 Draw 3 trees ."]
    series = json.loads(get("images?" + urlencode({"run": "seed0/00-sft", "tag": next(iter(tags)), "sample": 0})))
    assert [one["step"] for one in series] == [0, 2, 4]
    assert get(f"individualImage?{series[2]['query']}") == drawn(stage, 4)[0].sample.images[0]


def test_equal_weights_draw_equal_images(place: Path, stage: Path, tmp_path: Path) -> None:
    still = finish(place, tmp_path, "optimizer.lr=1e-30")
    before, after = (drawn(still, step) for step in (0, 4))
    assert [one.sample.parts for one in before] == [one.sample.parts for one in after]
    assert [one.sample.parts for one in before] == [one.sample.parts for one in drawn(stage, 0)]


BAD = [
    ("one.txt", "\n", "one.txt has no prompts"),
    ("text.jsonl", '{"text": "Draw 2 apples ."}', "text.jsonl, line 1: has no prompt; its keys: text"),
    ("image.jsonl", '{"prompt": "x", "image": "no.png"}', "line 1: image: "),
    ("list.jsonl", '{"prompt": "x", "source_image": ["no.png"]}', "line 1: image 1 of source_image: "),
    ("unread.jsonl", '{"prompt": "x", "image": "a.png", "reference": "b.png"}', "its key reference holds an image"),
    (
        "talk.jsonl",
        '{"prompt": "x", "messages": [{"role": "user", "content": "x"}]}',
        "line 1: is a conversation, which",
    ),
    (
        "llava.jsonl",
        '{"image": "a.png", "conversations": [{"from": "human", "value": "x"}]}',
        "line 1: is a conversation",
    ),
    ("twice.jsonl", '{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}', "twice.jsonl: 2 prompts have the id a"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[name for name, *_ in BAD])
def test_a_bad_file_of_prompts_is_refused_before_training(
    place: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    shutil.copy(place / "a.png", tmp_path / "a.png")
    result = fit(place, tmp_path / "runs", f"held_out.path={tmp_path / name}")
    assert result.exit_code == 1 and message in result.output, result.output
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_the_split_that_is_left_out_can_be_held_out(place: Path, tmp_path: Path) -> None:
    rows = {"train": "Draw 2 apples .", "test": "Draw 3 trees ."}
    for split, prompt in rows.items():
        (tmp_path / f"{split}.jsonl").write_text(json.dumps({"image": str(place / "a.png"), "text": prompt}))
    asked = (f"sources={tmp_path}", f"held_out.path={tmp_path}", "updates=1")
    dry = fit(place, tmp_path / "runs", *asked, "--dry-run")
    result = fit(place, tmp_path / "runs", *asked)
    assert result.exit_code == dry.exit_code == 0, result.output + dry.output
    for output in (dry.output, result.output):
        assert f"path: 1 rows of {tmp_path / 'train.jsonl'}" in output
        assert f"{tmp_path}: split train; left out: test (test.jsonl); held_out.path=" in output
        assert f"held_out.path: 1 rows of {tmp_path / 'test.jsonl'}" in output
    stage = next(tmp_path.glob("runs/*/*/stages/00-sft"))
    (one,) = drawn(stage, 1)
    assert one.sample.prompt == rows["test"] and not one.sample.ask.case.images, "its image is what would be drawn"


def test_a_shown_image_comes_before_the_prompt(place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "a.png", tmp_path / "a.png")
    rows = [{"id": "b", "image": "a.png"}, {"id": "c", "image": "no.png", "edit_image": ["a.png"]}]
    file = tmp_path / "shown.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": "Draw 2 apples .", **row}) for row in rows))
    samples = drawn(finish(place, tmp_path, f"held_out.path={file}", "updates=1"), 1)
    assert [sample.sample.ask.case.id for sample in samples] == ["b", "c"]
    assert not any(pixels(sample.sample.ask.case.images[0]).any() for sample in samples), "the black a.png"
