"""A small benchmark that only a judge can score: does a picture meet its criterion (Figure 25 of UReason)?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tests.eval.judges.server import Asked
from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Benchmark, Case, JudgeAsk, Sample, Scored
from uni_train.eval.judges import filled_in, image_satisfies, run

PNG = b"\x89PNG\r\n\x1a\n"
YES, NO = "<answer>Yes</answer>", "<answer>No</answer>"


class Criteria(Benchmark):
    name, revision, settings, sets = "criteria", "1", ("direct",), ("all",)

    def __init__(self, n: int) -> None:
        self.n = n

    def cases(self) -> Sequence[Case]:
        return [Case(f"c{i}", "all", f"Draw number {i}.", facts={"criterion": f"It shows {i}."}) for i in range(self.n)]

    def samples(self) -> list[Sample]:
        """A picture a case, each another file."""
        return [Sample(Ask(case, "direct", 0, 0), parts=(PNG + case.id.encode(),)) for case in self.cases()]

    def check(self, sample: Sample) -> Verdict | None:
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        assert sample.image is not None
        return await image_satisfies(ask, sample.image, sample.ask.case.facts["criterion"])


class Counted(Criteria):
    """The judge fills in JSON: there are three."""

    schema: ClassVar = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        said = await filled_in(ask, "Count.", self.schema, (sample.image or b"",))
        return Verdict((Check("count", "pass" if said["count"] == 3 else "fail"),))


class Served(Protocol):
    url: str


def judged(n: int, server: Served, folder: Path, kind: type[Criteria] = Criteria, **settings: Any) -> list[Scored]:
    """The first n cases, judged by the model "judge" of a server."""
    benchmark = kind(n)
    return run(benchmark.samples(), benchmark, JudgeConfig(model=f"{server.url}#judge", **settings), folder)


def number(asked: Asked) -> int:
    """Of the case that is asked about."""
    return int(asked.words.partition("shows ")[2].partition(".")[0])


def odd(asked: Asked) -> str:
    """Yes for odd numbers, after some reasoning."""
    return f"I look at it with both eyes.\n{YES if number(asked) % 2 else NO}"
