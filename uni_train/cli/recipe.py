"""The recipe of a command: `--recipe NAME`, or NAME among its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from uni_train.config import places


class TakesRecipe(click.Command):
    """A command of `recipe_options`: the first argument without "=" is the recipe, unless --recipe names it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        overrides = ctx.params["overrides"]
        if ctx.params["recipe"] is None:
            name = next((one for one in overrides if "=" not in one), None)
            if name is not None:
                at = overrides.index(name)
                ctx.params.update(recipe=name, overrides=overrides[:at] + overrides[at + 1 :])
            elif not ctx.resilient_parsing:
                raise click.UsageError("Missing RECIPE (or --recipe NAME): `uni_train recipes` lists them.", ctx)
        return rest


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `recipe` and `overrides` to the parameters of a TakesRecipe."""
    option = click.option(
        "--recipe", "-r", metavar="NAME", help="The same as RECIPE: a name, or a YAML file.", shell_complete=complete
    )
    argument = click.argument("overrides", nargs=-1, metavar="RECIPE [KEY=VALUE]...", shell_complete=complete)
    return option(argument(command))


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of recipes for the shell; after one, its keys and the options of groups (model=nano)."""
    words = [*(ctx.params.get("overrides") or ()), ctx.params.get("recipe")]
    name = next((word for word in words if word and "=" not in word), None)
    if name is None or param.name != "overrides":
        return [recipe.name for recipe in places.recipes() if recipe.name.startswith(incomplete)]
    group, equals, _ = incomplete.partition("=")
    if equals:
        values = [option.name for option in places.options(group)] if group in places.groups() else []
        return [f"{group}={value}" for value in values if f"{group}={value}".startswith(incomplete)]
    from uni_train.config.compose import config_class
    from uni_train.config.reference import keys

    names = [*places.groups(), *(key.name for key in keys(config_class(name)))]
    return [f"{key}=" for key in dict.fromkeys(names) if key.startswith(incomplete) and "[" not in key]


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of models for the shell, and files."""
    names = ["shipped", *(model.name for model in places.options("model"))]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]
