"""What the rounds of STARS sample, and how long they train: a number of updates, or epochs over samples that are only
counted once kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from data_gen.registry import set_name
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig


def fill_rounds(plain: dict[str, Any]) -> None:
    """What a round does not name is what `budget` has for its task and level; updates and epochs replace each other."""
    budget = plain.get("budget")
    rounds = plain.get("rounds")
    if not isinstance(budget, dict) or not isinstance(rounds, list):
        return
    for i, one in enumerate(rounds):
        if not isinstance(one, dict):
            continue
        try:
            own = budget.get(set_name(str(one.get("task")), one.get("level", 0)), {})
        except (ValueError, TypeError):
            own = {"prompts": 1, "updates": 1}  # an unknown task or level is an error that build() reports
        if isinstance(own, dict):
            length = () if {"updates", "epochs"} & one.keys() else ("updates", "epochs")
            rounds[i] = {**{key: own[key] for key in ("prompts", "kept", *length) if key in own}, **one}


def updates(config: RoundsConfig, one: RoundConfig, kept: int) -> int:
    """Updates of a round that trains on `kept` samples of its own.

    An epoch is as many draws of the round's own samples as there are; replayed rows come on top of it.
    """
    if one.updates is not None:
        return one.updates
    assert one.epochs is not None, "config.py has checked that a round has one of the two"
    return max(1, math.ceil(round(one.epochs * kept / (config.batch.prompts * own_share(config, one)), 6)))


def most_updates(config: RoundsConfig, rounds: Sequence[int]) -> list[int]:
    """The same for each of some rounds, if the filter keeps as much as it may."""
    return [updates(config, config.rounds[i], most_kept(config, config.rounds[i])) for i in rounds]


def most_kept(config: RoundsConfig, one: RoundConfig) -> int:
    """The samples that a round trains on at most."""
    return one.kept if one.kept is not None else one.prompts * config.candidates


def own_share(config: RoundsConfig, one: RoundConfig) -> float:
    """The part of the rows of a round's updates that are its own samples. In `schedule.kind=mixed`: of all rounds'."""
    if config.schedule.kind == "mixed":
        return 1 - max(each.replay.get("pretrain", 0.0) for each in config.rounds)
    return 1 - sum(one.replay.values())
