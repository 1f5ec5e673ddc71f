"""Items of any task as a benchmark of our own: each is asked in several settings and verified by its task.

What a task's image shows, `Task.verify` decides. What a text says of the answer is read here: the readers of the
benchmarks for sprites and UReason, and for other tasks whether the text names the answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.registry import get_task, set_name, task_of
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Check, Item, Status, Verdict
from uni_train.data_gen.ureason.outcomes import outcome_from
from uni_train.errors import UsageError, did_you_mean
from uni_train.eval.benchmark import Ask, Benchmark, Case, JudgeAsk, Respondent, Sample, Scored, Table
from uni_train.eval.benchmarks.unisandbox import thoughts
from uni_train.eval.benchmarks.ureason.extraction import extract
from uni_train.eval.images import encoded, pixels
from uni_train.eval.prompts.unisandbox import direct_prompt
from uni_train.eval.statistics import Estimate, share
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request

PROTOCOL = "insight/1"  # what is asked; a change makes another revision
_STATUS: dict[bool | None, Status] = {True: "pass", False: "fail", None: "unreadable"}
_CONCLUDED: dict[str, Status] = {"right": "pass", "wrong": "fail", "unclear": "unreadable"}


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
    return [
        case_of(item) for level in chosen for item in drawer.generate(n, level, split, derive_seed("evaluation", seed))
    ]


def case_of(item: Item) -> Case:
    """An item as a case; the two of a pair share a cluster."""
    try:
        name = str(item.facts.get("set") or set_name(item.task, item.level))
    except DataError:  # a task without sets
        name = f"{item.task}{item.level}"
    image = task_of(item).input_image(item)
    return Case(
        item.id,
        name,
        item.prompt,
        images=() if image is None else (encode_png(image),),
        cluster=item.pair,
        facts={
            "task": item.task,
            "world": item.facts.get("world", "everyday"),
            "answer": item.answer,
            "item": item.to_dict(),
        },
    )


def item_of(case: Case) -> Item:
    return Item.from_dict(case.facts["item"])


def plainly(item: Item) -> str:
    """The prompt that tells the answer: "Draw 3 apples ."; for other tasks the question and its exact thought."""
    _, label, conclusion = item.thought.rpartition("So draw ")
    if label:
        return f"Draw {conclusion.strip()}"
    refined = extract(item.thought, "paper").text
    return refined or f"{item.prompt}\n{item.thought}"


def says(item: Item, reply: str) -> Status:
    """Whether a direct reply in words names the answer."""
    if "outcome" in item.facts:
        return _STATUS[outcome_from(item.facts["outcome"]).find(reply)]
    if "object" in item.facts:
        return thoughts.said(reply, item)
    return _names(reply, item)


def concludes(item: Item, thought: str) -> Status:
    """Whether a thought ends where the answer is."""
    world = str(item.facts.get("world", "everyday"))
    if "outcome" in item.facts:
        text = extract(thought, "paper", world).text
        return _STATUS[outcome_from(item.facts["outcome"]).find(text)] if text else "unreadable"
    if "object" in item.facts and (world == "nano" or item.task in ("maths", "mapping")):
        return _CONCLUDED[thoughts.conclusion(thought, case_of(item))]
    return _names(thought, item)


def _names(text: str, item: Item) -> Status:
    """Right where the answer or the reference's last words stand in the text; else nobody can tell."""
    words = " ".join(re.findall(r"\w+", text.casefold()))
    answers = [" ".join(re.findall(r"\w+", answer.casefold())) for answer in (item.answer, item.thought)]
    return "pass" if any(answer and f" {answer} " in f" {words} " for answer in answers) else "unreadable"


class TaskBenchmark(Benchmark):
    """Cases of a task, asked in the settings of a subclass, which says how a setting asks (`prepared`).

    A sample is a text ("said", "thought") or an image. Cases are clusters of their own, or of their pair.

    Raises UsageError: no cases, or a setting that there is not.
    """

    offered: ClassVar[tuple[str, ...]]
    """All settings, in their order."""
    titles: ClassVar[Mapping[str, str]]
    """What tables call them."""
    thoughtful: ClassVar[frozenset[str]]
    """Settings that need the model's own thought."""
    answering: ClassVar[frozenset[str]] = frozenset()
    """Settings that are answered in words."""

    def __init__(self, cases: Sequence[Case], settings: Sequence[str] = ()) -> None:
        for name in settings:
            if name not in self.offered:
                raise UsageError(f"there is no setting {name}", did_you_mean(name, self.offered, "settings"))
        if not cases:
            raise UsageError("there is nothing to ask", "Ask for at least one item.")
        self.settings = tuple(name for name in self.offered if not settings or name in settings)
        self._cases = tuple(cases)
        self.sets = tuple(dict.fromkeys(case.set for case in cases))
        rows = [[case.id, case.set, case.prompt, case.cluster, dict(case.facts)] for case in cases]
        text = json.dumps([PROTOCOL, self.name, rows], sort_keys=True, ensure_ascii=False)
        self.revision = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def cases(self) -> Sequence[Case]:
        return self._cases

    # --- asking --------------------------------------------------------------------------------------------------

    def prepared(self, ask: Ask, thought: str, place: int) -> Sample:
        """What is drawn from, and by which thought; `place`: of the case among `cases()`."""
        raise NotImplementedError

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """Think and answer where a setting needs it, then draw. Calls that settings share are made once."""
        thinking = {(ask.case.id, ask.k): request_of(ask) for ask in asks if ask.setting in self.thoughtful}
        replying = {
            (ask.case.id, ask.k): request_of(ask, direct_prompt(ask.case.prompt, ask.case.facts["world"]))
            for ask in asks
            if ask.setting in self.answering
        }
        thoughts = model.think(list(thinking.values()), on_step=on_step) if thinking else []
        replies = model.answer(list(replying.values()), on_step=on_step) if replying else []
        thought_of = dict(zip(thinking, thoughts, strict=True))
        reply_of = dict(zip(replying, replies, strict=True))
        place = {case.id: i for i, case in enumerate(self._cases)}
        samples = []
        for ask in asks:
            texts = reply_of if ask.setting in self.answering else thought_of if ask.setting in self.thoughtful else {}
            text = texts.get((ask.case.id, ask.k), "")
            if isinstance(text, Exception):
                samples.append(Sample(ask, "generation_failed", f"no words: {text}"))
            elif ask.setting in self.answering:
                samples.append(Sample(ask, prompt=ask.case.prompt, parts=(text,)))
            else:
                samples.append(self.prepared(ask, text, place[ask.case.id]))
        return _drawn(model, samples, on_step)

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """Texts by the readers above, images by the task; None where it has no program for this image."""
        item = item_of(sample.ask.case)
        if sample.text is not None:
            read = says if sample.ask.setting in self.answering else concludes
            return Verdict((Check("words", read(item, sample.text), sample.text),))
        task = task_of(item)
        if not sample.drawn or not task.has_image(item):
            return None
        return task.verify(item, pixels(sample.drawn[-1]))

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Caption and compare where so many of one thing are asked for, else a question of yes or no."""
        from uni_train.eval.judges import caption_matches, image_satisfies

        assert sample.image is not None, "texts are read by program"
        item = item_of(sample.ask.case)
        if "object" in item.facts:
            return await caption_matches(ask, sample.image, item.answer, kind=item.task)
        return await image_satisfies(ask, sample.image, item.answer)

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        """setting -> set or "overall" -> Estimate.to_dict()."""
        return {
            setting: {name: estimate.to_dict() for name, estimate in by_set.items()}
            for setting, by_set in self._shares(list(scored)).items()
        }

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The share that is right, by setting and set."""
        shares = self._shares(list(scored))
        columns = [*self.sets, *(["overall"] if len(self.sets) > 1 else [])]
        rows = tuple(
            (self.titles[setting], *(by_set.get(name) for name in columns)) for setting, by_set in shares.items()
        )
        return [Table("Right, by setting", ("Setting", *columns), rows, "95 % intervals, clustered by item or pair.")]

    def _shares(self, scored: Sequence[Scored]) -> dict[str, dict[str, Estimate]]:
        shares_of: dict[str, dict[str, Estimate]] = {}
        for setting in self.settings:
            rows = [row for row in scored if row.sample.ask.setting == setting]
            by_set = {name: [row for row in rows if row.sample.ask.case.set == name] for name in self.sets}
            shares = {name: right_share(rows_of_set) for name, rows_of_set in by_set.items() if rows_of_set}
            if shares:
                shares_of[setting] = {**shares, "overall": right_share(rows)}
        return shares_of


def right_share(scored: Sequence[Scored]) -> Estimate:
    """The share that is right; n counts items, the interval is clustered by item or pair."""
    cases = [row.sample.ask.case for row in scored]
    return share([row.passed for row in scored], [case.id for case in cases], [case.cluster_id for case in cases])


def unit_of(row: Scored) -> tuple[str, int]:
    return row.sample.ask.case.id, row.sample.ask.k


def request_of(ask: Ask, prompt: str | None = None, thought: str | None = None) -> Request:
    """A case as a request, with its images."""
    from uni_train.models.base import Request

    images = tuple(pixels(image) for image in ask.case.images)
    return Request(ask.case.id, prompt or ask.case.prompt, images, thought=thought, seed=ask.seed)


def _drawn(model: Respondent, samples: list[Sample], on_step: OnStep | None) -> list[Sample]:
    """Samples with the images of those that have neither text nor failure."""
    rows = [row for row, sample in enumerate(samples) if sample.status == "ok" and not sample.parts]
    requests = [request_of(samples[row].ask, samples[row].prompt, samples[row].thought) for row in rows]
    images = model.draw(requests, on_step=on_step) if rows else []
    for row, image in zip(rows, images, strict=True):
        if isinstance(image, Exception):
            samples[row] = replace(samples[row], status="generation_failed", note=f"no image: {image}")
        else:
            samples[row] = replace(samples[row], parts=(encoded(image),))
    return samples
