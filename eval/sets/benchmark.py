"""The evaluation of training runs: sets of tasks (`uni_train.data_gen.registry.sources`), with and without a thought.

    normal: draw(prompt)                    cot: think(prompt) -> thought, draw(prompt, thought)
    said: answer(question), where it is asked for: the right answer in words at once, without an image

A program checks images of the nano world. A judge captions others, and then compares the caption with the answer
(UniSandbox, section 3.2, Tables 9 to 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Benchmark, Case, JudgeAsk, Sample, Scored, Source, Table, worlds_of
from uni_train.eval.sets import counting
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SAID, SETTINGS, all_sets
from uni_train.eval.sets.thoughts import conclusion, reply_status
from uni_train.eval.task_benchmark import TaskBenchmark

# Why a sample is not right, where its outcome says it in other words.
CAUSES = {"unreadable": "image unreadable", "unparseable": "judge unparseable"}
_CAUSE_OF = {"wrong": "reasoning wrong", "right": "drawn wrong", "unclear": "conclusion not found"}


class SetBenchmark(TaskBenchmark):
    """Items of sets, counted as UniSandbox counts: pairs together, trivial strategies and chance beside each score.

    name: as files of runs have it, so that `eval compare` takes a stage of a run and an evaluation of UniSandbox.
    settings: "said" is asked where it is given. label_names, excluded: of published answers alone (`UniSandbox`).
    """

    name, title = "unisandbox", "UniSandbox"
    protocol = "unisandbox/1"
    offered: ClassVar = (*SETTINGS, SAID)
    titles: ClassVar = counting.SETTING_NAMES
    optional_settings = (SAID,)
    answering: ClassVar = frozenset({SAID})

    def __init__(self, cases: Sequence[Case], settings: Sequence[str] = SETTINGS, source: Source | None = None) -> None:
        source, asked = source or Source(), [setting for setting in self.offered if setting in settings]
        Benchmark.__init__(self, source, cases, settings=asked, asked=(self.protocol, source.compat))
        self.world, there = worlds_of(cases), {case.set for case in cases}
        self.sets = tuple(name for name in (*all_sets(), *KNOWLEDGE_SETS) if name in there)
        self.label_names: tuple[str, ...] = ("official",)
        self.excluded: Mapping[str, Mapping[str, str]] = {}

    def check(self, sample: Sample) -> Verdict | None:
        """Object and count read off the pixels, in the nano world; None for images of the everyday world. What is
        said in words a program reads in both."""
        if sample.text is not None:
            return Verdict((Check(SAID, reply_status(sample.text, sample.ask.case), sample.text),))
        return super().check(sample)

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Caption, then compare (section 3.2)."""
        from uni_train.eval.judges import caption_matches

        assert sample.image is not None, "only samples with an image are judged"
        kind = str(sample.ask.case.facts["task"])
        if kind == "mapping" and self.compat == "official":
            kind = "mapping_official"
        return await caption_matches(ask, sample.image, _expected(sample.ask.case), kind=kind)

    def attribute(self, scored: Scored) -> str:
        """Where it went wrong. Without a thought nobody can tell what was concluded: "wrong, no thought"."""
        if scored.passed:
            return ""
        if scored.outcome != "fail":
            return CAUSES.get(scored.outcome, scored.outcome.replace("_", " "))
        sample = scored.sample
        if sample.text is not None:
            return "wrong, said"
        if sample.thought is None:
            return "wrong, no thought"
        return _CAUSE_OF[conclusion(sample.thought, sample.ask.case)]

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return counting.scores(list(scored), *self._counted)

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        return counting.tables(list(scored), *self._counted)

    @property
    def _counted(self) -> tuple[Any, ...]:
        return self.settings, self.sets, self.label_names, self.excluded, bool(self.published)


def _expected(case: Case) -> str:
    """The answer as the judge is told it. Nano's mapping answers name the object, and mean one of it."""
    if case.facts["world"] != "nano":
        return str(case.facts["answer"])
    item = case.facts["item"]["facts"]
    return f"{item['count']} {item['object'] if item['count'] == 1 else item['plural']}"
