"""What the tasks are about: nouns with their exact plurals, and the two worlds they live in.

NANO has the twelve nouns that uni_train.data_gen.sprites draws; EVERYDAY the kind of objects the paper's prompts use
(UniSandbox, Tables 6 to 8). A noun's category is the word a prompt may ask with ("generate the fruit represented by").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.core.errors import DataError, nearest_or_all

LEAST, MOST = 1, 6  # of a thing that an image may have to show


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

    max_operand: the largest number written in an expression; max_value: the largest intermediate value; max_single:
        the largest number in an expression of one operation, of which there must be enough for a test.
    symbols: what a mapping may call things; each is one token.
    """

    name: str
    nouns: tuple[Noun, ...]
    symbols: tuple[str, ...]
    max_operand: int
    max_value: int
    max_single: int
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
    max_operand=12,
    max_value=20,
    max_single=60,
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
        *_nouns("kitchen item", "cup, plate, spoon, fork, knife/knives, bowl, bottle, teapot, pan, dish/dishes"),
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
    max_single=99,
    terse=False,
)  # fmt: skip

WORLDS = {world.name: world for world in (NANO, EVERYDAY)}


def get_world(name: str) -> World:
    """ "nano" or "everyday"; the error names the nearest."""
    if name in WORLDS:
        return WORLDS[name]
    raise DataError(f'there is no world "{name}": {nearest_or_all(name, WORLDS)}')


# What things are, for judging other people's requests ("the animal represented by ..."). A thing may be several kinds;
# a word that is not listed is never judged.
KINDS: dict[str, str] = {
    "fruit": "apple banana orange lemon pear strawberry cherry peach mango grape blueberry kiwi pineapple melon plum "
    "fruit",
    "vegetable": "carrot tomato potato onion cucumber cabbage",
    "food": "pizza burger hamburger sandwich cookie candy cake bread chocolate egg cheese cupcake muffin",
    "drink": "coffee tea juice water milk",
    "animal": "dog cat rabbit mouse sheep goose fish horse duck frog butterfly deer puppy kitten bird turtle squirrel "
    "tiger elephant lamb cow lion bear",
    "flower": "rose tulip daisy flower sunflower lily",
    "plant": "tree leaf cactus bush plant grass",
    "stationery": "pencil notebook eraser ruler pen marker envelope paintbrush calculator journal diary calendar "
    "crayon",
    "furniture": "chair table lamp sofa desk bench bookshelf bed cabinet armchair hammock wardrobe stool mirror",
    "kitchen": "cup plate spoon fork knife bowl bottle teapot pan pot mug tray dish glass jug",
    "container": "box basket bucket bottle bag cup vase backpack",
    "toy": "ball kite doll balloon yo-yo puzzle",
    "clothing": "hat shirt sock scarf glove dress belt shoe coat jacket pants boot sneaker sweater raincoat",
    "jewellery": "ring necklace bracelet",
    "accessory": "umbrella suitcase wallet watch glasses",
    "vehicle": "car bicycle bike bus boat truck train scooter airplane plane skateboard motorcycle ship",
    "instrument": "guitar drum piano violin trumpet flute drums",
    "device": "phone laptop camera clock radio tablet computer television monitor keyboard mouse smartphone telephone "
    "headphones microphone speaker printer refrigerator microwave oven mixer blender fan heater lamp calculator",
    "timepiece": "clock watch",
    "tool": "hammer nail saw screwdriver shovel",
    "reading": "book magazine newspaper",
    "sky": "sun moon star planet cloud rainbow",
    "place": "garden park house castle lighthouse mountain",
}  # fmt: skip

_MADE = "device tool kitchen stationery instrument timepiece vehicle"
CATEGORY_KINDS: dict[str, frozenset[str]] = {
    category: frozenset(kinds.split())
    for categories, kinds in (
        ("fruit", "fruit"),
        ("vegetable", "vegetable fruit"),
        ("food, snack, food item, snack item", "fruit vegetable food drink"),
        ("drink, beverage", "drink"),
        ("animal, pet", "animal"),
        ("flower", "flower"),
        ("plant", "flower plant fruit vegetable"),
        ("furniture, piece of furniture, furniture item", "furniture"),
        ("kitchen item, utensil", "kitchen container"),
        ("toy", "toy animal vehicle instrument"),
        ("clothing item, clothing, apparel, footwear, accessory", "clothing jewellery accessory"),
        ("vehicle", "vehicle"),
        ("instrument, musical instrument", "instrument"),
        ("device, electronic device, gadget, appliance, tool", _MADE),
        ("stationery, stationery item", "stationery reading"),
        ("timepiece", "timepiece"),
        ("container", "container kitchen"),
        ("reading material, reading item", "reading stationery"),
        ("area, place", "place"),
    )
    for category in categories.split(", ")
}
"""What a request calls a thing -> the kinds of things that may be meant."""


def kinds_of(noun: str) -> frozenset[str]:
    """The kinds of a thing, singular or plural, ("apples" -> {"fruit"}); empty for a word that is not known."""
    word = noun.strip().lower()
    forms = {word, singular_of(word)}
    return frozenset(kind for kind, words in KINDS.items() if forms & set(words.split()))


# Plurals that no rule gives. A word that is listed has no other plural.
_IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "foot": "feet", "tooth": "teeth",
    "goose": "geese", "mouse": "mice", "louse": "lice", "ox": "oxen", "die": "dice", "penny": "pennies",
    "knife": "knives", "wife": "wives", "life": "lives", "leaf": "leaves", "loaf": "loaves", "half": "halves",
    "shelf": "shelves", "bookshelf": "bookshelves", "wolf": "wolves", "calf": "calves", "elf": "elves",
    "thief": "thieves", "fish": "fish", "sheep": "sheep", "deer": "deer", "series": "series", "species": "species",
    "aircraft": "aircraft", "scissors": "scissors", "trousers": "trousers", "pants": "pants", "jeans": "jeans",
    "shorts": "shorts", "pyjamas": "pyjamas", "binoculars": "binoculars", "tongs": "tongs", "headphones": "headphones",
}  # fmt: skip
_SEVERAL = {
    "scarf": ("scarves", "scarfs"), "hoof": ("hooves", "hoofs"), "cactus": ("cacti", "cactuses"),
    "octopus": ("octopuses", "octopi"), "fungus": ("fungi", "funguses"), "crisis": ("crises",), "axis": ("axes",),
    "potato": ("potatoes",), "tomato": ("tomatoes",), "quiz": ("quizzes",), "bus": ("buses", "busses"),
}  # fmt: skip


def plurals_of(singular: str) -> frozenset[str]:
    """Every accepted plural of a noun in lower case: "scarf" -> {"scarves", "scarfs"}, "pair of socks" -> ..."""
    head, of, rest = singular.partition(" of ")
    front, _, word = head.rpartition(" ")
    front = f"{front} " if front else ""
    return frozenset(front + form + of + rest for form in _forms(word))


def _forms(word: str) -> tuple[str, ...]:
    if word in _IRREGULAR:
        return (_IRREGULAR[word],)
    if word in _SEVERAL:
        return _SEVERAL[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return (word + "es",)
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return (word[:-1] + "ies",)
    if word.endswith("man") and len(word) > 4:
        return (word[:-3] + "men", word + "s")
    return (word + "s", word + "es") if word.endswith("o") else (word + "s",)


def plain(noun: str) -> str:
    return re.sub(r"^(?:the|a|an|some)\s+", "", noun.strip().rstrip(".!").strip().lower())


def same_noun(noun: str, other: str) -> str:
    """ "eq", "s:p" or "p:s" when both are forms of one noun (s singular, p plural), else ""."""
    noun, other = plain(noun), plain(other)
    if noun == other:
        return "eq"
    if other in plurals_of(noun):
        return "s:p"
    return "p:s" if noun in plurals_of(other) else ""


# Nouns with a silent e before the plural s, where the ending looks like that of "candies", "potatoes" or "boxes".
_SILENT_E = (
    "cookie", "tie", "necktie", "pie", "movie", "brownie", "zombie", "birdie", "genie", "smoothie", "shoe", "horseshoe",
    "toe", "hoe", "canoe", "oboe", "axe", "avalanche", "headache",
)  # fmt: skip


def singular_of(plural: str) -> str:
    """The noun that `plural` is a plural of: ("knives" -> "knife"); the word itself if it is none."""
    for known in EVERYDAY.nouns + NANO.nouns:
        if plural in (known.plural, known.singular):  # "cactus" is no plural
            return known.singular
    head, of, rest = plural.partition(" of ")
    front, _, word = head.rpartition(" ")
    guesses = [*_SILENT_E, *_IRREGULAR, *_SEVERAL]
    if word.endswith("ies"):
        guesses.append(word[:-3] + "y")
    if word.endswith(("xes", "ches", "shes", "sses", "zzes", "oes")):
        guesses.append(word[:-2])
    if word.endswith("men"):
        guesses.append(word[:-3] + "man")
    for guess in [*guesses, word[:-1]]:
        if guess and word in _forms(guess):
            return (f"{front} " if front else "") + guess + of + rest
    return plural
