"""`uni_train fit`: run a recipe. The recipe of a command is `--recipe NAME`, or NAME among its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from uni_train.cli.commands import completer


class TakesRecipe(click.Command):
    """A command of `recipe_options`: the first argument without "=" is the recipe, unless --recipe names it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        overrides = ctx.params["overrides"]
        if ctx.params["recipe"] is None:
            name = next((word for word in overrides if "=" not in word), None)
            if name is not None:
                at = overrides.index(name)
                ctx.params.update(recipe=name, overrides=overrides[:at] + overrides[at + 1 :])
            elif not ctx.resilient_parsing:
                raise click.UsageError("Missing RECIPE (or --recipe NAME): `uni_train recipes` lists them.", ctx)
        return rest


def recipe_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `recipe` and `overrides` to the parameters of a TakesRecipe."""
    option = click.option(
        "--recipe", "-r", metavar="NAME", shell_complete=completer("recipes"),
        help="The same as RECIPE: a name, or a YAML file.",
    )  # fmt: skip
    argument = click.argument(
        "overrides", nargs=-1, metavar="RECIPE [KEY=VALUE]...", shell_complete=completer("recipes")
    )
    return option(argument(command))


@click.command(cls=TakesRecipe)
@recipe_options
@click.option("--fresh", is_flag=True, help="Start over in a new folder beside the old one.")
@click.option("--dry-run", is_flag=True, help="Print stages, costs and needs, and stop.")
@click.option("--config", is_flag=True, help="Print the configuration as well, and stop.")
def fit(recipe: str, fresh: bool, dry_run: bool, config: bool, overrides: tuple[str, ...]) -> None:
    """Run a recipe; the same command again continues it.

    RECIPE is a recipe's name, or the path of a YAML file. KEY=VALUE replaces a value of it; --config shows all keys.

    \b
    Examples:
      uni_train fit stars_curriculum
      uni_train fit stars_mapping level=2 seed=1 logger=wandb
      uni_train fit stars_curriculum model=bagel_7b --dry-run
    """
    if dry_run or config:
        from uni_train.dry_run import print_plan

        print_plan(recipe, overrides, whole=config)
    else:
        from uni_train.fitting import run_recipe

        run_recipe(recipe, overrides, fresh=fresh, all_cores=True)
