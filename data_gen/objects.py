"""What the tasks are about: nouns with their exact plurals, and the two worlds they live in.

NANO has the twelve nouns that data_gen.sprites draws; EVERYDAY the kind of objects the paper's prompts use
(UniSandbox, Tables 6 to 8). A noun's category is the word a prompt may ask with ("generate the fruit represented by").
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from data_gen.errors import DataError


@dataclass(frozen=True, slots=True)
class Noun:
    """A countable thing."""

    singular: str
    plural: str
    category: str

    def counted(self, n: int) -> str:
        """ "1 knife", "3 knives"."""
        return f"{n} {self.singular if n == 1 else self.plural}"


@dataclass(frozen=True, slots=True)
class World:
    """Nouns, symbols and bounds. `terse` worlds speak in space-separated tokens for a word-level tokenizer.

    max_operand: the largest number written in an expression; max_value: the largest intermediate value.
    symbols: what a mapping may call things; each is one token.
    """

    name: str
    nouns: tuple[Noun, ...]
    symbols: tuple[str, ...]
    max_operand: int
    max_value: int
    terse: bool

    def noun(self, singular: str) -> Noun:
        for noun in self.nouns:
            if noun.singular == singular:
                return noun
        raise DataError(f'the {self.name} world has no "{singular}"')


def _nouns(category: str, words: str) -> tuple[Noun, ...]:
    """ "apple, knife/knives" -> nouns; without a slash the plural takes an s."""
    nouns = []
    for word in words.split(", "):
        singular, _, plural = word.partition("/")
        nouns.append(Noun(singular, plural or singular + "s", category))
    return tuple(nouns)


NANO = World(
    name="nano",
    nouns=(
        *_nouns("fruit", "apple, banana"),
        *_nouns("kitchen item", "cup"),
        *_nouns("shape", "star, heart"),
        *_nouns("plant", "tree, leaf/leaves"),
        *_nouns("animal", "fish/fish"),
        *_nouns("object", "key, house, moon"),
        *_nouns("toy", "ball"),
    ),
    symbols=tuple("ABCDEFGHJK" + "123456789" + "@#$&!~*"),
    max_operand=36,
    max_value=36,
    terse=True,
)

EVERYDAY = World(
    name="everyday",
    nouns=(
        *_nouns("fruit", "apple, banana, orange, lemon, pear, strawberry/strawberries, cherry/cherries, peach/peaches, "
                "mango/mangoes"),
        *_nouns("vegetable", "carrot, tomato/tomatoes, potato/potatoes, onion, cucumber"),
        *_nouns("animal", "dog, cat, rabbit, mouse/mice, sheep/sheep, goose/geese, fish/fish, horse, duck, frog, "
                "butterfly/butterflies, deer/deer, puppy/puppies"),
        *_nouns("stationery item", "pencil, notebook, eraser, ruler, pen, marker, envelope, paintbrush/paintbrushes"),
        *_nouns("piece of furniture", "chair, table, lamp, sofa, desk, bench/benches, bookshelf/bookshelves, bed"),
        *_nouns("kitchen item", "cup, plate, spoon, fork, knife/knives, bowl, bottle, teapot, pan, glass/glasses"),
        *_nouns("toy", "ball, kite, doll, balloon, yo-yo, toy car, teddy bear"),
        *_nouns("clothing item", "hat, shirt, sock, scarf/scarves, glove, dress/dresses, watch/watches, belt"),
        *_nouns("vehicle", "car, bicycle, bus/buses, boat, truck, train"),
        *_nouns("musical instrument", "guitar, drum, piano, violin, trumpet"),
        *_nouns("device", "phone, laptop, camera, clock, radio"),
        *_nouns("plant", "tree, flower, cactus/cacti, leaf/leaves"),
    ),
    symbols=tuple("ABCDEFGHJKLMNPQRSTUVWXYZ" + "0123456789" + "@#$%^&*!?~+<>"),
    max_operand=99,
    max_value=99,
    terse=False,
)  # fmt: skip

WORLDS = {world.name: world for world in (NANO, EVERYDAY)}


def get_world(name: str) -> World:
    """ "nano" or "everyday"; the error names the nearest."""
    if name in WORLDS:
        return WORLDS[name]
    close = difflib.get_close_matches(name, list(WORLDS), n=1, cutoff=0.5)
    hint = f'did you mean "{close[0]}"?' if close else "known: " + ", ".join(WORLDS)
    raise DataError(f'there is no world "{name}": {hint}')
