"""A model and a judge that reply what a test says, and keep what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from typing import Any

from uni_train.eval.benchmark import Benchmark, Sample, Scored, Unparseable
from uni_train.models.base import Request


class Model:
    """skills: "think", "draw", "answer", "compose": what it gives to each request, by itself or as a function of it."""

    name = "model"

    def __init__(self, **skills: Any) -> None:
        self.skills = skills
        self.asked: list[tuple[str, Request]] = []

    def _reply(self, skill: str, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        self.asked += [(skill, one) for one in requests]
        given = self.skills[skill]
        return [given(one) if callable(given) else given for one in requests]

    think = partialmethod(_reply, "think")
    draw = partialmethod(_reply, "draw")
    answer = partialmethod(_reply, "answer")
    compose = partialmethod(_reply, "compose")


class Judge:
    """Replies by prompt and images; an exception is raised. Reads as strictly as the real one, without asking again."""

    def __init__(self, reply: Callable[[str, Sequence[bytes]], Any], dialect: str = "paper") -> None:
        self.reply, self.dialect = reply, dialect
        self.asked: list[tuple[str, Sequence[bytes]]] = []

    async def __call__(self, prompt: str, images: Sequence[bytes] = (), *, parse: Any = None, **_: Any) -> Any:
        self.asked.append((prompt, images))
        reply = self.reply(prompt, images)
        if isinstance(reply, Exception):
            raise reply
        try:
            return reply if parse is None else parse(reply)
        except ValueError as error:
            raise Unparseable(reply) from error


def checked(benchmark: Benchmark, samples: Sequence[Sample]) -> list[Scored]:
    """As programs alone score them."""
    scored = [Scored(one, benchmark.check(one) if one.status == "ok" else None) for one in samples]
    return [replace(one, cause=benchmark.attribute(one)) for one in scored]
