"""Rewards by asking a model about each picture: the trained model's own understanding, or a judge elsewhere.

What cannot be had is None and never 0: a reply that cannot be read, a request that failed. The contract then gives the
picture what its group has on average, so that a failure neither costs nor pays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_gen.seeds import derive_seed
from data_gen.task import Item
from uni_train.models.base import Request

Answer = Callable[[Sequence[Request]], Sequence[str | Exception]]
"""Replies to requests, in their order; an exception in the place of one that failed."""

_SCORE = re.compile(r"^[ \t]*(?:\*\*)?Score:(?:\*\*)?[ \t]*(\d+(?:\.\d+)?)(?:[ \t]*/[ \t]*10)?(?:\*\*)?\.?[ \t]*$")


@dataclass(frozen=True)
class Asked:
    """A reward function with trl's contract.

    Attributes:
        answer: who is asked.
        question: (what the picture was drawn from, its item or None) -> what is asked about it.
        read: a reply as a number, None where it says none.
        show_inputs: show the images that came with the prompt before the picture.
        within: what the questions are asked in: a model's frozen weights.
    """

    answer: Answer
    question: Callable[[str, Item | None], str]
    read: Callable[[str], float | None]
    show_inputs: bool = True
    within: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[np.ndarray],
        *,
        id: Sequence[str],
        images: Sequence[Sequence[np.ndarray]],
        item: Sequence[Item | None] | None = None,
        place: Sequence[int] | None = None,
        **_: object,
    ) -> list[float | None]:
        """One number a picture. `place`: its number in the epoch, which tells pictures of a prompt apart.

        Raises:
            UserError: nobody answers at all (models.batches.ModelDown), or the model cannot answer questions.
        """
        items = item if item is not None else [None] * len(prompts)
        requests = [
            Request(
                name,
                self.question(prompt, one),
                (*(shown if self.show_inputs else ()), picture),
                seed=derive_seed("asked", name, number),
            )
            for number, name, prompt, one, shown, picture in zip(
                place if place is not None else range(len(prompts)),
                id,
                prompts,
                items,
                images,
                completions,
                strict=True,
            )
        ]
        with self.within():
            replies = self.answer(requests)
        return [None if isinstance(reply, Exception) else self.read(reply) for reply in replies]


def read_score(reply: str) -> float | None:
    """The number of the last line, which must be `Score: N` (or `N/10`) with N from 0 to 10, as a share of 10."""
    found = _SCORE.match((reply.rstrip().splitlines() or [""])[-1])
    value = float(found[1]) / 10 if found else None
    return value if value is not None and value <= 1 else None
