"""Reward functions, and their sum for a batch of pictures.

A reward function has trl's contract:

    def f(prompts: list[str], completions: list[np.ndarray], **columns: list) -> list[float | None]

`completions` are the pictures, uint8 [H, W, 3]; `columns` say more about each prompt, one value a picture: `id`, `item`
(of data_gen tasks), and the columns of a file of prompts. None means that a reward does not apply to this picture, or
could not be had: if others of its group have it, their mean stands for it, which neither costs nor pays; a whole group
without it has none. Whatever else comes back, or is raised, stops the run with the reward's name: a wrong number would
be learned silently.
"""

from __future__ import annotations

import math
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.errors import UserError
from uni_train.rewards.apart import Apart

RewardFunction = Callable[..., Sequence[float | None]]

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name and its weight in the sum.

    apart: it asks somebody elsewhere, so it is asked in a thread, some pictures at a time, while the next are drawn; it
    may take so many seconds longer than the drawing. None: asked about all pictures when they are drawn.
    """

    name: str
    function: RewardFunction
    weight: float = 1.0
    apart: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of N pictures by R rewards.

    Attributes:
        names: of the rewards.
        each: float64 [N, R], NaN where a reward does not apply.
        filled: float64 [N, R], `each` with the group's mean in place of NaN, 0 where the group has none.
        total: float64 [N], the weighted sum of `filled`.
    """

    names: tuple[str, ...]
    each: np.ndarray
    filled: np.ndarray
    total: np.ndarray

    @property
    def unrewarded(self) -> np.ndarray:
        """bool [N]: pictures that no reward has a value for; within a group their advantage is 0."""
        return np.isnan(self.each).all(axis=1)


def score(
    rewards: Sequence[Reward],
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
    group_size: int = 1,
) -> Scores:
    """Ask every reward about all pictures, those of a group in a row.

    Raises:
        UserError: as Scoring.scores.
    """
    with Scoring(rewards, group_size) as scoring:
        scoring.add(prompts, completions, columns)
        return scoring.scores()


class Scoring:
    """The rewards of pictures that are still being drawn.

    >>> with Scoring(rewards, group_size=8) as scoring:
    ...     scoring.add(prompts[:64], drawn[:64], columns)  # and so on, in order; the pictures of a group in a row
    ...     scores = scoring.scores()
    """

    def __init__(self, rewards: Sequence[Reward], group_size: int = 1) -> None:
        self.rewards, self.group_size = rewards, group_size
        self._prompts: list[str] = []
        self._completions: list[np.ndarray] = []
        self._columns: dict[str, list[Any]] = {}
        self._apart = {
            r: Apart(reward.name, reward.apart) for r, reward in enumerate(rewards) if reward.apart is not None
        }

    def __enter__(self) -> Scoring:
        return self

    def __exit__(self, *_: object) -> None:
        for asking in self._apart.values():
            asking.close()

    def add(
        self, prompts: Sequence[str], completions: Sequence[np.ndarray], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """More pictures; the same columns each time.

        Raises:
            UserError: a reward that is asked apart has failed.
        """
        ids = list(columns.get("id", range(len(self._prompts), len(self._prompts) + len(prompts))))
        for r, asking in self._apart.items():
            asking.ask(len(completions), partial(_asked, self.rewards[r], prompts, completions, columns, ids))
        self._prompts += prompts
        self._completions += completions
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)

    def scores(self) -> Scores:
        """Of all pictures, when they are there.

        Raises:
            UserError: a reward raises, returns the wrong number of values or one that is not a finite number, is late,
                or no reward has a value for half of the pictures or more; it names the reward and the picture.
        """
        rewards = self.rewards
        ids = self._columns.get("id", list(range(len(self._prompts))))
        table = np.empty((len(self._completions), len(rewards)))
        for r, reward in enumerate(rewards):
            if r not in self._apart:
                table[:, r] = _asked(reward, self._prompts, self._completions, self._columns, ids)
        for r, asking in self._apart.items():
            table[:, r] = asking.values()
        filled = _filled(table.reshape(-1, self.group_size, len(rewards))).reshape(table.shape)
        weights = np.array([reward.weight for reward in rewards])
        scores = Scores(tuple(reward.name for reward in rewards), table, filled, filled @ weights)
        blank = scores.unrewarded
        if 2 * blank.sum() >= len(blank):
            at = ids[int(blank.argmax())]
            raise UserError(
                f"no reward applies to {blank.sum()} of {len(blank)} pictures, the first of {at}: "
                f"{', '.join(scores.names)} returned None",
                "Return numbers; if a judge was asked, see why it fails.",
            )
        return scores


def place_of(error: BaseException) -> str:
    """Where in a person's own code an error was raised, " (FILE, line N: CODE)"; "" if it was nowhere there.

    Of a reward that is installed as a package, the line of the function itself that led to it.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f" ({error.filename}, line {error.lineno}: {(error.text or '').strip()})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<")]
    called = [one for one in frames[1:2] if not one.filename.startswith((_LIBRARIES[0], _OURS))]
    own = [one for one in frames if not one.filename.startswith((*_LIBRARIES, _OURS))] or called
    return f" ({own[-1].filename}, line {own[-1].lineno}: {own[-1].line})" if own else ""


def _filled(table: np.ndarray) -> np.ndarray:
    """[G, k, R] with the mean of its group in place of each NaN."""
    known = ~np.isnan(table)
    values = np.where(known, table, 0.0)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    # Equal rewards stay exactly equal: their group teaches nothing, and must not by rounding.
    low = np.where(known, table, np.inf).min(axis=1, keepdims=True)
    high = np.where(known, table, -np.inf).max(axis=1, keepdims=True)
    return np.where(known, table, np.where(low == high, low, mean))


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
    except (Exception, SystemExit) as error:  # sys.exit too: a run does not end without a word
        raise UserError(
            f"the reward {reward.name} raised {type(error).__name__}: {error}{place_of(error)}",
            "It is called with prompts, completions (uint8 [H, W, 3] each) and columns, and returns a list of numbers.",
        ) from error
    try:
        if isinstance(given, Mapping | str | bytes | set | frozenset):  # what is in them is no list of rewards
            raise TypeError
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
        except (TypeError, ValueError, OverflowError):
            column[i] = np.nan
        if not math.isfinite(column[i]):
            raise UserError(
                f"the reward {reward.name} of the picture of {ids[i]} is {value!r}",
                "Return a finite number, or None where the reward does not apply.",
            )
    return column
