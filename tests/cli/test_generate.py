"""`uni_train generate`, with nano and with the tiny golden model as a published folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from tests.models.bagel.published import published
from tests.tiny import save_talker
from uni_train import api
from uni_train.cli.main import uni_train
from uni_train.cli.numbers import QUANTISED
from uni_train.config.schema import Quantised
from uni_train.eval.redraw import seed_of

GOLDEN = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[1] / "data" / "golden")) / "bagel"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(uni_train, ["generate", *map(str, arguments)], catch_exceptions=False)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def test_nano_draws_what_it_is_asked_for_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "new" / "apples.png"
    result = run("-m", "nano", "-p", "Draw 3 apples .", "--out", out)
    assert (result.exit_code, result.stdout) == (0, f"{out}\n"), result.output
    assert "drawing: 10/10" in result.stderr and pixels(out).shape == (24, 24, 3)
    assert [path.name for path in out.parent.iterdir()] == ["apples.png"]
    seen = run("-m", "nano", "-p", "Caption :", "--image", out, "--answer")
    assert seen.stdout == "Caption: 3 apples\n"


def test_several_pictures_and_their_thoughts_are_those_of_their_seeds(tmp_path: Path) -> None:
    asked = "Draw the number of apples equal to 2 * 3 - 4 ."
    command = ("-m", "nano", "-p", asked, "--think", "--steps", "3", "--size", "16x24")
    result = run(*command, "-n", "2", "--seed", "5", "--out", tmp_path / "c.png")
    names = ["c-5.png", "c-5.txt", "c-6.png", "c-6.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert sorted(result.stdout.split()) == [str(tmp_path / name) for name in names]
    assert "thinking: " in result.stderr and (tmp_path / "c-5.txt").read_text().endswith("So draw 2 apples .\n")
    run(*command, "--seed", "6", "--out", tmp_path / "six.png")
    five, six = (pixels(tmp_path / f"c-{seed}.png") for seed in (5, 6))
    assert six.shape == (16, 24, 3) and (five != six).any()
    assert np.abs(pixels(tmp_path / "six.png").astype(int) - six).max() <= 1


@pytest.mark.parametrize("think", [(), ("--think",)])
def test_what_the_model_does_not_accept_is_drawn_again(tmp_path: Path, think: tuple[str, ...]) -> None:
    talker = save_talker(tmp_path / "talker", "Final Answer: NO")
    command = ("-m", talker, "-p", "Draw 3 apples .", "--steps", "1", *think, "--seed")
    result = run(*command, "5", "-n", "2", "--redraw", "3", "--out", tmp_path / "a.png")
    assert (result.exit_code, "6 images drawn, 4 judged by the model itself" in result.stderr) == (0, True), (
        result.output
    )
    run(*command, str(seed_of(5, 2)), "--out", tmp_path / "last.png")
    alike = api.generate(api.load_model(talker, steps=1), "Draw 3 apples .", think=bool(think), seed=5, redraw=3)
    for image in (pixels(tmp_path / "last.png"), alike.image):
        assert np.abs(pixels(tmp_path / "a-5.png").astype(int) - image).max() <= 1
    unknown = run("-m", talker, "-p", "Draw 3 zebras .", "--redraw", "3", "--out", tmp_path / "b.png")
    assert unknown.exit_code == 1 and "write it in the words" in unknown.stderr, "redraw=1 would not help"


def test_every_form_of_weights_draws(tmp_path: Path) -> None:
    assert get_args(Quantised) == QUANTISED
    command = ("-m", "nano", "-p", "Draw 3 apples .", "--steps", "2", "--out", tmp_path / "a.png")
    plain = run(*command), pixels(tmp_path / "a.png")
    for form in QUANTISED:
        assert run(*command, "--weights", form).exit_code == 0
        assert (pixels(tmp_path / "a.png") != plain[1]).any(), form


@pytest.mark.slow
def test_a_published_bagel_edits_and_answers(tmp_path: Path) -> None:
    folder = published(GOLDEN, tmp_path / "BAGEL")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 60, 3), np.uint8)).save(tmp_path / "in.png")
    common = ("-m", folder, "-p", "make it blue", "--image", tmp_path / "in.png")
    result = run(*common, "--steps", "2", "--think", "--out", tmp_path / "blue.png")
    assert result.exit_code == 0, result.output
    assert pixels(tmp_path / "blue.png").shape == (64, 128, 3) and (tmp_path / "blue.txt").is_file()
    plain, guided, alone = (tmp_path / f"{name}.png" for name in ("plain", "guided", "alone"))
    run(*common, "--steps", "2", "--text-scale", "1", "--image-scale", "1", "--out", plain)
    noted = run(*common, "--steps", "2", "--text-scale", "1", "--image-scale", "3", "--out", alone)
    assert "does nothing while --text-scale is 1 or less" in noted.stderr
    run(*common, "--steps", "2", "--text-scale", "4", "--image-scale", "3", "--out", guided)
    assert (pixels(plain) == pixels(alone)).all() and (pixels(plain) != pixels(guided)).any()
    answered = run(*common, "--answer", "--think", "--temperature", "1")
    assert answered.exit_code == 0 and answered.stdout != run(*common, "--answer", "--temperature", "1").stdout


@pytest.mark.slow
def test_an_interleaved_answer_is_a_page_with_its_images(tmp_path: Path) -> None:
    folder = published(GOLDEN, tmp_path / "BAGEL")
    common = ("-m", folder, "-p", "what now", "--interleaving", "zebra_cot", "--max-images", "1", "--steps", "2")
    result = run(*common, "--out", tmp_path / "a.png")
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [f"{tmp_path / 'a-1.png'}", f"{tmp_path / 'a.md'}"]
    assert pixels(tmp_path / "a-1.png").shape == (128, 128, 3)
    assert (tmp_path / "a.md").read_text(encoding="utf-8").endswith("\n\n![image 1](a-1.png)\n")
    assert run(*common, "--seed", "3", "-n", "2", "--temperature", "1", "--out", tmp_path / "b.png").exit_code == 0
    assert {file.name for file in tmp_path.glob("b*")} == {"b-3-1.png", "b-3.md", "b-4-1.png", "b-4.md"}
    assert (tmp_path / "b-3.md").read_bytes() != (tmp_path / "b-4.md").read_bytes()
