"""Options of benchmarks that name several of what they know."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A type of argparse: names with commas between, each of them known."""
    names = [*known]

    def chosen(text: str) -> list[str]:
        given = text.split(",")
        for name in given:
            if name not in names:
                raise argparse.ArgumentTypeError(f"there is no {name!r}: choose of {', '.join(names)}")
        return given

    return chosen
