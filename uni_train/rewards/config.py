"""The keys of a reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from uni_train.config.schema import JudgeConfig, Seconds


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """function: verifier, verifier_dense, self_check, judge; MODULE:FUNCTION or FILE.py:FUNCTION as in trl."""

    function: str
    weight: Annotated[float, Interval(ge=-1e6, le=1e6)] = 1.0
    judge: JudgeConfig | None = None  # function=judge
    apart: bool = False  # ask it in a thread, some images at a time, while others are drawn; as judge
    patience: Seconds = 600.0  # seconds that such a one may take longer than the drawing
