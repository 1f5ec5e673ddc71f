"""Maths and mapping items in both worlds: right answers, disjoint splits, pairs, determinism."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.errors import DataError
from uni_train.core.seeds import digest
from uni_train.data_gen import phrasing
from uni_train.data_gen.mapping.reading import follow, read_mapping
from uni_train.data_gen.mapping.task import Mapping
from uni_train.data_gen.maths import expressions
from uni_train.data_gen.maths.audit import read_maths
from uni_train.data_gen.maths.task import Maths
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.registry import TASKS, get_task, scoring, sources
from uni_train.data_gen.shortcuts import questions_of, tally
from uni_train.data_gen.task import Check, Item, Verdict

worlds = pytest.mark.parametrize("world", ["nano", "everyday"])
levels = pytest.mark.parametrize("level", [1, 2, 3])
some = pytest.mark.parametrize(("world", "level"), [("nano", 1), ("nano", 2), ("everyday", 3)])
any_world, any_level, seeds = st.sampled_from(["nano", "everyday"]), st.integers(1, 3), st.integers(0, 2**62)
EVERYDAY_MATHS = get_task("maths", "everyday")


@settings(max_examples=250)
@given(world=any_world, level=any_level, seed=seeds)
def test_a_maths_thought_concludes_what_an_independent_reader_computes(world, level, seed):
    (item,) = get_task("maths", world).sample(seed, level)
    question = read_maths(item.prompt)
    (value,) = {r.value.whole for r in question.readings}
    assert 1 <= value <= 6 and item.facts["count"] == value
    assert question.noun == item.facts["plural"]
    noun = item.facts["object"] if value == 1 else item.facts["plural"]
    assert item.answer == f"{value} {noun}"
    assert item.thought.rstrip(" .").endswith(f"So draw {value} {noun}")


@settings(max_examples=250)
@given(world=any_world, level=any_level, seed=seeds, distractors=st.integers(0, 3), shuffle=st.booleans())
def test_a_mapping_thought_concludes_what_an_independent_reader_finds(world, level, seed, distractors, shuffle):
    a, b = Mapping(get_world(world), distractors=distractors, shuffle=shuffle).sample(seed, level)
    assert (a.pair, a.id, b.id) == (b.pair, f"{a.pair}/A", f"{a.pair}/B")
    assert a.answer != b.answer
    assert a.facts["rules"] == b.facts["rules"] and 2 * level <= len(a.facts["rules"]) <= 2 * level + distractors
    for item in (a, b):
        (chain,) = follow(read_mapping(item.prompt))
        assert len(chain.steps) == level + 1
        assert chain.noun in (item.facts["object"], item.facts["plural"]) and chain.noun == item.answer.lower()
        assert item.thought.rstrip(" .").split()[-1] == chain.noun.split()[-1]


@pytest.mark.parametrize("task", TASKS.names())
@worlds
def test_splits_share_no_canonical_form_and_items_are_distinct_and_the_same_again(task, world):
    drawer = get_task(task, world)
    few = 20 if world == "nano" else 5  # small pictures have few puzzles, and large ones take long
    level, n = (4, 60) if task == "maze" else (1, few) if drawer.edits else (2, 60)
    splits = {split: drawer.generate(n, level, split, seed=7) for split in ("train", "validation", "test")}
    forms = [{(i.facts.get("task"), i.facts["canonical"]) for i in items} for items in splits.values()]
    assert len(set.union(*forms)) == sum(map(len, forms))
    for items in splits.values():
        assert len({item.id for item in items}) == len(items) == n * drawer.items_per_draw
        assert drawer.edits or len({item.prompt for item in items}) == len(items)
        assert [Item.from_dict(item.to_dict()) for item in items] == items
    assert splits["test"] == drawer.generate(n, level, "test", seed=7) != drawer.generate(n, level, "test", seed=8)


def test_results_of_maths_and_places_of_answers_are_about_equally_likely():
    counts = Counter(item.facts["count"] for item in EVERYDAY_MATHS.generate(600, 2, "train", seed=3))
    assert set(counts) == set(range(1, 7)) and min(counts.values()) > 65 and max(counts.values()) < 140
    items = Mapping(distractors=0).generate(300, 2, "train", seed=0)
    assert 250 < sum(item.facts["rules"][0][0] in item.facts["chain"] for item in items) < 350
    assert len({item.facts["object"] for item in items}) == len(NANO.nouns)


@some
def test_maths_has_room_for_a_test_and_tells_new_objects_from_new_expressions(world, level):
    task = get_task("maths", world)
    n = 300 if level > 1 else 102
    test, seen = (task.generate(n, level, split, seed=1) for split in ("test", "seen"))
    assert len({item.facts["canonical"] for item in test}) == n
    assert Counter(item.facts["count"] for item in test) == dict.fromkeys(range(1, 7), n // 6)
    train = {(i.facts["canonical"], i.facts["object"]) for i in task.generate(600, level, "train", seed=1)}
    assert not train & {(item.facts["canonical"], item.facts["object"]) for item in seen}
    assert {expressions.split(item.facts["canonical"]) for item in seen} == {"train"}


@worlds
@levels
def test_maths_of_the_paper_has_its_operators_and_results_and_the_splits_of_maths(world, level):
    task, maths = get_task("maths_paper", world), get_task("maths", world)
    items = task.generate(60, level, "test", seed=2)
    assert Counter(item.facts["count"] for item in items) == dict.fromkeys((1, 2, 3, 4), 15)
    assert {audited.status for audited in task.audit(items)} == {"ok"}
    used = {sign for item in items for sign in item.facts["canonical"] if sign in "+-*/^%√"}
    assert used <= set("+-*/") if level == 1 else used & set("^%√")
    forms = {item.facts["canonical"] for item in items}
    assert not forms & {item.facts["canonical"] for item in maths.generate(300, level, "train", seed=2)}
    if world == "nano":
        assert {word for item in items for word in item.prompt.split()} <= set(phrasing.nano_vocabulary())


@pytest.mark.parametrize(("split", "n"), [("validation", 71), ("test", 191)])
def test_too_many_maths_questions_end_with_the_largest_number_that_can_be_drawn(split, n):
    maths = get_task("maths", NANO)
    with pytest.raises(DataError, match=f"maths1 expressions.* {split} split, {n + 1} were .* at most {n},"):
        maths.generate(n + 1, 1, split, seed=0)
    assert len({item.facts["canonical"] for item in maths.generate(n, 1, split, seed=0)}) == n


@some
def test_trivial_strategies_stay_at_chance_on_balanced_maths(world, level):
    n = 400
    items = replace(get_task("maths", world), balanced=True).generate(n, level, "train", seed=4)
    shares = {one.name: one.share for one in tally(questions_of(items))}
    assert len(shares) == 8 and all(abs(share - 1 / 6) <= 0.03 for share in shares.values()), shares
    assert {found.status for found in Maths(NANO).audit(items[:60])} == {"ok"} and len({i.id for i in items}) == n
    assert {expressions.split(item.facts["canonical"]) for item in items} == {"train"}


def test_a_balanced_set_that_is_too_large_ends_with_the_largest_and_begins_like_a_smaller_one():
    task = Maths(NANO, operations=("-", "/", "%"), balanced=True)
    with pytest.raises(DataError, match="no trivial strategy above chance, for the validation split") as raised:
        task.generate(60, 1, "validation", seed=0)
    largest = int(re.findall(r"at most (\d+)", str(raised.value))[0])
    items = task.generate(largest, 1, "validation", seed=0)
    assert len({item.facts["canonical"] for item in items}) == largest >= 50
    assert task.generate(12, 1, "validation", seed=0) == items[:12]


@worlds
def test_the_default_draws_of_maths_stay_what_they_were(world):
    task = get_task("maths", world)
    ids = [item.id for level in (1, 2, 3) for split in task.splits for item in task.generate(40, level, split, seed=9)]
    assert digest(*ids) == {"nano": "bdc20ccfd9e01437", "everyday": "82fcdf3cea9ed44a"}[world]


def test_nano_text_stays_in_its_vocabulary_and_within_40_tokens():
    known = set(phrasing.nano_vocabulary())
    for task in ("maths", "mapping"):
        for level in (1, 2, 3):
            for item in get_task(task, NANO).generate(100, level, "train", seed=1):
                for text in (item.prompt, item.thought, item.answer):
                    assert set(text.split()) <= known and len(text.split()) <= 40


@pytest.mark.parametrize("task", ["maths", "mapping"])
@levels
def test_a_rendered_target_passes_its_verifier_and_another_items_does_not(task, level):
    drawer = get_task(task, "nano")
    items = drawer.generate(12, level, "test", seed=5)
    for item in items:
        image = drawer.render(item, seed=11)
        assert drawer.verify(item, image).passed
        for other in items:
            same = (other.facts["object"], other.facts["count"]) == (item.facts["object"], item.facts["count"])
            assert drawer.verify(other, image).status == ("pass" if same else "fail")


def test_the_same_seed_gives_the_same_items_in_another_process():
    code = (
        "from uni_train.data_gen.registry import get_task; import json\n"
        "print(json.dumps([i.to_dict() for t in ('maths', 'mapping') for i in get_task(t).generate(5, 3, 'test', 42)]))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    here = [item.to_dict() for task in ("maths", "mapping") for item in get_task(task).generate(5, 3, "test", 42)]
    assert json.loads(there) == json.loads(json.dumps(here))


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [("pass pass", "pass"), ("pass fail", "fail"), ("fail unreadable", "unreadable"), ("", "unreadable")],
)
def test_a_verdict_is_unreadable_before_it_fails_and_survives_json(statuses, whole):
    verdict = Verdict(tuple(Check("x", status, "3, not 4") for status in statuses.split()))
    assert verdict.status == whole and Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (lambda: EVERYDAY_MATHS.render(EVERYDAY_MATHS.sample(0, 1)[0], 0), "only the nano world has sprites"),
        (lambda: Maths(NANO, operations=("-",)).generate(3000, 1, "test", 0), r"found only \d+ .* ask for at most"),
        (lambda: Maths(NANO, operations=("*",)).sample(0, 1, "validation"), "no maths1 expression .* allow more"),
    ],
)
def test_wrong_requests_name_what_to_choose(request_, said):
    """Names and levels that there are not are in tests/cli/test_usage_errors.py."""
    with pytest.raises(DataError, match=said):
        request_()


def test_the_sets_of_all_tasks_are_known_before_any_is_imported():
    script = "import sys; from uni_train.data_gen.registry import sources; print(len(sources()), *sys.modules)"
    n, *modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(n) == len(sources()) and not [name for name in modules if re.search(r"data_gen\.\w+\.task$", name)]
    for name in TASKS.names():
        assert scoring(name) == (TASKS.get(name).sets, TASKS.get(name).variants, TASKS.get(name).chance)
