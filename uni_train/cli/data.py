"""`uni_train data`: make training and test files, look at them, and check those of others."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def data() -> None:
    """Make reasoning tasks, look at them, audit files.

    \b
    Example:
      uni_train data make --task mapping --level 2 --n 100 --out my_data
    """


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
