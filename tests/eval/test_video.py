"""Answers that are videos: their frames, files that are none, and ViGoR's settings `video` and `process`."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from uni_train.cli.main import uni_train
from uni_train.core.reading_limits import Unreadable
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Case, Source
from uni_train.eval.benchmarks.vigor import Vigor
from uni_train.eval.images import pixels
from uni_train.eval.scored import read_folder
from uni_train.eval.submission import file_name
from uni_train.models import video

CODECS = {".mp4": "mp4v", ".mov": "mp4v", ".avi": "MJPG", ".mkv": "MJPG", ".webm": "VP90"}


def write(path: Path, frames: list[np.ndarray], codec: str = "") -> Path:
    if path.suffix == ".gif":
        first, *more = map(Image.fromarray, frames)
        first.save(path, save_all=True, append_images=more, disposal=2)
        return path
    code = cv2.VideoWriter_fourcc(*(codec or CODECS[path.suffix]))  # type: ignore[attr-defined]
    writer = cv2.VideoWriter(str(path), code, 10, frames[0].shape[1::-1])
    for frame in frames:
        writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    writer.release()
    return path


def greys(count: int) -> list[np.ndarray]:
    return [np.full((48, 64, 3), 10 * number % 256, np.uint8) for number in range(count)]


@pytest.mark.parametrize("suffix", [*CODECS, ".gif"])
def test_frames_are_evenly_spaced_and_the_last_is_the_result(suffix: str, tmp_path: Path) -> None:
    shown = video.frames(write(tmp_path / f"a{suffix}", greys(17)))
    assert video.is_video(tmp_path / f"a{suffix}")
    assert np.allclose([frame.mean() for frame in shown], range(20, 170, 20), atol=4)
    few = video.frames(write(tmp_path / f"b{suffix}", greys(3)))
    assert np.allclose([frame.mean() for frame in few], [10, 20], atol=4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.mp4", b"", "no video that can be read; MP4, MOV"),
        ("a.webm", b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", "no video that can be read"),
        ("a.mp4", b"\0\0\0\x18ftypisom" + bytes(64), "a video without a frame"),
        ("a.avi", 1, "a video of one frame, which is an image and shows no change"),
        ("a.mkv", 30, "a video of 30 frames; 20 at most"),
        ("a.gif", 30, "a video of 30 frames; 20 at most"),
    ],
)
def test_files_that_are_no_videos_are_named(
    name: str, content: bytes | int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "MOST_FRAMES", 20)
    if isinstance(content, int):
        write(tmp_path / name, greys(content))
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Unreadable, match=f"^{name}: {message}"):
        video.frames(tmp_path / name)


def test_an_image_is_no_video(tmp_path: Path) -> None:
    Image.fromarray(greys(2)[1]).save(tmp_path / "a.gif")
    assert not video.is_video(tmp_path / "a.gif") and not video.is_video(tmp_path / "a.png")


def walk(case: Case, count: int) -> list[np.ndarray]:
    """The maze, its path drawn step by step, and the solution."""
    item = Item.from_dict(case.facts["item"])
    start, end = pixels(case.images[0]), task_of(item).render(item, 0)
    changed = np.argwhere((start != end).any(-1))
    frames = []
    for number in range(count):
        frame, some = start.copy(), changed[: len(changed) * number // (count - 1)]
        frame[some[:, 0], some[:, 1]] = end[some[:, 0], some[:, 1]]
        frames.append(frame)
    return frames


def test_vigor_scores_videos_of_a_folder(tmp_path: Path) -> None:
    """One solves its maze, one stops early, one cannot be read; without loss, so that the program decides."""
    words = ["-b", "vigor", "--n", "3", "sets=[maze_navigation]", "world=everyday", "options.vigor.video=yes"]
    cases = Vigor(Source(world="everyday", n=3, sets=("maze_navigation",)), video="yes").cases()
    folder = tmp_path / "clips"
    for number, case in enumerate(cases):
        path = folder / f"{file_name(case.id)}.avi"
        path.parent.mkdir(parents=True, exist_ok=True)
        frames = walk(case, 9)
        write(path, frames if number != 1 else frames[:3], "FFV1")
    path.write_bytes(b"RIFF")
    done = CliRunner().invoke(uni_train, ["eval", str(folder), *words, f"out={tmp_path}", "name=it"])
    assert done.exit_code == 0, done.output
    (scores,) = json.loads((tmp_path / "it/scores.json").read_text())["results"]
    outcomes = {setting: outcome["maze_navigation"] for setting, outcome in scores["outcomes"].items()}
    assert outcomes["video"] == {"pass": 1, "fail": 1, "generation_failed": 1}
    assert outcomes["process"] == {"pass": 2, "generation_failed": 1}, "a path that has stopped broke no rule"
    samples = [answer.sample for answer in read_folder(tmp_path / "it/scored")]
    assert sorted(len(sample.drawn) for sample in samples) == [0, 0, 2, 2, 8, 8]
    assert all(f"{path.name}: " in sample.note for sample in samples if not sample.drawn)
