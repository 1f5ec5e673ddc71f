"""Every YAML in recipes/ and configs/ is loaded, composed and described."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.config import places
from uni_train.config.build import build, to_plain
from uni_train.config.compose import compose
from uni_train.config.kinds import kind_of, stage_list
from uni_train.errors import UsageError
from uni_train.recipes.stars.config import StarsConfig

RECIPES = [recipe.name for recipe in places.recipes()]
LAST = {"sft": "sft", "flow_grpo": "grpo", "knowledge": "inject-inverse"}
OPTIONS = [(group, option.name) for group in places.groups() for option in places.options(group)]


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_composes_and_survives_a_round_trip_through_yaml(name: str) -> None:
    config = compose(name)
    assert config.recipe == name
    assert build(yaml.safe_load(yaml.safe_dump(to_plain(config)))) == config
    stages = stage_list(config)
    assert [stage.index for stage in stages] == list(range(len(stages)))
    evaluated = getattr(config, "evaluate", config.kind not in LAST)
    assert stages[-1].name.rstrip("0123456789") == ("evaluate-after" if evaluated else LAST[config.kind])


def models_of(recipe: places.Described) -> list[list[str]]:
    """Overrides that choose each model that a recipe is for: its own, those of its header, those with a scale."""
    named = [line for line in places.header(recipe.path) if "model=q" in line]
    given = [re.findall(r"\S+=\w+", line[line.index("model=") :]) for line in named]
    scaled = "scale: ${model}" in recipe.path.read_text(encoding="utf-8")
    return [[], *given, *([["model=bagel_7b"]] if scaled else [])]


@pytest.mark.parametrize("ranks", [1, 2, 8, 32])
@pytest.mark.parametrize("recipe", places.recipes(), ids=lambda recipe: recipe.name)
def test_every_training_has_rows_for_every_rank_or_is_refused_with_the_nearest_number(
    recipe: places.Described, ranks: int
) -> None:
    for given in models_of(recipe):
        given = [*given, "strategy=ddp", f"strategy.devices={ranks}"]
        for _ in range(3):  # a refusal for each key
            try:
                config = compose(recipe.name, given)
                break
            except UsageError as error:
                assert ranks > 1 and error.hint is not None
                given = [*given, re.findall(r"\S+=\d+", error.hint)[-1]]
        kind = kind_of(config)
        rollouts = kind.rollouts(config)
        if rollouts is not None:
            grpo = rollouts.config
            rows = [grpo.images * grpo.rows_an_image // grpo.updates_per_pass, *([grpo.sft.rows] if grpo.sft else [])]
            assert grpo.rollout.prompts_per_epoch % ranks == 0 and min(rows) >= ranks
            continue
        shared = kind.updates(config).shared(ranks)
        rows = list(kind.rows(config).values())
        assert shared.tokens is not None or min(rows) >= ranks
        assert shared.rows is None or shared.rows >= ranks * shared.accumulate


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
    ],
    ids=["dry run", "torchrun", "launch"],
)
def test_too_few_rows_for_the_ranks_are_told_before_anything_runs(
    command: list[str], environment: dict[str, str]
) -> None:
    printed = CliRunner().invoke(uni_train, command, env=environment, catch_exceptions=False)
    assert printed.exit_code == 2 and "batch.prompts=16 cannot be divided among 32 devices" in printed.output
    assert "The nearest number is batch.prompts=32." in printed.output


@pytest.mark.parametrize("recipe", places.recipes(), ids=lambda recipe: recipe.name)
def test_recipe_header_says_what_it_does_and_costs(recipe: places.Described) -> None:
    assert recipe.summary.endswith((".", ":")) or recipe.summary
    assert "CPU" in recipe.costs, "say what it costs and on what"


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_of_every_group_composes(group: str, option: str) -> None:
    if group == "model" and "janus" in option:
        for recipe in ("sft", "knowledge_swift"):
            with pytest.raises(UsageError, match=f"model={option} is asked, and not trained here"):
                compose(recipe, [f"model={option}"])
    else:
        compose({"model": "sft", "large": "sft_maze"}.get(group, "stars_curriculum"), [f"{group}={option}"])
    if group == "model" and option not in ("nano", "bagel_7b"):
        with pytest.raises(UsageError, match=f"stars_curriculum takes no model={option}") as error:
            compose("stars_curriculum", [f"model={option}"])
        assert error.value.hint == "It takes model=bagel_7b or model=nano."
    assert next(o for o in places.options(group) if o.name == option).summary


def test_the_curriculum_reads_as_the_paper_and_scales_with_the_model() -> None:
    nano, bagel = compose("stars_curriculum"), compose("stars_curriculum", ["model=bagel_7b"])
    assert isinstance(nano, StarsConfig) and isinstance(bagel, StarsConfig)
    for config in (nano, bagel):
        assert [one.set_name for one in config.rounds] == ["mapping1", "mapping2", "mapping3"]
        assert (config.filter, config.schedule.kind) == ("self", "sequential")
    assert bagel.optimizer.lr == 2e-5  # section 3.4.2
    assert [(one.kept, one.epochs, one.updates) for one in bagel.rounds] == [(10_000, 6, None)] * 3
    assert bagel.whole_pairs and not any(one.kept for one in nano.rounds)
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


@pytest.mark.parametrize(
    "recipe", ["flow_grpo_math", "flow_grpo_maze", "nft_maze", "stars_maze", "unigrpo_math", "distil_maze"]
)
def test_recipes_by_rewards_compose_for_large_models(recipe: str) -> None:
    for model in ("bagel_7b", *(["qwen_image_edit_2511"] if recipe.endswith("maze") else [])):
        given = [f"model={model}", "data.world=everyday", *(["evaluate=false"] if "grpo" in recipe else [])]
        config = compose(recipe, given)
        assert (config.model.name, config.data.world) == (model, "everyday")


@pytest.mark.parametrize("recipe", ["sft_maze", "sft_maze_told", "stars_maze", "distil_maze"])
def test_recipes_of_nano_edit_train_a_large_model_as_one(recipe: str) -> None:
    config = compose(recipe, ["model=qwen_image_edit_2511"])
    assert kind_of(config).trained(config)[0] == "lora"
    assert (config.optimizer.lr, config.strategy.precision, config.data.world) == (1e-4, "bf16-true", "everyday")
    assert config.activation_checkpointing and kind_of(config).updates(config).accumulate == 16
    bagel = compose(recipe, ["model=bagel_7b"])
    assert (bagel.optimizer.lr, bagel.strategy.precision) == (2e-5, "bf16-true")
    assert compose(recipe, ["model=qwen_image_edit_2511", "optimizer.lr=3e-4"]).optimizer.lr == 3e-4
    assert compose(recipe).strategy.precision == "32-true"


def test_a_size_that_the_model_cannot_draw_is_refused_by_the_dry_run_too() -> None:
    command = ["fit", "unigrpo_math", "rollout.size=7", "--dry-run"]
    printed = CliRunner().invoke(uni_train, command, catch_exceptions=False)
    assert printed.exit_code == 1 and printed.output.startswith("error: rollout.size=7: nano cannot draw 7 x 7 pixels")


def test_the_dry_run_counts_the_micro_batches_of_each_rank() -> None:
    command = ["fit", "flow_grpo_math", "strategy.devices=2", "--dry-run"]
    printed = CliRunner().invoke(uni_train, command, catch_exceptions=False)
    assert "1 updates of 768 rows in 2 micro-batches on each of 2 ranks" in printed.output
