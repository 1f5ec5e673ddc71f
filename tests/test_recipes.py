"""Every YAML in recipes/ and configs/ is loaded, composed and described."""

from __future__ import annotations

import pytest
import yaml

from uni_train.config import places
from uni_train.config.build import build, to_plain
from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list
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


@pytest.mark.parametrize("recipe", places.recipes(), ids=lambda recipe: recipe.name)
def test_recipe_header_says_what_it_does_and_costs(recipe: places.Described) -> None:
    assert recipe.summary.endswith((".", ":")) or recipe.summary
    assert "CPU" in recipe.costs, "say what it costs and on what"


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_of_every_group_composes(group: str, option: str) -> None:
    compose("sft" if group == "model" else "stars_curriculum", [f"{group}={option}"])
    if group == "model" and "edit" in option:
        with pytest.raises(UsageError, match=f"model={option} edits images"):
            compose("stars_curriculum", [f"model={option}"])
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
