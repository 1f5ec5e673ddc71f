"""`uni_train eval leaderboard`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from uni_train.cli.evaluation.options import Folder

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.leaderboard import Cell, Leaderboard


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
    rows = [
        [str(column), *(_shown(board.cells.get((name, column))) for name in board.evaluations)]
        for column in board.columns
    ]
    progress.table("Leaderboard: * best of its row, ≈ not to be told from it", ["Score", *board.evaluations], rows)
    for note in board.notes:
        progress.note(f"note: {note}")
    progress.say(f"page: {write_leaderboard(out, board)}")
    progress.say(f"scores: {out / SCORES}")
    progress.say(f"tables: {out / 'tables'}")
    if submissions:
        _submit(board, out / "submissions", progress)


def _shown(cell: Cell | None) -> str:
    if cell is None or cell.estimate.value is None:
        return "–"
    mark = {"best": " *", "equal": " ≈"}.get(cell.mark, "")
    return f"{cell.estimate.value:.2f} ({cell.estimate.low:.2f}–{cell.estimate.high:.2f}){mark}"


def _submit(board: Leaderboard, folder: Path, progress: ConsoleProgress) -> None:
    from uni_train.eval.benchmark import BENCHMARKS
    from uni_train.eval.evaluation import counting
    from uni_train.eval.submission import file_name, write_submission
    from uni_train.files import below

    for name, one in board.evaluations.items():
        for benchmark in one.results:
            place = below(folder, f"{file_name(name)}/{benchmark}")
            files = BENCHMARKS.get(benchmark).submission(one.scored(benchmark, images=True))
            with counting(one.folder, benchmark):
                progress.say(f"submission: {place} ({write_submission(place, files):,} files)")
