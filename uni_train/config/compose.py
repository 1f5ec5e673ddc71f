"""recipes/NAME.yaml + configs/GROUP/OPTION.yaml + key=value overrides -> the dataclasses of schema.py.

hydra composes (defaults lists, groups, interpolations); build.py checks. An error of build.py names the override or the
file that gave a wrong key, and the closest valid key.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from uni_train.config.build import build, build_section, kinds_of, takes_text
from uni_train.config.kinds import KINDS, code_of, kind_named, plugins_of
from uni_train.config.places import configs_dir, find_recipe, groups, options, recipes_dir
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UsageError, did_you_mean
from uni_train.core.reading_limits import Unreadable, read_yaml
from uni_train.core.registry import expect_named, load_plugins
from uni_train.run_folder import is_run

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

S = TypeVar("S")


def compose(recipe: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Compose a recipe (a name, or the path of a YAML file) with overrides such as "seed=1" or "model=bagel_7b".

    Raises UsageError for an unknown recipe, group option or key, a wrong type, or a value out of range.
    """
    path = find_recipe(recipe)
    files = _with_bases(path)
    for file, own in files.items():
        if is_run(file.parent):  # a run's config.yaml is a recipe as well, which its reader need not have written
            expect_named(code_of(own), file)
        load_plugins(plugins_of(own))
    choices, values = _parse(overrides, files, path)
    below = [value for value in values if any(whole.holds(value) for whole in values)]
    plain, chosen = _compose_with_hydra(path, files, choices, [value for value in values if value not in below])
    plain["recipe"] = path.stem
    sources = _Sources(files, chosen, {v.key: v.typed for v in (*choices, *values)})
    load_plugins(plugins_of(plain))
    if chosen.get("model") != _own_model(files) and "name" not in {v.key for v in values}:  # runs lie side by side
        named = plain.get("name") or f"seed{plain.get('seed', 0)}"
        plain["name"] = f"{chosen['model']}-{named}"
    if plain.get("kind") in KINDS.names():  # else that is the error to report, and build() does
        kind_named(plain["kind"]).complete(plain)
    for value in below:
        _put(plain, value.key, _parse_one(value.typed, f"{value.key}={value.value}").value(), value.typed)
    return build(plain, sources)


def config_class(recipe: str) -> type[RunConfig]:
    """The section of all keys of a recipe. Raises UsageError: no such recipe."""
    kind = next((str(values["kind"]) for values in _with_bases(find_recipe(recipe)).values() if "kind" in values), "")
    return kind_named(kind).config if kind in KINDS.names() else RunConfig


def compose_section(cls: type[S], overrides: Sequence[str]) -> S:
    """A section of overrides alone, such as "subset=60" or "judge.model=openai/gpt-4o" (`uni_train eval`).

    A list may be typed without its brackets: "sets=math1,math2". As in recipes, a key wins over its group's option.

    Raises UsageError for an unknown key, a wrong type, or a value out of range.
    """
    plain: dict[str, Any] = {}
    typed: dict[str, str] = {}
    known_groups = groups()
    for override in sorted(overrides, key=lambda typed: typed.partition("=")[0] not in known_groups):
        key, _, text = override.partition("=")
        parsed = _parse_one(override, f"{key}={_as_typed(text, kinds_of(cls, key))}")
        name = parsed.key_or_group
        value = parsed.value()
        if name in known_groups and isinstance(value, str):  # logger=wandb
            names = [option.name for option in options(name)]
            if value not in names:
                raise UsageError(f"unknown {name} {value}", did_you_mean(value, names, f"{name}s"))
            value = _load_yaml(configs_dir() / name / f"{value}.yaml")
        _put(plain, name, value, override)
        typed[name] = override

    def where(key: str) -> str:
        return next((f"override {typed[at]}" for at in _above(key) if at in typed), "")

    return build_section(cls, plain, where)


def _put(plain: dict[str, Any], key: str, value: Any, typed: str) -> None:
    """Set a dotted key in place; sections are merged. Raises UsageError: it lies below what is no section."""
    *sections, name = key.split(".")
    place = plain
    for section in sections:
        if place.get(section) is None:
            place[section] = {}
        place = place[section]
        if not isinstance(place, dict):
            raise UsageError(f"cannot apply the override {typed}", f"{section} has a value already.")
    place[name] = {**place[name], **value} if isinstance(value, dict) and isinstance(place.get(name), dict) else value


def _as_typed(text: str, kinds: Sequence[Any]) -> str:
    """A value as hydra reads it for a key of these types."""
    if str in kinds:
        return _as_text(text)
    items = [typing.get_args(kind)[0] for kind in kinds if typing.get_args(kind)[1:] == (...,)]
    if not items or text.startswith("["):
        return text
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return f"[{','.join(map(_as_text, parts) if str in items else parts)}]"


def _above(key: str) -> list[str]:
    """judge.small.0 -> judge.small.0, judge.small, judge."""
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


@dataclass(frozen=True, slots=True)
class _Override:
    """One key=value as typed, without a leading + (every key of the schema may be set, written in the YAML or not)."""

    key: str
    value: str
    typed: str

    def holds(self, other: _Override) -> bool:
        """Whether `other` is below this text or list, which hydra would forget before it. It finds places of a list."""
        below = other.key.removeprefix(f"{self.key}.")
        if below == other.key or self.value in ("", "null") or self.value[0] == "{" or "${" in self.value:
            return False
        return not (self.value[0] == "[" and below.split(".")[0].isdigit())


def _parse(
    overrides: Sequence[str], files: Mapping[Path, Mapping[str, Any]], path: Path
) -> tuple[list[_Override], list[_Override]]:
    """Split overrides into choices of a group's option (model=nano) and values (optimizer.lr=1e-4)."""
    choices: list[_Override] = []
    values: list[_Override] = []
    known_groups = groups()
    kind = next((str(values["kind"]) for values in files.values() if "kind" in values), "")
    known = kind_named(kind) if kind in KINDS.names() else None
    for typed in overrides:
        key, _, text = typed.partition("=")
        if known is not None and (key in known.texts or takes_text(known.config, key.lstrip("+"))):
            text = _as_text(text)
        parsed = _parse_one(typed, f"{key}={text}")
        key = parsed.key_or_group
        override = _Override(key, text, typed)
        if key in known_groups:
            names = [option.name for option in options(key)]
            value = parsed.value()
            if not isinstance(value, str) or value not in names:
                hint = did_you_mean(str(value), names, f"values of {key}")
                raise UsageError(f"unknown {key} {value} (override {typed})", hint)
            choices.append(override)
        else:
            if key == "level" and not any("level" in recipe_values for recipe_values in files.values()):
                raise UsageError(
                    f"recipe {path.stem} takes no level (override {typed})",
                    "Its levels are in rounds; stars_math and stars_mapping take level=1, 2 or 3.",
                )
            if key.split(".")[0] == "hydra":
                raise UsageError(f"unknown key {key} (override {typed})")
            if key in ("recipe", "kind"):
                raise UsageError(f"{key} belongs to the recipe file and cannot be overridden (override {typed})")
            values.append(override)
    return choices, values


def _as_text(value: str) -> str:
    """A value as hydra reads it where text is wanted: 1, true, 日本語 and commas are text. Lists, sections, null,
    quotes and interpolations stay what they are."""
    return value if value in ("null", "") or value[0] in "[{'\"" or "${" in value else quoted(value)


def quoted(text: str) -> str:
    """A text as part of an override, whatever characters it has."""
    # In quotes, a backslash is itself unless a quote follows.
    escaped = re.sub(r"(\\*)('|$)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _parse_one(typed: str, read: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    hint = "Overrides look like key=value, for example seed=1 or optimizer.lr=1e-4."
    if "=" not in typed or typed.startswith("~"):
        raise UsageError(f"cannot read the override {typed}", hint)
    try:
        parsed = OverridesParser.create().parse_override(read)
    except (HydraException, ValueError, RecursionError) as error:  # hydra's own, and of numbers without end
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UsageError(f"cannot read the override {typed}: {reason}", hint) from None
    if parsed.is_sweep_override():
        message = f"one run takes one value for {parsed.key_or_group} (override {typed})"
        raise UsageError(message, "For a list: key=[a,b].")
    return parsed


def _compose_with_hydra(
    path: Path, files: Mapping[Path, Mapping[str, Any]], choices: Sequence[_Override], values: Sequence[_Override]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The composed recipe as plain data, and the option chosen of each group."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    in_recipe = {group for recipe_values in files.values() for group in _default_groups(recipe_values)}
    places = [json.dumps(f"file://{place}") for place in (recipes_dir(), configs_dir())]
    arguments = [f"hydra.searchpath=[{','.join(places)}]"]
    arguments += [f"{'' if c.key in in_recipe else '+'}{c.key}={c.value}" for c in choices]
    for v in values:  # a list takes the place of a section, with which it cannot be merged
        arguments += [f"++{v.key}=null"] if v.value.startswith("[") else []
        arguments.append(f"++{v.key}={v.value}")
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(path.parent), version_base="1.3"):
            composed = hydra.compose(path.stem, arguments, return_hydra_config=True)
        chosen = dict(composed.hydra.runtime.choices)
        OmegaConf.set_struct(composed, False)
        del composed["hydra"]
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingConfigException as error:
        file = error.missing_cfg_file or ""
        group, _, option = file.partition("/")
        raise UsageError(
            f"{path.stem} takes no model={option}: there is no configs/{file}.yaml",
            f"It takes {' or '.join(f'model={option.name}' for option in options(group))}.",
        ) from None
    except (HydraException, OmegaConfBaseException, TypeError, ValueError, RecursionError) as error:  # hydra's own, too
        reason = " ".join(line.strip() for line in str(error).splitlines()[:3])
        merging = "Error merging override ++"
        if reason.startswith(merging):
            typed = reason.removeprefix(merging)
            raise UsageError(f"cannot apply the override {typed}", f"Is there such a place in {path}?") from None
        raise UsageError(f"cannot compose {path.stem}: {reason}", f"The recipe is {path}.") from None
    assert isinstance(plain, dict)
    return {str(k): v for k, v in plain.items()}, {k: v for k, v in chosen.items() if not k.startswith("hydra/")}


def _with_bases(path: Path, before: tuple[Path, ...] = ()) -> dict[Path, dict[str, Any]]:
    """The recipe's file and those of the recipes in its defaults list, nearest first, each with its own values.

    before: the files that have led here.
    """
    before = before or (path,)
    files = {path: _load_yaml(path)}
    for entry in _defaults(files[path]):
        if isinstance(entry, str) and entry != "_self_":
            for base in (path.parent / f"{entry}.yaml", recipes_dir() / f"{entry}.yaml"):
                if base in before:
                    raise UsageError(f"{path}: its defaults name {entry}, which starts from {path.stem} itself")
                if base.is_file():
                    files.update(_with_bases(base, (*before, base)))
                    break
    return files


def _defaults(recipe_values: Mapping[str, Any]) -> list[Any]:
    return recipe_values.get("defaults") or []


def _own_model(files: Mapping[Path, Mapping[str, Any]]) -> Any:
    """The model that a recipe names itself."""
    entries = [entry for values in files.values() for entry in _defaults(values) if isinstance(entry, Mapping)]
    return next((entry[key] for entry in entries for key in ("model", "override model") if key in entry), None)


def _default_groups(recipe_values: Mapping[str, Any]) -> list[str]:
    keys = [str(key) for entry in _defaults(recipe_values) if isinstance(entry, Mapping) for key in entry]
    return [key.removeprefix("optional ") for key in keys]


def _load_yaml(path: Path) -> dict[str, Any]:
    """A recipe's or an option's own values. UsageError for what is no such file."""
    hint = "See recipes/stars_curriculum.yaml."
    try:
        loaded = read_yaml(path)
    except Unreadable as error:
        raise UsageError(str(error), hint) from None
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} is no recipe: it must be a list of key: value", hint)
    if unnamed := [key for key in loaded if not isinstance(key, str)]:
        raise UsageError(f"{path}: {unnamed[0]!r} is no key: keys are names", hint)
    if "hydra" in loaded:
        raise UsageError(f"unknown key hydra ({path})", hint)
    entries = loaded.get("defaults")
    if entries is not None and not (isinstance(entries, list) and all(map(_is_default, entries))):
        raise UsageError(f"{path}: defaults must be a list such as [model: nano, _self_], not {entries!r:.60}", hint)
    return loaded


def _is_default(entry: Any) -> bool:
    """A recipe's name, or a group and its option."""
    if isinstance(entry, dict) and len(entry) == 1:
        return all(isinstance(name, str) and (isinstance(to, str) or to is None) for name, to in entry.items())
    return isinstance(entry, str)


class _Sources:
    """Where a dotted key was given, for error messages."""

    def __init__(
        self, files: Mapping[Path, Mapping[str, Any]], chosen: Mapping[str, str], typed: Mapping[str, str]
    ) -> None:
        self.files, self.chosen, self.typed = files, chosen, typed

    def __call__(self, key: str) -> str:
        parts = key.split(".")
        for n in range(len(parts), 0, -1):
            prefix = ".".join(parts[:n])
            if prefix in self.typed:
                return f"override {self.typed[prefix]}"
        below = [typed for other, typed in self.typed.items() if other.startswith(key + ".")]
        if below:
            return f"override {below[0]}"
        for n in range(len(parts), 0, -1):
            file = self._file_with(parts[:n])
            if file is not None:
                return str(file)
        return str(next(iter(self.files)))

    def _file_with(self, parts: Sequence[str]) -> Path | None:
        for file, values in self.files.items():
            if _holds(values, parts):
                return file
        for group, option in self.chosen.items():
            file = configs_dir() / group / f"{option}.yaml"
            if file.is_file():
                values = _load_yaml(file)
                if _holds(values, parts) or (parts[0] == group and _holds(values, parts[1:])):
                    return file
        return None


def _holds(values: Any, parts: Sequence[str]) -> bool:
    for part in parts:
        if isinstance(values, list) and part.isdigit() and int(part) < len(values):
            values = values[int(part)]
        elif isinstance(values, Mapping) and part in values:
            values = values[part]
        else:
            return False
    return True
