"""The words around the puzzle: how a world asks for a number of objects or a symbol's meaning, and thinks aloud.

Nano speaks in space-separated tokens and few words; everyday in ordinary English after the paper's examples
(UniSandbox, Tables 6 to 8). Which phrasing is used is a random choice of the caller's generator and is no part of the
canonical form.
"""

from __future__ import annotations

import random
import re

from uni_train.data_gen.objects import NANO, Noun, World

NANO_COUNTS = (
    "Draw as many {objects} as {expression} .",
    "Draw the number of {objects} equal to {expression} .",
    "Show as many {objects} as the result of {expression} .",
    "Compute {expression} and draw that many {objects} .",
    "Draw {objects} : as many as {expression} .",
    "How many is {expression} ? Draw that many {objects} .",
    "Show {objects} equal in number to {expression} .",
)
NANO_NUMBERS = 81  # 0 to 80: the world may grow without another vocabulary
NANO_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "over", "%": "modulo"}
NANO_LINKS = ("means", "is", "denotes")
NANO_MEANINGS = ("Draw what {symbol} {link} .", "Show what {symbol} {link} .", "Draw the object denoted by {symbol} .")
EVERYDAY_COUNTS = (
    "Generate as many {objects} as the result of {expression}.",
    "Please draw as many {objects} as {expression} gives.",
    "Produce a number of {objects} equal to {expression}.",
    "Show exactly as many {objects} as {expression} equals.",
    "Create a picture of the number of {objects} that you get from {expression}.",
    "Work out {expression} and draw that many {objects}.",
    "Paint {objects}: as many of them as the value of {expression}.",
    "The picture must show as many {objects} as {expression}.",
)
CONCLUSION = "So draw"  # comes before the result in thoughts
LINKS = ("represents", "means", "denotes", "stands for", "refers to", "corresponds to")


def ask_count(world: World, noun: Noun, expression: str, random_: random.Random) -> str:
    """A maths prompt: how many of `noun` to draw."""
    choices = NANO_COUNTS if world.terse else EVERYDAY_COUNTS
    return random_.choice(choices).format(objects=noun.plural, expression=expression)


def conclude_count(world: World, steps: list[str], noun: Noun, count: int) -> str:
    """The thought of a maths item: the steps, then what to draw."""
    if world.terse:
        return " . ".join([*steps, f"{CONCLUSION} {noun.counted(count)} ."])
    return " ".join([*(f"{step}." for step in steps), f"{CONCLUSION} {noun.counted(count)}."])


def signs_in_words(text: str) -> str:
    """ "8 - 5" -> "8 minus 5", in nano's words."""
    return " ".join(NANO_SIGNS.get(token, token) for token in text.split())


def name_symbol(symbol: str) -> str:
    """ "the letter A", "the number 7", "the symbol @"."""
    kind = "letter" if symbol.isalpha() else "number" if symbol.isdigit() else "symbol"
    return f"the {kind} {symbol}"


def state_rule(world: World, left: str, right: str | Noun, link: str) -> str:
    """One rule without its number: "@ means 7 ." or "The symbol @ represents apples."."""
    if world.terse:
        return f"{left} {link} {right.singular if isinstance(right, Noun) else right} ."
    meaning = right.plural if isinstance(right, Noun) else name_symbol(right)
    subject = name_symbol(left)
    return f"{subject[0].upper()}{subject[1:]} {link} {meaning}."


def ask_meaning(world: World, rules: list[str], symbol: str, category: str, template: str) -> str:
    """A mapping prompt from its stated rules: what `symbol` stands for is to be drawn. `template`: of a terse world."""
    if world.terse:
        return " ".join([*rules, template.format(symbol=symbol)])
    numbered = [f"Rule {i}: {rule}" for i, rule in enumerate(rules, 1)]
    return " ".join([*numbered, f"Please generate the {category} represented by {name_symbol(symbol)}."])


def meaning_template(random_: random.Random) -> str:
    """How a terse world asks for a symbol's meaning, with "{symbol}" left open."""
    return random_.choice(NANO_MEANINGS).replace("{link}", random_.choice(NANO_LINKS))


def conclude_meaning(world: World, rules: list[str], noun: Noun) -> str:
    """The thought of a mapping item: the rules of its chain in order, then what to draw."""
    if world.terse:
        return " ".join([*rules, f"{CONCLUSION} {noun.counted(1)} ."])
    return " ".join([*rules, f"{CONCLUSION} {noun.plural}."])


_FORMS = {form: noun.singular for noun in NANO.nouns for form in (noun.singular, noun.plural)}
_COUNTED = re.compile(rf"(?<!\S)(\d{{1,9}}) ({'|'.join(sorted(_FORMS, key=len, reverse=True))})(?!\S)")


def counted(text: str) -> frozenset[tuple[int, str]]:
    """What a text in nano's words counts: "So draw 3 apples ." -> {(3, "apple")}."""
    return frozenset((int(count), _FORMS[noun]) for count, noun in _COUNTED.findall(text))


def nano_vocabulary() -> tuple[str, ...]:
    """Every token that a nano prompt, thought or answer can contain, in a fixed order (numbers, signs, words)."""
    templates = (*NANO_COUNTS, *NANO_MEANINGS, *NANO_LINKS, *NANO_SIGNS.values(), "So = draw")
    words = {w for text in templates for w in text.split() if "{" not in w}
    numbers = [str(i) for i in range(NANO_NUMBERS)]
    signs = ["+", "-", "*", "/", "^", "%", "√", "(", ")"]
    nouns = [form for noun in NANO.nouns for form in (noun.singular, noun.plural)]
    return tuple(dict.fromkeys([*numbers, *signs, *NANO.symbols, *nouns, *sorted(words)]))
