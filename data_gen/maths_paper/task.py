"""Maths with the operators and results of the published questions (UniSandbox, Table 6): + - * /, results 1 to 4.

Table 6 asks for level 1. The released prompts of levels 2 and 3 add powers, roots and remainders, so they may occur
there. Those of level 3 allow 5 too; here all levels have four results, and so one chance. Division is exact. Splits,
bounds of numbers and phrasing are those of `maths`: its test has no expression that this train split has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.registry import scoring_beside, task

FIRST_LEVEL = ("+", "-", "*", "/")


@task("maths_paper")
@dataclass(frozen=True)
class MathsPaper(Maths):
    """Draw as many things as an expression says, with the paper's operators and results (1 to 4)."""

    name = "maths_paper"
    title = "Mathematical operations of the paper"
    sets, variants, chance = scoring_beside(__file__)
    short = "Paper math"
    known_shortcuts: ClassVar = {
        "difference of the first two (level 1)": "unless balanced, two thirds are subtractions, which it works out"
    }
    results = (1, 2, 3, 4)

    def operations_of(self, level: int) -> tuple[str, ...]:
        return tuple(op for op in self.operations if level > 1 or op in FIRST_LEVEL)
