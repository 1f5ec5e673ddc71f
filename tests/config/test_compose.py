"""Overrides, and what is said about wrong ones: the key, where it was given, and what was probably meant."""

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


def test_an_integer_is_a_number_but_not_the_other_way_round() -> None:
    assert compose("stars_curriculum", ["optimizer.lr=1"]).optimizer.lr == 1.0
    with pytest.raises(UsageError, match=r"checkpoint_every must be a whole number, not 2\.5"):
        compose("stars_curriculum", ["checkpoint_every=2.5"])


WRONG = [
    # override, what the message must say, what the hint must say
    ("model=nan0", "unknown model nan0", "Did you mean nano?"),
    ("optimizer.lrr=1", "unknown key optimizer.lrr", "Did you mean optimizer.lr?"),
    ("lr=1e-4", "unknown key lr", "Did you mean optimizer.lr?"),
    ("rounds.0.taks=maths", "unknown key rounds.0.taks", "Did you mean rounds.0.task?"),
    ("hydra.run.dir=x", "unknown key hydra.run.dir", ""),
    ("model.threads=many", "model.threads must be a whole number or auto", ""),
    ("optimizer.lr=fast", "optimizer.lr must be a number, not 'fast'", ""),
    ("seed=true", "seed must be a whole number, not true", ""),
    ("optimizer=3", "optimizer must be a section", ""),
    ("evaluation.sets=math1", "evaluation.sets must be a list", ""),
    ("filter=slef", "filter: unknown filter slef", "Did you mean self?"),
    ("optimizer.betas=[0.9]", "optimizer.betas must be a list of 2 values", ""),
    ("optimizer.lr=0", "optimizer.lr must be greater than 0", ""),
    ("candidates=0", "candidates must be at least 1", ""),
    ("rounds.0.level=4", "rounds.0.level must be one of 1, 2, 3, not 4", ""),
    ("rounds.7.updates=1", "rounds.7.updates=1", ""),
    ("rounds.0.replay.mapping3=0.1", "no earlier round samples it", ""),
    ("rounds.1.replay.mapping1=1.0", "nothing is left for mapping2", ""),
    ("rounds.1.replay.maping1=0.1", "unknown set maping1", "Did you mean mapping1?"),
    ("rounds=[]", "rounds is empty", ""),
    ("name=../elsewhere", "name must be usable as a folder name", ""),
    ("level=2", "takes no level", "level=1, 2 or 3"),
    ("kind=pretrain", "cannot be overridden", ""),
    ("seed", "cannot read the override seed", "key=value"),
    ("seed=1,2", "one run takes one value", "[a,b]"),
    ("seed={", "cannot read the override", "key=value"),
    ("out=${nowhere}", "nowhere", ""),
]


@pytest.mark.parametrize(("override", "message", "hint"), WRONG, ids=[w[0] for w in WRONG])
def test_a_wrong_override_is_named_with_what_was_meant(override: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose("stars_curriculum", [override])
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert override in caught.value.message or "${" in override


@pytest.mark.parametrize(
    ("recipe", "overrides", "message", "hint"),
    [
        ("stars_math", ["level=4"], "level must be one of 1, 2, 3, not 4", ""),
        ("stars_mixed", ["teacher=current"], "teacher=current needs schedule.kind=sequential", ""),
        ("flow_grpo_math", ["rewards=ocr", "rewards.right.weight=2"], "rewards.right.weight=2", "rewards has a value"),
        ("flow_grpo_math", ["prompts.levels=[1]", "prompts=a.txt"], "prompts.levels=[1]", "prompts has a value"),
        ("stars_curiculum", [], "unknown recipe stars_curiculum", "Did you mean stars_curriculum?"),
    ],
)
def test_what_a_recipe_does_not_take_is_refused(recipe: str, overrides: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(recipe, overrides)
    assert message in caught.value.message and hint in (caught.value.hint or "")


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
        ("seed: 1\n", "kind must be one of distil, flow_grpo, knowledge, pretrain, sft, stars, not None ({file})"),
    ],
)
def test_mistakes_in_a_file_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        compose(str(file))
    assert message.format(file=file) in caught.value.message
    assert str(file) in str(caught.value)
