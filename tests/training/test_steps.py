"""Step-indexed data: a batch is a function of (seed, stage, update), however it is split and wherever one starts."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.toy_model import ToyExample, ToyModel, toy_examples
from uni_train.core.errors import UsageError, UserError
from uni_train.training.read_ahead import read_ahead
from uni_train.training.steps import Drawn, StepBatch, StepDataset, row_counts


def whole(data: StepDataset, step: int) -> list:
    """The examples of an update on one rank without micro-batches."""
    (examples,) = data.drawn(step).examples
    return examples


def dataset(**changes) -> StepDataset:
    model = ToyModel()
    options = {"rows": 12, "updates": 20, "seed": 3, "stage": "s", "token_counts": model.token_counts} | changes
    sources = {
        "listed": toy_examples(9, 0),
        "made": lambda random: ToyExample(tuple(random.random() for _ in range(8)), random.randrange(5), True),
    }
    mixture = options.pop("mixture", lambda step: {"listed": 0.75, "made": 0.5})
    return StepDataset(model.collate, sources, mixture, **options)


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 3), min_size=1), st.integers(1, 300), st.integers(0, 99))
def test_row_counts_round_up_or_down(mixture, rows, seed):
    counts = row_counts(mixture, rows, seed)
    assert counts.keys() == mixture.keys()
    for name, share in mixture.items():
        assert abs(counts[name] - share * rows) < 1 + 1e-6
    assert abs(sum(counts.values()) - sum(mixture.values()) * rows) < 1 + 1e-6


def test_row_counts_are_right_on_average_and_exact_where_they_can_be():
    mixture = {"a": 0.03, "b": 0.72, "c": 0.25}
    counts = [row_counts(mixture, 10, seed) for seed in range(2000)]
    assert all(sum(one.values()) == 10 for one in counts)
    for name, expected in (("a", 0.3), ("c", 2.5)):
        assert sum(one[name] for one in counts) / 2000 == pytest.approx(expected, abs=0.05)
    assert row_counts({"m3": 0.5, "m2": 0.25, "m1": 0.25}, 256, 7) == {"m3": 128, "m2": 64, "m1": 64}
    assert row_counts({"a": 0.1, "b": 0.2, "c": 0.7}, 10, 5) == {"a": 1, "b": 2, "c": 7}


def test_a_batch_depends_on_seed_stage_and_update_only():
    data = dataset()
    late_first = [whole(data, step) for step in (7, 2)]
    assert late_first == [whole(dataset(), 7), whole(dataset(), 2)]
    seeds = [example.seed for step in range(20) for example in whole(data, step)]
    assert len(set(seeds)) == len(seeds)
    assert whole(data, 7) != whole(dataset(seed=4), 7) != whole(dataset(stage="t"), 7)


def test_no_example_is_drawn_twice_in_an_update_before_its_source_is_through():
    listed = [example.x for example in whole(dataset(mixture=lambda step: {"listed": 18 / 12}), 0)]
    assert set(Counter(listed).values()) == {2}, "9 examples fill 18 rows twice each"
    drawn = [example.x for example in filling(tokens=60, length=lambda example: 1).filled(0, 0)]
    assert len(set(drawn[:40])) == 40 and len(drawn) == 60


@pytest.mark.parametrize(("ranks", "micros"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_ranks_and_micro_batches_split_the_same_global_batch(ranks, micros):
    together = dataset()[5][0].content
    parts = []
    for rank in range(ranks):
        parts += dataset(rank=rank, world_size=ranks, grad_accumulation_steps=micros)[5]
    assert len(parts) == ranks * micros
    for field in ("x", "noise"):
        joined = torch.cat([getattr(part.content, field) for part in parts])
        assert torch.equal(joined.sort(0).values, getattr(together, field).sort(0).values)
    if micros > 1:
        tokens = [part.tokens for part in parts[::micros]]
        assert sum(ce for ce, _ in tokens) == together.text.sum()
        assert sum(mse for _, mse in tokens) == together.image.sum() * together.x.shape[1]
    assert [part.last for part in parts] == ([False] * (micros - 1) + [True]) * ranks


def test_rows_that_come_often_are_those_of_a_source_that_a_rank_goes_through_more_than_one_and_a_half_times():
    rows = list(dataset(updates=2).sources["listed"])  # nine, of which 0.75 * 12 come in an update
    assert list(dataset(updates=2).often()) == rows == list(dataset(updates=4, world_size=2).often())
    assert not list(dataset(updates=1).often()) and not list(dataset(updates=3, world_size=2).often())
    assert not list(filling().often())


def test_errors_name_what_is_wrong():
    with pytest.raises(UsageError, match="asks for nothing; there are sources for: listed, made"):
        dataset(mixture=lambda step: {"nothing": 1})[0]
    with pytest.raises(UsageError, match="has 1 rows for 2 ranks"):
        dataset(rows=1, world_size=2, mixture=lambda step: {"made": 1})[0]
    with pytest.raises(UsageError, match="accumulate=2"):
        dataset(grad_accumulation_steps=2, token_counts=None)
    with pytest.raises(UsageError, match="tokens=30: this model cannot count"):
        filling(length=None)
    with pytest.raises(UsageError, match="empty has no examples"):
        StepDataset(ToyModel().collate, {"empty": []}, lambda step: {}, rows=1, updates=1, seed=0)


POOL = toy_examples(40, 0)


def tokens_of(example) -> int:
    """One in four examples is nine times as long as the others."""
    return 9 if example.x in LONG else 1


LONG = {example.x for example in POOL[::4]}


def filling(tokens=30, length=tokens_of, sources=None, **changes) -> StepDataset:
    model = ToyModel()
    options = {"rows": 1, "updates": 20, "seed": 3, "token_counts": model.token_counts} | changes
    mixture = lambda step: {"a": 1.0}  # noqa: E731
    return StepDataset(model.collate, sources or {"a": POOL}, mixture, tokens=tokens, example_tokens=length, **options)


def test_a_batch_takes_examples_until_it_has_the_tokens():
    for step in range(5):
        (batch,) = filling()[step]
        lengths = [tokens_of(example) for example in filling().filled(step, 0)]
        assert sum(lengths) >= 30 > sum(lengths[:-1])
        assert batch.content.x.shape[0] == len(lengths)


def test_long_examples_are_drawn_as_often_as_short_ones():
    drawn = [tokens_of(example) for step in range(5) for slot in range(40) for example in filling().filled(step, slot)]
    share, expected = drawn.count(9) / len(drawn), len(LONG) / len(POOL)
    assert abs(share - expected) < 4 * (expected * (1 - expected) / len(drawn)) ** 0.5


class Captioned:
    """Rows with a choice."""

    def __len__(self) -> int:
        return 5

    def draw(self, index, random_) -> ToyExample:
        return replace(POOL[index], label=random_.randrange(1000))


def test_rows_are_asked_for_their_examples_with_a_generator_of_their_own():
    by_rows = StepDataset(ToyModel().collate, {"a": Captioned()}, lambda step: {"a": 1.0}, rows=12, updates=20, seed=3)
    for labels in (
        lambda step: [example.label for example in whole(by_rows, step)],
        lambda step: [example.label for example in filling(sources={"a": Captioned()}).filled(step, 0)],
    ):
        assert labels(0) == labels(0) != labels(1)
        assert len(set(labels(0))) > 5, "the same row is drawn with other choices"


def test_a_rank_reads_its_own_rows_and_no_others():
    """Of images of a megapixel, those of the others would cost each rank seconds an update."""
    read: list[int] = []

    class Noted:
        def __len__(self) -> int:
            return 40

        def draw(self, index: int, random_) -> ToyExample:
            read.append(index)
            return toy_examples(40, 0)[index]

    alone = dataset()
    alone.sources, alone.mixture = {"noted": Noted()}, lambda step: {"noted": 1.0}
    everything = whole(alone, 4)
    order, read[:] = list(read), []
    for rank in range(3):
        part = dataset(rank=rank, world_size=3, grad_accumulation_steps=2)
        part.sources, part.mixture = alone.sources, alone.mixture
        part.collate = lambda examples, seed: list(examples)
        part.token_counts = lambda content: (0, 0)
        micros = [batch.content for batch in part[4]]
        assert micros == [everything[rank::6], everything[rank + 3 :: 6]]
        assert read == order[rank::6] + order[rank + 3 :: 6]
        read.clear()


def test_rows_that_are_read_ahead_make_the_same_batches_and_are_read_while_the_update_before_is_computed():
    level = 0  # as an evaluation changes it
    reads: list[int] = []
    ahead = threading.Event()

    def made(random) -> ToyExample:
        reads.append(level)
        if len(reads) == 9:
            ahead.set()
        return ToyExample((level, *(random.random() for _ in range(7))), 0, True)

    def updates(read) -> Iterator[StepBatch]:
        data = dataset(rows=1, updates=6, mixture=lambda step: {"made": 1 + level})
        data.sources["made"] = made
        data.collate = lambda examples, seed: list(examples)
        return data.batches(2, partial(read, mixture=data.mixture) if read is read_ahead else read)

    contents = []
    for read in (map, read_ahead):
        level, batches = 0, updates(read)
        contents.append([next(batches).content])
        if read is read_ahead:
            assert ahead.wait(60), "update 3 is read while 2 is computed"
        level = 1
        contents[-1] += [batch.content for batch in batches]
    assert contents[0] == contents[1] and len(contents[0]) == 4
    assert [len(content) for content in contents[0]] == [1, 2, 2, 2]
    assert {example.x[0] for content in contents[1][1:] for example in content} == {1}
    assert len(reads) == 7 + 8, "the one that was read for the former mixture was read again"


def test_a_row_that_cannot_be_read_ahead_is_an_error_of_its_own_update():
    def fails(index: int) -> Drawn:
        def examples() -> Iterator[list[int]]:
            if index == 3:
                raise UserError("row 3 is bad")
            yield [index]

        return Drawn(index, examples(), [])

    taken = read_ahead(fails, range(1, 9), lambda step: {})
    assert [[*next(taken).examples], [*next(taken).examples]] == [[[1]], [[2]]]
    with pytest.raises(UserError, match="row 3 is bad"):
        next(taken)


@pytest.mark.parametrize("read", (map, partial(read_ahead, mixture=lambda step: {})))
def test_a_micro_batch_is_given_back_once_it_is_collated(read):
    class Row:
        seed = 0

    alive: list[int] = []
    rows: list[weakref.ref[Row]] = []

    def examples(step: int) -> Iterator[list[Row]]:
        for _ in range(4):
            row = Row()
            rows.append(weakref.ref(row))
            yield [row]
            del row

    data = dataset(updates=1, grad_accumulation_steps=4, token_counts=lambda content: (0, 0))
    data.collate = lambda some, seed: alive.append(sum(row() is not None for row in rows))
    data.drawn = lambda step: Drawn(step, examples(step), [])
    assert len([*data.batches(0, read)]) == 4
    assert alive == ([1, 1, 1, 1] if read is map else [4, 3, 2, 1])


def test_messages_name_the_rows_of_the_update_that_is_computed():
    data = dataset(rows=3, mixture=lambda step: {"listed": 1.0})
    expected = [[*drawn.examples] and drawn.rows for drawn in map(data.drawn, range(4))]
    assert all(len(rows) == 3 for rows in expected) and expected[0] != expected[1]
    batches = data.batches(0, partial(read_ahead, mixture=data.mixture))
    for rows in expected:
        next(batches)
        assert data.read == rows
