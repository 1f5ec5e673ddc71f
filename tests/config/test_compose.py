"""Overrides and recipes of one's own. Wrong overrides are rows of tests/test_bad_inputs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.recipes.sft.config import SftConfig
from uni_train.recipes.stars.config import StarsConfig


def test_overrides_reach_nested_keys_lists_and_keys_the_recipe_leaves_out() -> None:
    config = compose(
        "stars_curriculum",
        [
            "teacher=current",
            "optimizer.lr=1e-4",
            "rounds.1.updates=7",
            "ema=0.99",
            "model.threads=2",
            "evaluation.modes=[cot]",
            "+seed=3",
        ],
    )
    assert isinstance(config, StarsConfig)
    assert (config.optimizer.lr, config.rounds[1].updates) == (1e-4, 7)
    assert (config.ema, config.model.threads, config.evaluation.modes, config.seed) == (0.99, 2, ("cot",), 3)


@pytest.mark.parametrize(
    "text", ["1", "true", "日本語", "café", "a,b", "it's", "1e-3", "a\\", "\\'", "x: y", "f(a)", "#1"]
)
def test_where_text_is_wanted_everything_is_text(text: str) -> None:
    source = "sources.mine={form:items,path:a.jsonl}"
    config = compose("sft", [source, f"sources.mine.images={text}", f"out={text}", f"model.checkpoint={text}"])
    assert isinstance(config, SftConfig)
    assert [config.sources["mine"].images, config.out, config.model.checkpoint] == [text] * 3  # type: ignore[union-attr]


def test_null_lists_and_interpolations_stay_what_they_are() -> None:
    config = compose(
        "sft", ["name=null", "out=runs${seed}", "sources.mine={form:items,path:a.jsonl}", "++sources.mine.path=[a,1b]"]
    )
    assert isinstance(config, SftConfig) and (config.name, config.out) == (None, "runs0")
    assert config.sources["mine"].path == ("a", "1b")  # type: ignore[union-attr]
    assert compose("stars_math", ["name='7'", "seed=1"]).run_name == "7"


def test_an_integer_is_a_number() -> None:
    assert compose("stars_curriculum", ["optimizer.lr=1"]).optimizer.lr == 1.0


MINE = """# My own control.
defaults:
  - stars_curriculum
  - _self_

seed: 5
"""


def test_a_recipe_of_ones_own_builds_on_ours(tmp_path: Path) -> None:
    file = tmp_path / "mine, with spaces.yaml"
    file.write_text(MINE)
    config = compose(str(file), ["seed=6"])
    assert isinstance(config, StarsConfig)
    assert (config.recipe, config.seed, len(config.rounds)) == ("mine, with spaces", 6, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINE + "sead: 1\n", "unknown key sead ({file})"),
        (MINE + "optimizer: {lr: quick}\n", "optimizer.lr must be a number, not 'quick' ({file})"),
        (MINE + "rounds: [{task: maths}]\n", "missing key rounds.0.level"),
        (MINE + "x: [1\n", ", line 8: not valid YAML"),
        ("- 1\n", "is no recipe"),
        ("seed: 1\n", "kind must be one of distil, dpo, flow_grpo, knowledge, pretrain, sft, stars, not None ({file})"),
    ],
)
def test_mistakes_in_a_file_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        compose(str(file))
    assert message.format(file=file) in caught.value.message
    assert str(file) in str(caught.value)
