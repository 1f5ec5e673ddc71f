"""Families declare themselves: one that is registered is recognised, built, stored, exported and inspected."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.tiny import fit
from uni_train.config.schema import LoraConfig, ModelConfig
from uni_train.core.errors import DataError, UserError
from uni_train.models.base import UnifiedModel
from uni_train.models.checkpoint import inspect, recognise
from uni_train.models.family import CONFIG, FAMILIES, Checkpoint, Family, family_of
from uni_train.models.load import build_model, export_model, load_weights, model_config, save_model
from uni_train.training.lora import add_adapters
from uni_train.training.trained import select_parameters

ROOT = Path(__file__).parents[2]


class Grey(UnifiedModel):
    """Of one layer, which has no skill."""

    family = "grey"

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        self.name = name
        self.level = nn.Linear(2, 1)
        nn.init.constant_(self.level.weight, float(seed))


class GreyFamily(Family):
    title = "Grey"
    parts = ("weights", "biases")

    def recognise(self, path: Path) -> Checkpoint | None:
        mine = (path / CONFIG).is_file() and json.loads((path / CONFIG).read_text()).get("model") == "grey_small"
        return Checkpoint(self.name, path, "grey", model="grey_small") if mine else None

    def build(
        self, config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str = "cpu"
    ) -> Grey:
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
    assert recognise(tmp_path / "model") == Checkpoint("grey", tmp_path / "model", "grey", model="grey_small")
    other = build_model(config, seed=0)
    load_weights(other, tmp_path / "model")
    assert other.level.weight.tolist() == [[3.0, 3.0]]  # type: ignore[union-attr]
    stored = build_model(replace(config, checkpoint=str(tmp_path / "model")))
    assert stored.state_dict().keys() == model.state_dict().keys()
    export_model(tmp_path / "model", tmp_path / "out", lambda count: lambda: None, torch.bfloat16)
    assert recognise(tmp_path / "out").kind == "grey"


def test_what_a_family_lacks_is_named(config: ModelConfig) -> None:
    family = family_of("grey")
    model, guessed = family.skeleton(config)
    assert not guessed
    with pytest.raises(UserError, match="model=grey_small cannot be planned"):
        family.shapes(model)
    with pytest.raises(DataError, match="part_of"):
        FAMILIES.register("half")(type("Half", (Family,), {"title": "Half", "parts": ()}))
    with pytest.raises(DataError, match=r'no model family "gray".*grey'):
        build_model(replace(config, family="gray"))


@pytest.mark.parametrize(("kind", "name"), [("bagel", "bagel_7b"), ("nano", "nano_edit")])
def test_parts_are_those_that_parameters_belong_to(kind: str, name: str) -> None:
    """Those of the other families are with their sizes."""
    found = inspect(name)
    assert found.kind == kind and not found.loads
    assert tuple(found.parameters) == family_of(kind).parts
    assert sum(found.parameters.values()) > 100_000


MODELS = "uni_train.models"
ELSEWHERE = {
    "uni_train/insight/attention.py": "hooks into BAGEL's layers",
    "uni_train/insight/states.py": "hooks into BAGEL's layers",
    "uni_train/models/dialects/__init__.py": "BAGEL's published prompt, for models that bring none",
    "uni_train/plan/kernels.py": "what BAGEL's attention is on a GPU",
    "uni_train/recipes/pretrain.py": "nano's pretraining",
}
"""Files outside a family's folder that import from it -> what of its own they are about."""


def imported_or_compared(file: Path) -> Iterator[str]:
    """Modules that a file imports, also for types, and the texts that it compares with."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Compare) and "family" in ast.unparse(node.left):
            yield from (f"{MODELS}.{one.value}" for one in node.comparators if isinstance(one, ast.Constant))


def test_no_family_is_named_outside_its_folder() -> None:
    """In code: documentation may name them. Families may build on each other."""
    folders = [file.parent for file in (ROOT / "uni_train" / "models").glob("*/family.py")]
    assert len(folders) == 5
    families = re.compile(rf"{MODELS}\.({'|'.join(folder.name for folder in folders)})\b")
    files = [*(ROOT / "uni_train").rglob("*.py"), *(ROOT / "eval").rglob("*.py"), *(ROOT / "data_gen").rglob("*.py")]
    outside = [file for file in files if not any(folder in file.parents for folder in folders)]
    naming = {str(file.relative_to(ROOT)) for file in outside if any(map(families.match, imported_or_compared(file)))}
    assert naming == set(ELSEWHERE)


def test_parts_and_layers_of_adapters_are_those_that_a_model_declares() -> None:
    bagel, editor = (family_of("nano").skeleton(model_config(name))[0] for name in ("nano", "nano_edit"))
    for model in (bagel, editor):
        every, frozen = set(select_parameters(model, "all")), tuple(model.trained_parts)
        assert set(select_parameters(model, "all", frozen[:-1])) == set(select_parameters(model, "moe_gen")) < every
    plain = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(UserError, match="trained=moe_gen: no parameter of Sequential is left to train"):
        select_parameters(plain, "moe_gen")
    with pytest.raises(UserError, match=r"lora\.targets=both: no linear layer has such a name"):
        add_adapters(plain, LoraConfig(), 0)


@pytest.mark.parametrize(("family", "tf32"), [("nano", True), ("bagel", True), ("qwen_image_edit", False)])
def test_float32_products_are_tf32_on_gpus_where_positions_are_none_of_them(family: str, tf32: bool) -> None:
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, not tf32
    try:
        assert family_of(family).tf32 == tf32
        build_model(replace(model_config("nano"), checkpoint=None))
        assert products.allow_tf32
    finally:
        products.allow_tf32 = before


def test_a_vae_without_tiles_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="vae_tile has no meaning for model=nano"):
        build_model(replace(model_config("nano"), checkpoint=None, vae_tile=64))
    told = fit(tmp_path, "--dry-run", "model.vae_tile=64")
    assert told.exit_code == 2 and "model.vae_tile has no meaning for model=nano" in told.output
    told = fit(tmp_path, "--dry-run", "model.weights=int8", "trained=lora", "strategy.precision=bf16-true")
    assert told.exit_code == 2 and "keeps the float32 products of nano" in told.output
