"""`uni_train eval compare`."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.eval.report.tables import print_table


@click.command("compare")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option(
    "--flips", type=click.IntRange(0), default=10, show_default=True, help="Number of flipped samples to print."
)
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with both answers side by side."
)
@click.option(
    "--json", "as_json", type=click.Path(path_type=Path), metavar="FILE", help="Write the comparison as JSON."
)
def compare(first: Path, second: Path, flips: int, html: Path | None, as_json: Path | None) -> None:
    """Compare two evaluations of the same questions: paired scores, and what flipped.

    FIRST and SECOND are folders below evals/. They must have asked the same benchmark revision, subset, seed and
    number of draws; whatever else differs is said.

    \b
    Example:
      uni_train eval compare evals/before evals/after --html flips.html
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.compare import compare as compared

    progress = ConsoleProgress()
    comparison = compared(first, second)
    for table in comparison.tables():
        print_table(table, progress)
    for flip in comparison.flips[:flips]:
        progress.say(f"  {flip.direction}: {flip.set}, {flip.setting}: {' and '.join(flip.ids)}")
    if len(comparison.flips) > flips:
        progress.say(f"  and {len(comparison.flips) - flips} more flips")
    for note in comparison.notes:
        progress.note(f"note: {note}")
    if as_json is not None:
        from uni_train.core.files import atomic_write_json

        as_json.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(as_json, comparison.to_dict())
        progress.say(f"written: {as_json}")
    if html is not None:
        from uni_train.eval.report.evaluation import write_comparison

        html.parent.mkdir(parents=True, exist_ok=True)
        progress.say(f"written: {write_comparison(html, comparison)}")
