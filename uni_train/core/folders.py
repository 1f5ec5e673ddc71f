"""The files below a folder, as every reader of somebody's folder lists them: linked folders are entered, too."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path


def walk(
    folder: Path, without: Collection[str] = (), unread: list[Path] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """(place, names of its folders, names of its files) of a folder and of all below it, without hidden ones.

    A linked folder is entered under each of its names, but never within itself.

    Args:
        without: names of folders that are named and not entered.
        unread: gets what is no file: links to nothing, pipes, folders that cannot be listed.
    """
    bad = [] if unread is None else unread
    around = {os.fspath(folder): {os.path.realpath(folder)}}  # place -> itself and the folders that it lies in
    for place, folders, files in os.walk(folder, onerror=lambda e: bad.append(Path(e.filename)), followlinks=True):
        above = around.pop(place)
        shown = sorted(name for name in folders if not name.startswith("."))
        real = {name: os.path.realpath(os.path.join(place, name)) for name in shown if name not in without}
        folders[:] = [name for name, path in real.items() if path not in above]
        around |= {os.path.join(place, name): above | {real[name]} for name in folders}
        names = sorted(name for name in files if not name.startswith("."))
        there = [name for name in names if os.path.isfile(os.path.join(place, name))]
        bad.extend(Path(place, name) for name in set(names).difference(there))
        yield Path(place), shown, there


def files_below(folder: Path, unread: list[Path] | None = None) -> list[Path]:
    """The paths of all files of `walk`, sorted."""
    return sorted(place / name for place, _, names in walk(folder, unread=unread) for name in names)
