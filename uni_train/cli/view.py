"""`uni_train view`: curves, scores and tables of runs and evaluations in a browser, live."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import click

from uni_train.console.terminal import echo
from uni_train.core.errors import UserError


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path(), metavar="[FOLDER]")
@click.option("--port", type=click.IntRange(0, 65535), default=6006, show_default=True, help="0: any free one.")
def view(folder: Path, port: int) -> None:
    """Show runs and evaluations in a browser, live.

    FOLDER holds them, at any depth; without it, the current one does. TensorBoard serves the page on this machine
    alone (pip install -e '.[view]'). Ctrl-C ends it.

    \b
    Examples:
      uni_train view
      uni_train view runs/stars_curriculum --port 6007
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder", "`fit` writes runs/, `eval` evals/; give the folder that holds them."
        )
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise UserError("view needs TensorBoard, which is not installed", "pip install -e '.[view]'") from error
    from uni_train.view import MOST_TICKED, read, serve

    logged = read(folder)
    if not logged.scalars and not logged.texts:
        echo(f"nothing to show below {folder} yet: runs and evaluations appear when they have written something")
    if (n := len(logged.scalars.keys() | logged.texts.keys() | logged.images.keys())) > MOST_TICKED:
        echo(f"{n} runs: Scalars, Images and Text open with none of them ticked; Time Series shows them, up to 500")
    echo(f"{serve(folder, port)} shows {folder.resolve()}; Ctrl-C ends it")
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
    echo("ended")
