"""What the everyday puzzles are about: things of any colour, places to put them, people who move them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from uni_train.data_gen.objects import EVERYDAY, Noun

COLOURS = ("red", "blue", "green", "yellow", "orange", "purple", "white", "black", "pink", "brown")

# Things that come in every colour, look unlike each other, and are no part of the scenes below.
THINGS = (
    "mug", "vase", "notebook", "candle", "umbrella", "backpack", "teapot", "alarm clock", "scarf", "cap", "kite",
    "balloon", "toy car", "teddy bear", "watering can", "lantern", "picture frame", "suitcase", "guitar", "boot",
    "book", "ball", "basket", "toothbrush", "comb", "lunch box", "flashlight", "whistle", "ribbon", "flower pot",
)  # fmt: skip

PEOPLE = (
    "Mia", "Omar", "Lena", "Jonas", "Aisha", "Tom", "the baker", "a neighbour", "the gardener", "a child",
    "the librarian", "the waiter", "a student", "the shopkeeper",
)  # fmt: skip

# (the place as part of a sentence, the place as a scene)
SURFACES = (
    ("tray", "a flat wooden tray seen from above"),
    ("table", "a plain table seen from above"),
    ("picnic blanket", "a picnic blanket seen from above"),
    ("bench", "a long empty bench"),
    ("counter", "a clean kitchen counter"),
    ("rug", "a plain rug seen from above"),
    ("desk", "a tidy desk seen from above"),
    ("plate", "a large white plate seen from above"),
)

SMALL = tuple(
    noun for noun in EVERYDAY.nouns
    if noun.category in ("fruit", "vegetable", "stationery item", "toy") and noun.singular not in ("kite", "balloon")
)  # fmt: skip


def article(thing: str) -> str:
    """ "an orange cap", "a mug"."""
    return f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"


def things(n: int, random_: random.Random) -> list[str]:
    """`n` different things, most with a colour of their own: "red mug", "kite"."""
    colours = random_.sample(COLOURS, n)
    return [
        f"{colour} {thing}" if random_.random() < 0.7 else thing
        for colour, thing in zip(colours, random_.sample(THINGS, n), strict=True)
    ]


def small_things(n: int, random_: random.Random) -> list[Noun]:
    """`n` different countable things that fit on a tray."""
    return random_.sample(SMALL, n)


def person(random_: random.Random) -> str:
    return random_.choice(PEOPLE)


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def scenario(sentences: Sequence[str]) -> str:
    """The body of a prompt that tells a story."""
    return f"Scenario: {' '.join(map(sentence, sentences))}"


def listed(parts: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
