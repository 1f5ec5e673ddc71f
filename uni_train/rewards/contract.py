"""Reward functions, and their sum for a batch of images.

A reward function has trl's contract:

    def f(prompts: list[str], completions: list[np.ndarray], **columns: list) -> list[float | Judged | None]

`completions` are the images, uint8 [H, W, 3]; `columns` say more about each prompt, one value an image: `id`, `item`
(of data_gen tasks), and the columns of a file of prompts, but nothing of trl's trainer itself (`registry.TRL_ONLY`).
`f` may be async (`registry.find_reward`). None means that a reward does not apply to this image, or could not be had:
if others of its group have it, their mean stands for it, which neither costs nor pays; a whole group without it has
none. `Judged` brings the verdict that a number comes from: rewards that are asked later find it in the column
`verdict`, the gallery shows it, and nothing is verified twice. Whatever else comes back, or is raised, stops the
run with the reward's name: a wrong number would be learned silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from uni_train.core.errors import UserError, described
from uni_train.data_gen.task import Verdict
from uni_train.rewards.background import Background

LARGEST = 1e12
"""Of a reward's value times its weight: squares of larger ones, in advantages, would leave the range of numbers."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, of `group_size` images.

    Attributes:
        id: names it in errors, and decides its seeds.
        images: uint8 [H, W, 3] each, shown before the text.
        columns: further inputs of rewards (as above).
    """

    id: str
    text: str
    images: tuple[np.ndarray, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


def columns_of(prompts: Sequence[Prompt], k: int, first: int) -> dict[str, list[Any]]:
    """The columns of rewards, one value an image; `place` is its number among the epoch's images of all ranks."""
    each = [prompt for prompt in prompts for _ in range(k)]
    names = dict.fromkeys(name for prompt in prompts for name in prompt.columns)
    return {
        "id": [prompt.id for prompt in each],
        "place": list(range(first, first + len(each))),
        "images": [list(prompt.images) for prompt in each],
        **{name: [prompt.columns.get(name) for prompt in each] for name in names},
    }


class Judged(NamedTuple):
    """What a reward is worth, and the verdict that says why."""

    value: float | None
    verdict: Verdict


RewardFunction = Callable[..., Sequence[float | Judged | None]]


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name and its weight in the sum.

    patience: of a reward in the background, seconds that it may take after the last image. A thread calls it for some
    images, while the next are sampled. None: it is called once with all images, after the sampling.
    """

    name: str
    function: RewardFunction
    weight: float = 1.0
    patience: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of N images by R rewards.

    Attributes:
        names: of the rewards.
        each: float64 [N, R], NaN where a reward does not apply.
        filled: float64 [N, R], `each` with the group's mean in place of NaN, 0 where the group has none.
        total: float64 [N], the weighted sum of `filled`.
        verdicts: N of the first reward that brought any, else ().
    """

    names: tuple[str, ...]
    each: np.ndarray
    filled: np.ndarray
    total: np.ndarray
    verdicts: tuple[Verdict | None, ...] = ()


def score(
    rewards: Sequence[Reward],
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
    group_size: int = 1,
) -> Scores:
    """Ask every reward about all images, those of a group in a row.

    Raises:
        UserError: as Scoring.scores.
    """
    with Scoring(rewards, group_size) as scoring:
        scoring.add(prompts, completions, columns)
        return scoring.scores()


def summed(
    rewards: Sequence[Reward], each: np.ndarray, verdicts: tuple[Verdict | None, ...], group_size: int
) -> Scores:
    """Scores of rewards `each` [N, R], the images of a group in a row."""
    filled = _filled(each.reshape(-1, group_size, len(rewards))).reshape(each.shape)
    weights = np.array([reward.weight for reward in rewards])
    return Scores(tuple(reward.name for reward in rewards), each, filled, filled @ weights, verdicts)


class Scoring:
    """The rewards of images that are still being sampled.

    >>> with Scoring(rewards, group_size=8) as scoring:
    ...     scoring.add(prompts[:64], drawn[:64], columns)  # and so on, in order; the images of a group in a row
    ...     scores = scoring.scores()
    """

    def __init__(self, rewards: Sequence[Reward], group_size: int = 1) -> None:
        self.rewards, self.group_size = rewards, group_size
        self._prompts: list[str] = []
        self._completions: list[np.ndarray] = []
        self._columns: dict[str, list[Any]] = {}
        self._background = {
            r: Background(reward.name, reward.patience)
            for r, reward in enumerate(rewards)
            if reward.patience is not None
        }

    def __enter__(self) -> Scoring:
        return self

    def __exit__(self, *_: object) -> None:
        for queue in self._background.values():
            queue.close()

    def add(
        self, prompts: Sequence[str], completions: Sequence[np.ndarray], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """More images; the same columns each time.

        Raises:
            UserError: a reward in the background has failed.
        """
        ids = list(columns.get("id", range(len(self._prompts), len(self._prompts) + len(prompts))))
        for r, queue in self._background.items():
            queue.ask(len(completions), partial(_values, self.rewards[r], prompts, completions, columns, ids))
        self._prompts += prompts
        self._completions += completions
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)

    def scores(self) -> Scores:
        """Of all images, when they are there.

        Raises:
            UserError: a reward raises, returns the wrong number of values or one that is not a finite number, or is
                late; it names the reward and the image.
        """
        rewards = self.rewards
        ids = self._columns.get("id", list(range(len(self._prompts))))
        table = np.empty((len(self._completions), len(rewards)))
        verdicts: tuple[Verdict | None, ...] = ()
        columns = dict(self._columns)
        for r, reward in enumerate(rewards):
            if r not in self._background:
                table[:, r], brought = _called(reward, self._prompts, self._completions, columns, ids)
                if any(brought) and not verdicts:
                    verdicts = tuple(brought)
                    columns.setdefault("verdict", brought)
        for r, queue in self._background.items():
            table[:, r] = queue.values()
        return summed(rewards, table, verdicts, self.group_size)


def expect_rewarded(rewards: Sequence[Reward], each: np.ndarray, ids: Sequence[Any]) -> None:
    """Raises UserError where half of the images or more have no reward, so that too little could be learned.

    Args:
        each: float64 [N, R] of the images of all ranks, NaN where a reward does not apply. ids: of their N prompts.
    """
    blank = np.isnan(each).all(axis=1)
    if 2 * blank.sum() >= len(blank):
        raise UserError(
            f"no reward applies to {blank.sum()} of {len(blank)} images, the first of {ids[int(blank.argmax())]}: "
            f"{', '.join(reward.name for reward in rewards)} returned None",
            "Return numbers; if a judge was asked, see why it fails.",
        )


def _filled(table: np.ndarray) -> np.ndarray:
    """[G, k, R] with the mean of its group in place of each NaN."""
    known = ~np.isnan(table)
    values = np.where(known, table, 0.0)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    # Equal rewards stay exactly equal: their group teaches nothing, and must not by rounding.
    low = np.where(known, table, np.inf).min(axis=1, keepdims=True)
    high = np.where(known, table, -np.inf).max(axis=1, keepdims=True)
    return np.where(known, table, np.where(low == high, low, mean))


def _values(*arguments: Any) -> np.ndarray:
    return _called(*arguments)[0]


def _called(
    reward: Reward,
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
    ids: Sequence[Any],
) -> tuple[np.ndarray, list[Verdict | None]]:
    """Values float64 [N], NaN where there is none, and the verdicts that came with them."""
    try:
        returned = reward.function(
            prompts=list(prompts), completions=list(completions), **{k: list(v) for k, v in columns.items()}
        )
        # What is in these is no list of rewards; what can be listed may be code of the reward's, too.
        listed = isinstance(returned, Mapping | str | bytes | set | frozenset) or not hasattr(returned, "__iter__")
        values = None if listed else list(returned)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit too: a run does not end without a word
        raise UserError(
            f"the reward {reward.name} raised {described(error)}",
            "It is called with prompts, completions (uint8 [H, W, 3] each) and columns, and returns a list of numbers.",
        ) from error
    if values is None:
        raise UserError(
            f"the reward {reward.name} returned {type(returned).__name__}, not a list", "Return one number an image."
        )
    if len(values) != len(completions):
        raise UserError(
            f"the reward {reward.name} returned {len(values)} values for {len(completions)} images",
            "Return one number an image, None where it does not apply.",
        )
    judged = [value if isinstance(value, Judged) else None for value in values]
    numbers = [value.value if isinstance(value, Judged) else value for value in values]
    column = np.array([_number(reward, number, ids[i]) for i, number in enumerate(numbers)], dtype=np.float64)
    return column, [None if value is None else value.verdict for value in judged]


def _number(reward: Reward, value: Any, id: Any) -> float:
    """As float; NaN for None. Raises UserError for what is no finite number of a sensible size."""
    if value is None:
        return math.nan
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except Exception:
        number = math.nan
    if math.isfinite(number) and abs(number * reward.weight) <= LARGEST:
        return number
    printable = isinstance(value, float | str) or (isinstance(value, int) and value.bit_length() < 4000)
    shown = value if printable else type(value).__name__
    raise UserError(
        f"the reward {reward.name} of the image of {id} is {shown!r:.80}",
        f"Return a number that times its weight is within +-{LARGEST:g}, or None where the reward does not apply.",
    )
