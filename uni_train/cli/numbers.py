"""Types of options: numbers, and text that is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click


class Finite(click.FloatRange):
    """A number within a range; neither NaN, which every comparison lets pass, nor an infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number", param, ctx)
        return found


class Parsed(click.ParamType):
    """Text that `parse` reads. A ValueError of it is told as "... is not `what`"."""

    def __init__(self, name: str, parse: Callable[[str], Any], what: str = "") -> None:
        self.name, self._parse, self._what = name, parse, what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError:
            self.fail(f"{value[:60]!r} is not {self._what}", param, ctx)


NAMES = Parsed("NAMES", lambda text: tuple(name.strip() for name in text.split(",") if name.strip()))
