"""Reward functions, and their sum for a batch of pictures.

A reward function has trl's contract:

    def f(prompts: list[str], completions: list[np.ndarray], **columns: list) -> list[float | None]

`completions` are the pictures, uint8 [H, W, 3]; `columns` say more about each prompt, one value a picture: `id`, `item`
(of data_gen tasks), and the columns of a file of prompts. None means that a reward does not apply to this picture.
Whatever else comes back, or is raised, stops the run with the reward's name: a wrong number would be learned silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uni_train.errors import UserError

RewardFunction = Callable[..., Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name and its weight in the sum."""

    name: str
    function: RewardFunction
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of N pictures by R rewards.

    Attributes:
        names: of the rewards.
        each: float64 [N, R], NaN where a reward does not apply.
        total: float64 [N], the weighted sum of those that apply.
        filled: float64 [N, R], `each` with 0 in place of NaN.
    """

    names: tuple[str, ...]
    each: np.ndarray
    total: np.ndarray

    @property
    def filled(self) -> np.ndarray:
        return np.nan_to_num(self.each, nan=0.0)


def score(
    rewards: Sequence[Reward],
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
) -> Scores:
    """Ask every reward about all pictures.

    Raises:
        UserError: a reward raises, returns the wrong number of values, one that is not a finite number, or no reward
            applies to a picture; it names the reward and the picture.
    """
    ids = list(columns.get("id", range(len(prompts))))
    table = np.empty((len(completions), len(rewards)))
    for r, reward in enumerate(rewards):
        table[:, r] = _asked(reward, prompts, completions, columns, ids)
    blank = np.isnan(table).all(axis=1)
    if blank.any():
        names = ", ".join(reward.name for reward in rewards)
        raise UserError(
            f"no reward applies to the picture of {ids[int(blank.argmax())]}: {names} returned None",
            "Return a number from at least one of them.",
        )
    weights = np.array([reward.weight for reward in rewards])
    return Scores(tuple(reward.name for reward in rewards), table, np.nansum(table * weights, axis=1))


def _asked(
    reward: Reward,
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
    ids: Sequence[Any],
) -> np.ndarray:
    try:
        given = reward.function(
            prompts=list(prompts), completions=list(completions), **{k: list(v) for k, v in columns.items()}
        )
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the reward {reward.name} raised {type(error).__name__}: {error}",
            "It is called with prompts, completions (uint8 [H, W, 3] each) and columns, and returns a list of numbers.",
        ) from error
    try:
        values = list(given)
    except TypeError:
        raise UserError(
            f"the reward {reward.name} returned {type(given).__name__}, not a list", "Return one number a picture."
        ) from None
    if len(values) != len(completions):
        raise UserError(
            f"the reward {reward.name} returned {len(values)} values for {len(completions)} pictures",
            "Return one number a picture, None where it does not apply.",
        )
    column = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if value is None:
            continue
        try:
            column[i] = float(value)
        except (TypeError, ValueError):
            column[i] = np.nan
        if not math.isfinite(column[i]):
            raise UserError(
                f"the reward {reward.name} of the picture of {ids[i]} is {value!r}",
                "Return a finite number, or None where the reward does not apply.",
            )
    return column
