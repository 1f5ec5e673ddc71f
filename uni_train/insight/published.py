"""Published questions for an analysis, as their benchmark reads them; no program knows their exact answers."""

from __future__ import annotations

from dataclasses import replace

from uni_train.config.insight import InsightConfig
from uni_train.config.schema import EvalConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Case
from uni_train.eval.configured import benchmarks_of
from uni_train.eval.generation import cases_of


def published_cases(analysis: str, checkpoint: str, config: InsightConfig, n: int) -> tuple[list[Case], str]:
    """The questions of `eval -b NAME data.NAME=FOLDER subset=N` with the same seed, and what they are.

    Their items have the criterion as the answer, which a judge can score, and no exact thought.

    Raises:
        UsageError: `data` does not name the task, or a key is of generated questions. UserError: the analysis needs
            exact answers. DataError: no such task, or files that cannot be read.
    """
    if list(config.data) != [config.task]:
        raise UsageError(f"data names {', '.join(config.data)}, and task is {config.task}", "Both must be one name.")
    for key in ("level", "world", "split"):
        if getattr(config, key) != getattr(InsightConfig, key):
            raise UsageError(f"{key} is of generated questions, and data names files", f"Leave out {key} or data.")
    TASKS.get(config.task)  # a benchmark may be none
    if analysis != "attention":
        raise UserError(
            f"insight {analysis} needs exact answers that a program can read, and published files have none",
            f"`insight attention` takes them. `eval -b {config.task}` scores their thoughts and images.",
        )
    (benchmark,) = benchmarks_of(checkpoint, EvalConfig(benchmarks=(config.task,), data=config.data))
    cases = cases_of(benchmark, subset=n, seed=config.seed)
    return [_with_item(case, config.task) for case in cases], benchmark.questions(cases)


def _with_item(case: Case, task: str) -> Case:
    answer, world = str(case.facts["criterion"]), str(case.facts.get("world", "everyday"))
    item = Item(case.id, task, 1, "", case.prompt, answer, dict(case.facts), "")
    return replace(case, facts={**case.facts, "task": task, "world": world, "answer": answer, "item": item.to_dict()})
