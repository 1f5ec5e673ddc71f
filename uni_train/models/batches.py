"""Batches: which rows go together, and asking one in which a request may be refused."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from uni_train.core.errors import SkillMissing, UserError
from uni_train.models.pictures import check_image

if TYPE_CHECKING:
    from uni_train.models.base import Request

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_VAE_PIXELS = 2**22  # through a VAE at a time: four images of a megapixel, a small part of the memory


def rows_by(keys: Iterable[K]) -> dict[K, list[int]]:
    """The numbers of the rows that have each key, in order of appearance."""
    rows: dict[K, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return rows


def vae_batches(sizes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Numbers of images of equal size (height and width in pixels) that go through a VAE together."""
    batches = []
    for size, rows in rows_by(sizes).items():
        most = max(1, _VAE_PIXELS // (size[0] * size[1]))
        batches += [rows[start : start + most] for start in range(0, len(rows), most)]
    return batches


def check_requests(requests: Sequence[Request], markers: Collection[str] = ()) -> None:
    """Raises UserError for the first request with an empty prompt, a marker in a text, or an image that is none."""
    for request in requests:
        for noun, text in (("prompt", request.prompt), ("thought", request.thought or "")):
            check_markers(text, markers, f"request {request.id}: its {noun}")
        if not request.prompt.strip():
            raise UserError(f"request {request.id} has an empty prompt", "Say what is asked.")
        for number, image in enumerate(request.images, start=1):
            check_image(image, f"request {request.id}, image {number}")


def markers_of(*tokenizers: Any) -> frozenset[str]:
    """What these tokenizers of transformers read as a marker, wherever it stands in a text: <|im_end|>, </s>."""
    added = [token for tokenizer in tokenizers for token in getattr(tokenizer, "added_tokens_decoder", {}).values()]
    return frozenset(str(token) for token in added if token.special and str(token).startswith("<"))


def check_markers(text: str, markers: Collection[str], what: str) -> None:
    """Raises UserError, naming `what`, for a text with a marker in it: it would end or begin what it stands in."""
    if (marker := next((known for known in markers if known in text), None)) is not None:
        raise UserError(f"{what} has the marker {marker} in it ({text[:60]!r})", "Leave it out.")


class ModelDown(UserError):
    """No request can be answered at present: an endpoint that is away, that refuses the key, that is out of quota."""


def fitting(ask: Callable[[Sequence[Request]], Sequence[T]], requests: Sequence[Request]) -> list[T]:
    """The answers of `ask`; where a GPU's memory cannot hold the batch, those of its halves, which is printed.

    Answers depend on seeds, and on the size of their batch by rounding alone.

    Raises:
        ModelDown: a half, or a single request, is too large as well.
    """
    answers = _tried(ask, requests)
    if answers is not None:
        return answers
    count, half = len(requests), len(requests) // 2
    if half:
        print(f"out of GPU memory with {count} requests at once: halves are asked", file=sys.stderr)
        first, second = _tried(ask, requests[:half]), _tried(ask, requests[half:])
        if first is not None and second is not None:
            return first + second
    raise ModelDown(
        f"out of GPU memory with {count - half} request{'s' if count - half > 1 else ''} at once",
        "Lower model.draw_batch and model.think_batch (of eval: batch=N), or see model.weights and model.vae_tile.",
    )


def _tried(ask: Callable[[Sequence[Request]], Sequence[T]], requests: Sequence[Request]) -> list[T] | None:
    """None: memory ran out; what the traceback held is free again."""
    import torch

    try:
        return list(ask(requests))
    except torch.OutOfMemoryError:
        pass
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


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
        answers = fitting(ask, requests)
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
