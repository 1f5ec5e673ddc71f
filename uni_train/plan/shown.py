"""A plan in words, as tables and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from uni_train.eval.results import Table
from uni_train.plan.hardware import GIB
from uni_train.plan.result import CARDS, OneCardChoice, Plan


def facts_of(plan: Plan) -> list[str]:
    """What is planned, and what was assumed, a line each."""
    per = f"{plan.nodes} x {plan.gpus_a_node}" if plan.nodes > 1 else str(plan.gpus)
    work = f"{plan.flops / 1e12:,.0f} TFLOP"
    lines = [
        f"{plan.recipe}, {plan.model}, on {per} {plan.gpu.name} of {plan.gpu.usable / GIB:.0f} GiB for tensors",
        f"  {plan.parameters:,} parameters, {plan.trained:,} trained",
        f"  a micro-batch on a GPU: {plan.units} {plan.unit}; {plan.micros} in an update",
        f"  an update on a GPU: {work}, {_time(plan.compute_seconds)} at {plan.utilisation:.0%} of its peak"
        if plan.gpu.timed
        else f"  an update on a GPU: {work}; of this card only the memory is known, so no times",
    ]
    if plan.draw_seconds:
        lines.append(f"  drawing for an update: {_time(plan.draw_seconds)}")
    if plan.images and plan.gpu.timed:
        hours = f"{plan.images * plan.image_seconds / 3600:,.1f} GPU hours beside those of training"
        lines.append(
            f"  samples and evaluations: {plan.images:,} images at most, {_time(plan.image_seconds)} each, {hours}"
        )
    return lines + [f"  assumed: {assumption}" for assumption in plan.assumptions]


def tables_of(plan: Plan, price: float | None, ways: Sequence[OneCardChoice]) -> list[Table]:
    """The strategies, the chosen one with what to change, and the ways onto one card.

    Args:
        price: of a GPU hour; adds the costs.
    """
    now, other = ("checkpointed", "kept") if plan.activation_checkpointing else ("kept", "checkpointed")
    setting = f"activation_checkpointing={str(not plan.activation_checkpointing).lower()}"
    kept = f"activations as it is: {_size(plan.activations[now])} GiB, with {setting}: "
    advice = "\n  ".join([f"{kept}{_size(plan.activations[other])} GiB", *plan.advice])
    tables = [_strategies(plan, price), *([] if plan.chosen is None else [_parts(plan, plan.chosen)])]
    tables[-1] = dataclasses.replace(tables[-1], note=advice)
    return [*tables, *([_one_card(ways)] if ways else [])]


def plain_of(plan: Plan, price: float | None, ways: Sequence[OneCardChoice]) -> dict[str, Any]:
    """All numbers, JSON-able: bytes and seconds."""
    values = dataclasses.asdict(plan)
    for row, planned in zip(values["rows"], plan.rows, strict=True):
        row["strategy"] = planned.choice.name
        row["gpu_hours"] = plan.gpu_hours(planned)
        row["cost"] = None if price is None else price * plan.gpu_hours(planned)
    if not plan.gpu.timed:
        for part in (values, *values["rows"]):
            part |= {key: None for key in part if key.endswith(("_seconds", "_hours")) or key == "cost"}
    cards = [dataclasses.asdict(way) | {"fits": [card for card in CARDS if way.fits(card)]} for way in ways]
    return values | {"gpus": plan.gpus, "one_card": cards}


_TIMES = 6
"""The column of the table of strategies from which on are times and costs."""


def _strategies(plan: Plan, price: float | None) -> Table:
    columns = ("strategy", "GiB a GPU", "fits", "most units", "GiB a host", "GiB sent", "update", "GPU hours")
    rows = []
    for number, row in enumerate(plan.rows):
        cells = [
            row.choice.name + ("*" if number == plan.chosen else ""),
            _size(row.share.peak),
            "yes" if row.fits else "no",
            str(row.largest),
            _size((row.share.host + plan.held_rows) * plan.gpus_a_node),
            _size(sum(row.share.wire.values())),
            _time(row.step_seconds),
            f"{plan.gpu_hours(row):,.1f}",
            *([] if price is None else [f"{price * plan.gpu_hours(row):,.0f}"]),
        ]
        rows.append(tuple(cells) if plan.gpu.timed else (*cells[:_TIMES], *["?"] * len(cells[_TIMES:])))
    return Table("Strategies", columns if price is None else (*columns, "cost"), tuple(rows))


def _parts(plan: Plan, chosen: int) -> Table:
    row = plan.rows[chosen]
    rows = [(name, _size(size)) for name, size in row.share.parts.items() if size]
    rows.append(("together", _size(row.share.peak)))
    rows += [(f"sent in an update: {name}", _size(size)) for name, size in row.share.wire.items()]
    if row.share.wire:
        rows.append(("time of what is sent, nothing overlapping", _time(row.wire_seconds)))
    if row.bus_seconds:
        rows.append(("time of what goes over the bus", _time(row.bus_seconds)))
    files = row.storage
    loading = _size(files.loading * plan.gpus_a_node)
    rows.append((f"host memory of a node's {plan.gpus_a_node} processes while they load", loading))
    rows.append(("host memory of a process while it saves", _size(files.saving)))
    rows.append(("disk of checkpoints", _size(files.checkpoints)))
    rows.append(("disk of the models that stages leave", _size(plan.models)))
    return Table(f"{row.choice.name}: each GPU at its peak ({row.share.phase})", ("part", "GiB"), tuple(rows))


def _one_card(ways: Sequence[OneCardChoice]) -> Table:
    """What fits onto cards of 16 to 80 GB, and the first way onto each."""
    names = [f"{card // GIB} GB" for card in CARDS]
    rows = [
        (way.keys, _size(way.peak), _size(way.host), *("yes" if way.fits(card) else "no" for card in CARDS))
        for way in ways
    ]
    first = [next((way.keys for way in ways if way.fits(card)), "nothing here fits") for card in CARDS]
    note = "\n  ".join(f"{name}: {keys}" for name, keys in zip(names, first, strict=True))
    title = "On one card, activation_checkpointing=true ema=null"
    return Table(title, ("keys", "GiB", "GiB a host", *names), tuple(rows), note)


def _size(size: float) -> str:
    return f"{size / GIB:.1f}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
