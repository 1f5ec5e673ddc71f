"""Tasks of many clients, batched into as few calls of the model as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from uni_train.core.errors import SkillMissing, UserError
from uni_train.models.base import (
    Example,
    ImageGenerator,
    InterleavedGenerator,
    Request,
    TextGenerator,
    Trainable,
    UnifiedModel,
    expect_skill,
)
from uni_train.models.batches import each_answered
from uni_train.models.pictures import encode_png
from uni_train.serving.protocol import Refusal, Reply, Task, refusal_of, words_of

_WORDS, _PIXELS = 500, 4_000_000  # of a large request


def perform(model: UnifiedModel, tasks: Sequence[Task], think_batch: int, draw_batch: int) -> list[Reply | Refusal]:
    """A reply or a refusal for each task; tasks that can share a call of the model do.

    A large one is done alone: a batch is as wide as its widest.
    """
    kinds: dict[Any, list[int]] = defaultdict(list)
    for i, task in enumerate(tasks):
        alone = i if _is_large(task.request) else None
        kinds[task.skill, task.thinking, task.temperature, task.max_tokens, alone].append(i)
    done: dict[int, Reply | Refusal] = {}
    for (skill, thinking, temperature, max_tokens, _), rows in kinds.items():
        size = draw_batch if skill in ("draw", "compose") else think_batch
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            requests = [tasks[i].request for i in part]
            try:
                with _sampling(model, temperature, max_tokens):
                    replies = each_answered(_call(model, skill, thinking), requests)
            except SkillMissing as error:
                replies = [error] * len(part)
            for i, reply in zip(part, replies, strict=True):
                done[i] = refusal_of(reply) if isinstance(reply, UserError) else reply
    return [done[i] for i in range(len(tasks))]


def _is_large(request: Request) -> bool:
    pixels = sum(image.shape[0] * image.shape[1] for image in request.images)
    return words_of(f"{request.prompt} {request.thought or ''}") > _WORDS or pixels > _PIXELS


def _call(model: UnifiedModel, skill: str, thinking: bool) -> Callable[[Sequence[Request]], list[Reply]]:
    if skill == "draw":
        return partial(_draw, expect_skill(model, ImageGenerator), thinking)
    if skill == "compose":
        return partial(_compose, expect_skill(model, InterleavedGenerator))
    writer = expect_skill(model, TextGenerator)
    write = writer.think if skill == "think" else partial(writer.answer, think=thinking)
    return lambda requests: _texts(model, requests, write(requests))


def _draw(model: ImageGenerator, thinking: bool, requests: Sequence[Request]) -> list[Reply]:
    if not thinking:
        return [Reply(image=encode_png(picture)) for picture in model.draw(requests)]
    thoughts, pictures = model.think_and_draw(requests)
    return [Reply(image=encode_png(p), thought=thought) for thought, p in zip(thoughts, pictures, strict=True)]


def _compose(model: InterleavedGenerator, requests: Sequence[Request]) -> list[Reply]:
    answers = model.compose(requests)
    return [Reply(parts=tuple(x if isinstance(x, str) else encode_png(x) for x in answer)) for answer in answers]


def _texts(model: UnifiedModel, requests: Sequence[Request], texts: Sequence[str]) -> list[Reply]:
    replies = []
    for request, text in zip(requests, texts, strict=True):
        example = Example(prompt=request.prompt, images=request.images)
        before = _tokens(model, example)
        written = _tokens(model, replace(example, answer=text)) - before
        replies.append(Reply(text=text, prompt_tokens=before, completion_tokens=written))
    return replies


def _tokens(model: UnifiedModel, example: Example) -> int:
    """0 for what a model cannot count (an editor counts edits alone)."""
    try:
        return expect_skill(model, Trainable).example_tokens(example)
    except UserError:
        return 0


@contextmanager
def _sampling(model: Any, temperature: float | None, max_tokens: int | None) -> Iterator[None]:
    """The model with a request's own temperature and length; never longer than its configuration allows."""
    own = model.sampling
    changes: dict[str, Any] = {} if temperature is None else {"temperature": float(temperature)}
    if max_tokens is not None:
        changes["max_think_tokens"] = min(max_tokens, own.max_think_tokens)
    model.sampling = replace(own, **changes)
    try:
        yield
    finally:
        model.sampling = own
