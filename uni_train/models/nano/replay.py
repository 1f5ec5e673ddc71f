"""Rows of nano's pretraining that STARS and distillation replay, so that what they do not train stays as it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from uni_train.data_gen import sprites
from uni_train.data_gen.maths.expressions import Expression, show, single
from uni_train.data_gen.maths.task import COUNTS, IN_WORDS
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.phrasing import signs_in_words
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.sprite_task import MAX_COUNT, beside_item
from uni_train.data_gen.task import Item, Task
from uni_train.models.base import Example, Turn
from uni_train.models.nano import language

MATHS_SHARE = 0.6  # of the reasoning prompts; the others are symbol mapping, whose thoughts are learned sooner
SUMS = 8  # in a row
LEVELS = (1, 2, 3)
DAMAGED_SHARE = 0.4  # of the images that are captioned

Makers = Mapping[str, Callable[[random.Random], Example]]
"""Kind of row -> a function that makes one from a random generator."""


def sources(noise_draws: int, levels: Sequence[int] = LEVELS) -> Makers:
    """Makers of the kinds that are replayed; their arguments are those of `corpus.sources`."""
    maths, mapping = get_task("maths", "nano"), get_task("mapping", "nano")
    reason = partial(draw_item, (maths, mapping))
    return {
        "text_to_image": partial(_text_to_image, noise_draws),
        "cot_image": partial(_cot_image, reason, noise_draws),
        "cot_text": partial(_cot_text, reason),
        "mapping_answer": partial(_answer, mapping, levels),
        "maths_answer": partial(_answer, maths, levels),
        "facts": partial(_facts, _known()),
        "caption": _caption,
        "verify": partial(_verify, reason),
    }


def draw_item(tasks: tuple[Task, Task], random_: random.Random, maths_share: float = MATHS_SHARE) -> Item:
    task = tasks[0] if random_.random() < maths_share else tasks[1]
    return random_.choice(task.sample(random_.getrandbits(60), random_.choice(task.levels)))


def image_of(singular: str, count: int, random_: random.Random) -> np.ndarray:
    return sprites.render(singular, count, random_.getrandbits(60))


def _text_to_image(noise_draws: int, random_: random.Random) -> Example:
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    target = image_of(noun.singular, count, random_)
    return Example(language.plain_prompt(noun, count), target=target, noise_draws=noise_draws)


def _cot_image(reason: Callable[[random.Random], Item], noise_draws: int, random_: random.Random) -> Example:
    item = reason(random_)
    target = image_of(item.facts["object"], item.facts["count"], random_)
    return Example(item.prompt, thought=item.thought, target=target, noise_draws=noise_draws)


def _cot_text(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, thought=item.thought)


def _answer(task: Task, levels: Sequence[int], random_: random.Random) -> Example:
    item = random_.choice(task.sample(random_.getrandbits(60), random_.choice(levels)))
    return Example(item.prompt, answer=language.counted(item.facts["object"], item.facts["count"]))


@cache
def _known() -> tuple[Sequence[Expression], ...]:
    """Facts: those that a prompt of level 1 can ask for, and every step of a longer expression."""
    asked = [fact for fact in single(NANO.max_single) if fact.value in COUNTS]
    return asked, single(NANO.max_value)


def _facts(known: tuple[Sequence[Expression], ...], random_: random.Random) -> Example:
    """Expressions of one operation, of every split: what a model knows of arithmetic before anybody asks it to draw."""
    turns: list[Turn] = []
    for _ in range(SUMS):
        expression = random_.choice(random_.choice(known))
        text = show(expression, spaced=True)
        if random_.random() < IN_WORDS:
            text = signs_in_words(text)
        turns += [Turn(text), Turn(str(expression.value), learn=True)]
    return Example(turns=tuple(turns))


def _caption(random_: random.Random) -> Example:
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    if random_.random() < DAMAGED_SHARE:
        image, seen = damaged(noun.singular, count, random_)
    else:
        image, seen = image_of(noun.singular, count, random_), noun.counted(count)
    return Example(language.CAPTION_PROMPT, images=(image,), answer=language.caption(seen))


def _verify(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    """Images that are right, near misses and damaged ones, as often as `sprite_task.SEEN` says."""
    item = reason(random_)
    name, count = item.facts["object"], item.facts["count"]
    shown = beside_item(item, random_)
    if shown is None:
        image, seen = damaged(name, count, random_)
    else:
        image, seen = image_of(*shown, random_), language.counted(*shown)
    steps, asked = language.reasoning(item.thought), language.counted(name, count)
    prompt = language.VERIFY_PROMPT.format(question=item.prompt)
    return Example(prompt, images=(image,), answer=language.verification(steps, asked, seen))


def damaged(name: str, count: int, random_: random.Random) -> tuple[np.ndarray, str]:
    """An image that is faint, a blend, of mixed objects or noisy, and what the program reads in it."""
    image, kind = image_of(name, count, random_), random_.random()
    other = image_of(random_.choice([noun.singular for noun in NANO.nouns if noun.singular != name]), count, random_)
    if kind < 0.65:
        over, share = (other, random_.uniform(0.2, 0.8)) if kind < 0.5 else (sprites.empty(), random_.uniform(0.1, 0.6))
        image = (share * image + (1 - share) * over).astype(np.uint8)
    elif kind < 0.85:
        image = image.copy()
        sprites.cell(image, random_.randrange(count) if count > 1 else 1)[...] = sprites.cell(other, 0)
    else:
        grain = np.random.default_rng(random_.getrandbits(60)).normal(0, random_.uniform(20, 90), image.shape)
        image = np.clip(image + grain, 0, 255).astype(np.uint8)
    reading = sprites.read(image)
    if reading.name is None or reading.count is None:
        return image, language.UNCLEAR
    return image, language.counted(reading.name, reading.count)
