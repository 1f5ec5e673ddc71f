"""What the shell completes: the functions that `uni_train.cli.commands.completer` names.

Each takes what click hands over: the context, the parameter, what is typed.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from uni_train.config import places
from uni_train.config.places import section_of


def recipes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of recipes; after one, its keys and the options of groups (model=nano)."""
    typed = [*(ctx.params.get("overrides") or ()), ctx.params.get("recipe")]
    name = next((word for word in typed if word and "=" not in word), None)
    if name is None or param.name != "overrides":
        return _begun((recipe.name for recipe in places.recipes()), incomplete)
    from uni_train.config.compose import config_class

    group = incomplete.partition("=")[0]
    if "=" in incomplete and group in places.groups():
        return _begun((f"{group}={option.name}" for option in places.options(group)), incomplete)
    return _begun((f"{group}=" for group in places.groups()), incomplete) + _keys(config_class(name), incomplete)


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of models, and files."""
    names = ["shipped", *(model.name for model in places.options("model"))]
    return [*_begun(names, incomplete), CompletionItem(incomplete, type="file")]


def words(section: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The keys of a section and their values; models for the first word."""
    first = str(param.metavar).startswith("CHECKPOINT") and not (ctx.params["checkpoint"] or ctx.params["words"])
    named = models(ctx, param, incomplete) if first and "=" not in incomplete else []
    return [*named, *_keys(section_of(section), incomplete)]


def values(section: str, key: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The values of one key, after a comma too."""
    return _values(section_of(section), key, incomplete)


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tasks."""
    return _begun(_names(object, "task"), incomplete)


def benchmarks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of benchmarks."""
    from uni_train.eval.benchmark import BENCHMARKS

    return _begun(BENCHMARKS.names(), incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _keys(section: type, incomplete: str) -> list[CompletionItem]:
    """Keys; after an equals sign the values of one."""
    from uni_train.config.reference import keys

    key, equals, begun = incomplete.partition("=")
    if equals:
        return [CompletionItem(f"{key}={item.value}") for item in _values(section, key, begun)]
    return _begun((f"{item.name}=" for item in keys(section) if "[" not in item.name), incomplete)


def _values(section: type, key: str, incomplete: str) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{begun.value}") for begun in _begun(_names(section, key), last)]


def _names(section: type, key: str) -> Iterable[str]:
    """The known values of a key: names that are registered, else what its type lists."""
    from uni_train.config.build import kinds_of
    from uni_train.data_gen.registry import TASKS
    from uni_train.eval.benchmark import BENCHMARKS

    if key == "task":
        return TASKS.names()
    if key == "benchmarks":
        return (*BENCHMARKS.names(), "all")
    if key == "sets":
        return [name for benchmark in BENCHMARKS.names() for name in BENCHMARKS.get(benchmark).known_sets]
    if (section.__name__, key) == ("InsightConfig", "settings"):
        from uni_train.insight.links import TITLES

        return TITLES
    values: list[str] = []
    for kind in kinds_of(section, key):
        values += ("true", "false") if kind is bool else ()
        values += map(str, typing.get_args(kind)) if typing.get_origin(kind) is typing.Literal else ()
    return values
