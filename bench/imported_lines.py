"""Lines of our own source that a command loads, by room: what a reader of that command may have to read.

    python bench/imported_lines.py fit stars_curriculum rounds.0.updates=3     # any command behind it, which is run

A file counts once its module is loaded, whoever loads it. The last line is the total; the exit code is the command's.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def imported_lines() -> Counter[str]:
    """Room -> lines of the modules of ours that this process has loaded."""
    files = {Path(file).resolve() for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    rooms: Counter[str] = Counter()
    for file in files:
        place = file.relative_to(ROOT).parts if file.is_relative_to(ROOT) else ("",)
        if place[0] in ("uni_train", "eval", "data_gen"):
            rooms["/".join(place[:2])] += len(file.read_text(encoding="utf-8").splitlines())
    return rooms


def main() -> int:
    """Run the command in this process, and print its lines."""
    sys.path.insert(0, str(ROOT))
    sys.argv = ["uni_train", *sys.argv[1:]]
    code: str | int | None = 0
    try:
        from uni_train.cli.main import main as command

        command()
    except SystemExit as end:
        code = end.code
    rooms = imported_lines()
    for room, lines in sorted(rooms.items(), key=lambda item: -item[1]):
        print(f"{lines:>7,}  {room}", file=sys.stderr)
    print(f"{rooms.total():>7,}  lines", file=sys.stderr)
    return int(code or 0) if not isinstance(code, str) else 1


if __name__ == "__main__":
    raise SystemExit(main())
