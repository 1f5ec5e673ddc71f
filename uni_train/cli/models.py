"""`uni_train models`: the models that can be named, and what a checkpoint is."""

from __future__ import annotations

import click

from uni_train.cli.commands import completer


@click.group(invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List the models that a recipe can be run with; look into checkpoints.

    \b
    Examples:
      uni_train models
      uni_train models inspect checkpoints/BAGEL-7B-MoT
    """
    if context.invoked_subcommand is not None:
        return
    from uni_train.cli.recipes import print_described
    from uni_train.config import places

    print_described(places.options("model"), footer="Choose one with: uni_train fit NAME model=MODEL")


@models.command("inspect")
@click.argument("model", metavar="PATH|NAME", shell_complete=completer("models"))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def inspect_model(model: str, as_json: bool) -> None:
    """Say what a checkpoint is: parameters by part, dtypes, and what is missing.

    PATH is a checkpoint's folder, one weight file in it, or a run's folder; NAME one of `uni_train models`. Only
    headers are read. The exit code is 1 if it cannot be loaded.

    \b
    Examples:
      uni_train models inspect nano
      uni_train models inspect checkpoints/BAGEL-7B-MoT
      uni_train models inspect runs/stars_curriculum/seed0 --json
    """
    from uni_train.models.checkpoint import expect_there

    expect_there(model)  # before torch is imported, which takes seconds
    from uni_train.models.checkpoint import inspect

    inspection = inspect(model)
    if as_json:
        import dataclasses
        import json

        print(
            json.dumps(
                {**dataclasses.asdict(inspection), "total": inspection.total, "loads": inspection.loads}, indent=2
            )
        )
    else:
        print("\n".join(inspection.lines()))
    if not inspection.loads:
        raise SystemExit(1)
