"""UniSandbox as a Benchmark: six reasoning sets and two of knowledge, asked with and without a thought.

    normal: draw(prompt)                    cot: think(prompt) -> thought, draw(prompt, thought)
    said: answer(question), where it is asked for: the right answer in words at once, without an image (ours)

A program checks images of the nano world. A judge captions others, and then compares the caption with the answer
(section 3.2, Tables 9 to 11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from uni_train.data_gen.sprites import verify_sprites
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    Headline,
    JudgeAsk,
    Option,
    Sample,
    Scored,
    Source,
    Table,
    Unit,
    benchmark,
    expect_known,
    worlds_of,
)
from uni_train.eval.benchmarks.unisandbox import counting
from uni_train.eval.benchmarks.unisandbox.cases import (
    ALL_SETS,
    KNOWLEDGE_SETS,
    PUBLISHED_CASES,
    REASONING_SETS,
    Questions,
    generated,
    published,
)
from uni_train.eval.benchmarks.unisandbox.sets import SAID, SETTINGS, all_sets
from uni_train.eval.benchmarks.unisandbox.thoughts import conclusion, reply_status
from uni_train.eval.images import pixels
from uni_train.eval.submission import first_draws
from uni_train.eval.task_benchmark import LABELS, TaskBenchmark, item_of

LABEL_CHOICES = (*LABELS, "both")
# Why a sample is not right, where its outcome says it in other words.
CAUSES = {"unreadable": "image unreadable", "unparseable": "judge unparseable"}
_CAUSE_OF = {"wrong": "reasoning wrong", "right": "drawn wrong", "unclear": "conclusion not found"}


@benchmark("unisandbox")
class UniSandbox(TaskBenchmark):
    """The benchmark over the published files (`cases.published`), or over questions of our own.

    Our own are drawn from `split` and `seed`, in the world "nano" or "everyday": `n` prompts a maths set, `n` pairs a
    mapping set, `people` characters.

    sets of the source: None: all that its files have, the six reasoning sets of our own. labels: "official",
    "corrected" or "both", side by side. compat: "paper" compares count and type as Table 10 says; "official" compares
    only the type in the mapping sets, as the published code does. verifier: "judge" leaves the images of the nano world
    to the judge too, to compare it with the program. settings: "said" is asked where it is given. characters: whose
    knowledge to ask for, empty for all of the files. questions: given ones, in place of the source's.

    Raises UsageError for an unknown setting, UserError and DataError for files that cannot be used.
    """

    name, title = "unisandbox", "UniSandbox"
    published: bool
    known_sets = ALL_SETS
    protocol = "unisandbox/1"
    offered: ClassVar = (*SETTINGS, SAID)
    titles: ClassVar = counting.SETTING_NAMES
    optional_settings = (SAID,)
    answering: ClassVar = frozenset({SAID})
    headline = SETTINGS
    headlines: ClassVar = {"": Headline(REASONING_SETS), "knowledge": Headline(KNOWLEDGE_SETS, None)}  # Tables 1 and 4
    options = (
        Option("labels", "both", "answers as published, or recomputed", LABEL_CHOICES),
        Option("characters", (), "whose knowledge to ask for; all of them where none is named"),
    )

    def __init__(
        self,
        source: Source,
        *,
        labels: str = "official",
        characters: Sequence[str] = (),
        people: int = 10,
        seed: int = 0,
        settings: Sequence[str] = SETTINGS,
        questions: Questions | None = None,
    ) -> None:
        expect_known("UniSandbox", "setting", settings, self.offered)
        if source.data is None and characters:
            hint = "Name the folder of their files with data.NAME=FOLDER."
            raise UsageError(f"whose are {', '.join(characters)}?", hint)
        if questions is not None:
            pass
        elif source.data is None:
            sets = source.sets or REASONING_SETS
            questions = generated(source.world, source.n, people, source.split, seed, sets)
        else:
            questions = published(source.data, source.sets, characters)
        self.label_names = LABELS if labels == "both" and questions.relabelled else ("official",)
        if labels == "corrected":
            self.label_names = ("corrected",)
        cases = [case for case in questions.cases if set(self.label_names) & set(case.facts["labels"])]
        chosen = [setting for setting in self.offered if setting in (*settings, *source.settings)]
        Benchmark.__init__(self, source, cases, settings=chosen, asked=(self.protocol, source.compat))
        self.published = questions.files and questions.as_published
        self.yours = questions.files and not self.published
        self.whole = PUBLISHED_CASES
        self.world = worlds_of(questions.cases) or source.world
        self.excluded = questions.excluded if "corrected" in self.label_names else {}
        present = {case.set for case in cases}
        self.sets = tuple(name for name in (*all_sets(), *KNOWLEDGE_SETS) if name in present)

    def check(self, sample: Sample) -> Verdict | None:
        """Object and count read off the pixels, in the nano world; None for images of the everyday world. What is
        said in words a program reads in both."""
        facts = sample.ask.case.facts
        if sample.text is not None:
            return Verdict((Check(SAID, reply_status(sample.text, sample.ask.case), sample.text),))
        if "item" not in facts or self.verifier == "judge" or not sample.drawn:
            return None
        if facts["task"] == "knowledge":
            item = item_of(sample.ask.case)
            return verify_sprites(pixels(sample.drawn[-1]), item.facts["object"], item.facts["count"])
        return super().check(sample)

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Caption, then compare (section 3.2)."""
        from uni_train.eval.judges import caption_matches

        image = sample.image
        assert image is not None, "only samples with an image are judged"
        facts = sample.ask.case.facts
        kind = str(facts["task"])
        if kind == "mapping" and self.compat == "official":
            kind = "mapping_official"
        return await caption_matches(ask, image, _expected(sample.ask.case), kind=kind)

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
        return counting.scores(list(scored), self.settings, self.sets, self.label_names, self.excluded, self.published)

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        return counting.tables(list(scored), self.settings, self.sets, self.label_names, self.excluded, self.published)

    @classmethod
    def labels(cls, scores: Mapping[str, Any]) -> Sequence[str]:
        return list(scores["labels"])

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """Prompts and pairs."""
        return list(counting.units(scored, label))

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The level of maths and mapping."""
        found = re.fullmatch(r"(math|mapping)(\d)", case.set)
        return (f"level of {found[1].replace('math', 'maths')}", float(found[2])) if found else None

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """SETTING/FILE/ID.png, of pairs ID_A.png and ID_B.png: for each an `--image-dir` of the published code."""
        for one in first_draws(scored):
            image = one.sample.image
            if image is not None:
                place, _, name = one.sample.ask.case.id.partition("/")
                place = place.replace("math", "math_") if place == one.sample.ask.case.set else place
                yield f"{one.sample.ask.setting}/{place}/{name.replace('/', '_')}.png", image

    def recorded_options(self) -> Mapping[str, Any]:
        return {"labels": list(self.label_names)}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        images = [ask for ask in asks if ask.setting != SAID]
        judged = sum(ask.case.facts["world"] != "nano" or self.verifier == "judge" for ask in images)
        return super().calls(asks) | {"judge": 2 * judged}


def _expected(case: Case) -> str:
    """The answer as the judge is told it. Nano's mapping answers name the object, and mean one of it."""
    if case.facts["world"] != "nano":
        return str(case.facts["answer"])
    item = case.facts["item"]["facts"]
    return f"{item['count']} {item['object'] if item['count'] == 1 else item['plural']}"
