"""Are shades right, and how far off are those that are not?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.task import Item, Verdict
from uni_train.eval.benchmark import Ask, Benchmark, Case, Option, Respondent, Sample, Scored, Source, Table, benchmark
from uni_train.eval.statistics import Estimate, proportion


@benchmark("shade_test")
class ShadeTest(Benchmark):
    """Prompts of the task, each drawn once; a program looks at the images."""

    name, revision = "shade_test", "1"
    known_sets = ("shades1", "shades2")
    settings: tuple[str, ...] = ("normal",)
    options = (Option("seed", 0, "which prompts"),)

    def __init__(self, sets: tuple[str, ...], n: int, split: str, seed: int) -> None:
        self.sets = sets
        self._items = {
            item.id: item for name in sets for item in get_task("shades").generate(n, int(name[-1]), split, seed)
        }

    @classmethod
    def open(cls, source: Source, *, seed: int) -> ShadeTest:
        return cls(source.sets or cls.known_sets, source.n, source.split, seed)

    def cases(self) -> list[Case]:
        return [Case(id, f"shades{item.level}", item.prompt, facts=item.to_dict()) for id, item in self._items.items()]

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: Any = None) -> list[Sample]:
        from uni_train.eval.images import encoded
        from uni_train.models.base import Request

        images = model.draw([Request(ask.case.id, ask.case.prompt, seed=ask.seed) for ask in asks], on_step=on_step)
        return [
            Sample(ask, "generation_failed", str(image))
            if isinstance(image, Exception)
            else Sample(ask, prompt=ask.case.prompt, parts=(encoded(image),))
            for ask, image in zip(asks, images, strict=True)
        ]

    def check(self, sample: Sample) -> Verdict | None:
        from uni_train.eval.images import pixels

        item = Item.from_dict(sample.ask.case.facts)
        return task_of(item).verify(item, pixels(sample.drawn[-1])) if sample.drawn else None

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return {"normal": {name: one.to_dict() for name, one in self._each(scored).items()}}

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        rows = tuple((name, one) for name, one in self._each(scored).items())
        return [Table("Shades that are right", ("set", "share"), rows)]

    def _each(self, scored: Iterable[Scored]) -> dict[str, Estimate]:
        passed: dict[str, list[bool]] = {name: [] for name in self.sets}
        for one in scored:
            passed[one.sample.ask.case.set].append(one.passed)
        return {name: proportion(sum(some), len(some)) for name, some in passed.items()}
