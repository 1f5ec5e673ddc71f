"""Kinds of recipes: a new one is one file, and nothing outside its file asks which kind a recipe is."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import uni_train.recipes
from tests.test_structure import trees
from uni_train.cli.main import uni_train as command
from uni_train.config.compose import compose
from uni_train.config.kinds import KINDS, kind_named, stage_list
from uni_train.core.errors import UsageError

KIND = '''
"""Text alone, for as long as it takes."""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from uni_train.config.messages import Where, wrong
from uni_train.config.kinds import PlannedStage, Updates, evaluation, recipe_kind
from uni_train.stages.kind import RecipeKind
from uni_train.config.schema import Count, RunConfig


@dataclass(frozen=True, kw_only=True)
class ChatConfig(RunConfig):
    kind: Literal["chat"] = "chat"
    turns: Count = 3
    words: Count = 9


@recipe_kind("chat")
class Chat(RecipeKind[ChatConfig]):
    config = ChatConfig

    def check(self, config: ChatConfig, where: Where) -> None:
        if config.words < config.turns:
            raise wrong(f"words {config.words} is fewer than turns {config.turns}", "words", where)

    def stages(self, config: ChatConfig) -> Iterator[PlannedStage]:
        yield PlannedStage("chat", "chat", f"{config.turns} turns")
        yield evaluation(config, "after")

    def run(self, work, planned, stage, before) -> None:
        stage.result = {"turns": work.config.turns}

    def updates(self, config: ChatConfig) -> Updates:
        return Updates(config.turns)

    def first_update(self, config: ChatConfig, model, most: int | None = None) -> list:
        from uni_train.models.base import Example
        from uni_train.stages.train_stage import first_batch

        rows = [Example("A means tree.", answer="tree")] * 3
        return first_batch(model, {"chat": rows}, {"chat": 1.0}, config.seed, config.turns)
'''
RECIPE = """# Chat.
defaults:
  - model: nano
  - logger: none
  - strategy: single
  - _self_
kind: chat
optimizer: {lr: 1.0e-3}
evaluation: {n: 4, sets: [mapping1], modes: [normal]}
"""


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe of a kind whose one file lies beside those of uni_train."""
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds/chat.py").write_text(KIND)
    recipe = tmp_path / "talk.yaml"
    recipe.write_text(RECIPE)
    monkeypatch.setattr(uni_train.recipes, "__path__", [*uni_train.recipes.__path__, str(tmp_path / "kinds")])
    monkeypatch.setattr(KINDS, "_homes", KINDS._homes | {"chat": "uni_train.recipes.chat"})
    monkeypatch.setattr(KINDS, "_entries", dict(KINDS._entries))
    monkeypatch.delitem(sys.modules, "uni_train.recipes.chat", raising=False)
    return recipe


def test_a_kind_of_recipe_is_one_file(chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose(str(chat), ["turns=2"])
    assert next((one.index, one.name, one.summary) for one in stage_list(config)) == (0, "chat", "2 turns")
    with pytest.raises(UsageError, match=r"words 2 is fewer than turns 3 \(override words=2\)"):
        compose(str(chat), ["words=2"])
    with pytest.raises(UsageError, match="unknown key turn") as caught:
        compose(str(chat), ["turn=2"])
    assert "Did you mean turns?" in (caught.value.hint or "")

    dry = CliRunner().invoke(command, ["fit", str(chat), "--dry-run"], catch_exceptions=False)
    assert dry.exit_code == 0, dry.output
    assert "#   00-chat" in dry.stdout and "one update: 3 examples" in dry.stdout

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["fit", str(chat)], catch_exceptions=False)
    assert done.exit_code == 0 and (tmp_path / "runs/talk/seed0/summary.json").is_file()


def test_kinds_have_their_recipes_names_and_nothing_outside_asks_for_one() -> None:
    configs = {name: kind_named(name).config for name in KINDS.names()}
    assert all(config.__dataclass_fields__["kind"].default == name for name, config in configs.items())
    own = {config.__name__ for config in configs.values()}
    asking = []
    for file, tree in trees().items():
        for node in () if file.startswith("uni_train/recipes/") else ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                names = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
                asking += [f"{file}:{node.lineno}" for _ in names & own]
    assert asking == []
