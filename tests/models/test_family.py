"""Families declare themselves: one that is registered is recognised, built, stored, exported and inspected."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.tiny import fit
from uni_train.config.schema import ModelConfig
from uni_train.data_gen.errors import DataError
from uni_train.errors import UserError
from uni_train.models.base import UnifiedModel
from uni_train.models.export import export_model
from uni_train.models.family import CONFIG, FAMILIES, Family, Found, family_of
from uni_train.models.load import build_model, load_weights, model_config, save_model
from uni_train.models.recognise import inspect, recognise

ROOT = Path(__file__).parents[2]


class Grey(UnifiedModel):
    """Draws one grey for everything."""

    family = "grey"

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        self.name = name
        self.level = nn.Linear(2, 1)
        nn.init.constant_(self.level.weight, float(seed))

    def think(self, requests: Sequence[Any], temperature: Any = None, on_step: Any = None) -> list[str]:
        return ["grey"] * len(requests)

    def draw(self, requests: Sequence[Any], on_step: Any = None) -> list[np.ndarray]:
        return [np.full((2, 2, 3), 128, np.uint8)] * len(requests)

    def answer(self, requests: Sequence[Any], *, think: bool = False, on_step: Any = None) -> list[str]:
        return ["grey"] * len(requests)

    def collate(self, examples: Sequence[Any], seed: int) -> Any:
        return torch.zeros(len(examples), 2)

    def supervised_loss(self, batch: Any) -> Any:
        return self.level(batch).sum()


class GreyFamily(Family):
    title = "Grey"
    parts = ("weights", "biases")

    def recognise(self, path: Path) -> Found | None:
        mine = (path / CONFIG).is_file() and json.loads((path / CONFIG).read_text()).get("model") == "grey_small"
        return Found(self.name, path, "grey", model="grey_small") if mine else None

    def build(self, config: ModelConfig, seed: int, dtype: torch.dtype | None) -> Grey:
        model = Grey(config.name, seed)
        if config.checkpoint is not None:
            self.load(model, Path(config.checkpoint))
        return model

    def part_of(self, name: str) -> str:
        return "biases" if name.endswith("bias") else "weights"


@pytest.fixture
def config() -> Iterator[ModelConfig]:
    """Of a model whose family is registered for this test alone."""
    FAMILIES.register("grey")(GreyFamily)
    yield replace(model_config("nano"), name="grey_small", family="grey", checkpoint=None)
    del FAMILIES._entries["grey"]


def test_a_new_family_is_built_stored_recognised_exported_and_inspected(config: ModelConfig, tmp_path: Path) -> None:
    model = build_model(config, seed=3)
    save_model(model, tmp_path / "model")
    assert recognise(tmp_path / "model") == Found("grey", tmp_path / "model", "grey", model="grey_small")
    other = build_model(config, seed=0)
    load_weights(other, tmp_path / "model")
    assert other.level.weight.tolist() == [[3.0, 3.0]]  # type: ignore[union-attr]
    stored = build_model(replace(config, checkpoint=str(tmp_path / "model")))
    assert stored.state_dict().keys() == model.state_dict().keys()
    export_model(tmp_path / "model", tmp_path / "out", lambda count: lambda: None, torch.bfloat16)
    assert recognise(tmp_path / "out").kind == "grey"


def test_a_family_without_shapes_cannot_be_planned_and_says_why(config: ModelConfig) -> None:
    family = family_of("grey")
    model, guessed = family.skeleton(config)
    assert not guessed
    with pytest.raises(UserError, match="model=grey_small cannot be planned"):
        family.shapes(model)


def test_a_family_that_lacks_a_method_and_an_unknown_one_are_named(config: ModelConfig) -> None:
    with pytest.raises(DataError, match="part_of"):
        FAMILIES.register("half")(type("Half", (Family,), {"title": "Half", "parts": ()}))
    with pytest.raises(DataError, match=r'no model family "gray".*grey'):
        build_model(replace(config, family="gray"))


@pytest.mark.parametrize("name", ["bagel", "janus", "nano", "qwen_image_edit"])
def test_parts_are_those_that_parameters_belong_to(name: str) -> None:
    found = inspect({"bagel": "bagel_7b", "janus": "janus_pro_7b", "nano": "nano_edit"}.get(name, name))
    assert found.kind == name and not found.loads
    assert tuple(found.parameters) == family_of(name).parts
    assert sum(found.parameters.values()) > 100_000


def test_no_family_is_named_outside_its_folder() -> None:
    """In code: documentation may name them. BAGEL's parts serve others, which import them by what they are."""
    folders = [file.parent for file in (ROOT / "uni_train" / "models").glob("*/family.py")]
    assert len(folders) == 4
    for file in [*(ROOT / "uni_train").rglob("*.py"), *(ROOT / "eval").rglob("*.py")]:
        if any(folder in file.parents for folder in folders):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        said = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        said |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
        said |= {
            constant.value
            for node in compared
            for constant in ast.walk(node)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        }
        named = [one for one in said if "qwen" in one.lower() or "nano_edit" in one]
        assert not named, f"{file.relative_to(ROOT)} names {named}"


def test_a_vae_without_tiles_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vae_tile=64 has no meaning for nano"):
        build_model(replace(model_config("nano"), checkpoint=None, vae_tile=64))
    told = fit(tmp_path, "--dry-run", "model.vae_tile=64")
    assert told.exit_code == 2 and "model.vae_tile=64 has no meaning for nano" in told.output
