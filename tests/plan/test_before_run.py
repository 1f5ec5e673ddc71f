"""Updates that a machine cannot hold are refused with their keys before anything is made; shipped recipes never are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.plan.test_plan import BAGEL, EDITOR
from uni_train.cli.main import uni_train
from uni_train.config import places
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.console.progress import ConsoleProgress
from uni_train.core.errors import UserError
from uni_train.fitting import expect_items
from uni_train.plan import before_run
from uni_train.plan import plan as planning
from uni_train.plan.before_run import expect_memory
from uni_train.plan.hardware import GIB, GPUS, RESERVED
from uni_train.plan.plan import scaled
from uni_train.plan.ready import SAMPLE, ready


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_run, "memory", lambda: 12 * GIB)
    monkeypatch.setattr(before_run.torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("recipe", [recipe.name for recipe in places.recipes()])
def test_every_shipped_recipe_has_its_items_whatever_it_switches_on_and_an_update_that_is_not_refused(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of GPUs is tested by a dry run of Qwen-Image-Edit and by `launch`; it takes half a minute."""
    monkeypatch.setattr(planning, "on_gpus", lambda *_: "")
    config = compose(recipe)
    switches = ["evaluate=true"] if hasattr(config, "evaluate") else []
    switches += ["data.balanced=true"] if "maths" in str(to_plain(config)) else []
    switches += ["model=nano"] if recipe == "sft" else []  # BAGEL is evaluated with a judge, which no recipe has
    expect_items(compose(recipe, switches), ConsoleProgress())
    least, small = {"bagel_7b": ("at least 27 GiB", BAGEL), "qwen_image_edit_2511": ("at least 54 GiB", EDITOR)}.get(
        config.model.name, (None, None)
    )
    assert ready(config if small is None else compose(recipe, small), 2).work.units >= 1
    said = expect_memory(config, planned=True)
    assert (said is None) == (least is None)
    if said is not None and least is not None:  # meant for another machine: `fit` itself cannot go on here
        assert least in said
        with pytest.raises(UserError, match=least):
            expect_memory(config)


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("sft", [*BAGEL, "strategy.precision=32-true"]),
        ("stars_curriculum", [*BAGEL, "strategy.precision=32-true"]),
        ("stars_curriculum", ["batch.prompts=65536", "batch.accumulate=1000"]),
    ],
    ids=["a small BAGEL", "its rounds", "accumulation makes room"],
)
def test_what_fits_is_taken(recipe: str, overrides: list[str]) -> None:
    assert expect_memory(compose(recipe, overrides)) is None


@pytest.mark.parametrize(
    ("recipe", "overrides", "key"),
    [
        ("stars_curriculum", ["batch.noise_draws=256", "batch.prompts=65536"], "batch.noise_draws"),
        ("knowledge", ["rows=65536"], "rows"),
        ("nano_pretrain", ["parts.operations.mixture.facts=65536"], "parts.*.mixture"),
        ("flow_grpo_math", ["rollout.prompts_per_epoch=65536", "rollout.group_size=1000"], "rollout.group_size"),
        ("sft", [*BAGEL, "batch.tokens=1048576"], "batch.tokens"),
        ("nano_pretrain", ["model.architecture.hidden_size=65536"], "model.architecture"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_fit_is_refused_with_its_key(recipe: str, overrides: list[str], key: str) -> None:
    with pytest.raises(
        UserError, match=r"takes (about|at least) [\d,]+ GiB of memory, and this machine has 12"
    ) as said:
        expect_memory(compose(recipe, overrides), planned=True)
    assert said.value.hint is not None and key in said.value.hint


def test_a_sample_tells_what_the_whole_update_takes() -> None:
    config = compose("stars_curriculum", ["batch.prompts=192"])
    sample, whole = ready(config, 1, SAMPLE), ready(config, 1)
    assert (sample.work.units, sample.work.times, whole.work.units) == (192, 3.0, 192)
    told = scaled(sample.traced(False)[0], sample.work.times).timeline.peak()
    assert told == pytest.approx(whole.traced(False)[0].timeline.peak(), rel=0.1)


def test_a_sample_is_no_larger_than_the_micro_batch_it_stands_for() -> None:
    config = compose("stars_curriculum", ["batch.prompts=192", "batch.accumulate=4"])
    sample, whole = ready(config, 8, SAMPLE), ready(config, 8)
    assert (sample.work.units, sample.work.times) == (whole.work.units, 1.0) == (24, 1.0)


def test_a_recipe_without_a_strategy_is_told_one_that_fits() -> None:
    config = compose("sft", BAGEL)
    assert "h100-80gb with ddp, which fits" in planning.on_gpus(config, 8)
    small = replace(GPUS["h100-80gb"], memory=RESERVED + 2 * GIB)
    said = planning.on_gpus(config, 8, gpu=small)
    assert re.search(r"GiB of 2 on each of 8 h100-80gb with ddp, which does not fit; add strategy=\w+", said), said


def test_the_command_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    huge = ["batch.noise_draws=256", "batch.prompts=65536", f"out={out}"]
    result = CliRunner().invoke(uni_train, ["fit", "--recipe", "stars_curriculum", *huge])
    assert result.exit_code == 1, result.output
    assert "batch.noise_draws" in result.stderr and "Traceback" not in result.stderr
    assert not out.exists()
