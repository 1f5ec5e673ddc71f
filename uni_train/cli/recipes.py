"""`uni_train recipes`: the recipes, their keys, and a schema of their files."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

from uni_train.cli.commands import completer
from uni_train.config import places
from uni_train.console.terminal import echo


@click.command()
@click.argument("recipe", required=False, metavar="[RECIPE]", shell_complete=completer("recipes"))
@click.option("--keys", is_flag=True, help="All keys that recipes may hold, as Markdown, instead.")
@click.option("--schema", is_flag=True, help="A JSON schema of recipe files for editors, instead.")
def recipes(recipe: str | None, keys: bool, schema: bool) -> None:
    """List the recipes: what each does and costs. With RECIPE, its details.

    \b
    Examples:
      uni_train recipes
      uni_train recipes sft_maze
      uni_train recipes --schema > recipe.schema.json
    """
    if keys or schema:
        from uni_train.config.reference import json_schema, page

        echo(page() if keys else json.dumps(json_schema(), indent=2), nl=schema)
        return
    if recipe is not None:
        _print_recipe(recipe)
        return
    print_described(places.recipes(), footer="Details: uni_train recipes NAME. Run one with: uni_train fit NAME")


def print_described(entries: Sequence[places.Described], footer: str) -> None:
    """Name, what it is, what it costs; wrapped for a terminal, two lines an entry when piped elsewhere."""
    interactive = sys.stdout.isatty()
    indent = max(len(entry.name) for entry in entries) + 2
    width = max(40, shutil.get_terminal_size().columns - indent) if interactive else 10_000
    for entry in entries:
        lines = textwrap.wrap(entry.summary, width)
        if entry.costs:
            lines += textwrap.wrap(f"Costs: {entry.costs}", width)
        for i, line in enumerate(lines or [""]):
            print(f"{entry.name if i == 0 else '':<{indent}}{line}".rstrip())
    if interactive:
        print(f"\n{footer}")


def _print_recipe(recipe: str) -> None:
    """What a recipe's file says of it, its stages, and how it is run.

    Raises:
        UsageError: there is no such recipe, or it cannot be composed.
    """
    path = places.find_recipe(recipe)
    print("\n".join([*places.header(path), "", "Stages:"]))
    from uni_train.config.compose import compose
    from uni_train.config.kinds import stage_list

    for stage in stage_list(compose(recipe)):
        print(f"  {stage.index:02d}-{stage.name:<20} {stage.summary}")
    print("\nGroups, each one key (model=nano):")
    for group in places.groups():
        print(f"  {group + '=':<20} {', '.join(option.name for option in places.options(group))}")
    print(f"\nFile: {path}\nRun it with: uni_train fit {recipe}\nAll its keys: uni_train fit {recipe} --dry-run")
