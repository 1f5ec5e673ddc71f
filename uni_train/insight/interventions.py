"""Interventions on the thought: images drawn with the thought as it is, and with changed thoughts.

All settings share an item's noise and its one thought. "other_followed" is the same image as "other", scored by the
answer of the item whose thought it was: an image that follows the thought, and not the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from uni_train.core.seeds import rng
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Ask, Case, JudgeAsk, Sample, Scored, Table
from uni_train.eval.extraction import extract
from uni_train.eval.statistics import paired
from uni_train.eval.task_benchmark import TaskBenchmark, item_of
from uni_train.insight.questions import draw_of, world_of

AS_IT_IS, DROP, REPEAT, SHUFFLE, BLANK = "cot", "drop", "repeat", "shuffle", "blank"
TRACE, REFINED, OTHER, FOLLOWED = "trace", "refined", "other", "other_followed"
_BLANK = "."  # a word that every tokenizer knows and that says nothing


def refined_start(thought: str, world: str) -> int | None:
    """At which letter the refined prompt of a thought begins ("So draw 3 apples ."); None: it has none."""
    if world == "nano":
        start = thought.rfind("So draw")
    else:
        text = extract(thought, "paper", world).text
        start = thought.rfind(text) if text else thought.rfind("So draw")
    return None if start < 0 else start


def tampered(setting: str, thought: str, world: str, name: str) -> str | None:
    """The thought of a setting; None where there is nothing to cut it at. `name` decides how it is shuffled."""
    words = thought.split(" ")
    start = refined_start(thought, world)
    if setting == SHUFFLE:
        rng("insight", "shuffle", name).shuffle(words)
        return " ".join(words)
    if setting in (TRACE, REFINED):
        return None if start is None else (thought[:start] if setting == TRACE else thought[start:]).strip()
    return {
        AS_IT_IS: thought,
        DROP: "",
        REPEAT: f"{thought} {thought}",
        BLANK: " ".join(_BLANK for _ in words),
    }[setting]


class Interventions(TaskBenchmark):
    """Images drawn with changed thoughts; `donor` gives the item whose thought is used in "other".

    Raises UsageError as `TaskBenchmark` does.
    """

    name = "interventions"
    offered: ClassVar = (AS_IT_IS, DROP, REPEAT, SHUFFLE, BLANK, TRACE, REFINED, OTHER, FOLLOWED)
    titles: ClassVar = {
        AS_IT_IS: "As it is",
        DROP: "Dropped (empty)",
        REPEAT: "Said twice",
        SHUFFLE: "Words shuffled",
        BLANK: "Every word blanked",
        TRACE: "Trace alone",
        REFINED: "Refined prompt alone",
        OTHER: "Another item's thought",
        FOLLOWED: "... and that item's answer is drawn",
    }
    thoughtful: ClassVar = frozenset(offered)
    fused: ClassVar = frozenset()
    undrawn: ClassVar = frozenset({FOLLOWED})

    def __init__(self, cases: Sequence[Case], settings: Sequence[str] = ()) -> None:
        thoughts = all(item_of(case).thought for case in cases)  # published items have none
        super().__init__(cases, settings or (self.offered if thoughts else self.offered[:-2]))

    def donor(self, case: Case) -> Case | None:
        """The next case with another answer that is no partner of this one; None where there is none."""
        place = next(i for i, other in enumerate(self._cases) if other.id == case.id)
        for step in range(1, len(self._cases)):
            other = self._cases[(place + step) % len(self._cases)]
            related = case.cluster is not None and case.cluster == other.cluster
            if other.facts["answer"] != case.facts["answer"] and not related:
                return other
        return None

    def prepared(self, ask: Ask, thought: str | None) -> Sample:
        if ask.setting in (OTHER, FOLLOWED):
            donor = self.donor(ask.case)
            if donor is None:
                return Sample(ask, "cue_missing", "no other item has another answer", prompt=ask.case.prompt)
            # The exact thought of the other item: its own could be wrong, and would then show nothing.
            facts = {"other": donor.facts["item"]}
            return Sample(ask, prompt=ask.case.prompt, thought=item_of(donor).thought, facts=facts)
        changed = tampered(ask.setting, thought or "", world_of(ask.case), ask.case.id)
        if changed is None:
            return Sample(ask, "not_extracted", "the thought has no refined prompt", ask.case.prompt, thought)
        return Sample(ask, prompt=ask.case.prompt, thought=changed)

    def check(self, sample: Sample) -> Verdict | None:
        return super().check(_scored_as(sample))

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        return await super().judge(_scored_as(sample), ask)

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The share that is right, and the effect of each intervention on the same items."""
        every = list(scored)
        return [*super().tables(every), self.effects(every)]

    def effects(self, scored: Sequence[Scored]) -> Table:
        by_setting: dict[str, dict[Any, Scored]] = {}
        for row in scored:
            by_setting.setdefault(row.sample.ask.setting, {})[draw_of(row)] = row
        before = by_setting.get(AS_IT_IS, {})
        rows = []
        for setting in self.settings:
            after = by_setting.get(setting, {})
            shared = [key for key in before if key in after]
            if setting not in (AS_IT_IS, FOLLOWED) and shared:
                right = [[by_unit[key].passed for key in shared] for by_unit in (before, after)]
                compared = paired(right[0], right[1], [before[key].sample.ask.case.cluster_id for key in shared])
                rows.append((self.titles[setting], compared))
        note = "Accuracy minus that of the thought as it is, on the same items and noise."
        if OTHER not in self.settings:
            note += " Another item's thought is left out: these items have no exact ones."
        return Table("Effect of changing the thought", ("Thought", "Effect"), tuple(rows), note)


def _scored_as(sample: Sample) -> Sample:
    """The sample of the item whose answer it is scored by."""
    if sample.ask.setting != FOLLOWED:
        return sample
    case = replace(sample.ask.case, facts={**sample.ask.case.facts, "item": sample.facts["other"]})
    return replace(sample, ask=replace(sample.ask, case=case))
