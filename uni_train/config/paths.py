"""The files, folders and packages that a configuration needs, and whether they are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uni_train.config.build import to_plain
from uni_train.config.kinds import kind_of
from uni_train.config.places import recipes
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.core.hub import hub_id, split_adapters
from uni_train.run_folder import flat

PATH_KEYS = (
    "checkpoint", "path", "images", "references", "judge", "function", "solved",
    "prompts_file", "prompts", "rows", "pairs",
)  # fmt: skip
"""Last parts of the keys that may name files; a reward's function is FILE.py:NAME or no file at all."""


def named_paths(plain: Mapping[str, Any]) -> Iterator[tuple[str, str, Path]]:
    """(key, value, path) of every value that may be a path: "shipped" and MODULE:FUNCTION come as well."""
    for key, value in flat(plain).items():
        name = [part for part in key.split(".") if not part.isdigit()][-1]
        if name in PATH_KEYS and isinstance(value, str):
            yield key, value, Path(value.rpartition(":")[0] if name == "function" else value)


def missing_paths(config: RunConfig) -> Iterator[UserError]:
    """An error for each key whose file or folder is not there. Nothing heavy is imported."""
    for key, value, path in named_paths(to_plain(config)):
        named = value not in ("shipped", "pretrain") and value[:3] != "hf:"
        is_path = path.suffix == ".py" if key.endswith("function") else named
        parts = split_adapters(value) if key.endswith("checkpoint") else (str(path), [])
        for part in (parts[0], *parts[1]):
            if key.endswith("checkpoint") and (part == "shipped" or hub_id(part) is not None):
                continue  # `fit` downloads it first
            if is_path and not Path(part).exists():
                yield UserError(f"{key}: there is nothing at {part}", _remedy(config, key, Path(part)))


def missing_packages(config: RunConfig) -> Iterator[UserError]:
    """An error for each package of an extra that the training needs and that is not installed; none is imported."""
    strategy, weights, state = config.strategy.kind, config.model.weights, config.optimizer.state
    trained, _ = kind_of(config).trained(config)
    for key, needed, package, extra in (
        (f"strategy={strategy}", strategy.startswith("deepspeed_"), "deepspeed", "deepspeed"),
        (f"trained={trained}", trained == "lora", "peft", "hf"),
        (f"model.weights={weights}", weights is not None, "torchao", "quantized"),
        (f"optimizer.state={state}", state == "8bit", "torchao", "quantized"),
    ):
        if needed and find_spec(package) is None:
            yield UserError(f"{key} needs {package}", f"Install it with: DS_BUILD_OPS=0 pip install -e '.[{extra}]'.")


def _remedy(config: RunConfig, key: str, path: Path) -> str:
    parts = path.parts
    if len(parts) > 1 and parts[0] == config.out and parts[1] in [recipe.name for recipe in recipes()]:
        return f"Train it first: uni_train fit {parts[1]}"
    if key == "model.checkpoint":
        return "Put the weights there, or give another folder or a Hub id: model.checkpoint=hf://ORG/NAME."
    return f"Check the path; `uni_train recipes {config.recipe}` says what the recipe needs."
