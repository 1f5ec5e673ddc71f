"""`uni_train watch`: every complete new checkpoint of a training run is evaluated, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uni_train.cli.evaluation.options import config_of, evaluation_options, overrides_of
from uni_train.cli.numbers import Finite
from uni_train.console.terminal import echo


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@evaluation_options()
@click.option("--once", is_flag=True, help="Evaluate the checkpoints that exist now, and stop.")
@click.option("--poll", type=Finite(0.1), default=30.0, show_default=True, metavar="SECONDS")
def watch(run: Path, words: tuple[str, ...], once: bool, poll: float, **options: Any) -> None:
    """Evaluate each complete new checkpoint of a training run.

    RUN is the run's folder; the newest checkpoint comes first. It evaluates the steps that a stage saves during
    training. It also evaluates the models of finished stages, which keep no steps. Evaluations lie in RUN/evals; all
    keys of `eval` can be given. A watch that was stopped goes on where it was.

    \b
    Examples:
      uni_train watch runs/stars_curriculum/seed0 --subset 100 logger=wandb
      uni_train watch runs/sft/seed0 -b unisandbox,ureason --once
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.watch import STATE, watch_run

    overrides = overrides_of(words, {**options, "out": options["out"] or str(run / "evals")})
    out = Path(config_of(overrides).out)
    progress = ConsoleProgress()
    failed = 0
    for event in watch_run(run, out, overrides, lambda line: echo(f"  {line}"), once=once, poll=poll):
        checkpoint = event.checkpoint
        if event.kind == "found":
            progress.say(f"{checkpoint.name}, after {checkpoint.updates} updates: {checkpoint.path}")
            continue
        failed += event.kind not in ("done", "gone")
        detail = f": {event.message}" if event.message else ""
        again = {"failed": " (to be tried again)", "given up": f" (see {out / STATE})"}.get(event.kind, "")
        progress.say(f"{checkpoint.name}: {event.kind}{detail}{again}")
    if once and failed:
        raise SystemExit(1)
