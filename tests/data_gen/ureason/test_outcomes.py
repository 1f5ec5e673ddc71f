"""What a program reads out of a refined prompt: only what is plainly said. And nano's pictures of two kinds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.errors import DataError
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.ureason.outcomes import Attributes, Counts, Group, Layout, Sprites, Writing, outcome_from

APPLES = Counts((Group(2, "red apple", "red apples", "on the tray"),))
TWO = Counts((Group(1, "pear", "pears", "on the rug"), Group(3, "knife", "knives", "on the rug")))
TRANSFER = Counts((Group(1, "pear", "pears", "on the rug"), Group(3, "pear", "pears", "on the tray")))
GRID = Layout((("top-left", "a red mug"), ("top-right", "an orange kite"), ("bottom-left", "a fork")), ("spoon",))
ROW = Layout((("leftmost", "a mug"), ("second from the left", "a kite"), ("rightmost", "a fork")))
FIRE = Writing("FIRE", ("FIREWALL",))


@pytest.mark.parametrize(
    ("outcome", "said", "found"),
    [
        (APPLES, "A wooden tray with exactly two shiny red apples.", True),
        (APPLES, "A tray with 3 red apples on it.", False),
        (APPLES, "No apples are left on the tray.", False),
        (APPLES, "Two apples at the left and 3 apples at the right.", None),
        (APPLES, "Some apples on a tray.", None),
        (TWO, "A rug with one pear and three knives.", True),
        (TWO, "A rug with one pear and two knives.", False),
        (TRANSFER, "1 pear on the rug and 3 pears on the tray.", None),
        (GRID, "Top-left: red mug. Upper right: orange kite. Bottom left: fork.", True),
        (GRID, "A red mug is in the top-left, a fork in the top-right and an orange kite in the bottom-left.", False),
        (GRID, "In the top row, left to right, a red mug and an orange kite; a fork below.", None),
        (GRID, "Top-left and top-right hold a red mug and an orange kite, bottom-left a fork.", None),
        (ROW, "The leftmost thing is a mug, the second from the left is a kite and the rightmost is a fork.", True),
        (ROW, "From left to right: a mug, a kite, a fork.", None),
        (FIRE, 'A glass box with the word "FIRE" on it.', True),
        (FIRE, "A glass box that says “Fire”.", True),
        (FIRE, 'A glass box that says "FIREWALL".', False),
        (FIRE, "A glass box that reads 'FIRES'.", False),
        (FIRE, "A red box; the text FIRE is printed on it.", True),
        (FIRE, 'Not "FIREWALL" but "FIRE".', None),
        (FIRE, "The box's owner wrote a word on the box's side.", None),
        (Writing("15:25"), "A screen showing 15:25.", True),
        (Writing("15:25"), 'A screen showing "14:25".', False),
        (Attributes(("the kite is green",)), "a green kite", None),
        (Sprites((("apple", 5),)), "Draw 5 apples .", True),
        (Sprites((("apple", 5),)), "Draw 4 apples .", False),
        (Sprites((("apple", 3), ("cup", 2))), "Draw 3 apples and 2 cups .", True),
        (Sprites((("apple", 3), ("cup", 2))), "Draw 3 apples .", False),
    ],
)
def test_only_what_is_plain_is_found(outcome, said, found):
    assert outcome.find(said) is found


@pytest.mark.parametrize("outcome", [APPLES, TWO, TRANSFER, GRID, ROW, FIRE, Attributes(("a",), ("b",)),
                                     Sprites((("apple", 3), ("cup", 2)))])  # fmt: skip
def test_outcomes_survive_json_and_their_own_description(outcome):
    assert outcome_from(outcome.to_dict()) == outcome
    assert outcome.find(outcome.description()) in ((None,) if outcome in (TRANSFER,) else (True, None))


def test_what_is_no_outcome_is_named():
    for bad in ({}, {"kind": "smell"}, {"kind": "counts", "groups": [[1]]}):
        with pytest.raises(DataError, match="outcome"):
            outcome_from(bad)


names = st.lists(st.sampled_from([noun.singular for noun in NANO.nouns]), min_size=2, max_size=2, unique=True)


@settings(max_examples=30, deadline=None)
@given(names=names, first=st.integers(1, 4), second=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_pictures_of_two_kinds_are_read_back_and_others_fail(names, first, second, seed):
    outcome = Sprites(((names[0], first), (names[1], second)))
    picture = outcome.render(seed)
    assert outcome.verify(picture).passed
    for other in (((names[0], first), (names[1], second + 1)), ((names[0], first + second),)):
        assert Sprites(other).verify(picture).status == "fail"
    assert outcome.verify(sprites.render(names[0], first + second, seed)).status == "fail"


def test_a_doubtful_cell_makes_two_kinds_unreadable():
    outcome = Sprites((("apple", 2), ("cup", 1)))
    picture = outcome.render(0)
    picture[:8, :8] = np.random.default_rng(0).integers(0, 255, (8, 8, 3))
    assert outcome.verify(picture).status == "unreadable"
    assert outcome.verify(picture[:23]).status == "unreadable"
    with pytest.raises(DataError, match="holds 9"):
        Sprites((("apple", 6), ("cup", 4))).render(0)
