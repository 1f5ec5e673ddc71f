"""Asking a batch in which one request may be refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from uni_train.errors import SkillMissing, UserError
from uni_train.models.pictures import check_image

if TYPE_CHECKING:
    from uni_train.models.base import Request

T = TypeVar("T")


def check_requests(requests: Sequence[Request]) -> None:
    """Raises UserError for the first request with an empty prompt, or with an image that is none."""
    for request in requests:
        if not request.prompt.strip():
            raise UserError(f"request {request.id} has an empty prompt", "Say what is asked.")
        for number, image in enumerate(request.images, start=1):
            check_image(image, f"request {request.id}, image {number}")


class ModelDown(UserError):
    """No request can be answered at present: an endpoint that is away, that refuses the key, that is out of quota."""


def each_answered(ask: Callable[[Sequence[Request]], Sequence[T]], requests: Sequence[Request]) -> list[T | UserError]:
    """The answers of `ask`, and a UserError in the place of every request that it refuses.

    A model refuses a whole batch for one request (an unknown word, a prompt too long): halves are asked until the one
    that is to blame is alone.

    Raises:
        SkillMissing, ModelDown: no request of this kind can be answered.
    """
    if not requests:
        return []
    try:
        answers = list(ask(requests))
    except (SkillMissing, ModelDown):
        raise
    except UserError as error:
        if len(requests) == 1:
            return [error]
        half = len(requests) // 2
        return [*each_answered(ask, requests[:half]), *each_answered(ask, requests[half:])]
    if len(answers) != len(requests):
        raise ValueError(f"{len(answers)} answers to {len(requests)} requests")
    return [*answers]
