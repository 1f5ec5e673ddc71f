"""`uni_train eval`: score a checkpoint."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.budget import print_plan
from uni_train.cli.evaluation.options import PAIRS, Asked, evaluation_options
from uni_train.cli.evaluation.plans import folder_of, loadable, plan_of
from uni_train.cli.evaluation.running import run_evaluation
from uni_train.cli.numbers import Finite
from uni_train.errors import UsageError

if TYPE_CHECKING:
    from uni_train.cli.progress import ConsoleProgress


@click.group("eval", invoke_without_command=True)
@click.option(
    "--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="A folder, a run, a step of it, shipped, or remote."
)
@evaluation_options
@click.option("--name", metavar="NAME", help="Of the evaluation's folder.  [default: model, benchmarks, a hash]")
@click.option("--plan", "plan_only", is_flag=True, help="Print calls, tokens, cost and GPU hours, and stop.")
@click.option("--seconds", type=PAIRS, metavar="draw=9,think=4", help="--plan: of one call, on one GPU.")
@click.option("--gpu-price", type=Finite(0), metavar="DOLLARS", help="--plan: of an hour of one GPU.")
@click.option("--image-tokens", type=click.IntRange(1), default=1000, show_default=True, help="--plan: of an image.")
@click.option(
    "--reply-tokens", type=click.IntRange(1), default=200, show_default=True, help="--plan: of a judge's reply."
)
@click.pass_context
def evaluate(
    context: click.Context,
    checkpoint: str | None,
    name: str | None,
    plan_only: bool,
    seconds: dict[str, float] | None,
    gpu_price: float | None,
    image_tokens: int,
    reply_tokens: int,
    **options: Any,
) -> None:
    """Score a checkpoint; the same command again continues.

    Every call of the model and every reply of a judge is stored once below OUT/store: what was killed goes on where it
    was, and another judge, or other labels, ask the model for nothing again. docs/eval_cli.md says more.

    \b
    Examples:
      uni_train eval -c shipped
      uni_train eval -c runs/stars_curriculum/seed0 -b unisandbox,ureason --logger wandb
      uni_train eval -c checkpoints/BAGEL-7B-MoT --data UniSandbox/benchmark --judge google/gemini-2.5-pro
      uni_train eval -c MODEL -b ureason --judge google/gemini-2.5-pro,openai/gpt-5
      uni_train eval -c http://127.0.0.1:8000/v1#nano --world nano --subset 50
      uni_train eval -c checkpoints/BAGEL-7B-MoT -b ureason --plan --judge-price 1.25,10
      uni_train eval compare evals/before evals/after
    """
    if context.invoked_subcommand is not None:
        return
    if checkpoint is None:
        raise UsageError("--checkpoint is missing", "Name a folder, a run, shipped, or URL#MODEL.")
    asked = Asked(**options)
    from uni_train.models.recognise import expect_there

    if not plan_only and "://" not in checkpoint:
        expect_there(checkpoint)  # before torch is imported, which takes seconds
    from uni_train.cli.progress import ConsoleProgress

    progress = ConsoleProgress()
    if plan_only:
        from uni_train.eval.plan import Prices, Sizes

        read, written = asked.judge_price or (None, None)
        prices = Prices(read, written, gpu_price)
        print_plan(plan_of(checkpoint, asked), prices, Sizes(image_tokens, reply_tokens), seconds or {}, progress)
        return
    judges = [one.strip() for one in asked.judge.split(",")]
    if len(set(judges)) < len(judges) or not all(judges):
        raise UsageError(f"--judge {asked.judge}: each judge once", "Write --judge ONE,TWO.")
    with loadable(checkpoint, asked, progress) as (path, place):
        folders = {}
        for judge in judges:
            alone = replace(asked, judge=judge)
            own = name if name is None or len(judges) == 1 else f"{name}-{_safe(judge)}"
            done = run_evaluation(replace(plan_of(path, alone), name=own), alone, place, progress)
            folders[judge] = done.folder
    if len(judges) > 1:
        _beside(folders, folder_of(asked) / f"judges-{name or _safe(asked.judge)}", progress)


def _beside(folders: dict[str, Path], place: Path, progress: ConsoleProgress) -> None:
    """The same answers as several judges score them."""
    from uni_train.eval.leaderboard import leaderboard
    from uni_train.eval.report.leaderboard import write_leaderboard

    board = leaderboard([f"{judge}={folder}" for judge, folder in folders.items()])
    progress.say(f"judges beside each other: {write_leaderboard(place, board)}")


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
