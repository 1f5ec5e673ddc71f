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
    background: bool = False  # a thread calls it for some images while others are drawn, as it does for judges
    patience: Seconds = 600.0  # seconds that a reward in the background may take after the last image
