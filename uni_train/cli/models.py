"""`uni_train models`: the models that can be named, and what a checkpoint is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from uni_train.models.family import Inspection


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
    from uni_train.cli.listings import print_described
    from uni_train.config import places

    print_described(places.options("model"), footer="Choose one with: uni_train fit NAME model=MODEL")


@models.command("inspect")
@click.argument("model", metavar="PATH|NAME")
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
        _print(inspection)
    if not inspection.loads:
        raise SystemExit(1)


def _print(found: Inspection) -> None:
    print(f"{found.path or '(no weights here)'}: {found.what}")
    for file, dtypes in found.weights.items():
        print(f"  {file:<34}{', '.join(dtypes)}")
    if found.bytes:
        print(f"  {'weights':<22}{found.bytes:>16,} bytes")
    for part, count in found.parameters.items():
        print(f"  {part:<22}{count:>16,}")
    if found.parameters:
        print(f"  {'total':<22}{found.total:>16,}")
    for problem in found.problems[:10]:
        print(f"  {problem}")
    if len(found.problems) > 10:
        print(f"  and {len(found.problems) - 10} more (--json lists them all)")
    if found.loads:
        print("  complete: it can be loaded")
    elif found.hint:
        print(f"  cannot be loaded: {found.hint}")
    else:
        print("  cannot be loaded")
