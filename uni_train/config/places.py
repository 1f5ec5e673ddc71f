"""Where recipes/ and configs/ lie: inside the installed package, or at the root of a checkout."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from uni_train.core.errors import UsageError, did_you_mean

_PACKAGE = Path(__file__).resolve().parent.parent


def _shipped(name: str) -> Path:
    inside_wheel = _PACKAGE / "shipped" / name
    return inside_wheel if inside_wheel.is_dir() else _PACKAGE.parent / name


def recipes_dir() -> Path:
    """The folder of the recipes that come with the package."""
    return _shipped("recipes")


def configs_dir() -> Path:
    """The folder of the config groups: one folder a group, one YAML file an option."""
    return _shipped("configs")


@dataclass(frozen=True, slots=True)
class Described:
    """A YAML file and what its header comment says: `summary` is the first line, `costs` the one after 'Costs:'."""

    name: str
    path: Path
    summary: str
    costs: str


def header(path: Path) -> list[str]:
    """A file's header comment. Plain text only, so that listing recipes imports neither yaml nor hydra."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" ").rstrip())
    return lines


def describe(path: Path) -> Described:
    """What a file's header comment says."""
    lines = [line.strip() for line in header(path)]
    costs = ""
    for i, line in enumerate(lines):
        if line.startswith("Costs:"):
            rest = [line.removeprefix("Costs:").strip()]
            for more in lines[i + 1 :]:
                if not more:
                    break
                rest.append(more)
            costs = " ".join(rest)
    return Described(path.stem, path, lines[0] if lines else "", costs)


def recipes() -> list[Described]:
    """All recipes that come with the package, by name."""
    return [describe(path) for path in sorted(recipes_dir().glob("*.yaml"))]


def groups() -> list[str]:
    """The config groups: model, logger, ..."""
    return sorted(path.name for path in configs_dir().iterdir() if path.is_dir() and any(path.glob("*.yaml")))


def options(group: str) -> list[Described]:
    """The options of one config group, by name."""
    return [describe(path) for path in sorted((configs_dir() / group).glob("*.yaml"))]


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe: one of ours by its name, or one of the user's by its path (ending in .yaml)."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"no recipe file {name}", did_you_mean(path.stem, [r.name for r in recipes()], "recipes"))
        return path.resolve()
    path = recipes_dir() / f"{name}.yaml"
    if "/" in name or not path.is_file():
        raise UsageError(f"unknown recipe {name}", did_you_mean(name, [r.name for r in recipes()], "recipes"))
    return path


def section_of(name: str) -> type:
    """The section of keys of a command: "schema.EvalConfig", "insight.InsightConfig"."""
    module, _, section = name.partition(".")
    found: type = getattr(importlib.import_module(f"uni_train.config.{module}"), section)
    return found
