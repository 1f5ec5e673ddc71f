"""What nano is pretrained on, made by data_gen: text -> image, thoughts, short answers, captions, verification.

There is one kind of row that it never sees: a reasoning prompt with an image and no thought. Drawing the answer without
thinking is what STARS is to teach. Understanding goes further than drawing on purpose, as in the models of the paper:
nano learns to *say* the answer of a reasoning prompt at once (`direct_answer`), but not to draw it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from data_gen import sprites
from data_gen.objects import NANO
from data_gen.task import Item, Task, get_task
from uni_train.models.base import Example
from uni_train.models.nano import language

MAX_COUNT = 6
MATHS_SHARE = 0.4  # of the reasoning prompts; the others are symbol mapping, whose look-ups take longer to learn
CHAIN_LINKS = 2  # of `chain_answer`: the shortest chain that one look-up does not answer
UNCLEAR_SHARE = 0.2  # of the pictures that are captioned


def sources(noise_draws: int) -> Mapping[str, Callable[[random.Random], Example]]:
    """Kind of row -> a function that makes one from a random generator.

    Args:
        noise_draws: noised copies of every target image.
    """
    tasks = (get_task("maths", "nano"), get_task("mapping", "nano"))
    reason = partial(_item, tasks)
    return {
        "text_to_image": partial(_text_to_image, noise_draws),
        "cot_image": partial(_cot_image, reason, noise_draws),
        "cot_text": partial(_cot_text, reason),
        "direct_answer": partial(_direct_answer, reason),
        "chain_answer": partial(_direct_answer, partial(_chain, tasks[1])),
        "explain": _explain,
        "compare": _compare,
        "caption": _caption,
        "verify": partial(_verify, reason),
    }


def _item(tasks: tuple[Task, Task], random_: random.Random) -> Item:
    task = tasks[0] if random_.random() < MATHS_SHARE else tasks[1]
    return random_.choice(task.sample(random_.getrandbits(60), random_.choice(task.levels)))


def _chain(mapping: Task, random_: random.Random) -> Item:
    return random_.choice(mapping.sample(random_.getrandbits(60), CHAIN_LINKS))


def _picture(singular: str, count: int, random_: random.Random) -> np.ndarray:
    return sprites.render(singular, count, random_.getrandbits(60))


def _target(item: Item, random_: random.Random) -> np.ndarray:
    return _picture(item.facts["object"], item.facts["count"], random_)


def _text_to_image(noise_draws: int, random_: random.Random) -> Example:
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    picture = _picture(noun.singular, count, random_)
    return Example(language.plain_prompt(noun, count), target=picture, noise_draws=noise_draws)


def _cot_image(reason: Callable[[random.Random], Item], noise_draws: int, random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, thought=item.thought, target=_target(item, random_), noise_draws=noise_draws)


def _cot_text(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, thought=item.thought)


def _direct_answer(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, answer=language.counted(item.facts["object"], item.facts["count"]))


def _explain(random_: random.Random) -> Example:
    """Many look-ups in one row: teaches to find what a symbol stands for, the skill that mapping rests on."""
    links = random_.randint(3, 7)
    symbols = random_.sample(NANO.symbols, 2 * links)
    rules = [
        f"{left} means {right if random_.random() < 0.5 else random_.choice(NANO.nouns).singular} ."
        for left, right in zip(symbols[::2], symbols[1::2], strict=True)
    ]
    asked = random_.sample(range(links), links)
    question = language.EXPLAIN.format(symbols=" ".join(symbols[2 * i] for i in asked))
    return Example(f"{' '.join(rules)} {question}", answer=" ".join(rules[i] for i in asked))


def _compare(random_: random.Random) -> Example:
    """The last step of a verification alone, without a picture: the same or not?"""
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    other_noun = noun if random_.random() < 0.6 else random_.choice(NANO.nouns)
    other_count = count if random_.random() < 0.6 else random_.randint(1, MAX_COUNT)
    asked = noun.counted(count)
    seen = language.UNCLEAR if random_.random() < 0.1 else other_noun.counted(other_count)
    return Example(language.COMPARE.format(asked=asked, seen=seen), answer=language.judgement(asked, seen))


def _caption(random_: random.Random) -> Example:
    image, seen = _shown(random_, UNCLEAR_SHARE)
    return Example(language.CAPTION_PROMPT, images=(image,), answer=language.caption(seen))


def _verify(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    """Half of the images are right; the others show another count, another object, or nothing clear."""
    item = reason(random_)
    name, count = item.facts["object"], item.facts["count"]
    asked = language.counted(name, count)
    if random_.random() < 0.5:
        image, seen = _target(item, random_), asked
    elif random_.random() < 0.4:
        other = random_.choice([n for n in range(1, MAX_COUNT + 1) if n != count])
        image, seen = _picture(name, other, random_), language.counted(name, other)
    elif random_.random() < 0.5 and "other" in item.facts:
        image, seen = _picture(item.facts["other"], count, random_), language.counted(item.facts["other"], count)
    else:
        image, seen = _shown(random_, 0.5)
    steps = language.reasoning(item.thought)
    prompt = language.VERIFY_PROMPT.format(question=item.prompt)
    return Example(prompt, images=(image,), answer=language.verification(steps, asked, seen))


def _shown(random_: random.Random, unclear: float) -> tuple[np.ndarray, str]:
    """A picture and what it shows; a share of `unclear` shows nothing clear: a blend, mixed objects or noise."""
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    image = _picture(noun.singular, count, random_)
    if random_.random() >= unclear:
        return image, noun.counted(count)
    other = _picture(random_.choice([n for n in NANO.nouns if n != noun]).singular, count, random_)
    kind = random_.random()
    if kind < 0.5:
        share = random_.uniform(0.35, 0.65)
        image = (share * image + (1 - share) * other).astype(np.uint8)
    elif kind < 0.75:
        cell = sprites.CELL
        image = image.copy()
        image[:cell, :cell] = other[:cell, :cell]
        if count == 1:  # swapping the only object would leave a clean picture of the other one
            image[:cell, cell : 2 * cell] = _picture(noun.singular, 1, random_)[:cell, :cell]
    else:
        grain = np.random.default_rng(random_.getrandbits(60)).normal(0, 90, image.shape)
        image = np.clip(image + grain, 0, 255).astype(np.uint8)
    return image, language.UNCLEAR
