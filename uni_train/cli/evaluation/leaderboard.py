"""`uni_train eval leaderboard`."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.cli.evaluation.options import Folder


@click.command("leaderboard")
@click.argument("folders", nargs=-1, required=True, metavar="[NAME=]FOLDER...")
@click.option("--out", type=Folder(path_type=Path), default="leaderboard", show_default=True, metavar="DIR")
@click.option("--submissions", is_flag=True, help="Also write the answers as files for the benchmarks' own code.")
def leaderboard(folders: tuple[str, ...], out: Path, submissions: bool) -> None:
    """Evaluations beside each other: one page, CSV, and the papers' tables in LaTeX.

    FOLDERS are below evals/; a NAME says what to call one. Each score has its interval, and is compared with the best
    of its column on the same questions.

    \b
    Example:
      uni_train eval leaderboard before=evals/nano-1 after=evals/nano-2 --out board
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.leaderboard import leaderboard as counted
    from uni_train.eval.report.leaderboard import SCORES, write_leaderboard

    progress = ConsoleProgress()
    board = counted(folders)
    table = board.table()
    progress.table(table.title, table.columns, table.rows)
    for note in board.notes:
        progress.note(f"note: {note}")
    progress.say(f"page: {write_leaderboard(out, board)}")
    progress.say(f"scores: {out / SCORES}")
    progress.say(f"tables: {out / 'tables'}")
    if submissions:
        for place, count in board.submit(out / "submissions"):
            progress.say(f"submission: {place} ({count:,} files)")
