"""The keys of `uni_train insight`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from uni_train.config.schema import (
    CountOrZero,
    Few,
    JudgeConfig,
    Prompts,
    Quantised,
    RemoteConfig,
    Rows,
    Seed,
    TaskLevel,
    expect_folders,
)
from uni_train.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class InsightConfig:
    """What an analysis asks a model: the keys of `uni_train insight` and `analyse`."""

    task: str  # mapping, maths, ureason, ... or a plug-in's
    level: tuple[TaskLevel, ...] = ()  # levels of the task; [] = all
    data: dict[str, str] = field(default_factory=dict)  # benchmark -> folder of its published files, with the task
    n: Prompts | None = None  # items of each level, or of data in all; null = 50, of attention 16
    world: Literal["nano", "everyday"] | None = None  # of the items; null = nano's for nano, else everyday
    split: str = "test"  # of the items
    seed: Seed = 0  # of the items and the draws
    out: str | None = None  # folder of all analyses of a model; null = insight/MODEL-TASK
    k: Few = 1  # links: draws of each item
    settings: tuple[str, ...] = ()  # links: such as [said,told]; [] = all
    layers: tuple[str, ...] = ()  # attention: groups of layers, from 1, such as [1-7,8-28]; [] = four
    tokens: str | None = None  # attention: thought tokens of the influence maps, such as 3-9; null = the strongest
    maps: CountOrZero = 4  # attention: items with influence maps
    interventions: bool = True  # attention: also draw with changed thoughts
    probes: bool = True  # states: also linear probes, with shuffled labels as the control
    weights: Quantised | None = None  # of the decoder, in 4 or 8 bits; null = as stored, or as its run has them
    sampling: dict[str, Any] = field(default_factory=dict)  # replaces settings of the model: {steps: 10}
    batch: Rows | None = None  # requests at once; null = the model's
    remote: RemoteConfig = RemoteConfig()  # noqa: RUF009  # how a model behind an address is asked
    retry_failed: bool = False  # make calls again that brought no answer
    judge: JudgeConfig | None = None  # scores images of tasks without a program

    def __post_init__(self) -> None:
        """Raises UsageError for a folder or a range that cannot be."""
        expect_folders(out=self.out)
        for layer in (*self.layers, *([] if self.tokens is None else [self.tokens])):
            first_and_last(layer)


def first_and_last(text: str) -> tuple[int, int]:
    """The ends of a range such as "1-7", or "7", from 1. Raises UsageError: it is none."""
    ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
    if not 1 <= first <= last:
        raise UsageError(f"{text!r:.60} is not A-B or A, whole numbers from 1 on, the smaller one first")
    return first, last
