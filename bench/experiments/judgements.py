"""What a model's own judgement refuses, by what an image shows: the filter `self` of STARS on nano.

    python bench/experiment.py judgements --base before=FOLDER --base shipped=shipped --seeds 0 -o n=100

Prompts of the test split are judged beside right images and near misses of the renderer, and beside the model's own
images, as the program reads them. *Words alone* has no image, but what is asked and seen in words. *Compared* refuses
where the reply itself says that it sees something else than is asked: a program compares the model's own words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bench.experiment import SETS, Lab
from bench.markdown import row, table
from uni_train.config.schema import RunConfig
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO, singular_of
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.sprite_task import MAX_COUNT, SEEN, beside
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Scored, with_image
from uni_train.eval.statistics import proportion
from uni_train.eval.task_benchmark import TaskBenchmark, item_of
from uni_train.models.base import Request, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.nano import language
from uni_train.models.nano.replay import damaged
from uni_train.models.pictures import decode_png

KINDS = tuple(SEEN)
REPLY = re.compile(r"Asked (\d+) (\w+) \. Seen (?:(\d+) (\w+)|unclear) \.")


class Judgement(NamedTuple):
    """kind: what the image shows beside what is asked. refused: by the verdict; compared: by its own words."""

    kind: str
    refused: bool
    compared: bool


def judgements(lab: Lab, n: int = 100, sets: Sequence[tuple[str, int]] = SETS) -> Iterator[str]:
    """The share refused of each kind of image; n prompts a level and source."""
    from uni_train.config.compose import compose
    from uni_train.models.load import build_model

    yield from table("refused (compared), of", *KINDS)
    for name, overrides in (lab.bases or {"shipped": ()}).items():
        config = compose("stars_curriculum", [*lab.overrides, *overrides])
        model = build_model(config.model)
        yield row(f"{name}, words alone", *_cells(_words_alone(model, 12 * n, lab.seeds[0])))
        sources: dict[str, list[Judgement]] = {}
        for task, level in sets:
            for source, samples in _samples(model, config, task, level, n, lab.seeds[0]).items():
                sources.setdefault(f"{task}, {source}", []).extend(_judged(model, config, samples))
        for source, judged in sources.items():
            yield row(f"{name}, {source}", *_cells(judged))
    yield ""
    yield f"{n} prompts a level and source; levels are summed; 95 % intervals, number of images."


def _cells(judgements: Sequence[Judgement]) -> Iterator[str]:
    for kind in KINDS:
        those = [judgement for judgement in judgements if judgement.kind == kind]
        if not those:
            yield "-"
            continue
        rate = proportion(sum(judgement.refused for judgement in those), len(those))
        compared = sum(judgement.compared for judgement in those) / len(those)
        yield f"{rate.value:.3f} [{rate.low:.2f}, {rate.high:.2f}] ({compared:.3f}), {len(those)}"


def _words_alone(model: UnifiedModel, n: int, seed: int) -> list[Judgement]:
    draw = random.Random(derive_seed("judgements", seed))
    kinds, requests = [], []
    for number in range(n):
        noun, count, kind = draw.choice(NANO.nouns), draw.randint(1, MAX_COUNT), KINDS[number % len(KINDS)]
        shown = beside(noun.singular, count, draw, kind)
        seen = language.UNCLEAR if shown is None else language.counted(*shown)
        kinds.append(kind)
        requests.append(Request(f"{number}", language.COMPARE.format(asked=noun.counted(count), seen=seen)))
    replies = expect_skill(model, TextGenerator).answer(requests)
    refusals = [language.YES.strip() not in reply for reply in replies]
    return [Judgement(kind, refused, refused) for kind, refused in zip(kinds, refusals, strict=True)]


def _samples(
    model: UnifiedModel, config: RunConfig, task_name: str, level: int, n: int, seed: int
) -> Mapping[str, list[tuple[str, Scored]]]:
    """Where images are from -> what they show beside what is asked, and the samples."""
    from uni_train.stages.batched import Batched

    task = get_task(task_name, "nano")
    items = task.generate(n // task.items_per_draw, level, "test", derive_seed("judgements", seed, task_name, level))
    benchmark = TaskBenchmark.from_items(items, "normal", "cot")
    asks = benchmark.asks(seed)
    draw = random.Random(derive_seed("judgements", seed, task_name, level, "images"))
    rendered = []
    for ask in (ask for ask in asks if ask.setting == "normal"):
        for kind in KINDS:
            sample = with_image(benchmark.prepared(ask, None), _rendered(item_of(ask.case), kind, draw))
            rendered.append((kind, Scored(sample, benchmark.check(sample))))
    samples = {"rendered": rendered}
    drawer = Batched(model, config.model.think_batch)
    for setting, title in (("normal", "Normal images"), ("cot", "CoT images")):
        scored = benchmark.verified(drawer, [ask for ask in asks if ask.setting == setting])
        samples[title] = [(_kind(answer), answer) for answer in scored]
    return samples


def _rendered(item: Item, kind: str, draw: random.Random) -> np.ndarray:
    """An image of this kind, uint8 [24, 24, 3]."""
    name, count = item.facts["object"], item.facts["count"]
    shown = beside(name, count, draw, kind)
    if shown is not None:
        return sprites.render(*shown, draw.getrandbits(60))
    images: Iterator[tuple[np.ndarray, str]] = iter(lambda: damaged(name, count, draw), None)
    return next(image for image, seen in images if seen == language.UNCLEAR)


def _kind(answer: Scored) -> str:
    """What an image of the model shows beside what is asked, as the program reads it."""
    facts = item_of(answer.sample.ask.case).facts
    reading = sprites.read(decode_png(answer.sample.image or b""))
    if reading.name is None:
        return "unclear"
    differs = reading.name != facts["object"], reading.count != facts["count"]
    return {(False, False): "same", (True, False): "other object", (False, True): "other count"}.get(differs, "both")


def _judged(model: UnifiedModel, config: RunConfig, samples: Sequence[tuple[str, Scored]]) -> Iterator[Judgement]:
    from uni_train.recipes.stars.filters import Asking, self_check

    load: Callable[[], UnifiedModel] = lambda: model  # noqa: E731
    verdicts = self_check([sample for _, sample in samples], Asking(config, load))
    for (kind, _), verdict in zip(samples, verdicts, strict=True):
        said = REPLY.search(verdict.checks[0].reason)
        alike = said is not None and (said[1], singular_of(said[2])) == (said[3], singular_of(said[4] or ""))
        yield Judgement(kind, not verdict.passed, not alike)
