"""`uni_train eval export`."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.cli.evaluation.options import Folder

_FORMATS = ("lighteval", "model_card", "every_eval_ever")


@click.command("export")
@click.argument("folder", type=Folder(path_type=Path))
@click.option("--to", "form", type=click.Choice(_FORMATS), required=True, help="Target format.")
@click.option("--out", type=Folder(path_type=Path), metavar="DIR", help="[default: FOLDER/export/FORMAT]")
@click.option("--organization", default="unknown", metavar="NAME", help="Your organization, for Every Eval Ever.")
def export(folder: Path, form: str, out: Path | None, organization: str) -> None:
    """Write an evaluation as lighteval does, for a Hub model card, or for Every Eval Ever.

    \b
    Example:
      uni_train eval export evals/mine --to model_card --out my_model
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.evaluation import load
    from uni_train.eval.export import export as written

    progress = ConsoleProgress()
    for file in written(load(folder), form, out or folder / "export" / form, organization):
        progress.say(f"written: {file}")
