"""`uni_train plan`: memory, traffic and time of a recipe on GPUs that nobody has booked yet."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.recipe import TakesRecipe, recipe_options

if TYPE_CHECKING:
    from uni_train.config.schema import RunConfig
    from uni_train.plan.hardware import Gpu
    from uni_train.plan.result import OneCardChoice, Plan, StrategyRow

GIB = 2**30


@click.command(cls=TakesRecipe)
@recipe_options
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Nodes; by default strategy.nodes.")
@click.option("--gpus", type=click.IntRange(1, 1_024), default=8, show_default=True, help="GPUs a node.")
@click.option(
    "--gpu", default="h100-80gb", show_default=True, help="Which; an unknown name lists those that are known."
)
@click.option(
    "--utilisation",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=0.4,
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
    """Say what a recipe needs on GPUs, under every strategy, before anyone books them.

    No GPU and no checkpoint is needed: one update is followed with tensors that have shapes alone. KEY=VALUE as for
    fit; strategy=NAME picks the one that is looked at closely. The exit code is 1 if nothing fits.

    \b
    Examples:
      uni_train plan --recipe sft model=bagel_7b
      uni_train plan --recipe flow_grpo_maze model=qwen_image_edit_2511 data.world=everyday --nodes 4
      uni_train plan --recipe sft strategy=deepspeed_zero3 batch.tokens=20480 --nodes 32 --json
    """
    from uni_train.config.compose import compose
    from uni_train.plan.cache import cached
    from uni_train.plan.hardware import gpu_named
    from uni_train.plan.result import OneCardChoice, Plan

    config = compose(recipe, overrides)
    chosen, nodes = gpu_named(gpu), nodes or config.strategy.nodes
    made, ways = cached(
        tuple[Plan, tuple[OneCardChoice, ...]],
        config,
        ["plan", chosen.name, nodes, gpus, utilisation],
        lambda: _made(config, chosen, nodes, gpus, utilisation),
    )
    if as_json:
        import json

        print(json.dumps(_plain(made, price) | {"one_card": [_way(one) for one in ways]}, indent=2))
    else:
        for line in [*_lines(made, price), *_one_card(ways)]:
            print(line)
    if not any(row.fits for row in made.rows):
        raise SystemExit(1)


def _made(
    config: RunConfig, gpu: Gpu, nodes: int, gpus: int, utilisation: float
) -> tuple[Plan, tuple[OneCardChoice, ...]]:
    from rich.console import Console

    from uni_train.console.progress import ConsoleProgress
    from uni_train.stages.run import expect_items

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


def _way(way: OneCardChoice) -> dict[str, Any]:
    from uni_train.plan.result import CARDS

    return {"keys": way.keys, "peak": way.peak, "host": way.host, "fits": [card for card in CARDS if way.fits(card)]}


def _one_card(ways: tuple[OneCardChoice, ...]) -> list[str]:
    """What fits onto cards of 24 to 80 GB, and the first way onto each."""
    from uni_train.plan.result import CARDS

    if not ways:
        return []
    names = [f"{card // GIB} GB" for card in CARDS]
    table = [["on one card, activation_checkpointing=true ema=null", "GiB", "GiB a host", *names]]
    for way in ways:
        fits = ["yes" if way.fits(card) else "no" for card in CARDS]
        table.append([way.keys, _size(way.peak), _size(way.host), *fits])
    lines = ["", *_table(table), ""]
    for card, name in zip(CARDS, names, strict=True):
        first = next((way.keys for way in ways if way.fits(card)), "nothing here fits")
        lines.append(f"{name}: {first}")
    return lines


def _plain(made: Plan, price: float | None) -> dict[str, Any]:
    import dataclasses

    values = dataclasses.asdict(made)
    for row, one in zip(values["rows"], made.rows, strict=True):
        row["strategy"] = one.choice.name
        row["gpu_hours"] = made.gpu_hours(one)
        row["cost"] = None if price is None else price * made.gpu_hours(one)
    return values | {"gpus": made.gpus}


def _lines(made: Plan, price: float | None) -> list[str]:
    per = f"{made.nodes} x {made.gpus_a_node}" if made.nodes > 1 else str(made.gpus)
    lines = [
        f"{made.recipe}, {made.model}, on {per} {made.gpu.name} of {made.gpu.usable / GIB:.0f} GiB for tensors",
        f"  {made.parameters:,} parameters, {made.trained:,} trained",
        f"  a micro-batch on a GPU: {made.units} {made.unit}; {made.micros} in an update",
        f"  an update on a GPU: {made.flops / 1e12:,.0f} TFLOP, {_time(made.compute_seconds)} at "
        f"{made.utilisation:.0%} of its peak",
    ]
    if made.draw_seconds:
        lines.append(f"  drawing for an update: {_time(made.draw_seconds)}")
    lines += [f"  assumed: {one}" for one in made.assumptions]
    lines += ["", *_table(_summary(made, price))]
    if made.chosen is not None:
        row = made.rows[made.chosen]
        lines += ["", f"{row.choice.name}: GiB on each GPU at its peak ({row.share.phase})", *_table(_parts(made, row))]
    lines += ["", *(f"activations {name}: {_size(size)} GiB" for name, size in _kept(made)), *made.advice]
    return lines


def _kept(made: Plan) -> list[tuple[str, int]]:
    now = "checkpointed" if made.activation_checkpointing else "kept"
    other = "kept" if made.activation_checkpointing else "checkpointed"
    setting = f"activation_checkpointing={'false' if made.activation_checkpointing else 'true'}"
    return [("as it is", made.activations[now]), (f"with {setting}", made.activations[other])]


def _summary(made: Plan, price: float | None) -> list[list[str]]:
    head = [
        "strategy",
        "GiB a GPU",
        "fits",
        "most units",
        "GiB a host",
        "GiB sent",
        "update",
        "GPU hours",
    ]
    table = [[*head, *(["cost"] if price is not None else [])]]
    for number, row in enumerate(made.rows):
        mark = "*" if number == made.chosen else ""
        cells = [
            row.choice.name + mark,
            _size(row.share.peak),
            "yes" if row.fits else "no",
            str(row.largest),
            _size((row.share.host + made.held_rows) * made.gpus_a_node),
            _size(sum(row.share.wire.values())),
            _time(row.step_seconds),
            f"{made.gpu_hours(row):,.1f}",
        ]
        table.append([*cells, *([f"{price * made.gpu_hours(row):,.0f}"] if price is not None else [])])
    return table


def _parts(made: Plan, row: StrategyRow) -> list[list[str]]:
    parts = [[name, _size(size)] for name, size in row.share.parts.items() if size]
    wire = [[f"sent in an update: {name}", _size(size)] for name, size in row.share.wire.items()]
    times = [["time of what is sent, nothing overlapping", _time(row.wire_seconds)]] if wire else []
    bus = [["time of what goes over the bus", _time(row.bus_seconds)]] if row.bus_seconds else []
    return [["part", "GiB"], *parts, ["together", _size(row.share.peak)], *wire, *times, *bus]


def _table(rows: list[list[str]], width: int | None = None) -> list[str]:
    """Columns under each other, the first one to the left; in parts below each other where a terminal is too narrow."""
    from uni_train.console.progress import fold

    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for part in fold([2 + one for one in widths], width):
        lines += [
            "  " + "  ".join(row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in part)
            for row in rows
        ]
    return lines


def _size(size: float) -> str:
    return f"{size / GIB:.1f}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
