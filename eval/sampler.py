"""Items of tasks, asked of a model: for training, and for evaluation.

    normal: draw(prompt)                    cot: think(prompt) -> thought, draw(prompt, thought)

Thought and image of a sample depend on its case, its setting and its seed alone. A task's verifier checks images that
programs can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uni_train.data_gen.registry import set_name, task_of
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item, Verdict
from uni_train.eval.benchmark import Ask, Case, Respondent, Sample, Scored, think_and_draw
from uni_train.eval.images import StoredImage, encoded, pixels
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    import numpy as np

    from uni_train.models.base import OnStep, Request

LABELS = ("official", "corrected")
"""Of an answer: as published, and recomputed. Those of our own items are both."""


class Sampler:
    """Items in one setting, "normal" or "cot"."""

    def __init__(self, items: Sequence[Item], setting: str) -> None:
        self.cases, self.setting = tuple(item_case(item) for item in items), setting

    def asks(self, seed: int, draws: int = 1) -> list[Ask]:
        """Every case `draws` times; a sample's seed follows from (run seed, prompt, setting, k)."""
        return [
            Ask(case, self.setting, k, derive_seed(seed, case.id, self.setting, k))
            for case in self.cases
            for k in range(draws)
        ]

    def sample(self, model: Respondent, asks: Sequence[Ask]) -> list[Scored]:
        """What the model makes of them, each verified if a program can."""
        return [Scored(sample, verified(sample)) for sample in drawn(model, asks)]


def drawn(model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
    """A sample with an image of each ask. Cases that share a drawing (`drawn_as`) and a seed are asked once."""
    from uni_train.models.base import Request

    def key(ask: Ask) -> tuple[str, bool, int]:
        return ask.case.facts["drawn_as"], ask.setting == "cot", ask.seed

    requests: dict[tuple[str, bool, int], Request] = {}
    for ask in asks:
        shown = tuple(pixels(image) for image in ask.case.images)
        requests.setdefault(key(ask), Request(ask.case.facts["drawn_as"], ask.case.prompt, shown, seed=ask.seed))
    aloud = {place: request for place, request in requests.items() if place[1]}
    at_once = {place: request for place, request in requests.items() if not place[1]}
    thoughts: dict[tuple[str, bool, int], str | Exception] = {}
    images: dict[tuple[str, bool, int], np.ndarray | StoredImage | Exception] = {}
    if at_once:
        images.update(zip(at_once, model.draw(list(at_once.values()), on_step=on_step), strict=True))
    if aloud:
        texts, by_thought = think_and_draw(model, list(aloud.values()), on_step)
        thoughts.update(zip(aloud, texts, strict=True))
        images.update(zip(aloud, by_thought, strict=True))
    samples = []
    for ask in asks:
        thought, image = thoughts.get(key(ask)), images[key(ask)]
        if isinstance(thought, Exception):
            samples.append(Sample(ask, "generation_failed", f"no thought: {thought}", prompt=ask.case.prompt))
        elif isinstance(image, Exception):
            note = f"no image: {image}"
            samples.append(Sample(ask, "generation_failed", note, prompt=ask.case.prompt, thought=thought))
        else:
            samples.append(Sample(ask, prompt=ask.case.prompt, thought=thought, parts=(encoded(image),)))
    return samples


def verified(sample: Sample) -> Verdict | None:
    """What the task's verifier says of the last image; None where there is none, or no program can read it."""
    if not sample.drawn:
        return None
    item = item_of(sample.ask.case)
    task = task_of(item)
    return task.verify(item, pixels(sample.drawn[-1])) if task.has_image(item) else None


# --- items as cases ---------------------------------------------------------------------------------------------------


def item_case(item: Item) -> Case:
    """An item as it is asked and stored."""
    shown = task_of(item).input_image(item)
    category = "" if item.pair is None else f"question {item.id[-1]}"
    return Case(
        id=item.id,
        set=set_of(item),
        prompt=item.prompt,
        images=() if shown is None else (encode_png(shown),),
        cluster=item.pair,
        category=count_of_objects(int(item.facts["count"]))
        if "count" in item.facts and item.pair is None
        else category,
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
    return str(item.facts.get("set") or set_name(item.task, item.level))


def count_of_objects(count: int) -> str:
    """ "1 object", "3 objects"."""
    return "1 object" if count == 1 else f"{count} objects"
