"""Through which functions of a package a checkpoint's path passes while it is evaluated: what a reader has to follow.

    python bench/walk.py [--package eval]

A stop is a function that is given the path, one below it, or an object that holds it in a field; `self` does not count.
A climb is a return to a file that the walk had left.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.models.nano.nano import shipped

FIELDS = ("checkpoint", "source", "weights", "path", "folder", "model")


def holds(value: Any, place: str, depth: int = 2) -> bool:
    if isinstance(value, str | Path):
        return str(value).startswith(place)
    if depth == 0 or not dataclasses.is_dataclass(value):
        return False
    return any(holds(getattr(value, name, None), place, depth - 1) for name in FIELDS)


def walk(checkpoint: Path, package: str) -> list[tuple[str, str]]:
    """(file, function) of the stops, in the order in which they are first met."""
    stops: dict[tuple[str, str], None] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        _, found, file = code.co_filename.rpartition(f"/uni_train/{package}/")
        if event == "call" and found and not code.co_name.startswith("<"):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(holds(frame.f_locals.get(name), str(checkpoint)) for name in names if name not in ("self", "cls")):
                stops[file, code.co_name] = None

    with tempfile.TemporaryDirectory() as out:
        sys.setprofile(trace)
        try:
            command = ["eval", str(checkpoint), "--sets", "math1", "--n", "1", "--out", out]
            CliRunner().invoke(uni_train, command, catch_exceptions=False)
        finally:
            sys.setprofile(None)
    return list(stops)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="eval")
    package = parser.parse_args().package
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        stops = walk(Path(shutil.copytree(shipped(), Path(folder) / "nano")), package)
    files: list[str] = []
    for file, function in stops:
        if not files or files[-1] != file:
            files.append(file)
        print(f"{file}: {function}")
    print(f"{len(stops)} stops, {len(files) - len(set(files))} climbs, {len(set(files))} files")


if __name__ == "__main__":
    main()
