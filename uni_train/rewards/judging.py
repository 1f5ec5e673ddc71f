"""Rewards that ask a model about each image: the trained model's own understanding, or a judge elsewhere.

What cannot be had is None and never 0: a reply that cannot be read, a request that failed. The contract then gives the
image what its group has on average, so that a failure neither costs nor pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.core.seeds import derive_seed
from uni_train.data_gen.questions import image_question
from uni_train.data_gen.task import Item
from uni_train.eval.prompts import filled
from uni_train.eval.prompts.rewards import SCORE
from uni_train.eval.reading import mark, words, yes_no
from uni_train.eval.task_benchmark import verification_prompt
from uni_train.models.base import Request, TextGenerator, expect_skill
from uni_train.models.batches import each_answered
from uni_train.rewards.registry import Trained, reward

if TYPE_CHECKING:
    from uni_train.rewards.config import RewardConfig

Answer = Callable[[Sequence[Request]], Sequence[str | Exception]]
"""Replies to requests, in their order; an exception in the place of one that failed."""


@dataclass(frozen=True)
class ModelReward:
    """A reward function with trl's contract.

    Attributes:
        answer: who is asked.
        question: (what the image was drawn from, its item or None) -> what is asked about it. Images that came with the
            prompt are shown before the image.
        read: a reply as a number, None where it says none.
        within: what the questions are asked in: a model's frozen weights.
    """

    answer: Answer
    question: Callable[[str, Item | None], str]
    read: Callable[[str], float | None]
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
        """One number an image. `place`: its number in the epoch, which tells images of a prompt apart.

        Raises:
            UserError: nobody answers at all (models.batches.ModelDown), or the model cannot answer questions.
        """
        items = item if item is not None else [None] * len(prompts)
        places = place if place is not None else range(len(prompts))
        columns = zip(places, id, prompts, items, images, completions, strict=True)
        requests = [
            Request(name, self.question(prompt, row), (*inputs, image), seed=derive_seed("asked", name, number))
            for number, name, prompt, row, inputs, image in columns
        ]
        with self.within():
            replies = self.answer(requests)
        return [None if isinstance(reply, Exception) else self.read(reply) for reply in replies]


def read_score(reply: str) -> float | None:
    """The score as a share of 10: `Score: N` (or `N/10`) with N from 0 to 10, on the last line or nowhere else."""
    scores = [mark(text, "score", 0, 10) for text in (words(reply).rpartition("\n")[2], reply)]
    return next((score / 10 for score in scores if score is not None), None)


@reward("self_check")
class SelfCheck(ModelReward):
    """1 where the model's own understanding accepts the image, as in the filter of STARS, else 0. The weights that the
    run starts from judge, whatever is trained since."""

    def __init__(self, config: RewardConfig, trained: Trained) -> None:
        model, batch = expect_skill(trained.model, TextGenerator), trained.batch

        def answer(requests: Sequence[Request]) -> list[str | Exception]:
            parts = (requests[at : at + batch] for at in range(0, len(requests), batch))
            return [reply for part in parts for reply in each_answered(model.answer, part)]

        def question(prompt: str, item: Item | None) -> str:
            return verification_prompt(model.family, prompt, None if item is None else item.task)

        super().__init__(answer, question, _accepted, within=trained.keep())


@reward("judge")
class Judge(ModelReward):
    """The score that a model behind an OpenAI-compatible address gives, 0 to 1. Of judge.question=filter, 1 for YES.

    Raises:
        ModelDown: nobody answers there. UsageError: no such model.
    """

    def __init__(self, config: RewardConfig, trained: Trained | None = None) -> None:
        from uni_train.config.schema import RemoteConfig, ServerConfig
        from uni_train.models.remote import RemoteModel

        judge = config.judge
        assert judge is not None  # config.build has checked
        server = {field.name: getattr(judge, field.name) for field in fields(ServerConfig)}
        remote = RemoteModel.open(
            judge.address, RemoteConfig(**server, temperature=judge.effective_temperature, max_tokens=judge.max_tokens)
        )
        if judge.question == "filter":
            super().__init__(remote.answer, _filter_question, _accepted)
        else:
            template = judge.question or SCORE
            super().__init__(remote.answer, lambda prompt, item: filled(template, prompt=prompt), read_score)


def _filter_question(prompt: str, item: Item | None) -> str:
    return image_question(prompt, None if item is None else item.task)


def _accepted(reply: str) -> float | None:
    accepted = yes_no(reply)
    return None if accepted is None else float(accepted)
