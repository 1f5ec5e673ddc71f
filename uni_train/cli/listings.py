"""Tables of things that can be named on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from uni_train.config.places import Described


def print_described(noun: str, entries: Sequence[Described], footer: str) -> None:
    """Name, what it is, what it costs; plain `name  text` lines when piped into another program."""
    import shutil
    import sys
    import textwrap

    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 10_000
    indent = max(len(entry.name) for entry in entries) + 2
    for entry in entries:
        lines = textwrap.wrap(entry.summary, max(40, width - indent)) or [""]
        if entry.costs:
            lines += textwrap.wrap(entry.costs, max(40, width - indent))
        print(f"{entry.name:<{indent}}{lines[0]}")
        for line in lines[1:]:
            print(" " * indent + line)
    if sys.stdout.isatty():
        print(f"\n{footer}")
