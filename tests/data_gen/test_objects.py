"""Nouns: plurals and singulars of our own and of other people's words, and what kind of thing they are."""

from uni_train.data_gen.objects import EVERYDAY, NANO, kinds_of, plurals_of, singular_of

PAIRS = (
    ("box", "boxes"), ("glass", "glasses"), ("cookie", "cookies"), ("candy", "candies"), ("toy", "toys"),
    ("tie", "ties"), ("watch", "watches"), ("axe", "axes"), ("shoe", "shoes"), ("horse", "horses"), ("bus", "buses"),
    ("vase", "vases"), ("mouse", "mice"), ("child", "children"), ("snowman", "snowmen"), ("leaf", "leaves"),
    ("cave", "caves"), ("teddy bear", "teddy bears"), ("pair of socks", "pairs of socks"), ("key", "keys"),
    ("fish", "fish"), ("scissors", "scissors"), ("piano", "pianos"), ("potato", "potatoes"), ("quiz", "quizzes"),
)  # fmt: skip


def test_plurals_and_back_of_other_people_s_words_and_of_both_worlds():
    ours = ((noun.singular, noun.plural) for noun in EVERYDAY.nouns + NANO.nouns)
    for singular, plural in (*PAIRS, *ours):
        assert plural in plurals_of(singular), singular
        assert singular_of(plural) == singular == singular_of(singular)


def test_different_nouns_are_not_forms_of_each_other():
    assert "pants" not in plurals_of("pan")
    assert "cats" not in plurals_of("car")
    assert singular_of("gold") == "gold"
    assert kinds_of("apples") == {"fruit"} == kinds_of("apple") and "kitchen" in kinds_of("knives")
    assert kinds_of("gizmo") == frozenset()
