"""`uni_train watch`: every complete new checkpoint of a training run is evaluated, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.options import config_of, evaluation_options, overrides_of
from uni_train.cli.numbers import Finite
from uni_train.console.terminal import echo
from uni_train.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from uni_train.eval.watch import Outcome
    from uni_train.run_folder import RunCheckpoint

_LAST_LINES = 4


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@evaluation_options()
@click.option("--once", is_flag=True, help="Evaluate what is there now, and stop.")
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
    from uni_train.eval.watch import STATE
    from uni_train.eval.watch import watch as events

    overrides = overrides_of(words, {**options, "out": options["out"] or str(run / "evals")})
    out = Path(config_of(overrides).out)
    progress = ConsoleProgress()
    failed = 0
    with _alone(run, out):
        for event in events(run, out, lambda checkpoint: evaluate(checkpoint, out, overrides), once=once, poll=poll):
            one = event.checkpoint
            if event.kind == "found":
                progress.say(f"{one.name}, after {one.updates} updates: {one.path}")
                continue
            failed += event.kind not in ("done", "gone")
            detail = f": {event.message}" if event.message else ""
            again = {"failed": " (to be tried again)", "given up": f" (see {out / STATE})"}.get(event.kind, "")
            progress.say(f"{one.name}: {event.kind}{detail}{again}")
    if once and failed:
        raise SystemExit(1)


def evaluate(checkpoint: RunCheckpoint, out: Path, overrides: Sequence[str]) -> Outcome:
    """`uni_train eval` in a process of its own; what it prints is passed on.

    Waits for one that a killed watch has left running: a child inherits the lock and holds it for as long as it lives.
    """
    import fcntl

    from uni_train.eval.watch import Outcome

    command = [sys.executable, "-m", "uni_train", "eval", "--checkpoint", str(checkpoint.path), *overrides]
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with open(out / ".evaluating", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(lock.fileno(),),
        ) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    echo(f"  {line.rstrip()}")
                    last.append(line.strip())
                code = child.wait()
            except BaseException:
                child.terminate()  # it continues by itself at the next start
                raise
    errors = [line.removeprefix("error: ") for line in last if line.startswith("error: ")]
    return Outcome(code, "" if code == 0 else (errors or [*last] or [f"it ended with {code}"])[-1])


@contextmanager
def _alone(run: Path, out: Path) -> Iterator[None]:
    """One watch a run. Raises UserError where another one is at work."""
    from filelock import FileLock, Timeout

    from uni_train.run_folder import run_checkpoints

    run_checkpoints(run)  # whether it is a run at all, before anything is written there
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".watch.lock").acquire(timeout=0):
            yield
    except Timeout:
        raise UserError(f"another watch is at work on {run}", "Stop it, or give this one another --out.") from None
