"""Rules as other people write them."""

import pytest

from uni_train.data_gen.mapping.reading import follow, read_mapping


@pytest.mark.parametrize(
    ("rules", "asked", "steps"),
    [
        ("Rule 1: The symbol @ represents owls. Rule 2: 7 means nuts.", "the symbol @", "@ owls"),
        ("Rule 1: 'Q' stands for the number 8, which means sledge. Rule 2: '%' refers to 'Q'.", "'%'", "% Q 8 sledge"),
        ("Rule 1: % means a jar. Rule 2: The number 4 means % .Rule 3: Letter K maps to 4.", "letter 'K'", "K 4 % jar"),
        ("Rule 1: '><' refers to '?'. Rule 2: '?' is linked to 29. Rule 3: 29 is a bush.", "'><'", ">< ? 29 bush"),
        ("@ -> 7. 7 -> owl.", "@", "@ 7 owl"),
        ("A denotes the letter B. B corresponds to cat.", "the letter A", "A B cat"),
        ("Rule 1: The letter D is tied to * symbol. Rule 2: * is for an owl.", "D", "D * owl"),
        ("Rule 1: - stands for 4. Rule 2: 4 means owl.", "the symbol -", "- 4 owl"),
    ],
)
def test_rules_are_followed_to_their_object(rules, asked, steps):
    question = read_mapping(f"{rules} Please generate the object represented by {asked}.")
    (chain,) = follow(question)
    assert list(chain.steps) == steps.split()
    assert chain.noun == chain.steps[-1]


def test_chains_without_an_object_say_where_they_end():
    (open_end,) = follow(read_mapping("Rule 1: A means 7. Rule 2: 8 means owl. Draw the animal represented by A."))
    assert open_end.noun is None and "no rule says what 7 means" in open_end.reason
    (circle,) = follow(read_mapping("Rule 1: A means B. Rule 2: B means A. Draw the animal represented by A."))
    assert circle.noun is None and "A -> B -> A goes in a circle" in circle.reason
