"""`uni_train data`: make training and test files, look at them, and check those of others."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Make reasoning tasks with exact answers, look at them, and audit published files.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
