"""The language of nano: its fixed sentences beside the prompts of tasks, and its vocabulary.

BAGEL takes long English instructions (`eval.prompts`); nano knows a few hundred words, so its filter instruction is
one sentence. Its reply follows Table 13 of UniSandbox all the same: work out what is asked, say what is seen, check
number and object, judge.
"""

from __future__ import annotations

import random

from uni_train.data_gen.objects import NANO, Noun, singular_of
from uni_train.data_gen.phrasing import nano_vocabulary
from uni_train.data_gen.task import Item

THINK_SYSTEM = "think"
CAPTION_PROMPT = "Caption :"
VERIFY_PROMPT = "Question : {question} Is the image right ?"
MEANINGS = "what {symbols} ?"
SOME, ONE_OF_THEM = "Draw some {objects} .", "Draw one of them ."
COMPARE = "Asked {asked} . Seen {seen} ."
YES, NO = "\nFinal Answer: YES", "\nFinal Answer: NO"
UNCLEAR = "unclear"

_WORDS = ("think", "Caption", ":", "Caption:", "Question", "Is", "the", "image", "right", "wrong", "?")
# "Count", "by" and "from" are in no row any more; the shipped checkpoint has them.
_MORE_WORDS = ("Count", "by", "from", "some", "any", "object", "one", "of", "them")
_REPLY_WORDS = ("Asked", "Seen", "unclear", "Number", "Object", "Draw", "\n", "Final", "Answer:", "YES", "NO")


def vocabulary() -> tuple[str, ...]:
    """Every word that can be said to nano or by it, in a fixed order."""
    return tuple(dict.fromkeys([*nano_vocabulary(), *_WORDS, *_MORE_WORDS, *_REPLY_WORDS]))


def plain_prompt(noun: Noun, count: int) -> str:
    """A text-to-image prompt that says what to draw: "Draw 3 apples ."."""
    return f"Draw {noun.counted(count)} ."


def counted(singular: str, count: int) -> str:
    """ "3 apples"."""
    return NANO.noun(singular).counted(count)


def caption(seen: str) -> str:
    return f"Caption: {seen}"


def verification(steps: str, asked: str, seen: str) -> str:
    """The reply to `VERIFY_PROMPT`: the reasoning, what is asked, what is seen, then the `judgement`."""
    return f"{steps} {COMPARE.format(asked=asked, seen=seen)} {judgement(asked, seen)}"


def judgement(asked: str, seen: str) -> str:
    """Both criteria in words, "Number : right . Object : wrong .", and on a line of its own "Final Answer: NO"."""
    if seen == UNCLEAR:
        number = object_ = False
    else:
        (wanted, thing), (count, shown) = asked.split(), seen.split()
        number, object_ = wanted == count, singular_of(thing) == singular_of(shown)
    words = {True: "right", False: "wrong"}
    verdict = YES if number and object_ else NO
    return f"Number : {words[number]} . Object : {words[object_]} .{verdict}"


def sentences(text: str) -> list[str]:
    """ "A means tree . Draw what A is ." -> its sentences, each with its full stop."""
    return [f"{sentence.strip()} ." for sentence in text.split(" .") if sentence.strip()]


def rules(item: Item) -> tuple[list[str], list[Noun]]:
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


def reasoning(thought: str) -> str:
    """The steps of a thought without its conclusion "So draw ..."."""
    return thought.rpartition("So draw")[0].strip()
