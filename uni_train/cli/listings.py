"""Lists of things that can be named on the command line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from uni_train.config.places import Described


def print_described(entries: Sequence[Described], footer: str) -> None:
    """Name, what it is, what it costs; wrapped for a terminal, two lines an entry when piped elsewhere."""
    interactive = sys.stdout.isatty()
    indent = max(len(entry.name) for entry in entries) + 2
    width = max(40, shutil.get_terminal_size().columns - indent) if interactive else 10_000
    for entry in entries:
        lines = textwrap.wrap(entry.summary, width)
        if entry.costs:
            lines += textwrap.wrap(f"Costs: {entry.costs}", width)
        for i, line in enumerate(lines or [""]):
            print(f"{entry.name if i == 0 else '':<{indent}}{line}".rstrip())
    if interactive:
        print(f"\n{footer}")
