"""WISE's two editions: which files they have, what their judge is asked, and the verdict that its scores make.

`verified.txt` and `original.txt` are word for word the questions of github.com/PKU-YuanGroup/WISE at eb51174
(`vllm_eval.py`, `WISE_legacy/gpt_eval.py`). Their first paragraph is the system message there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.reading import mark

SETS = ("culture", "time", "space", "biology", "physics", "chemistry")
WEIGHTS = {"consistency": 0.7, "realism": 0.2, "aesthetic quality": 0.1}
"""Of the original edition's scores, each from 0 to 2, in WiScore (`WISE_legacy/Calculate.py`)."""


def read_binary(reply: str) -> Verdict:
    """The verdict of "Score: 1", or of a bare digit. Raises ValueError: no score, or two that differ."""
    score = mark(reply, "score", 0, 1)
    if score not in (0, 1):
        raise ValueError('it must be one line, "Score: 0" or "Score: 1"')
    return Verdict((Check("score", "pass") if score else Check("score", "fail", "the judge gives 0"),))


def read_three(reply: str) -> Verdict:
    """WiScore in [0, 1] of three lines such as "Consistency: 2"; it passes where consistency is 2.

    Raises ValueError: a score is missing, or there twice with different values.
    """
    marks = {name: mark(reply, name, 0, 2) for name in WEIGHTS}
    if not {*marks.values()} <= {0, 1, 2}:
        raise ValueError('it must be three lines, "Consistency: N", "Realism: N" and "Aesthetic Quality: N"')
    value = round(sum(weight * (marks[name] or 0) for name, weight in WEIGHTS.items()) / 2, 6)
    reason = ", ".join(f"{name} {marks[name]:g}" for name in WEIGHTS)
    return Verdict((Check("WiScore", "pass" if marks["consistency"] == 2 else "fail", reason, value),))


@dataclass(frozen=True, slots=True)
class Edition:
    """One edition. name: of its table in paper.csv. suffix: of files and folder. sizes: questions of each of SETS."""

    name: str
    suffix: str
    sizes: tuple[int, ...]
    read: Callable[[str], Verdict]

    @property
    def question(self) -> str:
        """What the judge is asked, with {prompt} and {explanation} to fill in."""
        return Path(__file__).with_name(f"{self.name.lower()}.txt").read_text(encoding="utf-8").strip()


VERIFIED = Edition("Verified", "_verified", (400, 120, 120, 120, 120, 120), read_binary)
ORIGINAL = Edition("Original", "", (400, 167, 133, 100, 100, 100), read_three)
