"""Whether a model's own judgement, the filter `self` of STARS, sees what an image shows.

    python bench/experiment.py judgements --base before=FOLDER --base shipped=shipped -o n=100

Prompts of the test split are judged beside right images and near misses of the renderer, and beside the model's own
images. The same comparison in words alone has no image. `read` refuses where what the model's reply says is asked
differs from what it says it sees: a program compares the model's own words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bench.experiment import Lab
from bench.markdown import row, table
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO, singular_of
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Scored, with_image
from uni_train.eval.statistics import proportion
from uni_train.eval.task_benchmark import TaskBenchmark, item_of
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.nano.language import UNCLEAR

KINDS = ("same", "other object", "other count", "both", "unclear")
SETS = (("mapping", 1), ("mapping", 2), ("mapping", 3), ("maths", 1), ("maths", 2), ("maths", 3))
SAID = re.compile(r"Asked (\d+) (\w+) \. Seen (?:(\d+) (\w+)|unclear) \.")


class Judged(NamedTuple):
    """A judgement: what the image shows beside what is asked, and who refuses it."""

    kind: str
    refused: bool
    read: bool


def judgements(lab: Lab, n: int = 100, sets: Sequence[tuple[str, int]] = SETS) -> Iterator[str]:
    """Shares refused, for each kind of image; n prompts a set and source."""
    from uni_train.config.compose import compose
    from uni_train.models.load import build_model

    bases = lab.bases or {"shipped": ()}
    yield from table("refused, by its verdict (by its own words compared)", *KINDS)
    for name, overrides in bases.items():
        config = compose("stars_curriculum", [*lab.overrides, *overrides])
        model = build_model(config.model)
        yield row(f"{name}, words alone", *_cells(_in_words(model, 12 * n, lab.seeds[0])))
        sources: dict[str, dict[str, list[Judged]]] = {}
        for task, level in sets:
            for source, samples in _sources(model, config, task, level, n, lab.seeds[0]).items():
                found = _judged(model, config, samples)
                sources.setdefault(source, {}).setdefault(task, []).extend(found)
        for source, tasks in sources.items():
            for task, found in tasks.items():
                yield row(f"{name}, {task}, {source}", *_cells(found))
    yield ""
    yield f"{n} prompts a level and kind of image; levels are summed. Refusals of *same* are errors."


def _cells(judged: Sequence[Judged]) -> list[str]:
    cells = []
    for kind in KINDS:
        those = [one for one in judged if one.kind == kind]
        if not those:
            cells.append("-")
            continue
        rate = proportion(sum(one.refused for one in those), len(those))
        words = sum(one.read for one in those) / len(those)
        cells.append(f"{rate.value:.3f} [{rate.low:.2f}, {rate.high:.2f}] ({words:.3f}), {len(those)}")
    return cells


def _in_words(model: UnifiedModel, n: int, seed: int) -> list[Judged]:
    """Judgements of "Asked ... . Seen ... ." without an image."""
    from uni_train.models.nano import language

    draw = random.Random(derive_seed("judgements", seed))
    kinds, requests = [], []
    for i in range(n):
        noun, count, kind = draw.choice(NANO.nouns), draw.randint(1, 6), KINDS[i % len(KINDS)]
        shown = other_than(noun.singular, count, kind, draw)
        seen = UNCLEAR if shown is None else language.counted(*shown)
        kinds.append(kind)
        requests.append(Request(f"{i}", language.COMPARE.format(asked=noun.counted(count), seen=seen)))
    replies = model.answer(requests)
    return [Judged(kind, "YES" not in reply, "YES" not in reply) for kind, reply in zip(kinds, replies, strict=True)]


def other_than(name: str, count: int, kind: str, draw: random.Random) -> tuple[str, int] | None:
    """The object and count that an image of this kind shows; None where it shows nothing clear."""
    if kind == "unclear":
        return None
    if kind in ("other object", "both"):
        name = draw.choice([noun.singular for noun in NANO.nouns if noun.singular != name])
    if kind in ("other count", "both"):
        count = draw.choice([number for number in range(1, 7) if number != count])
    return name, count


def _sources(model, config, task: str, level: int, n: int, seed: int) -> Mapping[str, list[tuple[str, Scored]]]:
    """Where images are from -> what they show beside what is asked, and the samples."""
    from uni_train.stages.batched import Batched

    made = get_task(task, "nano")
    items = made.generate(n // made.items_per_draw, level, "test", derive_seed("judgements", seed, task, level))
    benchmark = TaskBenchmark.from_items(items, "normal", "cot")
    asks = benchmark.asks(seed)
    draw = random.Random(derive_seed("judgements", seed, task, level, "images"))
    rendered = []
    for ask in asks:
        if ask.setting != "normal":
            continue
        item = item_of(ask.case)
        for kind in KINDS:
            image = image_of(item, kind, draw)
            sample = with_image(benchmark.prepared(ask, None), image)
            rendered.append((kind, Scored(sample, benchmark.check(sample))))
    sources = {"rendered": rendered}
    drawer = Batched(model, config.model.think_batch)
    for setting, name in (("normal", "Normal images"), ("cot", "CoT images")):
        scored = benchmark.verified(drawer, [ask for ask in asks if ask.setting == setting])
        sources[name] = [(shown(item_of(answer.sample.ask.case), answer), answer) for answer in scored]
    return sources


def image_of(item: Item, kind: str, draw: random.Random) -> np.ndarray:
    """A rendered image of this kind, uint8 [24, 24, 3]."""
    from uni_train.models.nano.replay import damaged

    asked = item.facts["object"], item.facts["count"]
    while True:
        if kind == "unclear":
            image, seen = damaged(*asked, draw)
            if seen == UNCLEAR:
                return image
        else:
            return sprites.render(*(other_than(*asked, kind, draw) or asked), draw.getrandbits(60))


def shown(item: Item, answer: Scored) -> str:
    from uni_train.models.pictures import decode_png

    reading = sprites.read(decode_png(answer.sample.image))
    if not reading.readable or reading.name is None:
        return "unclear"
    other = reading.name != item.facts["object"], reading.count != item.facts["count"]
    return {(False, False): "same", (True, False): "other object", (False, True): "other count"}.get(other, "both")


def _judged(model: UnifiedModel, config, samples: Sequence[tuple[str, Scored]]) -> list[Judged]:
    from uni_train.recipes.stars.filters import Asking, self_check

    verdicts = self_check([sample for _, sample in samples], Asking(config, lambda: model))
    found = []
    for (kind, _), verdict in zip(samples, verdicts, strict=True):
        found.append(Judged(kind, not verdict.passed, not alike(verdict.checks[0].reason)))
    return found


def alike(reply: str) -> bool:
    said = SAID.search(reply)
    return said is not None and said[1] == said[3] and singular_of(said[2]) == singular_of(said[4])
