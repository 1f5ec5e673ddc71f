"""UniSandbox as a Benchmark: six reasoning sets and two of knowledge, asked with and without a thought.

What is asked, checked and counted is in `uni_train.eval.sets`. Here are the published files with their labels,
characters, and what the published code scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UsageError
from uni_train.data_gen.sprites import verify_sprites
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import (
    Ask,
    Case,
    Option,
    Sample,
    Scored,
    Source,
    Unit,
    benchmark,
    expect_known,
    worlds_of,
)
from uni_train.eval.benchmarks.unisandbox.cases import (
    ALL_SETS,
    PUBLISHED_CASES,
    Questions,
    generated,
    knowledge_case,
    published,
)
from uni_train.eval.images import pixels
from uni_train.eval.results import Metric
from uni_train.eval.sets import counting
from uni_train.eval.sets.benchmark import SetBenchmark
from uni_train.eval.sets.names import SAID, SETS, SETTINGS
from uni_train.eval.submission import first_draws
from uni_train.eval.task_benchmark import LABELS, item_of

if TYPE_CHECKING:
    from uni_train.data_gen.knowledge.people import KnowledgeQuestion

LABEL_CHOICES = (*LABELS, "both")


@benchmark("unisandbox")
class UniSandbox(SetBenchmark):
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

    published: bool
    known_sets = ALL_SETS
    headline = SETTINGS
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
            sets = source.sets or SETS
            questions = generated(source.world, source.n, people, source.split, seed, sets)
        else:
            questions = published(source.data, source.sets, characters)
        names: tuple[str, ...] = LABELS if labels == "both" and questions.relabelled else ("official",)
        if labels == "corrected":
            names = ("corrected",)
        cases = [case for case in questions.cases if set(names) & set(case.facts["labels"])]
        super().__init__(cases, (*settings, *source.settings), source)
        self.label_names = names
        self.published = questions.files and questions.as_published
        self.user_files = questions.files and not self.published
        self.total_cases = PUBLISHED_CASES
        self.world = worlds_of(questions.cases) or source.world
        self.excluded = questions.excluded if "corrected" in names else {}

    @classmethod
    def about(
        cls, pictures: Iterable[KnowledgeQuestion], world: str, settings: Sequence[str], files: bool = False
    ) -> UniSandbox:
        """The knowledge that these questions ask for. files: they are somebody's."""
        cases = tuple(knowledge_case(picture, world) for picture in pictures)
        return cls(Source(), questions=Questions(cases, {}, files), settings=settings)

    def check(self, sample: Sample) -> Verdict | None:
        """As `SetBenchmark`, and a character's portrait and favourites of the nano world."""
        facts = sample.ask.case.facts
        if sample.text is None and ("item" not in facts or self.verifier == "judge"):
            return None
        if facts["task"] == "knowledge" and sample.text is None and sample.drawn:
            item = item_of(sample.ask.case)
            return verify_sprites(pixels(sample.drawn[-1]), item.facts["object"], item.facts["count"])
        return super().check(sample)

    @classmethod
    def labels(cls, scores: Mapping[str, Any]) -> Sequence[str]:
        return list(scores["labels"])

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """Prompts and pairs."""
        return list(counting.units(scored, label))

    @classmethod
    def metrics(cls) -> Mapping[str, Metric]:
        """Tables 1 and 4."""
        return {"": counting.REASONING, "knowledge": counting.KNOWLEDGE}

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The level of maths and mapping."""
        match = re.fullmatch(r"(math|mapping)(\d)", case.set)
        return (f"level of {match[1].replace('math', 'maths')}", float(match[2])) if match else None

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """SETTING/FILE/ID.png, of pairs ID_A.png and ID_B.png: for each an `--image-dir` of the published code."""
        for draw in first_draws(scored):
            image = draw.sample.image
            if image is not None:
                place, _, name = draw.sample.ask.case.id.partition("/")
                place = place.replace("math", "math_") if place == draw.sample.ask.case.set else place
                yield f"{draw.sample.ask.setting}/{place}/{name.replace('/', '_')}.png", image

    def recorded_options(self) -> Mapping[str, Any]:
        return {"labels": list(self.label_names)}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        images = [ask for ask in asks if ask.setting != SAID]
        judged = sum(ask.case.facts["world"] != "nano" or self.verifier == "judge" for ask in images)
        return super().calls(asks) | {"judge": 2 * judged}
