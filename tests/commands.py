"""All commands of the program, as click lists them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from uni_train.cli.main import uni_train


def commands(command: click.Command = uni_train, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """("eval", its group), ("eval compare", its command), ...: a group before the commands below it."""
    context = click.Context(command)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)
        assert below is not None, f"{path}{name} is listed, and is none"
        yield f"{path}{name}", below
        yield from commands(below, f"{path}{name} ")
