"""Progress on the console: a heading for each stage, a bar with rate and time left, a short table after it.

On a terminal the bars are live. Elsewhere (a log file, CI) a bar becomes one line at most every `EVERY` seconds and one
at its end. So logs stay readable.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from uni_train.console.terminal import plain, shown
from uni_train.distributed.watchdog import note

EVERY = 15.0
PIPED = 100  # columns of what is no terminal
LONG = 32  # letters of a cell; longer ones are sentences, which may be wrapped


def _console() -> Console:
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPED)


class Bar:
    """One piece of work of known length; `advance` it, with figures to show (loss=0.12)."""

    def __init__(self, console: Console, title: str, total: int, done: int) -> None:
        self._console, self._title, self._total = console, title, total
        self._at_start = self._done = done
        self._started = self._shown = time.monotonic()
        self._figures = ""
        self._live: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._live = Progress(
                TextColumn("  {task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[figures]}"),
                console=console,
                transient=True,
            )
            self._task = self._live.add_task(title, total=total, completed=done, rate="", figures="")
            self._live.start()

    def advance(self, by: int = 1, **figures: float) -> None:
        """`by` more units are done. A rank that others wait for shows by this that it is only slow."""
        note()
        self._done += by
        if figures:
            self._figures = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=self._done, rate=self._rate(), figures=self._figures)
        elif time.monotonic() - self._shown >= EVERY:
            self._shown = time.monotonic()
            self._line()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._line()

    def _rate(self) -> str:
        elapsed, fresh = time.monotonic() - self._started, self._done - self._at_start
        return f"{fresh / elapsed:.1f}/s" if fresh and elapsed > 0 else ""

    def _line(self) -> None:
        elapsed, fresh = time.monotonic() - self._started, self._done - self._at_start
        left = ""
        if fresh > 0 and self._done < self._total:
            left = f"{elapsed / fresh * (self._total - self._done):.0f} s left"
        parts = (f"  {self._title}: {self._done}/{self._total}", f"{elapsed:.0f} s", self._rate(), left, self._figures)
        self._console.print("  ".join(part for part in parts if part), highlight=False)


class ConsoleProgress:
    """What stages are given to report with."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console if console is not None else _console()

    def print(self, what: Any, **how: Any) -> None:
        """Anything that rich prints."""
        self.console.print(what, **how)

    def say(self, text: str) -> None:
        """One line."""
        self.print(plain(text), highlight=False, markup=False, soft_wrap=True)

    def stage(self, number: int, total: int, title: str, *, finished: bool = False) -> None:
        """The heading of stage `number` (from 1) of `total`; `finished` if an earlier start has done it."""
        self.print(
            f"[bold]\\[{number}/{total}][/bold] {escape(plain(title))}{' (already done)' if finished else ''}",
            soft_wrap=True,
        )

    @contextlib.contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """`with progress.bar("drawing", 2048, done=512) as bar: bar.advance(256)`."""
        bar = Bar(self.console, title, total, done)
        try:
            yield bar
        finally:
            bar.close()

    def note(self, text: str) -> None:
        """A paragraph: on a terminal, lines end between words."""
        self.print(plain(text), highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
        """A short table: the first column left-aligned, numbers right-aligned. Where it is wider than the console, it
        becomes several below each other, each with the first column. `note` stands below it."""
        self.print(Text(plain(title), style="bold"), soft_wrap=True)
        texts = [[f"{cell:.3g}" if isinstance(cell, float) else shown(str(cell)) for cell in row] for row in rows]
        for table in _tables([plain(column) for column in columns], texts, self.console.width):
            self.console.print(table, highlight=False)
        if note:
            self.note(f"  {note}")


def fold(widths: Sequence[int], width: int, keys: int = 1) -> list[list[int]]:
    """Columns of these widths in parts of at most `width`, where that can be; each begins with the first `keys`."""
    first = list(range(keys))
    parts = [first]
    for i in range(keys, len(widths)):
        if len(parts[-1]) > keys and sum(widths[j] for j in (*parts[-1], i)) > width:
            parts.append(first)
        parts[-1] = [*parts[-1], i]
    return parts


def _tables(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Padding]:
    """The columns in parts that fit into `width`, each with the columns that tell the rows apart. No cell is broken but
    one of more than LONG letters, no header inside a word."""
    cells = [column.split() + [line for row in rows for line in row[i].split("\n")] for i, column in enumerate(columns)]
    widths = [max(map(cell_len, lines), default=0) for lines in cells]
    distinct = [len({tuple(row[:k]) for row in rows}) == len(rows) for k in range(1, len(columns))]
    keys = distinct.index(True) + 1 if any(distinct[:3]) else 1
    for part in fold([2 + min(needed, LONG) for needed in widths], width, keys):
        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            show_edge=False,
        )
        for i in part:
            narrow = len(part) > keys + 1
            table.add_column(
                Text("\n".join(textwrap.wrap(columns[i], max(widths[i], 1), break_on_hyphens=False))),
                justify="left" if i < keys else "right",
                overflow="fold",
                no_wrap=narrow and widths[i] <= LONG,
                min_width=min(widths[i], LONG) if narrow else None,
            )
        for row in rows:
            table.add_row(*(Text(row[i]) for i in part))
        yield Padding(table, (0, 0, 1, 0))
