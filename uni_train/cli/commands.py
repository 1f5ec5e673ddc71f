"""Commands and completions that are found by name, and imported when they are asked for."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


def completer(name: str, *about: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What completes an argument: the function `name` of `uni_train.cli.completion`. about: what it takes first."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from uni_train.cli import completion

        items: list[CompletionItem] = getattr(completion, name)(*about, ctx, param, incomplete)
        return items

    return complete


class CommandFolder(click.Group):
    """A group whose commands are files of a package, each imported when it is invoked or asked for its help.

    Args:
        package: such as "uni_train.cli". NAME.py of it holds a command if @click.command or @click.group makes one
            called NAME there.
    """

    def __init__(self, *arguments: Any, package: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._outlines())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._files():
            return None
        module = importlib.import_module(f"{self._package}.{cmd_name}")
        made = (value for value in vars(module).values() if isinstance(value, click.Command))
        return next((command for command in made if command.name == cmd_name), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group(commands=self._outlines()).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [(name, outline) for name, outline in self._outlines().items() if name.startswith(incomplete)]
        items = [CompletionItem(name, help=command.get_short_help_str()) for name, command in named]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _files(self) -> Mapping[str, Path]:
        (folder,) = importlib.import_module(self._package).__path__
        return {file.stem: file for file in sorted(Path(folder).glob("*.py"))}

    def _outlines(self) -> dict[str, click.Command]:
        """Name -> a command with its help alone, read from the source."""
        texts = {name: _help_of(name, file.read_text(encoding="utf-8")) for name, file in self._files().items()}
        return {name: click.Command(name, help=text) for name, text in texts.items() if text is not None}


def _help_of(name: str, source: str) -> str | None:
    """The docstring of the command `name`; None: the source makes no such command."""
    for function in (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list:
            made, _, rest = ast.unparse(decorator).partition("(")
            if made in ("click.command", "click.group") and (rest.startswith(f"'{name}'") or function.name == name):
                return ast.get_docstring(function) or ""
    return None
