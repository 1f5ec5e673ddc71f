"""`uni_train data`: make training and test files, look at them, and check those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.errors import UsageError

if TYPE_CHECKING:
    from data_gen.task import Item


def _draw_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What says which items are drawn: task, level, split, world and seed."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Decides every draw."),
        click.option(
            "--world", default="nano", show_default=True, help="nano (can be drawn) or everyday (plain words)."
        ),
        click.option(
            "--split", default="train", show_default=True, help="train, validation or test: never overlapping."
        ),
        click.option(
            "--level", type=click.IntRange(1, 3), default=1, show_default=True, help="1 to 3: how many steps."
        ),
        click.option("--task", default="mapping", show_default=True, help="maths or mapping."),
    ):
        command = option(command)
    return command


def _check_names(task: str, split: str, world: str) -> None:
    """These are typed, so a wrong one is an error of usage; data_gen would call it one of data."""
    from data_gen.objects import WORLDS
    from data_gen.task import SPLITS
    from uni_train.errors import did_you_mean

    for noun, name, known in (
        ("task", task, ("maths", "mapping")),
        ("split", split, SPLITS),
        ("world", world, tuple(WORLDS)),
    ):
        if name not in known:
            raise UsageError(f"unknown {noun} {name}", did_you_mean(name, known, f"{noun}s"))


@click.group()
def data() -> None:
    """Make reasoning tasks, look at them, audit files.

    \b
    Example:
      uni_train data make --task mapping --level 2 --n 100 --out my_data
    """


@data.command()
@_draw_options
@click.option(
    "--n", type=click.IntRange(min=1), default=100, show_default=True, help="Draws; a mapping draw is a pair."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@click.option("--force", is_flag=True, help="Replace a folder that was made by this command.")
def make(task: str, level: int, split: str, world: str, seed: int, n: int, out: Path, force: bool) -> None:
    """Write a folder of fresh questions with exact answers.

    The folder gets the questions in the published UniSandbox schema, items.jsonl with every fact and thought, and for
    the nano world the pictures that answer them.

    \b
    Examples:
      uni_train data make --task maths --level 2 --n 500 --out my_maths
      uni_train data make --task mapping --level 3 --world everyday --split test --out my_mapping
    """
    from data_gen.export import make as export

    _check_names(task, split, world)
    made = export(task, level, n, split, seed, world, out, force)
    pairs = f" ({made.pairs} pairs)" if made.pairs else ""
    pictures = f", {made.images} pictures" if made.images else ""
    click.echo(f"{made.path}: {made.items} questions{pairs}{pictures}, {made.bytes / 1e3:.0f} kB")
    click.echo(f"in the published schema: {made.questions}")


@data.command()
@_draw_options
@click.argument("made", type=click.Path(path_type=Path), metavar="[FOLDER]", required=False)
@click.option("--n", type=click.IntRange(min=1), default=8, show_default=True, help="How many questions to show.")
@click.option("--out", type=click.Path(path_type=Path), help="Also draw them on one sheet, a PNG file.")
def show(made: Path | None, task: str, level: int, split: str, world: str, seed: int, n: int, out: Path | None) -> None:
    """Show some questions with their thoughts and answers.

    FOLDER is one that `data make` has written; without it, fresh questions are drawn.

    \b
    Examples:
      uni_train data show --task maths --level 3
      uni_train data show my_maths --n 20 --out sheet.png
    """
    items = _items_to_show(made, task, level, split, world, seed, n)
    for item in items:
        click.echo(f"{item.id}\n  {item.prompt}\n  {item.thought}\n  -> {item.answer}")
    if out is not None:
        _write_sheet(items, out)
        click.echo(f"sheet: {out}")


def _items_to_show(made: Path | None, task: str, level: int, split: str, world: str, seed: int, n: int) -> list[Item]:
    if made is not None:
        from data_gen.jsonl import read_items

        return read_items(made / "items.jsonl" if made.is_dir() else made)[:n]
    from data_gen.task import get_task

    _check_names(task, split, world)
    draws = n if task == "maths" else (n + 1) // 2
    return get_task(task, world).generate(draws, level, split, seed)[:n]


def _write_sheet(items: list[Item], out: Path) -> None:
    from PIL import Image

    from data_gen.show import contact_sheet
    from uni_train.files import atomic_path

    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out} must end in .png")
    sheet = contact_sheet(items)
    with atomic_path(out) as temporary:
        Image.fromarray(sheet).save(temporary)


@data.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row: id, status, expected, reason.")
def audit(file: Path, as_json: bool) -> None:
    """Recompute the answers of FILE and list the rows that are not right.

    FILE is JSONL in the published UniSandbox schema (maths or symbol mapping). The command exits with 1 when a label
    is wrong, and with 0 otherwise.

    \b
    Examples:
      uni_train data audit math_3.jsonl
      uni_train data audit mapping3.jsonl --json > findings.jsonl
    """
    import json

    from data_gen.audit import audit_file, counts, has_wrong

    rows = audit_file(file)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.to_dict(), ensure_ascii=False))
    else:
        from rich.console import Console
        from rich.table import Table

        console = Console()
        doubtful = [row for row in rows if row.status != "ok"]
        if doubtful:
            table = Table()
            for column in ("id", "status", "label", "recomputed", "reason"):
                table.add_column(column, overflow="fold")
            for row in doubtful:
                table.add_row(row.id, row.status, row.answer, row.expected or "", row.reason)
            console.print(table, markup=False)
        found = ", ".join(f"{n} {status}" for status, n in counts(rows).items())
        console.print(f"{file}: {len(rows)} labels: {found}", markup=False, highlight=False, soft_wrap=True)
    if has_wrong(rows):
        raise SystemExit(1)
