"""Everyday puzzles: readers of their own work out of the prompt's words what the criterion says."""

import re
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.seeds import rng
from uni_train.data_gen.objects import EVERYDAY
from uni_train.data_gen.ureason import arithmetic, attribute, spatial, text, words
from uni_train.data_gen.ureason.outcomes import Attributes, Counts, Layout, Writing

levels = st.integers(1, 3)
seeds = st.integers(0, 2**60)
many = settings(max_examples=40, deadline=None)


def draw(module, subcategory, level, seed):
    random_ = rng("test", subcategory, level, seed)
    while True:
        puzzle = module.draw(subcategory, level, random_)
        if puzzle is not None:
            return puzzle


def sentences(puzzle):
    head, _, told = puzzle.body.partition("Scenario: ")
    assert head == "" and told.endswith(".")
    return [sentence.strip() for sentence in re.split(r"(?<=[^.])\.(?:\s|$)", told) if sentence.strip()]


def noun_of(name):
    (found,) = {noun.singular for noun in EVERYDAY.nouns if name in (noun.singular, noun.plural)}
    return found


# --- arithmetic ----------------------------------------------------------------------------------------------------

NUMBER = r"(another|\d+)"
TIMES = {"twice": 2, "three times": 3, "four times": 4}
PLACE = "(" + "|".join(place for place, _ in words.SURFACES) + ")"


def count(told):
    """(thing, place) -> number, from the sentences alone."""
    held = {}
    there = None
    for sentence in told:
        amount = lambda word: 1 if word == "another" else int(word)  # noqa: E731
        if re.search("stay in a closed box", sentence):
            continue
        if found := re.search(rf"moves (\d+) (.+) from the {PLACE} to the {PLACE}$", sentence):
            noun = noun_of(found[2])
            held[noun, found[3]] -= int(found[1])
            held[noun, found[4]] = held.get((noun, found[4]), 0) + int(found[1])
        elif found := re.search(rf"(?:There (?:is|are)|lays) (\d+) (.+) on the {PLACE}$", sentence):
            there = found[3]
            held[noun_of(found[2]), there] = int(found[1])
        elif found := re.search(rf"puts {NUMBER}(?: more)? (.+) on the", sentence):
            held[noun_of(found[2]), there] += amount(found[1])
        elif found := re.match(rf"{NUMBER}(?: more)? (.+) comes? from the kitchen", sentence, re.IGNORECASE):
            held[noun_of(found[2]), there] += amount(found[1].lower())
        elif found := re.search(r"(\d+) of the (.+?) (?:away|is given|are given)", sentence):
            held[noun_of(found[2]), there] -= int(found[1])
        elif found := re.search(r"there are (.+) as many (.+) on the .* as before", sentence):
            held[noun_of(found[2]), there] *= TIMES[found[1]]
        elif found := re.search(r"The number of (.+) on the .* grows to (.+) what it was", sentence):
            held[noun_of(found[1]), there] *= TIMES[found[2]]
        else:
            found = re.search(r"makes (\d+) equal heaps of the (.+) and leaves just one", sentence)
            parts, noun = (found[1], found[2]) if found else re.search(
                r"The (.+) on the .* are shared out in (\d+) equal parts, of which only one", sentence
            ).groups()[::-1]  # fmt: skip
            share, left_over = divmod(held[noun_of(noun), there], int(parts))
            assert left_over == 0
            held[noun_of(noun), there] = share
        assert all(n >= 0 for n in held.values())
    return held


@pytest.mark.parametrize(
    "subcategory", ["Single-Type", "Multi-Type", "Add", "Subtract", "Multiply", "Divide", "Transfer"]
)
@many
@given(level=levels, seed=seeds)
def test_the_story_counts_up_to_the_criterion(subcategory, level, seed):
    puzzle = draw(arithmetic, subcategory, level, seed)
    assert isinstance(puzzle.outcome, Counts)
    groups = puzzle.outcome.groups
    assert count(sentences(puzzle)) == {(g.singular, g.place.removeprefix("on the ")): g.count for g in groups}
    assert all(1 <= group.count <= arithmetic.MOST for group in groups)
    assert len({g.singular for g in groups}) == {"Multi-Type": 2 + (level == 3)}.get(subcategory, 1)
    assert len(groups) == (2 if subcategory == "Transfer" else len({g.singular for g in groups}))


# --- spatial -------------------------------------------------------------------------------------------------------


def bare(thing):
    return re.sub("^an? ", "", thing)


def things_in(listing):
    return [bare(part) for part in re.split(", | and ", listing)]


def rearranged(now, sentence, columns):
    if found := re.fullmatch("Then the (.+) and the (.+) change places", sentence):
        i, j = now.index(found[1]), now.index(found[2])
        now[i], now[j] = now[j], now[i]
    elif re.match("Then the whole order is turned round", sentence):
        assert sentence.endswith(f"so that the {now[0]} comes last")
        now.reverse()
    elif sentence == "Then the upper row and the lower row change places as a whole":
        now[:] = now[columns:] + now[:columns]
    elif found := re.search("moves the (.+) to the (far left|far right|top|bottom) and the others close up", sentence):
        now.remove(found[1])
        now.insert(0 if found[2] in ("far left", "top") else len(now), found[1])
    else:
        found = re.fullmatch("The (.+?) (?:is|does|has) .+, so an? (.+) takes its place", sentence)
        now[now.index(found[1])] = found[2]


@pytest.mark.parametrize("subcategory", ["Horizontal", "Vertical", "Grid"])
@many
@given(level=levels, seed=seeds)
def test_an_order_that_is_changed_ends_as_the_criterion_says(subcategory, level, seed):
    puzzle = draw(spatial, subcategory, level, seed)
    start, *changes = sentences(puzzle)
    if subcategory == "Grid":
        rows = re.search("left to right, (?:are|is) (.+), in the lower row (.+)$", start)
        now = [*things_in(rows[1]), *things_in(rows[2])]
    else:
        now = things_in(re.search(r"puts (.+) (?:in a row|on \d shelves)", start)[1])
    before = list(now)
    for change in changes:
        rearranged(now, change, len(now) // 2)
    assert now != before and len(set(now)) == len(now) and len(changes) == level
    assert [bare(thing) for _, thing in puzzle.outcome.places] == now
    assert set(puzzle.outcome.excluded) == set(before) - set(now)


@many
@given(level=levels, seed=seeds)
def test_places_by_name_hold_what_is_left_there(level, seed):
    puzzle = draw(spatial, "Absolute", level, seed)
    found, gone = {}, set()
    for sentence in sentences(puzzle)[1:]:
        if match := re.fullmatch("(?:An?) (.+) goes to the (.+)", sentence):
            found[match[2]] = match[1]
        elif match := re.fullmatch("The (.+) was meant for an? (.+), but an? (.+) hangs there instead", sentence):
            found[match[1]] = match[3]
        else:
            match = re.fullmatch("An? (.+) hangs at the (.+) at first; it .+ and is replaced by an? (.+)", sentence)
            found[match[2]] = match[3]
            gone.add(match[1])
    assert found == {place: bare(thing) for place, thing in puzzle.outcome.places}
    assert gone <= set(puzzle.outcome.excluded) and len(puzzle.outcome.excluded) == level


def beside(i, j, way, columns):
    (row, column), (other_row, other_column) = divmod(i, columns), divmod(j, columns)
    return {
        "to the right of": (row, column) == (other_row, other_column + 1),
        "to the left of": (row, column) == (other_row, other_column - 1),
        "below": (row, column) == (other_row + 1, other_column),
        "above": (row, column) == (other_row - 1, other_column),
    }[way]


def fits(sentence, order, columns, places):
    at = order.index
    last = len(order) - 1
    if found := re.fullmatch("The (.+) is directly (to the right of|to the left of|below|above) the (.+)", sentence):
        return beside(at(found[1]), at(found[3]), found[2], columns)
    if found := re.fullmatch("The (.+) is at the (.+-.+)", sentence):
        return places[at(found[1])] == found[2]
    if found := re.fullmatch("The (.+) is somewhere to the left of the (.+)", sentence):
        return at(found[1]) < at(found[2])
    if found := re.fullmatch("The (.+) is (not|right) next to the (.+)", sentence):
        return (abs(at(found[1]) - at(found[3])) == 1) == (found[2] == "right")
    if found := re.fullmatch("The (.+) is at neither end", sentence):
        return 0 < at(found[1]) < last
    if found := re.fullmatch("The (.+) is not the (left|right)most", sentence):
        return at(found[1]) != (0 if found[2] == "left" else last)
    found = re.fullmatch("The (.+) is somewhere between the (.+) and the (.+)", sentence)
    return at(found[1]) in range(min(at(found[2]), at(found[3])) + 1, max(at(found[2]), at(found[3])))


@pytest.mark.parametrize("subcategory", ["Relative", "Constraint"])
@settings(max_examples=25, deadline=None)
@given(level=levels, seed=seeds)
def test_the_clues_leave_one_arrangement_and_each_is_needed(subcategory, level, seed):
    puzzle = draw(spatial, subcategory, level, seed)
    _, *clues = sentences(puzzle)
    final = tuple(bare(thing) for _, thing in puzzle.outcome.places)
    places = [place for place, _ in puzzle.outcome.places]
    columns = puzzle.facts["columns"]

    def solutions(kept):
        return [order for order in permutations(final) if all(fits(one, order, columns, places) for one in kept)]

    assert solutions(clues) == [final]
    if subcategory == "Constraint":
        assert all(len(solutions([one for one in clues if one != left])) > 1 for left in clues)


# --- attribute -----------------------------------------------------------------------------------------------------

SETS = {
    "Color": (r"the (.+) is (.+)", r".+ paints the (.+) (\w+)", r"the (.+) gets a new coat of (.+) paint"),
    "Shape": (r"the (.+) has the shape of a (.+)", r".+ forms the (.+) into a (.+)",
              r"the (.+) is pressed into the shape of a (.+)"),
    "Texture": (r"the (.+) has a (.+) surface", r".+ gives the (.+) a (.+) surface",
                r"the (.+) is covered anew and has a (.+) surface now"),
    "Position": (r"the (.+?) is (.+)", r".+ puts the (.+?) ((?:on|under|in|behind|next) .+)",
                 r"the (.+?) ends up (.+)"),
}  # fmt: skip
PLANS = re.compile("never opens|decides not to|called away|plan is dropped|puts it away|nobody likes|no room|is not$")


@pytest.mark.parametrize("subcategory", list(SETS))
@many
@given(level=levels, seed=seeds)
def test_a_value_is_the_last_that_held(subcategory, level, seed):
    puzzle = draw(attribute, subcategory, level, seed)
    past: dict[str, list[str]] = {}
    last = ""
    for sentence in sentences(puzzle):
        plain = sentence[0].lower() + sentence[1:]
        if PLANS.search(plain):
            last = "plan"
        elif re.search("taken back|undoes the last change", plain):
            assert last == "set"
            thing = re.search("(?:change of|, and) the (.+?)(?: is as it was just before)?$", plain)[1]
            past[thing].pop()
            last = "back"
        else:
            found = next(
                f for pattern in SETS[subcategory] if (f := re.fullmatch(pattern, plain.removeprefix("at first ")))
            )
            past.setdefault(found[1], []).append(found[2])
            last = "set"
    reads = SETS[subcategory][0]
    assert isinstance(puzzle.outcome, Attributes)
    said = dict(re.fullmatch(reads, statement).groups() for statement in puzzle.outcome.present)
    assert said == {thing: values[-1] for thing, values in past.items()}
    assert all(values[-1] != values[0] for values in past.values())


@many
@given(level=levels, seed=seeds)
def test_what_is_taken_off_is_not_there(level, seed):
    puzzle = draw(attribute, "Presence", level, seed)
    there, gone = attribute.replay_set(puzzle.facts["events"])
    told = sentences(puzzle)
    assert len(told) == len(puzzle.facts["events"])
    for (_, thing), sentence in zip(puzzle.facts["events"], told, strict=True):
        assert thing in sentence
    last = {thing: sentence for (_, thing), sentence in zip(puzzle.facts["events"], told, strict=True)}
    off = re.compile("taken|behind|removed|nothing")
    assert {thing for thing, sentence in last.items() if off.search(sentence)} == set(gone)
    assert puzzle.outcome.excluded == tuple(gone) and there
    assert all(words.article(thing) in puzzle.outcome.present[0] for thing in there)


# --- text ----------------------------------------------------------------------------------------------------------

ORDINALS = {name: place for place, name in enumerate(text.ORDINALS)}


def by_rules(word, told):
    for sentence in told:
        if found := re.fullmatch(r"Only the (first|last) (\d) letters are kept", sentence):
            word = word[: int(found[2])] if found[1] == "first" else word[len(word) - int(found[2]) :]
        elif found := re.fullmatch("The (.+) and the (.+) letter fall out", sentence):
            out = {ORDINALS[found[1]], ORDINALS[found[2]]}
            word = "".join(letter for place, letter in enumerate(word) if place not in out)
        elif sentence == "The word is written backwards":
            word = "".join(reversed(word))
        else:
            assert sentence == "The outer two letters change places"
            word = word[-1] + word[1:-1] + word[0]
    return word


@many
@given(level=levels, seed=seeds)
def test_a_word_follows_its_rules(level, seed):
    puzzle = draw(text, "Word", level, seed)
    first, *told, _ = sentences(puzzle)
    word = first.rpartition(" ")[2]
    assert puzzle.outcome == Writing(by_rules(word, told), (word,)) and len(told) == level


@many
@given(level=levels, seed=seeds)
def test_a_letter_is_that_of_the_name_that_is_meant(level, seed):
    puzzle = draw(text, "Character", level, seed)
    listed, asked = sentences(puzzle)
    names = listed.rpartition(": ")[2].split(", ")
    if "last in the alphabet" in asked:
        name = sorted(names)[-1]
    else:
        name = names[ORDINALS[re.search("of the (.+) of them", asked)[1]]]
    which = re.search("the (initial|\\w+ letter) of", asked)[1]
    letter = name[0 if which == "initial" else ORDINALS[which.split()[0]]].upper()
    if "the letter that follows it" in asked:
        letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZA"["ABCDEFGHIJKLMNOPQRSTUVWXYZ".index(letter) + 1]
    assert puzzle.outcome == Writing(letter)


@many
@given(level=levels, seed=seeds)
def test_numbers_and_times_are_worked_out(level, seed):
    puzzle = draw(text, "Number", level, seed)
    first, *told, _ = sentences(puzzle)
    if found := re.search(r"due at (\d\d):(\d\d)", first):
        now = int(found[1]) * 60 + int(found[2])
        for sentence in told:
            change = re.search(r"(\d+) minutes (later|earlier)", sentence)
            now += int(change[1]) * (1 if change[2] == "later" else -1)
        answer = f"{now // 60 % 24:02d}:{now % 60:02d}"
    else:
        now = int(first.rpartition(" ")[2])
        for sentence in told:
            n = int(sentence.rpartition(" ")[2])
            now = now + n if "up" in sentence else now - n if "down" in sentence else now * n
        answer = str(now)
    assert puzzle.outcome.text == answer and len(told) == level


@many
@given(level=levels, seed=seeds)
def test_a_sign_is_that_of_the_comparison_or_the_state(level, seed):
    puzzle = draw(text, "Symbol", level, seed)
    told = sentences(puzzle)
    if found := re.search(r"between (\d) \+ (\d) and (\d)", told[0]):
        a, b, c = map(int, found.groups())
        answer = "<" if a + b < c else ">" if a + b > c else "="
    else:
        signs = {state: sign for sign, state in re.findall(r"(\S) for (\w+)", told[0])}
        answer = signs[re.search(r"(?:is|becomes) (\w+)$", told[-2])[1]]
    assert puzzle.outcome.text == answer and answer not in puzzle.outcome.excluded


def test_every_kind_of_outcome_is_said_in_words():
    layout = Layout((("top-left", "a mug"), ("top-right", "an orange kite")), ("fork", "spoon"))
    assert layout.criterion() == "Top-left is a mug, top-right is an orange kite. There is no fork and no spoon."
    writing = Writing("FIRE", ("FIREWALL",))
    assert writing.criterion() == (
        'The text "FIRE" can be read in the picture, and "FIREWALL" cannot (case does not matter).'
    )
