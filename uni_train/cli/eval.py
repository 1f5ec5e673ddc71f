"""`uni_train eval`: score a checkpoint. Its own commands are the files of uni_train/cli/evaluation/."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from uni_train.cli.commands import CommandFolder
from uni_train.cli.evaluation.options import (
    Alias,
    checkpoint_of,
    checkpoint_option,
    config_of,
    evaluation_options,
    overrides_of,
)
from uni_train.cli.evaluation.running import show
from uni_train.core.errors import UsageError, nearest


class TakesKeys(CommandFolder):
    """A group with options and words of its own, unless the first word names a command."""

    allow_interspersed_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and self.get_command(ctx, args[0]) is not None
        click.Command.parse_args(self, ctx, [] if named else args)
        if named:
            ctx._protected_args, ctx.args = args[:1], args[1:]
        return ctx.args


@click.group(
    "eval", cls=TakesKeys, package="uni_train.cli.evaluation", invoke_without_command=True, subcommand_metavar=""
)
@checkpoint_option
@evaluation_options("CHECKPOINT [KEY=VALUE]...")
@click.option("--name", cls=Alias, section="schema.EvalConfig", metavar="VALUE")
@click.option("--plan", "plan_only", is_flag=True, help="Print calls, tokens, cost and GPU hours, and stop.")
@click.pass_context
def evaluate(
    context: click.Context,
    checkpoint: str | None,
    words: tuple[str, ...],
    plan_only: bool,
    **options: Any,
) -> None:
    """Score a CHECKPOINT; the same command again continues.

    Every call of the model and every reply of a judge is stored below OUT/store. An interrupted evaluation continues
    from there, and another judge needs no new calls of the model. docs/evaluation.md lists the keys.

    \b
    Examples:
      uni_train eval shipped
      uni_train eval runs/stars_curriculum/seed0 -b unisandbox,ureason logger=wandb
      uni_train eval checkpoints/BAGEL-7B-MoT data.unisandbox=UniSandbox/benchmark judge.model=google/gemini-2.5-pro
      uni_train eval http://127.0.0.1:8000/v1#nano world=nano --subset 50
      uni_train eval checkpoints/BAGEL-7B-MoT -b ureason --plan "judge.price=[1.25,10]"
      uni_train eval compare evals/before evals/after
    """
    if context.invoked_subcommand is not None:
        return
    checkpoint, words = checkpoint_of(checkpoint, words)
    if checkpoint != "shipped" and not Path(checkpoint).exists():
        _expect_no_command(checkpoint, evaluate.list_commands(context))
    overrides = overrides_of(words, options)
    config = config_of(overrides)
    from uni_train.models.checkpoint import expect_there

    if not plan_only:
        expect_there(checkpoint)  # before torch is imported, which takes seconds
    from uni_train.console.progress import ConsoleProgress

    progress = ConsoleProgress()
    if plan_only:
        from uni_train.eval.budget import budget

        table, remarks = budget(checkpoint, config)
        progress.table(table.title, table.columns, table.rows)
        for remark in remarks:
            progress.say(remark)
        return
    if config.devices > 1 and "WORLD_SIZE" not in os.environ:
        from uni_train.distributed.launch import start

        raise SystemExit(start(["eval", checkpoint, *overrides], config.devices))
    from uni_train.api import run_evaluation

    run_evaluation(checkpoint, config, progress, lambda done, page: show(done, progress, page))


def _expect_no_command(checkpoint: str, commands: Sequence[str]) -> None:
    command = nearest(checkpoint, commands)
    if command is not None:
        raise UsageError(f"there is neither a checkpoint {checkpoint} nor such a command", f"Did you mean {command}?")
