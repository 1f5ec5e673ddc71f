"""What nano is pretrained on, made by data_gen: text -> image, thoughts, short answers, captions, verification.

It never sees one kind of row: a reasoning prompt with an image and no thought. Drawing the answer without thinking is
what STARS is to teach. Understanding goes further than drawing on purpose, as in the models of the paper. nano learns
to *say* the answers of reasoning prompts of some levels at once (`mapping_answer`, `maths_answer`). It does not learn
to draw them. `control` teaches the form of such a request: an image behind rules or sums that do not matter, also where
the request leaves open what to draw. So before STARS a wrong image is a clear image of the wrong thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from uni_train.data_gen import sprites
from uni_train.data_gen.maths.expressions import Expression, show, single
from uni_train.data_gen.maths.task import COUNTS, IN_WORDS
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.phrasing import meaning_template, signs_in_words
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.sprite_task import MAX_COUNT, beside, beside_item
from uni_train.data_gen.task import Item, Task
from uni_train.models.base import Example, Turn
from uni_train.models.nano import language

MATHS_SHARE = 0.6  # of the reasoning prompts; the others are symbol mapping, whose thoughts are learned sooner
SUMS = 8  # in a row
QUESTIONS = 6  # in a row, at most
LEVELS = (1, 2, 3)
COMPARISONS = 4  # in a row
DAMAGED_SHARE = 0.3  # of the images that are captioned


def sources(noise_draws: int, levels: Sequence[int] = LEVELS) -> Mapping[str, Callable[[random.Random], Example]]:
    """Kind of row -> a function that makes one from a random generator.

    Args:
        noise_draws: noised copies of every target image.
        levels: of the prompts that are answered at once; one that is named twice comes twice as often.
    """
    maths, mapping = get_task("maths", "nano"), get_task("mapping", "nano")
    reason = partial(_item, (maths, mapping))
    return {
        "text_to_image": partial(_text_to_image, noise_draws),
        "control": partial(_control, (maths, mapping), noise_draws),
        "cot_image": partial(_cot_image, reason, noise_draws),
        "cot_text": partial(_cot_text, reason),
        "mapping_answer": partial(_answer, mapping, levels),
        "maths_answer": partial(_answer, maths, levels),
        "meanings": partial(_meanings, mapping, levels),
        "questions": partial(_questions, mapping, levels),
        "facts": partial(_facts, _known()),
        "sums": partial(_sums, maths, levels),
        "compare": _compare,
        "caption": _caption,
        "verify": partial(_verify, reason),
    }


def _item(tasks: tuple[Task, Task], random_: random.Random, maths_share: float = MATHS_SHARE) -> Item:
    task = tasks[0] if random_.random() < maths_share else tasks[1]
    return random_.choice(task.sample(random_.getrandbits(60), random_.choice(task.levels)))


def _picture(singular: str, count: int, random_: random.Random) -> np.ndarray:
    return sprites.render(singular, count, random_.getrandbits(60))


def _target(item: Item, random_: random.Random) -> np.ndarray:
    return _picture(item.facts["object"], item.facts["count"], random_)


def _text_to_image(noise_draws: int, random_: random.Random) -> Example:
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    picture = _picture(noun.singular, count, random_)
    return Example(language.plain_prompt(noun, count), target=picture, noise_draws=noise_draws)


def _control(tasks: tuple[Task, Task], noise_draws: int, random_: random.Random) -> Example:
    """An image behind rules or sums that do not matter: a plain request, or one that leaves object or number open.

    Most of the open ones have the very form of a reasoning prompt, about a symbol that nothing is said of.
    """
    item = _item(tasks, random_, maths_share=0.3)
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    plain, same_form = random_.random() < 0.3, random_.random() < 0.8
    if item.task == "maths":
        before = language.reasoning(item.thought)
        request = language.plain_prompt(noun, count)
        if not plain:
            request = language.SOME.format(objects=noun.plural)
            if same_form:
                before, request = "", language.unknown_number(item, noun, random_)
    else:
        rules, stated = language.rules(item)
        before = " ".join(rules)
        if plain:
            request = language.plain_prompt(noun, count)
        else:
            noun, count = random_.choice(stated), 1
            request = language.unknown_symbol(item, random_) if same_form else language.ONE_OF_THEM
    picture = _picture(noun.singular, count, random_)
    return Example(f"{before} {request}".strip(), target=picture, noise_draws=noise_draws)


def _cot_image(reason: Callable[[random.Random], Item], noise_draws: int, random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, thought=item.thought, target=_target(item, random_), noise_draws=noise_draws)


def _cot_text(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    item = reason(random_)
    return Example(item.prompt, thought=item.thought)


def _answer(task: Task, levels: Sequence[int], random_: random.Random) -> Example:
    item = random_.choice(task.sample(random_.getrandbits(60), random_.choice(levels)))
    return Example(item.prompt, answer=language.counted(item.facts["object"], item.facts["count"]))


def _meanings(mapping: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """What every symbol of a set of rules means in the end: many losses a row are what makes look-ups form."""
    item = random_.choice(mapping.sample(random_.getrandbits(60), random_.choice(levels)))
    rules, _ = language.rules(item)
    ends = _ends(item, random_)
    meanings = [f"{symbol} means {end}" for symbol, end in ends]
    symbols = " ".join(symbol for symbol, _ in ends)
    return Example(f"{' '.join(rules)} {language.MEANINGS.format(symbols=symbols)}", answer=" ".join(meanings))


def _questions(mapping: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """The same in the words of the prompts: one question and answer after the other about one set of rules."""
    item = random_.choice(mapping.sample(random_.getrandbits(60), random_.choice(levels)))
    before = [" ".join(language.rules(item)[0])]
    turns: list[Turn] = []
    for symbol, end in _ends(item, random_)[:QUESTIONS]:
        question = meaning_template(random_).format(symbol=symbol)
        turns += [Turn(" ".join([*before, question])), Turn(language.counted(end, 1), learn=True)]
        before = []
    return Example(turns=tuple(turns))


def _ends(item: Item, random_: random.Random) -> list[tuple[str, str]]:
    """Every symbol of a mapping prompt and the object at the end of its chain.

    Symbols far from their object come first, or the answers already given would shorten their chains.
    """
    meaning = dict(item.facts["rules"])
    chains = {}
    for symbol in random_.sample(list(meaning), len(meaning)):
        chains[symbol] = [symbol]
        while chains[symbol][-1] in meaning:
            chains[symbol].append(meaning[chains[symbol][-1]])
    return [(symbol, chains[symbol][-1]) for symbol in sorted(chains, key=lambda symbol: -len(chains[symbol]))]


@cache
def _known() -> tuple[Sequence[Expression], ...]:
    """Facts: those that a prompt of level 1 can ask for, and every step of a longer expression."""
    asked = [fact for fact in single(NANO.max_single) if fact.value in COUNTS]
    return asked, single(NANO.max_value)


def _sums(maths: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """Expressions one after the other, each worked out at once."""
    turns: list[Turn] = []
    for _ in range(SUMS):
        (item,) = maths.sample(random_.getrandbits(60), random_.choice(levels))
        turns += [Turn(item.facts["expression"]), Turn(str(item.facts["count"]), learn=True)]
    return Example(turns=tuple(turns))


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


def _compare(random_: random.Random) -> Example:
    """The last step of a verification alone, without an image: the same or not? One comparison after the other."""
    turns: list[Turn] = []
    for _ in range(COMPARISONS):
        noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
        shown = beside(noun.singular, count, random_)
        asked, seen = noun.counted(count), language.UNCLEAR if shown is None else language.counted(*shown)
        turns += [
            Turn(language.COMPARE.format(asked=asked, seen=seen)),
            Turn(language.judgement(asked, seen), learn=True),
        ]
    return Example(turns=tuple(turns))


def _caption(random_: random.Random) -> Example:
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    if random_.random() < DAMAGED_SHARE:
        image, seen = _damaged(noun.singular, count, random_)
    else:
        image, seen = _picture(noun.singular, count, random_), noun.counted(count)
    return Example(language.CAPTION_PROMPT, images=(image,), answer=language.caption(seen))


def _verify(reason: Callable[[random.Random], Item], random_: random.Random) -> Example:
    """Images that are right, near misses and damaged ones, as often as `SEEN` says."""
    item = reason(random_)
    name, count = item.facts["object"], item.facts["count"]
    shown = beside_item(item, random_)
    if shown is None:
        image, seen = _damaged(name, count, random_)
    else:
        image, seen = _picture(*shown, random_), language.counted(*shown)
    steps, asked = language.reasoning(item.thought), language.counted(name, count)
    prompt = language.VERIFY_PROMPT.format(question=item.prompt)
    return Example(prompt, images=(image,), answer=language.verification(steps, asked, seen))


def _damaged(name: str, count: int, random_: random.Random) -> tuple[np.ndarray, str]:
    """An image that is faint, a blend, of mixed objects or noisy, and what the program reads in it."""
    image, kind = _picture(name, count, random_), random_.random()
    other = _picture(random_.choice([noun.singular for noun in NANO.nouns if noun.singular != name]), count, random_)
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
    clear = reading.name is not None and reading.count is not None and reading.count <= MAX_COUNT
    return image, language.counted(reading.name, reading.count) if clear else language.UNCLEAR  # type: ignore[arg-type]
