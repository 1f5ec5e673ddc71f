"""`uni_train`: the commands and their help.

Only click is imported here, so that `--help` and `recipes` answer at once; each body imports what it needs. (typer
reads nicer, but it loads pydantic to parse a flag, which triples the time to the first line.)
"""

from __future__ import annotations

import atexit
import difflib
import os
import sys
from contextlib import suppress
from typing import Any

import click

from uni_train import __version__
from uni_train.cli.commands import CommandFolder
from uni_train.console.failures import as_user_error, debugging, show
from uni_train.console.terminal import LOST, print_anything
from uni_train.core.errors import nearest
from uni_train.distributed.watchdog import STARTER, end_with_parent


class Commands(CommandFolder):
    """The one place where errors of a command become a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if debugging():
                raise
            print("\ninterrupted: run the same command again to continue", file=sys.stderr)
            raise SystemExit(130) from None
        except click.NoSuchOption as error:
            raise _named_as_key(error) from None
        except (Exception, SystemExit) as error:  # a plug-in's sys.exit does not end a command without a word
            user_error = as_user_error(error)
            if user_error is None or debugging():
                raise
            show(user_error)
            raise SystemExit(user_error.exit_code) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = nearest(args[0], self.list_commands(ctx))
            hint = f" Did you mean {close}?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}") from error


def _named_as_key(error: click.NoSuchOption) -> click.UsageError:
    """The error for an unknown option. For a command that takes KEY=VALUE it also says how keys are typed."""
    arguments = error.ctx.command.params if error.ctx is not None else []
    if not any("KEY=VALUE" in str(argument.metavar) for argument in arguments):
        return error
    close = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, 0.8)
    hint = f"Did you mean {close[0]}?" if close else f"A key has no dashes: {error.option_name.lstrip('-')}=VALUE."
    return click.UsageError(f"No such option {error.option_name}. {hint}", error.ctx)


@click.group(cls=Commands, package="uni_train.cli", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def uni_train() -> None:
    """Train unified multimodal models to internalise their own reasoning, and measure what got better.

    \b
    Start with:
      uni_train recipes
      uni_train fit stars_curriculum
    """


def main() -> None:
    """Entry point of `uni_train` and `python -m uni_train`."""
    # OpenMP reads this once, when torch is loaded. Threads that spin while they wait for each other make small models
    # tens of times slower as soon as another process wants a core (docs/nano.md); sleeping ones cost nothing then.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    print_anything()
    starter = os.environ.pop(STARTER, "")
    if starter or "TORCHELASTIC_RUN_ID" in os.environ:  # a rank, whose parent is torch's agent
        end_with_parent(int(starter or 0))
    try:
        uni_train(prog_name="uni_train")
    except SystemExit as end:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        end.code = end.code or int(bool(LOST))
        if os.environ.get("WORLD_SIZE", "1") != "1":
            from uni_train.console.ranks import leave

            atexit._run_exitfuncs()
            leave(end.code if isinstance(end.code, int) else 1)
        raise
