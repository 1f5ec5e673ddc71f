"""`uni_train`: the commands and their help.

Only click is imported here, so that `--help` and `recipes` answer at once; each body imports what it needs. (typer
reads nicer, but it loads pydantic to parse a flag, which triples the time to the first line.)
"""

from __future__ import annotations

import atexit
import difflib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from uni_train import __version__
from uni_train.cli.completion import complete_recipes
from uni_train.cli.data import data
from uni_train.cli.doctor import doctor
from uni_train.cli.evaluation import evaluate
from uni_train.cli.export import export
from uni_train.cli.generate import generate
from uni_train.cli.insight import insight
from uni_train.cli.launch import launch
from uni_train.cli.models import models
from uni_train.cli.plan import plan
from uni_train.cli.recipe import TakesRecipe, recipe_options
from uni_train.cli.serve import serve
from uni_train.cli.view import view
from uni_train.cli.watch import watch
from uni_train.console.failures import as_user_error, debugging, show
from uni_train.console.terminal import LOST, echo, print_anything
from uni_train.distributed.watchdog import STARTER, end_with_parent
from uni_train.errors import nearest


class Commands(click.Group):
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
    """The error of an option that is none; of a command that takes keys it says how they are typed."""
    arguments = error.ctx.command.params if error.ctx is not None else []
    if not any("KEY=VALUE" in str(argument.metavar) for argument in arguments):
        return error
    close = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, 0.8)
    hint = f"Did you mean {close[0]}?" if close else f"A key has no dashes: {error.option_name.lstrip('-')}=VALUE."
    return click.UsageError(f"No such option {error.option_name}. {hint}", error.ctx)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def uni_train() -> None:
    """Train unified multimodal models to internalise their own reasoning, and measure what got better.

    \b
    Start with:
      uni_train recipes
      uni_train fit stars_curriculum
    """


for command in (data, doctor, evaluate, export, generate, insight, launch, models, plan, serve, view, watch):
    uni_train.add_command(command)


@uni_train.command(cls=TakesRecipe)
@recipe_options
@click.option("--fresh", is_flag=True, help="Start over in a new folder beside the old one.")
@click.option("--dry-run", is_flag=True, help="Print stages, costs and needs, and stop.")
@click.option("--config", is_flag=True, help="Print the configuration as well, and stop.")
def fit(recipe: str, fresh: bool, dry_run: bool, config: bool, overrides: tuple[str, ...]) -> None:
    """Run a recipe; the same command again continues it.

    RECIPE is a recipe's name, or the path of a YAML file. KEY=VALUE replaces a value of it; --config shows all keys.

    \b
    Examples:
      uni_train fit stars_curriculum
      uni_train fit stars_mapping level=2 seed=1 logger=wandb
      uni_train fit stars_curriculum model=bagel_7b --dry-run
    """
    from uni_train.fitting import run_recipe

    run_recipe(recipe, overrides, fresh=fresh, dry_run=dry_run or config, whole=config, all_cores=True)


@uni_train.command()
@click.argument("recipe", required=False, metavar="[RECIPE]", shell_complete=complete_recipes)
@click.option("--keys", is_flag=True, help="All keys that recipes may hold, as Markdown, instead.")
@click.option("--schema", is_flag=True, help="A JSON schema of recipe files for editors, instead.")
def recipes(recipe: str | None, keys: bool, schema: bool) -> None:
    """List the recipes: what each does and costs. With RECIPE, its details.

    \b
    Examples:
      uni_train recipes
      uni_train recipes sft_maze
      uni_train recipes --schema > recipe.schema.json
    """
    if keys or schema:
        from uni_train.config.reference import json_schema, page

        echo(page() if keys else json.dumps(json_schema(), indent=2), nl=schema)
        return
    from uni_train.cli.listings import print_described, print_recipe
    from uni_train.config import places

    if recipe is not None:
        print_recipe(recipe)
        return
    print_described(places.recipes(), footer="Details: uni_train recipes NAME. Run one with: uni_train fit NAME")


@uni_train.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
def report(run: Path) -> None:
    """Write the report.html of a run or an evaluation again.

    RUN is its folder; the report is made from what is stored there.

    \b
    Examples:
      uni_train report runs/stars_curriculum/seed0
      uni_train report evals/nano-unisandbox-0a1b2c
    """
    from uni_train.errors import UserError

    if (run / "evaluation.json").is_file():
        from uni_train.eval.evaluation import load
        from uni_train.eval.report.evaluation import report_of

        echo(f"report: {report_of(load(run))}")
        return
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"{run} is no run folder: it has no config.yaml",
            "Run folders are runs/<recipe>/<name>, evaluations evals/<name>.",
        )
    from uni_train.data_gen.registry import PluginError
    from uni_train.eval.report.run import without_samples, write_report
    from uni_train.run_folder import stored_config

    try:
        stored_config(run)
    except PluginError as error:
        echo(f"the report does without a plug-in: {error}")
    except UserError:
        pass  # it is written of what is left
    echo(f"report: {write_report(run)}")
    for folder in without_samples(run):
        echo(f"{folder}: no samples here, so the gallery lacks them")


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
