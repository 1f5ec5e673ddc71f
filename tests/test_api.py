"""The Python API: the results of the commands, errors that name what was meant, an import that costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import uni_train
from tests.tiny import TINY
from uni_train.api import _typed
from uni_train.cli.main import uni_train as command
from uni_train.config.compose import compose
from uni_train.models.base import Request, UnifiedModel
from uni_train.recipes.sft.config import SftConfig

PROMPT = "Draw as many fish as 2 + 3."


@pytest.fixture(scope="module")
def nano() -> UnifiedModel:
    return uni_train.load_model("nano", steps=4, temperature=0.0)


def test_importing_the_package_imports_nothing() -> None:
    code = "import sys, uni_train; assert 'fit' in dir(uni_train); assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def test_every_name_is_there() -> None:
    assert all(getattr(uni_train, name).__doc__ for name in uni_train.__all__)


def test_generates_what_the_command_writes(nano: UnifiedModel, tmp_path: Path) -> None:
    out = tmp_path / "chairs.png"
    typed = ["generate", "-m", "nano", "-p", PROMPT, "--think", "--steps", "4", "--temperature", "0", "--seed", "3"]
    result = CliRunner().invoke(command, [*typed, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    generated = uni_train.generate(nano, PROMPT, think=True, seed=3)
    assert np.array_equal(generated.image, np.asarray(Image.open(out)))
    assert generated.thought == out.with_suffix(".txt").read_text().strip()
    assert uni_train.generate(nano, PROMPT, seed=3).thought is None


def test_answers_about_an_image(nano: UnifiedModel) -> None:
    chairs = uni_train.get_task("maths", "nano").generate(1, level=1, split="test", seed=0)[0]
    image = uni_train.get_task("maths", "nano").render(chairs, seed=0)
    said = uni_train.answer(nano, "Caption :", images=[image])
    assert said == nano.answer([Request("prompt", "Caption :", (image,))])[0] and said


@pytest.mark.slow
def test_fit_continues_what_the_command_has_begun(copy: Path, tmp_path: Path) -> None:
    written = (copy / "report.html").stat().st_mtime_ns
    run = uni_train.fit("stars_curriculum", [f"out={tmp_path}", *TINY])
    assert run.path == copy == tmp_path / "stars_curriculum" / "seed0"
    assert run.report.stat().st_mtime_ns == written
    assert run.summary["scores"]["after"]["normal"]["mapping1"]["n"] == 2
    sizes = [sum(p.numel() for p in uni_train.load_model(one).parameters()) for one in (run.path, "nano")]
    assert 10 * sizes[0] < sizes[1]  # its own model, and not the one that nano ships


def test_overrides_as_a_mapping_are_those_of_the_command_line() -> None:
    nested = {"seed": 3, "optimizer": {"lr": 1e-4, "betas": [0.9, 0.99]}, "name": None, "whole_pairs": True,
              "budget": {"mapping1": {"prompts": 8}}}  # fmt: skip
    typed = ["seed=3", "optimizer.lr=1e-4", "optimizer.betas=[0.9,0.99]", "name=null", "whole_pairs=true",
             "budget.mapping1.prompts=8"]  # fmt: skip
    assert compose("stars_curriculum", _typed(nested)) == compose("stars_curriculum", typed)


def test_texts_within_lists_stay_texts() -> None:
    paths = ["a, b.jsonl", "1", "it's", "null", "[x]"]
    config = compose("sft", _typed({"sources": {"mine": {"form": "items", "path": paths}}}))
    assert isinstance(config, SftConfig) and config.sources["mine"].path == tuple(paths)  # type: ignore[union-attr]


def test_evaluates(tmp_path: Path) -> None:
    options = {"sampling": {"steps": 2}, "options": {"unisandbox": {"labels": "official"}}, "out": tmp_path}
    found = uni_train.evaluate(
        "shipped", "unisandbox", name="mine", sets=["math1"], n=2, settings=["normal"], **options
    )
    assert found.folder == tmp_path / "mine" and found.results["unisandbox"].n == 2
    (scored, _) = found.scored("unisandbox")
    assert scored.sample.ask.setting == "normal"
    with pytest.raises(uni_train.UserError, match=r"cannot write text.*all settings asked of UniSandbox need more"):
        uni_train.evaluate(lambda prompt, images, seed: Image.new("RGB", (8, 8)), settings=["said"], n=1, out=tmp_path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: uni_train.load_model("nanoo"), "nanoo"),
        (lambda: uni_train.load_model("nano", stepz=3), "Did you mean steps?"),
        (lambda: uni_train.generate("nano", " "), "the prompt is empty"),
        (lambda: uni_train.fit("stars_curiculum"), "Did you mean stars_curriculum?"),
        (lambda: uni_train.fit("stars_curriculum", {"optimizer": {"lrr": 1}}), "optimizer.lr"),
        (lambda: uni_train.evaluate("shipped", subsett=3), "Did you mean subset?"),
        (lambda: uni_train.evaluate("shipped", ["unisandbox", "ureson"]), "Did you mean ureason?"),
        (lambda: uni_train.get_reward("verifierr"), "verifier_dense"),
    ],
)
def test_an_error_names_what_was_meant(call, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(uni_train.UserError) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize(("benchmark", "said"), [("unisandbox", "git clone"), ("ufo", "hf://")])
def test_data_that_are_not_there_are_one_kind_of_error(benchmark: str, said: str, tmp_path: Path) -> None:
    """Whatever a benchmark raises when it opens its files."""
    with pytest.raises(uni_train.UserError, match=said) as caught:
        uni_train.evaluate("shipped", benchmark, data={benchmark: tmp_path / "none"}, out=tmp_path)
    assert "none" in str(caught.value)
