"""The pages of all keys and tasks are what the code says; the JSON schema holds for every recipe that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from uni_train.config import places
from uni_train.config.reference import json_schema, keys, page
from uni_train.data_gen.overview import overview
from uni_train.data_gen.registry import TASKS
from uni_train.recipes.sft.config import SftConfig
from uni_train.recipes.stars.config import StarsConfig

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_pages_are_up_to_date() -> None:
    tasks = overview([name for name in TASKS.names() if TASKS.package_of(name) == "uni_train"])
    for name, text, command in (("keys", page(), "recipes --keys"), ("tasks", tasks, "data tasks")):
        file = f"docs/reference/{name}.md"
        assert (ROOT / file).read_text(encoding="utf-8") == text, f"python -m uni_train {command} > {file}"


def test_a_key_has_its_range_its_default_and_its_comment() -> None:
    found = {key.name: key for key in keys(StarsConfig)}
    assert found["schedule.check_prompts"].allowed == "int [1, 100000]"
    assert (found["optimizer.clip"].default, found["rounds[].prompts"].default) == ("1.0", "required")
    assert found["optimizer.clip"].meaning == "of the gradient's norm; 0 = no clipping"
    assert "budget.<name>.kept" in found


def test_a_type_is_python_s_and_a_name_stands_as_it_is_typed() -> None:
    expected = {
        "name": "str or null",
        "ema": "float or null [0, 1)",
        "evaluate": "bool",
        "plugins": "a list, each str",
        "sources.<name>.form": "text_to_image, edit, conversations, items or null",
        "sources.<name>.learn": "a list, each thought, answer, image",
        "model.sampling.cfg_renorm": "global, channel, text_channel",
    }
    allowed = {key.name: key.allowed for key in keys(SftConfig)}
    assert {name: allowed[name] for name in expected} == expected


def test_every_recipe_holds_to_the_json_schema_and_a_wrong_key_does_not() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    asked = jsonschema.Draft202012Validator(schema)
    for recipe in places.recipes():
        values = yaml.safe_load(recipe.path.read_text(encoding="utf-8"))
        assert [error.message for error in asked.iter_errors(values)] == []
        if "kind" in values:
            assert not asked.is_valid(values | {"optimizer": {"lrr": 1}})
            assert not asked.is_valid(values | {"evaluation": {"n": 0}})
