"""Answers that somebody has already, in every layout; and models that are Python functions."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

import uni_train
from uni_train.cli.main import uni_train as command_line
from uni_train.config.schema import EvalConfig
from uni_train.errors import UserError
from uni_train.eval.answers import FolderAnswers, holds_answers
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.configured import benchmarks_of
from uni_train.eval.submission import file_name, write_submission

KEYS: dict[str, Any] = {"world": "nano", "n": 2}
ROOT = Path(__file__).resolve().parents[2]
Images = dict[str, bytes]


def opened(name: str) -> Any:
    (found,) = benchmarks_of("", EvalConfig(benchmarks=(name,), **KEYS))
    return found


@pytest.fixture(scope="module")
def ureason() -> UReason:
    return opened("ureason")


@pytest.fixture(scope="module")
def images(ureason: UReason) -> Images:
    """Id -> an image that is right."""
    return {case.id: ureason.reference(case) or b"" for case in ureason.cases()}


def jpeg(image: bytes) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(image)).save(file, "JPEG", quality=98)
    return file.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    write_submission(folder, files.items())
    return folder


@pytest.mark.parametrize(
    "layout", ["jsonl", "csv", "flat", "setting", "jpeg", "geneval", "below", "linked", "snapshot"]
)
def test_right_images_pass_in_every_layout(ureason: UReason, images: Images, layout: str, tmp_path: Path) -> None:
    names = {id_: f"{file_name(id_)}.png" for id_ in images}
    rows = [{"id": id_, "setting": "direct", "image": f"pictures/{i}.png"} for i, id_ in enumerate(images)]
    listed = {f"pictures/{i}.png": image for i, image in enumerate(images.values())}
    table = "\n".join(",".join(row) for row in (rows[0], *(one.values() for one in rows)))
    folder = write(tmp_path / "mine", {
        "jsonl": {"manifest.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(), **listed},
        "csv": {"manifest.csv": table.encode(), **listed},
        "flat": {names[id_]: image for id_, image in images.items()},
        "setting": {f"direct/{names[id_]}": image for id_, image in images.items()},
        "jpeg": {names[id_].replace("png", "jpg"): jpeg(image) for id_, image in images.items()},
        "geneval": {f"{i:05d}/samples/0000.png": image for i, image in enumerate(images.values())},
        "below": {f"ureason/{names[id_]}": image for id_, image in images.items()},
        "linked": {"notes.jsonl": b""},
        "snapshot": {"notes.jsonl": b""},
    }[layout])  # fmt: skip
    if layout == "linked":  # a folder of images
        elsewhere = write(tmp_path / "elsewhere", {names[id_]: image for id_, image in images.items()})
        (folder / "direct").symlink_to(elsewhere)
        (elsewhere / "circle").symlink_to(folder)
    if layout == "snapshot":  # of the Hub, whose files are links
        for id_, image in images.items():
            blob = write(tmp_path / "blobs", {names[id_]: image}) / names[id_]
            (folder / names[id_]).symlink_to(blob)
    assert holds_answers(folder)
    result = uni_train.evaluate(folder, "ureason", out=str(tmp_path / "evals"), **KEYS).results["ureason"]
    assert {setting for setting, _, _ in result.no_skill} == set(ureason.settings) - {"direct"}
    if layout != "jpeg":  # whose colours differ from the sprites'
        assert all(counts == {"pass": sum(counts.values())} for counts in result.outcomes["direct"].values())


@pytest.mark.parametrize("name", ["ureason", "unisandbox", "ueval", "ufo", "wise"])
def test_what_submissions_hold_is_read_back(images: Images, name: str, tmp_path: Path) -> None:
    benchmark, image = opened(name), next(iter(images.values()))
    asks = [Ask(case, setting, 0, 1) for setting in benchmark.settings[:2] for case in benchmark.cases()]
    parts = ("1 fish", image) if name in ("ueval", "ufo") else (image,)
    samples = [Sample(ask, prompt=ask.case.prompt, parts=parts) for ask in asks]
    write_submission(tmp_path / name, benchmark.submission(map(Scored, samples)))
    read = FolderAnswers(tmp_path).respond(benchmark, asks)
    assert [(one.ask, one.status, one.parts) for one in read] == [(one.ask, "ok", one.parts) for one in samples]


def test_missing_and_damaged_answers_count_and_others_are_said(
    ureason: UReason, images: Images, tmp_path: Path
) -> None:
    first, second, third = list(images)[:3]
    files = {f"{file_name(id_)}.png": image for id_, image in images.items() if id_ != first}
    folder = write(tmp_path / "mine", {**files, f"{file_name(second)}.png": b"no image", "sunset.png": images[third]})
    said: list[str] = []
    (folder / "gone.png").symlink_to(tmp_path / "nothing")
    asks = [Ask(case, "direct", 0, 1) for case in ureason.cases()]
    samples = FolderAnswers(folder, ["direct"], said.append).respond(ureason, asks)
    assert f"{folder}: links to nothing, or closed folders: {folder / 'gone.png'}" in said
    failed = {one.ask.case.id: one.note for one in samples if one.status == "generation_failed"}
    assert list(failed) == [first, second]
    assert "no answer in mine" in failed[first] and file_name(second) in failed[second]
    assert any("sunset.png" in line for line in said) and any(first in line for line in said)


def test_two_answers_to_a_question_are_refused_and_none_to_any(ureason: UReason, tmp_path: Path) -> None:
    id_ = ureason.cases()[0].id
    row = json.dumps({"id": id_, "image": "a.png"}) + "\n"
    for number, (files, said) in enumerate((
        ({"manifest.jsonl": (row * 2).encode()}, re.escape(id_)),
        ({"a.png": b"", "a.jpg": b""}, r"a\.jpg and a\.png"),
        ({"sunset.png": b""}, "no answer to any"),
    )):  # fmt: skip
        with pytest.raises(UserError, match=said) as error:
            FolderAnswers(write(tmp_path / str(number), files)).respond(ureason, [])
    assert "eval questions -b ureason" in error.value.hint


def test_questions_are_answered_by_a_manifest(ureason: UReason, tmp_path: Path) -> None:
    out = tmp_path / "answers"
    words = ["eval", "questions", "-b", "ureason,ufo", "world=nano", "--n", "2", "--out", str(out)]
    assert CliRunner().invoke(command_line, words, catch_exceptions=False).exit_code == 0
    rows = [json.loads(line) for line in (out / "ureason/questions.jsonl").read_text().splitlines()]
    assert {(row["id"], row["setting"]) for row in rows} == {
        (case.id, setting) for case in ureason.cases() for setting in ureason.settings
    }
    shown = [json.loads(line)["images"] for line in (out / "ufo/questions.jsonl").read_text().splitlines()]
    assert any(shown) and all((out / "ufo" / name).is_file() for names in shown for name in names)


def test_a_function_is_a_model_as_the_example_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "examples/my_model/README.md").read_text(), re.DOTALL)
    exec(code.replace("n=4", "n=1"), {"__name__": "example"})


def test_a_benchmark_that_no_setting_fits_is_refused_at_once_with_those_that_fit(tmp_path: Path) -> None:
    asked: list[str] = []

    def painter(prompt: str, images: list[Any], seed: int) -> Any:
        asked.append(prompt)
        return Image.new("RGB", (8, 8))

    def writer(prompt: str, images: list[Any], seed: int) -> str:
        asked.append(prompt)
        return "1 fish"

    for function, names, skill, fitting in (
        (painter, "ueval", "write text: it returned Image", "ufo,unisandbox,ureason,vigor,wise"),
        (writer, "unisandbox,vigor", "draw: it returned str", "ufo,ureason"),
    ):
        asked.clear()
        with pytest.raises(UserError, match=f"{function.__name__} cannot {skill}, and all settings") as error:
            uni_train.evaluate(function, names.split(","), out=str(tmp_path), **KEYS)
        hinted = set((error.value.hint or "").rpartition("-b ")[2].split(","))
        ours = {"unisandbox", "ureason", "ufo", "vigor", "ueval", "wise"}  # tests of plug-ins register others
        assert hinted & ours == set(fitting.split(",")) and len(asked) <= 8
    done = uni_train.evaluate(painter, ["wise", "ueval"], out=str(tmp_path), **KEYS)
    assert {setting for setting, _, _ in done.results["wise"].no_skill} == {"cot"}
    assert {setting for setting, _, _ in done.results["ueval"].no_skill} == {"two_passes", "think_first"}
