"""Every YAML in recipes/ and configs/ is loaded, composed and described."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.plan.test_plan import BAGEL, FEW_KEPT
from uni_train.cli.main import uni_train
from uni_train.config import places
from uni_train.config.build import build, to_plain
from uni_train.config.compose import compose
from uni_train.config.kinds import check_ranks, kind_of, stage_list
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UsageError
from uni_train.dry_run import needs
from uni_train.models.load import expect_keys
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig
from uni_train.recipes.knowledge.config import KnowledgeConfig
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.rounds import most_updates

RECIPES = [recipe.name for recipe in places.recipes()]
LAST = {"sft": "sft", "flow_grpo": "grpo", "knowledge": "inject-inverse"}


@cache
def composed(recipe: str, *overrides: str) -> RunConfig:
    return compose(recipe, overrides)


@pytest.mark.parametrize("recipe", places.recipes(), ids=lambda recipe: recipe.name)
def test_recipe_composes_and_survives_a_round_trip_through_yaml(recipe: places.Described) -> None:
    assert recipe.summary and "CPU" in recipe.costs, "its header says what it does, and what it costs on what"
    config = composed(recipe.name)
    assert config.recipe == recipe.name
    assert build(yaml.safe_load(yaml.safe_dump(to_plain(config)))) == config
    stages = stage_list(config)
    assert [stage.index for stage in stages] == list(range(len(stages)))
    evaluated = getattr(config, "evaluate", config.kind not in LAST)
    assert stages[-1].name.rstrip("0123456789") == ("evaluate-after" if evaluated else LAST[config.kind])


def expect_rows(config: RunConfig, ranks: int) -> None:
    """Each training has a row for each rank and micro-batch, or one error names the key and the value that works."""
    try:
        check_ranks(config, ranks)
    except UsageError as error:
        key, value = re.findall(r"([\w.]+)=(\d+)", error.hint or "")[-1]
        assert key in error.message and int(value) >= ranks
        expect_rows(with_value(config, key, int(value)), ranks)
        with pytest.raises(UsageError, match=re.escape(key)):
            check_ranks(with_value(config, key, int(value) - 1), ranks)
        return
    kind = kind_of(config)
    if isinstance(config, FlowGrpoConfig):
        rows = [config.rows_of(config.images), *([config.sft.rows] if config.sft else [])]
        assert config.rollout.prompts_per_epoch % ranks == 0 and min(rows) >= ranks
        return
    shared = kind.updates(config).shared(ranks)
    assert shared.tokens is not None or min(kind.rows(config).values()) >= ranks
    assert shared.rows is None or shared.rows >= ranks * shared.accumulate


def with_value(config: RunConfig, key: str, value: int) -> RunConfig:
    values = to_plain(config)
    *sections, name = key.split(".")
    below = values
    for section in sections:
        below = below[section]
    below[name] = value
    return build(values)


def test_eight_ranks_accumulate_an_eighth_of_the_micro_batches() -> None:
    config = compose("stars_curriculum", ["model=bagel_7b"])
    updates = kind_of(config).updates(config)
    assert [updates.shared(ranks).accumulate for ranks in (1, 2, 8, 32, 100)] == [32, 16, 4, 1, 1]
    assert replace(updates, rows=9, accumulate=9).shared(2).accumulate == 4  # ten places would leave one without a row


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["fit", "stars_maze", "--dry-run", "strategy=ddp", "strategy.devices=32"], {}),
        (["fit", "stars_maze"], {"RANK": "0", "WORLD_SIZE": "32", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}),
        (["launch", "--nodes", "4", "--gpus", "8", "--slurm", "--", "fit", "-r", "stars_maze"], {}),
        (["plan", "stars_maze", "--nodes", "4"], {}),
    ],
    ids=["dry run", "torchrun", "launch", "plan"],
)
def test_too_few_rows_for_the_ranks_are_told_before_anything_runs(
    command: list[str], environment: dict[str, str]
) -> None:
    printed = CliRunner().invoke(uni_train, command, env=environment, catch_exceptions=False)
    assert printed.exit_code == 2 and "batch.prompts=16 cannot be divided among 32 devices" in printed.output
    assert "The nearest number is batch.prompts=32." in printed.output


@pytest.mark.parametrize("option", places.options("logger") + places.options("strategy"), ids=lambda one: one.name)
def test_every_logger_and_strategy_composes(option: places.Described) -> None:
    compose("stars_curriculum", [f"{option.path.parent.name}={option.name}"])


def test_every_option_of_every_group_says_what_it_is() -> None:
    options = [option for group in places.groups() for option in places.options(group)]
    assert [option.path for option in options if not option.summary] == []


@pytest.mark.parametrize(
    ("recipe", "model", "message", "hint"),
    [
        ("sft", "nano model.trains=false", "model=nano is asked, and not trained here", "Choose another model"),
        ("knowledge", "diffusers", "model=diffusers answers no questions", "model=janus_pro_7b"),
        ("stars_curriculum", "diffusers", "takes no model=diffusers", "It takes model=bagel_7b or model=nano."),
    ],
)
def test_a_model_that_a_recipe_does_not_take_is_named(recipe: str, model: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        compose(recipe, f"model={model}".split())
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize("model", ["janus_pro_7b", "janus_pro_1b"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_model_that_learns_texts_is_taken_by_recipes_of_texts_alone(recipe: str, model: str) -> None:
    if recipe not in ("knowledge", "knowledge_bagel", "knowledge_swift"):
        learns = f"model={model} learns texts alone, and kind={composed(recipe).kind} trains on images"
        form = "form.updates: the form is taught with nano's characters"
        with pytest.raises(UsageError, match=f"{learns}|{form}|takes no model={model}"):
            compose(recipe, [f"model={model}"])
        return
    config = compose(recipe, [f"model={model}"])
    assert isinstance(config, KnowledgeConfig)
    given = config.epochs, config.least_epochs, config.rows, config.optimizer.lr
    assert given == (30, 30, 64, 1e-5), "appendix D, by MS-Swift"
    assert (config.strategy.precision, config.data.world) == ("bf16-true", "everyday")
    assert config.activation_checkpointing and not config.keep_models


def test_the_curriculum_reads_as_the_paper_and_scales_with_the_model() -> None:
    nano, bagel = compose("stars_curriculum"), compose("stars_curriculum", ["model=bagel_7b"])
    assert isinstance(nano, StarsConfig) and isinstance(bagel, StarsConfig)
    for config in (nano, bagel):
        assert [one.set_name for one in config.rounds] == ["mapping1", "mapping2", "mapping3"]
        assert (config.filter, config.schedule.kind) == ("self", "sequential")
    assert bagel.optimizer.lr == 2e-5  # section 3.4.2
    assert [(one.kept, one.epochs, one.updates) for one in bagel.rounds] == [(10_000, 6, None)] * 3
    assert bagel.whole_pairs and not any(one.kept for one in nano.rounds)
    assert most_updates(bagel, range(3)) == [469] * 3  # 6 x 10,000 / 128: nothing is replayed
    assert not any(one.replay for one in bagel.rounds) and bagel.data.distractors == 0
    assert bagel.data.world == "everyday" and nano.data.world == "nano"


def test_controls_differ_from_the_curriculum_in_what_they_control_only() -> None:
    curriculum, mixed, unfiltered = (compose(n) for n in ("stars_curriculum", "stars_mixed", "stars_no_filter"))
    assert isinstance(curriculum, StarsConfig) and isinstance(mixed, StarsConfig)
    assert [r.updates for r in mixed.rounds] == [r.updates for r in curriculum.rounds]
    assert [r.prompts for r in mixed.rounds] == [r.prompts for r in curriculum.rounds]
    differing = {k for k, v in to_plain(unfiltered).items() if v != to_plain(curriculum)[k]}
    assert differing == {"recipe", "filter"}


@pytest.mark.parametrize("recipe", ["stars_math", "stars_mapping"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_level_picks_the_one_round(recipe: str, level: int) -> None:
    config = compose(recipe, [f"level={level}"])
    assert isinstance(config, StarsConfig)
    assert [(one.level, bool(one.updates)) for one in config.rounds] == [(level, True)]
    assert config.run_name == f"level{level}-seed0"


MODELS = ["nano", "nano_edit", "bagel_7b", "diffusers", "qwen_image_edit_2511"]
"""Of those that train; options of the other Qwen-Image-Edit are the same but for their checkpoint."""


def test_what_is_typed_goes_before_what_suits_the_model() -> None:
    for recipe in ("sft_maze", "nft_maze", "flow_grpo_math", "knowledge"):
        assert compose(recipe, ["model=bagel_7b", "optimizer.lr=3e-4"]).optimizer.lr == 3e-4


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_composes_for_the_model_and_any_number_of_ranks_or_refuses_it(recipe: str, model: str) -> None:
    try:
        config = composed(recipe, f"model={model}")
        expect_keys(config.model)
    except UsageError as error:
        unjudged = {("knowledge_form", "bagel_7b"), ("sft_nano", "bagel_7b")}
        unjudged |= {(one, "diffusers") for one in ("sft_nano", "flow_grpo_math", "unigrpo_math")}
        assert model in str(error) or (recipe, model) in unjudged
        assert model != composed(recipe).model.name
        return
    for ranks in (1, 8, 32):
        expect_rows(config, ranks)
    if config.model.family == "nano":
        assert (config.strategy.precision, config.data.world) == ("32-true", "nano")
        return
    trained, _ = kind_of(config).trained(config)
    assert (config.strategy.precision, config.data.world) == ("bf16-true", "everyday")
    assert config.activation_checkpointing and config.optimizer.lr <= (1e-4 if trained == "lora" else 4e-5)
    assert trained == "lora" or model == "bagel_7b"
    adapted = composed("flow_grpo_maze", f"model={model}")
    assert trained != "lora" or recipe == "flow_grpo_maze_qwen" or config.optimizer.lr == adapted.optimizer.lr
    assert trained != "lora" or (config.lora, config.ema) == (adapted.lora, adapted.ema)
    if isinstance(config, FlowGrpoConfig):
        assert (trained, config.rows, config.objective.on_policy) == ("lora", 2, "recompute")
    assert config.model.checkpoint == composed("sft", f"model={model}").model.checkpoint


def test_large_editors_learn_mazes_larger_than_those_of_validation() -> None:
    """ViGoR 4.3: trained on 8 x 8, tested on 2 x 2 to 7 x 7."""
    for model in ("bagel_7b", "qwen_image_edit_2511"):
        sft = to_plain(compose("sft_maze", [f"model={model}"]))
        assert sft["sources"]["mazes"]["path"] == "data/maze8/items.jsonl" and max(sft["held_out"]["levels"]) == 7
    grpo = to_plain(compose("flow_grpo_maze_qwen"))
    assert grpo["prompts"]["levels"] == [8] and grpo["held_out"]["levels"] == sft["held_out"]["levels"]


def test_files_that_a_recipe_needs_are_named_where_they_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for recipe, missing in (("sft_maze", ["data/maze4/items.jsonl"]), ("stars_maze", ["runs/sft_maze", "data/maze4"])):
        lines = "\n".join(needs(composed(recipe)))
        assert all(re.search(f"missing: .* there is nothing at {path}", lines) for path in missing)
    assert "hf:" not in "".join(needs(compose("sft_nano", ["model.checkpoint=hf://org/name"])))


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            ["flow_grpo_math", "strategy.devices=2"],
            ["1 updates of 768 rows in 2 micro-batches on each of 2 ranks"],
        ),
        (
            ["stars_curriculum", *BAGEL, FEW_KEPT, "evaluation.n=2", "strategy.devices=8"],
            [
                "on each of 8 ranks: 4 micro-batches of 16 examples together",
                "costs: `uni_train plan stars_curriculum model=bagel_7b`",
            ],
        ),
    ],
    ids=["nano", "a large model, without costs of nano"],
)
def test_the_dry_run_counts_the_micro_batches_of_each_rank(command: list[str], lines: list[str]) -> None:
    printed = CliRunner().invoke(uni_train, ["fit", *command, "--dry-run"], catch_exceptions=False).output
    assert [line for line in lines if line not in printed] == []
