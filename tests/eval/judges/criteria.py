"""A small benchmark that only a judge can score: does a picture meet its criterion (Figure 25 of UReason)?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Ask, Benchmark, Case, JudgeAsk, Respondent, Sample, Scored, Table
from uni_train.eval.judges import image_satisfies

PNG = b"\x89PNG\r\n\x1a\n"


class Criteria(Benchmark):
    name, revision, settings, sets = "criteria", "1", ("direct",), ("all",)

    def __init__(self, n: int) -> None:
        self.n = n

    def cases(self) -> Sequence[Case]:
        return [Case(f"c{i}", "all", f"Draw number {i}.", facts={"criterion": f"It shows {i}."}) for i in range(self.n)]

    def samples(self) -> list[Sample]:
        """A picture a case, each another file."""
        return [Sample(Ask(case, "direct", 0, 0), parts=(PNG + case.id.encode(),)) for case in self.cases()]

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: Any = None) -> list[Sample]:
        raise NotImplementedError

    def check(self, sample: Sample) -> Verdict | None:
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        assert sample.image is not None
        return await image_satisfies(ask, sample.image, sample.ask.case.facts["criterion"])

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return {}

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        return []
