"""The table of keys in docs/flow_grpo.md is that of the schema."""

from __future__ import annotations

import dataclasses

import yaml

from tests.test_docs import keys_with_defaults, plain, table_rows
from uni_train.config.schema import RunConfig
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig


def test_the_table_of_keys_is_that_of_the_schema() -> None:
    common = {field.name for field in dataclasses.fields(RunConfig)}
    wanted = {k: v for k, v in keys_with_defaults(FlowGrpoConfig) if k.split(".")[0] not in common}
    shown = {k: cells for k, cells in table_rows("docs/flow_grpo.md", 3).items() if k in wanted}
    assert shown.keys() == wanted.keys()
    for key, value in wanted.items():
        if value is dataclasses.MISSING:
            assert shown[key][0] == "required", key
        else:
            assert yaml.safe_load(shown[key][0]) == plain(value), key
