"""The words around the puzzle: how a world asks for a number of objects or a symbol's meaning, and thinks aloud.

Nano speaks in space-separated tokens and few words; everyday in ordinary English after the paper's examples
(UniSandbox, Tables 6 to 8). Which phrasing is used is a random choice of the caller's generator and is no part of the
canonical form.
"""

from __future__ import annotations

import random

from data_gen.objects import NANO, Noun, World

NANO_COUNTS = (
    "Draw as many {objects} as {expression} .",
    "Draw the number of {objects} equal to {expression} .",
    "Show as many {objects} as the result of {expression} .",
    "Compute {expression} and draw that many {objects} .",
)
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
LINKS = ("represents", "means", "denotes", "stands for", "refers to", "corresponds to")


def ask_count(world: World, noun: Noun, expression: str, random_: random.Random) -> str:
    """A maths prompt: how many of `noun` to draw."""
    choices = NANO_COUNTS if world.terse else EVERYDAY_COUNTS
    return random_.choice(choices).format(objects=noun.plural, expression=expression)


def conclude_count(world: World, steps: list[str], noun: Noun, count: int) -> str:
    """The thought of a maths item: the steps, then what to draw."""
    if world.terse:
        return " . ".join([*steps, f"So draw {noun.counted(count)} ."])
    return " ".join([*(f"{step}." for step in steps), f"So draw {noun.counted(count)}."])


def name_symbol(symbol: str) -> str:
    """ "the letter A", "the number 7", "the symbol @"."""
    kind = "letter" if symbol.isalpha() else "number" if symbol.isdigit() else "symbol"
    return f"the {kind} {symbol}"


def state_rule(world: World, left: str, right: str | Noun, link: str) -> str:
    """One rule without its number: "@ means 7 ." or "The symbol @ represents apples."."""
    if world.terse:
        return f"{left} means {right.singular if isinstance(right, Noun) else right} ."
    meaning = right.plural if isinstance(right, Noun) else name_symbol(right)
    subject = name_symbol(left)
    return f"{subject[0].upper()}{subject[1:]} {link} {meaning}."


def ask_meaning(world: World, rules: list[str], symbol: str, category: str) -> str:
    """A mapping prompt from its stated rules: what `symbol` stands for is to be drawn."""
    if world.terse:
        return " ".join([*rules, f"Draw what {symbol} means ."])
    numbered = [f"Rule {i}: {rule}" for i, rule in enumerate(rules, 1)]
    return " ".join([*numbered, f"Please generate the {category} represented by {name_symbol(symbol)}."])


def conclude_meaning(world: World, rules: list[str], noun: Noun) -> str:
    """The thought of a mapping item: the rules of its chain in order, then what to draw."""
    if world.terse:
        return " ".join([*rules, f"So draw {noun.counted(1)} ."])
    return " ".join([*rules, f"So draw {noun.plural}."])


def nano_vocabulary() -> tuple[str, ...]:
    """Every token that a nano prompt, thought or answer can contain, in a fixed order (numbers, signs, words)."""
    words = {w for text in NANO_COUNTS for w in text.split() if "{" not in w} | {"So", "what", "means", "=", "draw"}
    numbers = [str(i) for i in range(max(NANO.max_value, NANO.max_operand) + 1)]
    signs = ["+", "-", "*", "/", "^", "%", "√", "(", ")"]
    nouns = [form for noun in NANO.nouns for form in (noun.singular, noun.plural)]
    return tuple(dict.fromkeys([*numbers, *signs, *NANO.symbols, *nouns, *sorted(words)]))
