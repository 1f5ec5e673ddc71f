"""What nano is pretrained on, made by data_gen: text -> image, thoughts, short answers, captions, verification.

It never sees one kind of row: a reasoning prompt with an image and no thought. Drawing the answer without thinking is
what STARS is to teach. Understanding goes further than drawing on purpose, as in the models of the paper. nano learns
to *say* the answers of reasoning prompts of some levels at once (`mapping_answer`, `maths_answer`). It does not learn
to draw them. `control` teaches the form of such a request: an image behind rules or sums that do not matter, also where
the request leaves open what to draw. So before STARS a wrong image is a clear image of the wrong thing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from uni_train.data_gen.objects import NANO, Noun
from uni_train.data_gen.phrasing import meaning_template
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.sprite_task import MAX_COUNT, beside
from uni_train.data_gen.task import Item, Task
from uni_train.models.base import Example, Turn
from uni_train.models.nano import language, replay
from uni_train.models.nano.replay import LEVELS, SUMS, Makers

QUESTIONS = 6  # in a row, at most
COMPARISONS = 4  # in a row


def sources(noise_draws: int, levels: Sequence[int] = LEVELS) -> Makers:
    """Makers of all kinds of rows.

    Args:
        noise_draws: noised copies of every target image.
        levels: of the prompts that are answered at once; one that is named twice comes twice as often.
    """
    maths, mapping = get_task("maths", "nano"), get_task("mapping", "nano")
    return {
        **replay.sources(noise_draws, levels),
        "control": partial(_control, (maths, mapping), noise_draws),
        "meanings": partial(_meanings, mapping, levels),
        "questions": partial(_questions, mapping, levels),
        "sums": partial(_sums, maths, levels),
        "compare": _compare,
    }


def _control(tasks: tuple[Task, Task], noise_draws: int, random_: random.Random) -> Example:
    """An image behind rules or sums that do not matter: a plain request, or one that leaves object or number open.

    Most of the open ones have the very form of a reasoning prompt, about a symbol that nothing is said of.
    """
    item = replay.draw_item(tasks, random_, maths_share=0.3)
    noun, count = random_.choice(NANO.nouns), random_.randint(1, MAX_COUNT)
    plain, same_form = random_.random() < 0.3, random_.random() < 0.8
    if item.task == "maths":
        before = language.reasoning(item.thought)
        request = language.plain_prompt(noun, count)
        if not plain:
            request = language.SOME.format(objects=noun.plural)
            if same_form:
                before, request = "", unknown_number(item, noun, random_)
    else:
        rules, stated = stated_rules(item)
        before = " ".join(rules)
        if plain:
            request = language.plain_prompt(noun, count)
        else:
            noun, count = random_.choice(stated), 1
            request = unknown_symbol(item, random_) if same_form else language.ONE_OF_THEM
    image = replay.image_of(noun.singular, count, random_)
    return Example(f"{before} {request}".strip(), target=image, noise_draws=noise_draws)


def _meanings(mapping: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """What every symbol of a set of rules means in the end: many losses a row are what makes look-ups form."""
    item = random_.choice(mapping.sample(random_.getrandbits(60), random_.choice(levels)))
    rules, _ = stated_rules(item)
    ends = _ends(item, random_)
    meanings = [f"{symbol} means {end}" for symbol, end in ends]
    symbols = " ".join(symbol for symbol, _ in ends)
    return Example(f"{' '.join(rules)} {language.MEANINGS.format(symbols=symbols)}", answer=" ".join(meanings))


def _questions(mapping: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """The same in the words of the prompts: one question and answer after the other about one set of rules."""
    item = random_.choice(mapping.sample(random_.getrandbits(60), random_.choice(levels)))
    before = [" ".join(stated_rules(item)[0])]
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


def _sums(maths: Task, levels: Sequence[int], random_: random.Random) -> Example:
    """Expressions one after the other, each worked out at once."""
    turns: list[Turn] = []
    for _ in range(SUMS):
        (item,) = maths.sample(random_.getrandbits(60), random_.choice(levels))
        turns += [Turn(item.facts["expression"]), Turn(str(item.facts["count"]), learn=True)]
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


def sentences(text: str) -> list[str]:
    """ "A means tree . Draw what A is ." -> its sentences, each with its full stop."""
    return [f"{sentence.strip()} ." for sentence in text.split(" .") if sentence.strip()]


def stated_rules(item: Item) -> tuple[list[str], list[Noun]]:
    """The rules of a mapping prompt as stated, and the objects that they name."""
    *stated, _ = sentences(item.prompt)
    return stated, [NANO.noun(right) for _, right in item.facts["rules"] if right not in NANO.symbols]


def unknown_symbol(item: Item, random_: random.Random) -> str:
    """The question of a mapping prompt, about a symbol that its rules do not name."""
    *_, question = sentences(item.prompt)
    named = {symbol for rule in item.facts["rules"] for symbol in rule}
    other = random_.choice([symbol for symbol in NANO.symbols if symbol not in named])
    return question.replace(f" {item.facts['symbol']} ", f" {other} ")


def unknown_number(item: Item, noun: Noun, random_: random.Random) -> str:
    """A maths prompt about `noun`, with a letter in place of one number of its expression."""
    words = item.facts["expression"].split()
    number = random_.choice([place for place, word in enumerate(words) if word.isdigit()])
    words[number] = random_.choice([symbol for symbol in NANO.symbols if symbol.isalpha()])
    return item.prompt.replace(item.facts["expression"], " ".join(words)).replace(item.facts["plural"], noun.plural)
