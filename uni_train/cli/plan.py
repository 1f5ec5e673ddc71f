"""`uni_train plan`: memory, traffic and time of a recipe on GPUs that nobody has booked yet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from uni_train.cli.fit import TakesRecipe, recipe_options

if TYPE_CHECKING:
    from uni_train.config.schema import RunConfig
    from uni_train.plan.hardware import Gpu
    from uni_train.plan.result import OneCardChoice, Plan


@click.command(cls=TakesRecipe)
@recipe_options
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Number of nodes.  [default: strategy.nodes]")
@click.option("--gpus", type=click.IntRange(1, 1_024), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--gpu",
    default="h100-80gb",
    show_default=True,
    help="Name of the GPU, or its memory in GB (24); an unknown name lists the known ones.",
)
@click.option(
    "--utilisation",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=0.3,
    show_default=True,
    help="The share of the GPU's peak FLOP a second that training reaches.",
)
@click.option("--price", type=click.FloatRange(min=0), help="The price of a GPU hour, in any currency.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, bytes and seconds, instead of tables.")
def plan(
    recipe: str,
    nodes: int | None,
    gpus: int,
    gpu: str,
    utilisation: float,
    price: float | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Predict memory, time and cost of a recipe on GPUs, under every strategy.

    No GPU and no checkpoint is needed: one update is traced with tensors that have shapes but no values. KEY=VALUE is
    as for fit; strategy=NAME shows that strategy in detail. The exit code is 1 if nothing fits.

    \b
    Examples:
      uni_train plan --recipe sft model=bagel_7b
      uni_train plan --recipe flow_grpo_maze model=qwen_image_edit_2511 data.world=everyday --nodes 4
      uni_train plan --recipe sft strategy=deepspeed_zero3 batch.tokens=20480 --nodes 32 --json
    """
    from rich.console import Console

    from uni_train.config.compose import compose
    from uni_train.config.kinds import check_ranks
    from uni_train.console.progress import ConsoleProgress
    from uni_train.plan.hardware import gpu_named
    from uni_train.plan.result import OneCardChoice, Plan
    from uni_train.plan.shown import facts_of, plain_of, tables_of
    from uni_train.stages.cache import cached

    config = compose(recipe, overrides)
    chosen, nodes = gpu_named(gpu), nodes or config.strategy.nodes
    check_ranks(config, nodes * gpus)
    made, ways = cached(
        tuple[Plan, tuple[OneCardChoice, ...]],
        config,
        ["plan", chosen.name, nodes, gpus, utilisation],
        lambda: _made(config, chosen, nodes, gpus, utilisation),
    )
    if as_json:
        import json

        print(json.dumps(plain_of(made, price, ways), indent=2))
    else:
        shown = ConsoleProgress(None if sys.stdout.isatty() else Console(width=160))
        for line in facts_of(made):
            shown.say(line)
        for table in tables_of(made, price, ways):
            shown.table(table.title, table.columns, table.rows, table.note)
    if not any(row.fits for row in made.rows):
        raise SystemExit(1)


def _made(
    config: RunConfig, gpu: Gpu, nodes: int, gpus: int, utilisation: float
) -> tuple[Plan, tuple[OneCardChoice, ...]]:
    from rich.console import Console

    from uni_train.console.progress import ConsoleProgress
    from uni_train.fitting import expect_items

    progress = ConsoleProgress(Console(stderr=True))
    expect_items(config, progress)
    progress.say(f"following one update of {config.model.name} on tensors without numbers; this may take a minute")
    from uni_train.plan.plan import STEPS, WAYS, one_card
    from uni_train.plan.plan import plan as made_for

    with progress.bar("model, update, update with the other activations", STEPS) as bar:
        made = made_for(config, gpu, nodes, gpus, utilisation, bar.advance)
    if nodes * gpus > 1:
        return made, ()
    with progress.bar("ways onto one card", WAYS) as bar:
        return made, one_card(config, bar.advance)
