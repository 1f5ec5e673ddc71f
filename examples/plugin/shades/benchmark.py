"""Are shades right? Prompts of the task, each drawn once; a program looks at the images."""

from __future__ import annotations

from collections.abc import Sequence

from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Benchmark, Option, Sample, Source, benchmark
from uni_train.eval.images import pixels
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Results
from uni_train.eval.task_benchmark import item_case, item_of


@benchmark("shade_test")
class ShadeTest(Benchmark):
    """Prompts of the task, each drawn once; a program looks at the images."""

    name = "shade_test"
    known_sets = ("shades1", "shades2")
    options = (Option("seed", 0, "which prompts"),)

    def __init__(self, source: Source, *, seed: int = 0) -> None:
        task, sets = get_task("shades"), source.sets or self.known_sets
        items = [item for name in sets for item in task.generate(source.n, int(name[-1]), source.split, seed)]
        super().__init__(source, map(item_case, items), settings=("normal",), asked=("shade_test/1",))

    def check(self, sample: Sample) -> Verdict | None:
        return get_task("shades").verify(item_of(sample.ask.case), pixels(sample.drawn[-1]))

    def specs(self, results: Results) -> Sequence[TableSpec]:
        return [TableSpec("Shades that are right", [Column("share", Results.mean)], rows="set", first="set")]
