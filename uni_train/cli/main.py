"""`uni_train`: the commands and their help.

Only typer is imported here, so that `--help` and `recipes` answer at once; each body imports what it needs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from uni_train.cli import data
from uni_train.cli.failures import as_user_error, debugging, show


class Commands(TyperGroup):
    """The one place where errors of a command become a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if debugging():
                raise
            print("\ninterrupted: run the same command again to continue", file=sys.stderr)
            raise SystemExit(130) from None
        except Exception as error:
            user_error = as_user_error(error)
            if user_error is None or debugging():
                raise
            show(user_error)
            raise SystemExit(user_error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    name="uni_train",
    help="Train unified multimodal models to internalise their own reasoning, and measure what got better.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich's help costs a fifth of a second
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")


@app.command()
def fit(
    recipe: Annotated[str, typer.Option("--recipe", "-r", help="A recipe's name, or the path of a YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Values that replace the recipe's.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over in a new folder beside the old one.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configuration and the stages, and stop.")] = False,
) -> None:
    """Run a recipe; running the same command again continues it.

    \b
    Examples:
      uni_train fit --recipe stars_curriculum
      uni_train fit --recipe stars_mapping level=2 seed=1 logger=wandb
      uni_train fit --recipe stars_curriculum model=bagel_7b --dry-run
    """
    from uni_train.cli.fit import run_recipe

    run_recipe(recipe, overrides or [], fresh=fresh, dry_run=dry_run)


@app.command()
def recipes() -> None:
    """List the recipes, each with what it does and costs.

    \b
    Example:
      uni_train recipes
    """
    from uni_train.cli.listings import print_described
    from uni_train.config import places

    print_described("recipe", places.recipes(), footer="Run one with: uni_train fit --recipe NAME")


@app.command()
def models() -> None:
    """List the models that recipes can be run with.

    \b
    Example:
      uni_train models
    """
    from uni_train.cli.listings import print_described
    from uni_train.config import places

    print_described("model", places.options("model"), footer="Choose one with: uni_train fit --recipe NAME model=MODEL")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)],
) -> None:
    """Write a run's report.html again from what the run has stored.

    \b
    Example:
      uni_train report runs/stars_curriculum/seed0
    """
    from uni_train.errors import UserError

    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is no run folder: it has no config.yaml", "Run folders are runs/<recipe>/<name>.")
    from eval.report import write_report

    typer.echo(f"report: {write_report(run)}")


def main() -> None:
    """Entry point of `uni_train` and `python -m uni_train`."""
    app(prog_name="uni_train")
