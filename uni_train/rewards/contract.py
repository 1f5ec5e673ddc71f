"""Reward functions, and their sum for a batch of images.

A reward function has trl's contract:

    def f(prompts: list[str], completions: list[np.ndarray], **columns: list) -> list[float | Judged | None]

`completions` are the images, uint8 [H, W, 3]; `columns` say more about each prompt, one value an image: `id`, `item`
(of data_gen tasks), and the columns of a file of prompts. None means that a reward does not apply to this image, or
could not be had: if others of its group have it, their mean stands for it, which neither costs nor pays; a whole group
without it has none. `Judged` brings the verdict that a number comes from: rewards that are asked later find it in the
column `verdict`, the gallery shows it, and nothing is verified twice. Whatever else comes back, or is raised, stops the
run with the reward's name: a wrong number would be learned silently.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uni_train.data_gen.task import Verdict
from uni_train.errors import UserError
from uni_train.rewards.apart import Apart

LARGEST = 1e12
"""Of a reward's value times its weight: squares of larger ones, in advantages, would leave the range of numbers."""


class Judged(NamedTuple):
    """What a reward is worth, and the verdict that says why."""

    value: float | None
    verdict: Verdict


RewardFunction = Callable[..., Sequence[float | Judged | None]]

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name and its weight in the sum.

    apart: it asks somebody elsewhere, so it is asked in a thread, some images at a time, while the next are sampled; it
    may take so many seconds longer than the sampling. None: asked about all images when they are sampled.
    """

    name: str
    function: RewardFunction
    weight: float = 1.0
    apart: float | None = None


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

    @property
    def unrewarded(self) -> np.ndarray:
        """bool [N]: images that no reward has a value for; within a group their advantage is 0."""
        return np.isnan(self.each).all(axis=1)


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
        """More images; the same columns each time.

        Raises:
            UserError: a reward that is asked apart has failed.
        """
        ids = list(columns.get("id", range(len(self._prompts), len(self._prompts) + len(prompts))))
        for r, asking in self._apart.items():
            asking.ask(len(completions), partial(_values, self.rewards[r], prompts, completions, columns, ids))
        self._prompts += prompts
        self._completions += completions
        for name, values in columns.items():
            self._columns.setdefault(name, []).extend(values)

    def scores(self, most_missing: float = 0.5) -> Scores:
        """Of all images, when they are there.

        Args:
            most_missing: a share of images without any reward from which on nothing can be learned.

        Raises:
            UserError: a reward raises or ends the process, returns the wrong number of values or one that is not a
                finite number, is late, or no reward has a value for `most_missing` of the images or more; it names the
                reward and the image.
        """
        rewards = self.rewards
        ids = self._columns.get("id", list(range(len(self._prompts))))
        table = np.empty((len(self._completions), len(rewards)))
        verdicts: tuple[Verdict | None, ...] = ()
        columns = dict(self._columns)
        for r, reward in enumerate(rewards):
            if r not in self._apart:
                table[:, r], brought = _asked(reward, self._prompts, self._completions, columns, ids)
                if any(brought) and not verdicts:
                    verdicts = tuple(brought)
                    columns.setdefault("verdict", brought)
        for r, asking in self._apart.items():
            table[:, r] = asking.values()
        scores = summed(rewards, table, verdicts, self.group_size)
        blank = scores.unrewarded
        if blank.sum() >= most_missing * len(blank):
            at = ids[int(blank.argmax())]
            raise UserError(
                f"no reward applies to {blank.sum()} of {len(blank)} images, the first of {at}: "
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


def _values(*asked: Any) -> np.ndarray:
    return _asked(*asked)[0]


def _asked(
    reward: Reward,
    prompts: Sequence[str],
    completions: Sequence[np.ndarray],
    columns: Mapping[str, Sequence[Any]],
    ids: Sequence[Any],
) -> tuple[np.ndarray, list[Verdict | None]]:
    """Values float64 [N], NaN where there is none, and the verdicts that came with them."""
    try:
        with _never_ends_the_process(reward):
            given = reward.function(
                prompts=list(prompts), completions=list(completions), **{k: list(v) for k, v in columns.items()}
            )
            # What is in these is no list of rewards; what can be listed may be code of the reward's, too.
            listed = isinstance(given, Mapping | str | bytes | set | frozenset) or not hasattr(given, "__iter__")
            values = None if listed else list(given)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit too: a run does not end without a word
        raise UserError(
            f"the reward {reward.name} raised {type(error).__name__}: {error}{place_of(error)}",
            "It is called with prompts, completions (uint8 [H, W, 3] each) and columns, and returns a list of numbers.",
        ) from error
    if values is None:
        raise UserError(
            f"the reward {reward.name} returned {type(given).__name__}, not a list", "Return one number an image."
        )
    if len(values) != len(completions):
        raise UserError(
            f"the reward {reward.name} returned {len(values)} values for {len(completions)} images",
            "Return one number an image, None where it does not apply.",
        )
    judged = [one if isinstance(one, Judged) else None for one in values]
    numbers = [one.value if isinstance(one, Judged) else one for one in values]
    column = np.array([_number(reward, number, ids[i]) for i, number in enumerate(numbers)], dtype=np.float64)
    return column, [None if one is None else one.verdict for one in judged]


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


_in_reward = threading.local()
_leave = os._exit


def _exit(status: int) -> None:
    """os._exit, which a reward cannot call; other threads can, while it runs."""
    if getattr(_in_reward, "now", False):
        raise SystemExit(f"os._exit({status})")
    _leave(status)


@contextmanager
def _never_ends_the_process(reward: Reward) -> Iterator[None]:
    """os._exit in the reward raises SystemExit. A crash, which nobody can catch, is at least said: by a shell that
    waits until the reward is done. Not around rewards of ours."""
    if getattr(reward.function, "__module__", "").startswith("uni_train.") or os.name != "posix":
        yield
        return
    said = f"error: the process ended while it asked the reward {reward.name}: it has crashed, or it was killed"
    sys.stderr.flush()
    waits = subprocess.Popen(["/bin/sh", "-c", 'read _ || echo "$0" >&2', said], stdin=subprocess.PIPE)
    os._exit = _exit  # type: ignore[assignment]
    _in_reward.now = True
    try:
        yield
    finally:
        _in_reward.now = False
        with suppress(OSError):
            waits.communicate(b"\n")
