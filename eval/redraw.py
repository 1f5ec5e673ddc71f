"""Look and redraw: a model draws, judges its own image, and draws again by another seed until it accepts one.

Its judgement is that of the filter `self` of STARS: the same question (`task_benchmark.verification_request`), and the
same reader (`reading.yes_no`). A reply that cannot be read rejects. Where no image is accepted, the last one counts. It
is not judged: that saves a judgement, and an image that was rejected is more often wrong than a fresh one.

Every image and every judgement is a call of the model with a seed of its own, so a store keeps each of them. An
evaluation continues in the middle of an image's attempts, and more attempts reuse those that were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.eval.benchmark import Ask, Benchmark, Sample, Scored
from uni_train.eval.reading import yes_no
from uni_train.eval.scored import read_folder
from uni_train.eval.task_benchmark import verification_prompt, verification_request
from uni_train.models.base import Request, SkillMissing
from uni_train.models.batches import ModelDown

if TYPE_CHECKING:
    from uni_train.models.base import OnStep

T = TypeVar("T")
IMAGES, JUDGEMENTS = "images_drawn", "own_judgements"
"""Facts of a sample that was drawn so: how often it was drawn, and how many of its images the model judged."""
_BLANK = 32  # pixels a side of the image by which a model shows that it can judge


def seed_of(seed: int, attempt: int) -> int:
    """The seed of an attempt, from 0; those after it have 31 bits, for servers take no longer ones."""
    return derive_seed(seed, "redraw", attempt) >> 32 if attempt else seed


def counted(samples: Iterable[Sample]) -> tuple[int, int, int]:
    """How many samples were drawn so, and the images and judgements that they took in all."""
    facts = [sample.facts for sample in samples if IMAGES in sample.facts]
    return len(facts), sum(fact[IMAGES] for fact in facts), sum(fact[JUDGEMENTS] for fact in facts)


def counted_below(folders: Iterable[Path]) -> tuple[int, int]:
    """The images and judgements of all samples in folders of shards."""
    scored = (answer for folder in folders for answer in read_folder(folder, images=False))
    return counted(answer.sample for answer in scored)[1:]


class Redrawing:
    """A model that redraws what it rejects. Attempts are made in batches, each of what is rejected so far.

    Args:
        model: draws and answers: a `Respondent`, or a model with both skills.
        most: images of a sample, at least 2.
        family: of the model, whose words the question is in; "": those of the sample's task.

    Attributes:
        images, judgements: how many of each were asked for so far.
    """

    def __init__(self, model: Any, most: int, family: str = "") -> None:
        self.model, self.most, self.family = model, most, family
        self.images = self.judgements = 0
        self._judges = False

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of the model."""
        return getattr(self.model, name)

    def respond(self, benchmark: Benchmark, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """As `Benchmark.respond`. A sample without an image is what it is; of several images the last one is judged.

        With a thought, each attempt thinks anew. An attempt without an image is the last: the image before it counts.

        Raises:
            UserError: the model cannot judge, which shows before it draws.
        """

        def draw(rows: Sequence[int], attempt: int) -> Sequence[Sample]:
            again = [replace(asks[row], seed=seed_of(asks[row].seed, attempt)) for row in rows]
            return benchmark.respond(self.model, again, on_step)

        def question(row: int, sample: Sample) -> Request | None:
            if sample.status != "ok" or not sample.drawn:
                return None
            request = verification_request(self.family, sample)
            return replace(request, seed=request.seed >> 32)

        if asks:
            case = asks[0].case
            self._expect_judge(verification_prompt(self.family, case.prompt, case.facts.get("task")))
        samples, images, judgements = self._attempts(len(asks), draw, question)
        facts = [{IMAGES: images[row], JUDGEMENTS: judgements[row]} if sample.drawn else {}
                 for row, sample in enumerate(samples)]  # fmt: skip
        return [
            replace(sample, ask=ask, facts={**sample.facts, **cost})
            for ask, sample, cost in zip(asks, samples, facts, strict=True)
        ]

    def verified(self, benchmark: Benchmark, asks: Sequence[Ask]) -> list[Scored]:
        """As `TaskBenchmark.verified`."""
        return [Scored(sample, benchmark.check(sample)) for sample in self.respond(benchmark, asks)]

    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """As `ImageGenerator.draw`; each image is judged beside its own prompt. Raises as `respond`."""
        return self._drawn(requests, lambda some: self.model.draw(some, on_step=on_step), lambda image: image)

    def think_and_draw(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> tuple[list[str], list[np.ndarray]]:
        """As `ImageGenerator.think_and_draw`; the thought is the one behind the image that counts. Raises as `draw`."""

        def both(some: Sequence[Request]) -> list[tuple[str, np.ndarray]]:
            return [*zip(*self.model.think_and_draw(some, temperature, on_step), strict=True)]

        pairs = self._drawn(requests, both, lambda pair: pair[1])
        return [thought for thought, _ in pairs], [image for _, image in pairs]

    def _drawn(
        self,
        requests: Sequence[Request],
        draw: Callable[[Sequence[Request]], Sequence[T]],
        image_of: Callable[[T], np.ndarray],
    ) -> list[T]:
        def again(rows: Sequence[int], attempt: int) -> Sequence[T]:
            return draw([replace(requests[row], seed=seed_of(requests[row].seed, attempt)) for row in rows])

        def question(row: int, result: T) -> Request:
            request = requests[row]
            prompt = verification_prompt(self.family, request.prompt)
            seed = derive_seed(request.seed, "self_check")
            return Request(request.id, prompt, (*request.images, image_of(result)), seed=seed)

        if requests:
            self._expect_judge(verification_prompt(self.family, requests[0].prompt))
        return self._attempts(len(requests), again, question)[0]

    def _expect_judge(self, prompt: str) -> None:
        """Ask once about an empty image. Raises UserError: the model writes no text, sees no images, or is away."""
        if self._judges:
            return
        blank = np.full((_BLANK, _BLANK, 3), 255, np.uint8)
        try:
            (reply,) = self.model.answer([Request("redraw", prompt, (blank,))])
        except ModelDown:
            raise
        except UserError as error:
            reply = error
        if isinstance(reply, Exception):
            why = getattr(reply, "message", str(reply))
            hint = "Set redraw=1, or choose a model that answers questions about images. `eval` asks again what failed "
            hint += "with retry_failed=true."
            if isinstance(reply, UserError) and not isinstance(reply, SkillMissing):
                hint = reply.hint or hint  # the question is at fault, not the model
            raise UserError(f"redraw={self.most} has the model judge its own images, and {why}", hint)
        self._judges = True

    def _attempts(
        self,
        n: int,
        draw: Callable[[Sequence[int], int], Sequence[T]],
        question: Callable[[int, T], Request | None],
    ) -> tuple[list[T], list[int], list[int]]:
        """What counts of each row, its images and its judgements. draw: of (rows, attempt from 0). question: about the
        result of a row; None: there is nothing to judge."""
        rows, latest = list(range(n)), dict[int, T]()
        images, judgements = [0] * n, [0] * n
        for attempt in range(self.most):
            asked = dict[int, Request]()
            for row, result in zip(rows, draw(rows, attempt), strict=True):
                images[row] += 1
                request = question(row, result)
                if request is not None:
                    asked[row] = request
                if attempt == 0 or request is not None:
                    latest[row] = result
            if attempt + 1 == self.most or not asked:
                break
            replies = self.model.answer(list(asked.values()))
            for row in asked:
                judgements[row] += 1
            rows = [row for row, reply in zip(asked, replies, strict=True) if not accepts(reply)]
            if not rows:
                break
        self.images, self.judgements = self.images + sum(images), self.judgements + sum(judgements)
        return [latest[row] for row in range(n)], images, judgements


def accepts(reply: str | Exception) -> bool:
    """Whether a reply to the question says yes; one that cannot be read, and a failed call, do not."""
    return isinstance(reply, str) and yes_no(reply) is True
