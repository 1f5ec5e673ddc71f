"""Types and values of options: numbers, names, forms of weights."""

from __future__ import annotations

import math
from typing import Any

import click

QUANTISED = ("nf4", "int8", "fp8")  # of uni_train.config.schema.Quantised, which `--help` need not import
INTERLEAVING = ("chain", "thinkmorph", "zebra_cot")  # of its SamplingConfig.interleaving


class Finite(click.FloatRange):
    """A number within a range; neither NaN, which every comparison lets pass, nor an infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return number


class Names(click.ParamType):
    """Names between commas."""

    name = "NAMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        return value if isinstance(value, tuple) else tuple(name.strip() for name in value.split(",") if name.strip())
