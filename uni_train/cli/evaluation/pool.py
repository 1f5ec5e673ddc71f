"""`uni_train eval pool`."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.eval.report.tables import print_table


@click.command("pool")
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FOLDER...")
@click.option("--json", "as_json", type=click.Path(path_type=Path), metavar="FILE", help="Write the numbers as JSON.")
def pool(folders: tuple[Path, ...], as_json: Path | None) -> None:
    """Count UniSandbox's knowledge questions over several models, as its Table 4 does.

    Knowledge is taught to one model a character, or a pair. Evaluate each about those that it was taught
    (options.unisandbox.characters=NAME,NAME), then pool the evaluations' folders.

    \b
    Example:
      uni_train eval pool evals/lysendria evals/kaelorix
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.benchmarks.unisandbox.pooling import pool as pooled

    progress = ConsoleProgress()
    pooling = pooled(folders)
    for table in pooling.tables:
        print_table(table, progress)
    progress.say(f"{len(pooling.folders)} evaluations of {pooling.models} models")
    for note in pooling.notes:
        progress.say(f"note: {note}")
    if as_json is not None:
        from uni_train.core.files import atomic_write_json

        as_json.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(as_json, {"folders": [str(folder) for folder in pooling.folders], **pooling.scores})
        progress.say(f"written: {as_json}")
