"""The UReason task: all subcategories, disjoint splits, the same everywhere; what nano is asked it can read."""

from collections import Counter

import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.objects import EVERYDAY, NANO
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.data_gen.ureason.outcomes import outcome_from
from uni_train.data_gen.ureason.task import UReason
from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES
from uni_train.models.nano.language import vocabulary
from uni_train.models.nano.tokenizer import WordTokenizer

worlds = pytest.mark.parametrize("world", [NANO, EVERYDAY], ids=["nano", "everyday"])


@worlds
def test_subcategories_come_in_turn_and_all_prompts_differ(world):
    task = UReason(world)
    items = task.generate(2 * len(task.cells), 2, "test", 0)
    counts = Counter((item.facts["task"], item.facts["subcategory"]) for item in items)
    assert set(counts) == set(task.cells) and set(counts.values()) == {2}
    assert len({item.prompt for item in items}) == len({item.id for item in items}) == len(items)
    if world is EVERYDAY:
        assert set(counts) == {(task, sub) for task, subs in SUBCATEGORIES.items() for sub in subs}


def test_no_expression_of_nano_s_pretraining_is_asked_in_test():
    asked = {i.facts["canonical"] for i in UReason(NANO, ("arithmetic",)).generate(60, 2, "test", 0)}
    assert not asked & {i.facts["canonical"] for i in Maths(NANO).generate(400, 2, "train", 0)}


@worlds
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_reference_thought_ends_in_what_its_criterion_demands(world, level):
    for item in UReason(world).generate(60, level, "train", 1):
        outcome = outcome_from(item.facts["outcome"])
        conclusion = item.thought.rpartition("So draw" if world is NANO else "refined prompt:")[2].strip()
        found = outcome.find(conclusion)
        assert found or (found is None and item.facts["task"] not in ("spatial", "text")), item.prompt
        assert item.answer == outcome.criterion()


def test_everyday_prompts_ask_for_a_refined_prompt_and_direct_ones_do_not():
    for item in UReason(EVERYDAY).generate(30, 1, "train", 2):
        assert item.prompt.startswith("Task: ") and "refined prompt:" in item.prompt
        direct = item.facts["direct"]
        before = [prompt.partition("Instructions:")[0] for prompt in (direct, item.prompt)]
        assert "prompt" not in direct.lower() and before[0] == before[1]


def test_nano_s_pictures_are_verified_and_its_words_are_known():
    tokenizer = WordTokenizer(vocabulary())
    task = get_task("ureason")
    for level in (1, 2, 3):
        for item in task.generate(40, level, "test", 3):
            tokenizer.encode(item.prompt)
            tokenizer.encode(item.thought)
            assert task.verify(item, task.render(item, 5)).passed
            wrong = dict(item.facts, outcome={"kind": "sprites", "groups": [["moon", 9]]})
            other = Item.from_dict({**item.to_dict(), "facts": wrong})
            assert task.verify(other, task.render(item, 5)).status == "fail"


def test_wrong_requests_are_named():
    with pytest.raises(DataError, match="the nano world has no spatial in UReason: it has code, arithmetic"):
        UReason(NANO, ("spatial",))
    (item,) = UReason(EVERYDAY).sample(0, 1)
    with pytest.raises(DataError, match="everyday world: only the nano world has sprites"):
        UReason(EVERYDAY).render(item, 0)


def test_a_subcategory_that_is_used_up_drops_out_of_the_turn(monkeypatch):
    items = UReason(NANO, ("arithmetic",)).generate(20, 1, "validation", 0)
    there = {item.facts["subcategory"] for item in items}
    assert there == {"Single-Type", "Multi-Type", "Add", "Subtract", "Divide"}  # no product of 1 to 6 is in this split
    monkeypatch.setattr("uni_train.data_gen.ureason.task._DRAWS", 3)
    with pytest.raises(DataError, match=r"found only \d+ different ureason1 prompts for the validation split"):
        UReason(NANO, ("arithmetic",)).generate(500, 1, "validation", 0)
