"""The filter's question as a benchmark: `filter=judge` asks it, `eval calibrate --filter` measures judges by it."""

from __future__ import annotations

from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import JudgeAsk, Sample
from uni_train.eval.images import bytes_of
from uni_train.eval.task_benchmark import TaskBenchmark


class FilterQuestion(TaskBenchmark):
    """Whether an image is what its prompt asks for (Table 13, its twin for mapping); the answer is not told."""

    name = "stars_filter"

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        from uni_train.eval.judges import prompt_accepted

        assert sample.image is not None, "only samples with an image are judged"
        images = (*map(bytes_of, sample.ask.case.images), sample.image)
        return await prompt_accepted(ask, images, str(sample.ask.case.facts["task"]), sample.prompt)
