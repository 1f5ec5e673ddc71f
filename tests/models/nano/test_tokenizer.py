"""nano can be told, and can say, everything that data_gen says in its world; nothing else, with an error that helps."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uni_train.core.errors import UserError
from uni_train.data_gen import phrasing, sprite_task
from uni_train.data_gen.mapping.task import Mapping
from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.task import SPLITS
from uni_train.models.nano import language
from uni_train.models.nano.family import ASSETS
from uni_train.models.nano.tokenizer import SPECIAL, WordTokenizer

tokenizer = WordTokenizer(language.vocabulary())


def assert_survives(text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(len(SPECIAL) <= index < len(tokenizer) for index in ids)


def test_words_are_distinct_as_many_as_those_of_the_checkpoint_and_markers_come_first() -> None:
    assert len(set(tokenizer.words)) == len(tokenizer.words) == len(tokenizer)
    assert tokenizer.words[: len(SPECIAL)] == SPECIAL
    assert (tokenizer.pad_id, tokenizer.tokens.bos, tokenizer.tokens.eos) == (0, 1, 2)
    stored = json.loads((ASSETS / "config.json").read_text(encoding="utf-8"))
    assert stored["bagel"]["llm"]["vocab_size"] == len(tokenizer)


def test_everything_the_tasks_can_say_survives() -> None:
    """Every task, level and split, with and without distractors and shuffled rules."""
    for task in (Maths(), Mapping(), Mapping(distractors=6), Mapping(shuffle=False)):
        for level, split, seed in product(task.levels, SPLITS[:3], range(10)):
            for item in task.sample(seed, level, split):
                asked = language.VERIFY_PROMPT.format(question=item.prompt)
                for text in (item.prompt, item.thought, item.answer, asked):
                    assert_survives(text)


def test_every_word_and_object_of_the_nano_world_is_known() -> None:
    for noun in NANO.nouns:
        assert_survives(f"{noun.singular} {noun.plural}")
        assert_survives(language.plain_prompt(noun, sprite_task.MAX_COUNT))
        assert_survives(language.caption(language.counted(noun.singular, 1)))
    for word in (*phrasing.nano_vocabulary(), *NANO.symbols, *map(str, range(NANO.max_value + 1))):
        assert_survives(word)


@given(st.lists(st.integers(len(SPECIAL), len(tokenizer) - 1), max_size=40))
def test_any_words_the_model_may_write_can_be_read_back_by_it(ids: list[int]) -> None:
    """Thoughts are decoded when they are written and encoded again when they are drawn by."""
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@pytest.mark.parametrize(
    ("typed", "spaced"),
    [
        ("C means #. # means tree. Draw what C means.", "C means # . # means tree . Draw what C means ."),
        ("Draw the number of apples equal to (√9+2)*1.", "Draw the number of apples equal to ( √ 9 + 2 ) * 1 ."),
        ("Caption: 3 apples\nFinal Answer: YES", "Caption: 3 apples\nFinal Answer: YES"),
    ],
)
def test_punctuation_may_touch_words_as_in_english(typed: str, spaced: str) -> None:
    assert tokenizer.decode(tokenizer.encode(typed)) == spaced


def test_markers_are_not_text() -> None:
    marks, apple = tokenizer.tokens, tokenizer.ids["apple"]
    assert tokenizer.decode([marks.bos, apple, marks.start_of_image, marks.eos]) == "apple"
    with pytest.raises(UserError, match="<eos>"):  # a prompt could end its own text, or open an image
        tokenizer.encode("Draw 3 apples <eos> .")


@pytest.mark.parametrize(
    ("word", "near"),
    [("aple", "apple"), ("leafs", "leaf"), ("Draws", "Draw"), ("Ask", "Asked"), ("xylophones", "--world nano")],
)
def test_an_unknown_word_is_named_with_the_nearest_known_ones(word: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        tokenizer.encode(f"Draw 3 {word} .")
    assert repr(word) in caught.value.message and f"Draw 3 {word} ." in caught.value.message
    assert caught.value.hint is not None and near in caught.value.hint
