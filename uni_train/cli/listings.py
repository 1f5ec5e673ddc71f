"""Lists of things that can be named on the command line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from uni_train.config.places import Described, find_recipe, header


def print_described(entries: Sequence[Described], footer: str) -> None:
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


def print_recipe(recipe: str) -> None:
    """What a recipe's file says of it, its stages, and how it is run.

    Raises:
        UsageError: there is no such recipe, or it cannot be composed.
    """
    path = find_recipe(recipe)
    print("\n".join([*header(path), "", "Stages:"]))
    from uni_train.config.compose import compose
    from uni_train.config.kinds import stage_list
    from uni_train.config.places import groups, options

    for stage in stage_list(compose(recipe)):
        print(f"  {stage.index:02d}-{stage.name:<20} {stage.summary}")
    print("\nGroups, each one key (model=nano):")
    for group in groups():
        print(f"  {group + '=':<20} {', '.join(option.name for option in options(group))}")
    print(f"\nFile: {path}\nRun it with: uni_train fit {recipe}\nAll its keys: uni_train fit {recipe} --dry-run")
