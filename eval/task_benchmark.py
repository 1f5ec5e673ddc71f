"""Items of any task of data_gen as a benchmark: asked in several settings, and verified by their task.

    normal: draw(prompt)                    cot: think(prompt) -> thought, draw(prompt, thought)

Training samples, filters and validates with it. UniSandbox and the benchmarks of `uni_train.insight` add settings and
tables. Thought and image of a sample depend on its case, its setting and its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from uni_train.core.errors import UsageError, did_you_mean
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.questions import image_question
from uni_train.data_gen.registry import TASKS, get_task, set_name, task_of
from uni_train.data_gen.task import Item, Verdict
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    JudgeAsk,
    Respondent,
    Sample,
    Scored,
    Source,
    Step,
    with_part,
    with_thought_and_image,
)
from uni_train.eval.images import pixels
from uni_train.eval.paper import Column, TableSpec, mean_of
from uni_train.eval.results import Metric, Results
from uni_train.models.family import family_of
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.models.base import Request

LABELS = ("official", "corrected")
"""Of an answer: as published, and recomputed. Those of our own items are both."""
DIRECT = (
    "Do not draw. Say at once, in a few words, what the image would show (for example: 3 apples), and nothing else."
)


class TaskBenchmark(Benchmark):
    """Cases of tasks in some settings of `offered`; none named: all of them.

    A subclass names further settings, and says by `prepared` what their images are drawn from.

    Raises UsageError: no cases, or a setting that there is not.
    """

    name = "task"
    overall = Metric(over=None)
    known_sets: ClassVar[tuple[str, ...]] = ()
    protocol: ClassVar[str] = "task/1"
    """What is asked; a change makes another revision."""
    offered: ClassVar[tuple[str, ...]] = ("normal", "cot")
    titles: ClassVar[Mapping[str, str]] = {"normal": "Normal", "cot": "CoT"}
    """What tables call the settings."""
    answering: ClassVar[frozenset[str]] = frozenset()
    """Settings that are answered in words."""
    thoughtful: ClassVar[frozenset[str]] = frozenset({"cot"})
    """Settings that need the model's own thought."""
    fused: ClassVar[frozenset[str]] = frozenset({"cot"})
    """Those of them drawn by the thought as it is: the model may think and draw in one pass."""
    undrawn: ClassVar[frozenset[str]] = frozenset()
    """Settings without an image of their own, beside those in words."""

    def __init__(self, cases: Sequence[Case], settings: Sequence[str] = ()) -> None:
        for name in settings:
            if name not in self.offered:
                raise UsageError(f"there is no setting {name}", did_you_mean(name, self.offered, "settings"))
        if not cases:
            raise UsageError("there is nothing to ask", "Ask for at least one item.")
        asked = [name for name in self.offered if not settings or name in settings]
        super().__init__(Source(), cases, settings=asked, asked=(self.protocol, self.name))
        self.sets = tuple(dict.fromkeys(case.set for case in cases))
        self.published = self.total_cases = None

    @classmethod
    def from_items(cls, items: Iterable[Item], *settings: str) -> Self:
        return cls([item_case(item) for item in items], settings)

    # --- asking -------------------------------------------------------------------------------------------------------

    def asks(self, seed: int, draws: int = 1) -> list[Ask]:
        """Every case `draws` times in every setting, as training asks: each with a seed of its own.

        A sample's seed follows from (run seed, case, setting, k).
        """
        return [
            Ask(case, setting, k, derive_seed(seed, case.id, setting, k))
            for setting in self.settings
            for case in self._cases
            for k in range(draws)
        ]

    def prepared(self, ask: Ask, thought: str | None) -> Sample:
        """What is drawn from, and by which thought; a sample that has parts or has failed is not drawn."""
        return Sample(ask, prompt=ask.case.prompt, thought=thought)

    def begin(self, ask: Ask) -> Sample:
        if ask.setting in self.answering:
            return Sample(ask, prompt=direct_prompt(ask.case.prompt, ask.case.facts["world"]))
        return super().begin(ask) if ask.setting in self.thoughtful else self.prepared(ask, None)

    def steps(self) -> Iterable[Step]:
        """Answers and thoughts where a setting needs them, then images. Calls that asks share are made once."""

        def step(skill: str, asked: Callable[[str], bool], put: Any, failed: Any) -> Step:
            def due(sample: Sample) -> bool:
                return asked(sample.ask.setting) and not sample.parts

            return Step(
                skill, due, lambda sample: request_of(sample.ask, sample.prompt, sample.thought), put, failed, once=True
            )

        answer, thought, image = (partial(with_part, noun=noun) for noun in ("answer", "thought", "image"))
        thinking, fused = (self.thoughtful - self.fused).__contains__, self.fused.__contains__
        yield step("answer", self.answering.__contains__, answer, answer)
        yield step("think", thinking, lambda sample, words: self.prepared(sample.ask, words), thought)
        yield step("draw", lambda setting: not fused(setting), image, image)
        yield step("think_and_draw", fused, with_thought_and_image, image)

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """Thoughts and images that cases share count once; a judge captions and compares, so twice an image."""
        drawn = [ask for ask in asks if ask.setting not in self.answering | self.undrawn]
        calls = {
            "think": len({(drawn_as(ask.case), ask.k) for ask in asks if ask.setting in self.thoughtful}),
            "draw": len({(drawn_as(ask.case), ask.setting, ask.k) for ask in drawn}),
            "judge": 2 * len(drawn),
        }
        answers = sum(ask.setting in self.answering for ask in asks)
        return {**calls, "answer": answers} if answers else calls

    # --- scoring ------------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """By the task's verifier; None where there is no image, or no program can read it."""
        if not sample.drawn:
            return None
        item = item_of(sample.ask.case)
        task = task_of(item)
        return task.verify(item, pixels(sample.drawn[-1])) if task.has_image(item) else None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Caption and compare where so many of one thing are asked for, else a question of yes or no."""
        from uni_train.eval.judges import caption_matches, image_satisfies

        assert sample.image is not None, "only samples with an image are judged"
        item = item_of(sample.ask.case)
        if "object" in item.facts:
            return await caption_matches(ask, sample.image, item.answer, kind=item.task)
        return await image_satisfies(ask, sample.image, item.answer)

    def verified(self, model: Respondent, asks: Sequence[Ask]) -> list[Scored]:
        """What the model makes of them, each verified if a program can."""
        return [Scored(sample, self.check(sample)) for sample in self.respond(model, asks)]

    def specs(self, results: Results) -> Iterable[TableSpec]:
        """The share that is right, by setting and set."""
        columns = [Column(name, mean_of("set", name)) for name in self.sets]
        columns += [Column("overall", self.overall)] if len(self.sets) > 1 else []
        note = "95 % intervals, clustered by canonical form."
        yield TableSpec("Right, by setting", columns, order=self.settings, names=self.titles, note=note)


# --- requests ---------------------------------------------------------------------------------------------------------


def request_of(ask: Ask, prompt: str | None = None, thought: str | None = None) -> Request:
    """A case as a request, with its images."""
    from uni_train.models.base import Request

    shown = tuple(pixels(image) for image in ask.case.images)
    return Request(drawn_as(ask.case), prompt or ask.case.prompt, shown, thought=thought, seed=ask.seed)


def drawn_as(case: Case) -> str:
    """What a drawing goes by: cases that share it (two labels of a question) are asked once."""
    return str(case.facts.get("drawn_as", case.id))


def direct_prompt(question: str, world: str) -> str:
    """What is asked for an answer in words at once, without reasoning: nano needs no more than the question."""
    return question if world == "nano" else f"{question}\n\n{DIRECT}"


def verification_prompt(family: str, question: str, task: str | None = None) -> str:
    """How a model of this family ("": any) is asked whether an image is what a prompt asks for: in the phrase of the
    family, else in the words of UniSandbox's Table 13, or of the task."""
    phrases = family_of(family).phrases() if family else {}
    if "verify" in phrases:
        return phrases["verify"].replace("{question}", question)
    return image_question(question, task)


def verification_request(family: str, sample: Sample) -> Request:
    """Whether the last image of a sample is what the prompt of its case asks for; images of the case come before it."""
    from uni_train.models.base import Request

    case = sample.ask.case
    prompt = verification_prompt(family, case.prompt, case.facts.get("task"))
    images = tuple(map(pixels, (*case.images, *sample.drawn[-1:])))
    return Request(case.id, prompt, images, seed=derive_seed(sample.ask.seed, "self_check"))


# --- items as cases ---------------------------------------------------------------------------------------------------


def cases_of_task(
    task: str, levels: Sequence[int] = (), n: int = 50, *, world: str = "nano", split: str = "test", seed: int = 0
) -> list[Case]:
    """`n` draws of each level as cases, the same questions as those of an evaluation with this seed.

    Args:
        levels: empty: the task's own default ones.

    Raises:
        DataError: no such task, world, level or split, or too few items in it.
    """
    drawer = get_task(task, world)
    chosen = levels or drawer.default_levels or drawer.levels[:1]
    seed = derive_seed("evaluation", seed)
    return [item_case(item) for level in chosen for item in drawer.generate(n, level, split, seed)]


def item_case(item: Item) -> Case:
    """An item as it is asked and stored; the two of a pair share a cluster."""
    shown = task_of(item).input_image(item)
    category = "" if item.pair is None else f"question {item.id[-1]}"
    if "count" in item.facts and item.pair is None:
        category = count_of_objects(int(item.facts["count"]))
    return Case(
        id=item.id,
        set=set_of(item),
        prompt=item.prompt,
        images=() if shown is None else (encode_png(shown),),
        cluster=item.pair,
        category=category,
        facts={
            "task": item.task,
            "world": item.facts.get("world", ""),
            "answer": item.answer,
            "labels": list(LABELS),
            "drawn_as": item.id,
            "item": item.to_dict(),
        },
    )


def item_of(case: Case) -> Item:
    """The item of a case of ours."""
    return Item.from_dict(case.facts["item"])


def set_of(item: Item) -> str:
    """The set in which an item is counted: of its task and level, unless its facts name another one."""
    if item.facts.get("set"):
        return str(item.facts["set"])
    return set_name(item.task, item.level) if TASKS.get(item.task).sets else f"{item.task}{item.level}"


def count_of_objects(count: int) -> str:
    """ "1 object", "3 objects"."""
    return "1 object" if count == 1 else f"{count} objects"
