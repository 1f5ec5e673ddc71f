from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.registry import get_task
from data_gen.task import Check, Item, Status, Verdict
from eval.benchmarks import unisandbox
from eval.benchmarks.unisandbox.reasoning import PAPER_TABLE_1, PAPER_TABLE_4
from eval.sample import ScoredSample

SETS = unisandbox.build_sets(n_prompts=4, n_pairs=4, seed=0)


def sample(item: Item, status: Status, setting: str = "normal", k: int = 0) -> ScoredSample:
    return ScoredSample(item, setting, seed=0, k=k, image=b"png", verdict=Verdict((Check("object", status),)))


def answers(name: str, *statuses: Status) -> list[ScoredSample]:
    return [sample(item, status) for item, status in zip(SETS[name], statuses, strict=False)]


def test_sets_are_the_published_ones_and_disjoint_from_training() -> None:
    assert tuple(SETS) == unisandbox.SETS
    assert all(len(SETS[name]) == (4 if name.startswith("math") else 8) for name in SETS)
    assert all(item.split == "test" for items in SETS.values() for item in items)
    assert unisandbox.build_sets(4, 4, seed=0) == SETS


def test_a_pair_counts_only_if_both_are_right() -> None:
    results = answers("mapping1", "pass", "pass", "pass", "fail", "fail", "pass", "fail", "fail")
    estimate = unisandbox.score(results)["normal"]["mapping1"]
    assert (estimate.value, estimate.n) == (0.25, 4)
    assert unisandbox.per_image(results)["normal"]["mapping1"].value == 0.5
    assert unisandbox.one_of_two(results)["normal"]["mapping1"].value == 0.5
    assert unisandbox.score(reversed(results)) == unisandbox.score(results)


def test_maths_counts_prompts() -> None:
    estimate = unisandbox.score(answers("math2", "pass", "fail", "fail", "pass"))["normal"]["math2"]
    assert (estimate.value, estimate.n) == (0.5, 4)


def test_no_failure_leaves_the_denominator() -> None:
    results = answers("math1", "pass", "unreadable")
    results.append(ScoredSample(SETS["math1"][2], "normal", seed=0))  # generation failed; the fourth left no record
    scored = unisandbox.score(results, {"math1": SETS["math1"]})["normal"]["math1"]
    assert (scored.value, scored.n) == (0.25, 4)
    shares = unisandbox.statuses(results, {"math1": SETS["math1"]})["normal"]["math1"]
    assert {status: share.value for status, share in shares.items()} == {
        "pass": 0.25, "fail": 0.0, "unreadable": 0.25, "generation_failed": 0.25, "missing": 0.25,
    }  # fmt: skip


def test_half_a_pair_is_a_failed_pair() -> None:
    results = answers("mapping2", "pass")
    assert unisandbox.score(results)["normal"]["mapping2"].value == 0.0
    assert unisandbox.statuses(results)["normal"]["mapping2"]["missing"].value == 0.5


def test_a_pair_is_drawn_as_a_pair_each_time() -> None:
    a, b = SETS["mapping1"][:2]
    results = [sample(a, "pass"), sample(b, "fail"), sample(a, "fail", k=1), sample(b, "pass", k=1)]
    estimate = unisandbox.score(results)["normal"]["mapping1"]
    assert (estimate.value, estimate.n) == (0.0, 1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: rows + rows[:1], "appears twice"),
        (lambda rows: [replace(rows[0], verdict=None), *rows[1:]], "no verdict"),
        (lambda rows: [replace(rows[0], item=replace(rows[0].item, pair=None)), *rows[1:]], "id of its pair"),
        (lambda rows: [replace(rows[0], item=replace(rows[0].item, task="maze")), *rows[1:]], "no part of UniSandbox"),
        (lambda rows: [replace(r, item=replace(r.item, pair="one")) for r in rows], "at most 2 belong together"),
    ],
)
def test_records_that_cannot_be_scored(spoil: Callable[[list[ScoredSample]], list[ScoredSample]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unisandbox.score(spoil(answers("mapping1", "pass", "fail", "pass", "pass")))


def test_average_is_the_mean_of_the_columns() -> None:
    results = answers("mapping1", *["pass"] * 8) + answers("mapping2", "pass", "pass", "fail", "fail")
    results += [sample(one.item, "fail", "cot") for one in results]
    assert unisandbox.average(results, "mapping").value == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert unisandbox.average(results, "maths").value is None


def test_compare_pairs_the_same_items() -> None:
    before = answers("math1", "pass", "fail", "fail", "fail")
    after = answers("math1", "fail", "pass", "pass", "fail")
    change = unisandbox.compare(before, after)["normal"]["math1"]
    assert (change.only_first, change.only_second, change.neither) == (1, 2, 1)
    with pytest.raises(ValueError, match="same items"):
        unisandbox.compare(before, after[:2])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_filter_reliability(rows: list[tuple[bool, bool]]) -> None:
    accepted, correct = [a for a, _ in rows], [c for _, c in rows]
    found = unisandbox.filter_reliability(accepted, correct)
    hits = sum(a and c for a, c in rows)
    assert (found.n, found.kept, found.correct) == (len(rows), sum(accepted), sum(correct))
    assert found.precision.value == (hits / sum(accepted) if any(accepted) else None)
    assert found.recall.value == (hits / sum(correct) if any(correct) else None)


def test_the_papers_averages_are_those_of_its_cells() -> None:
    for model in PAPER_TABLE_1:
        assert sum(model.accuracies) / 6 == pytest.approx(model.average, abs=0.0051), model.name
    for name, (forward, inverse, overall) in PAPER_TABLE_4.items():  # of 30 and of 20 questions
        assert (30 * forward + 20 * inverse) / 50 == pytest.approx(overall, abs=0.0051), name
    for row in unisandbox.PAPER_TABLE_2 + unisandbox.PAPER_TABLE_3:
        assert sum(row.normal + row.cot) / 6 == pytest.approx(row.average, abs=0.0051), row.name


def test_prompts_that_ask_for_one_expression_are_one_cluster() -> None:
    """Eight prompts of two expressions, one of them always right: that is two findings, not eight."""
    (first, second, *_) = SETS["math1"]
    repeats = [
        replace(item, id=f"{item.id}-{i}", facts={**item.facts, "canonical": name})
        for name, item in (("a", first), ("b", second))
        for i in range(4)
    ]
    rows = [sample(item, "pass" if item.facts["canonical"] == "a" else "fail") for item in repeats]
    found = unisandbox.score(rows)["normal"]["math1"]
    assert (found.value, found.n, found.distinct) == (0.5, 8, 2)
    assert found.high - found.low > 0.9
    assert unisandbox.average(rows, "maths").distinct == 2
    change = unisandbox.compare(rows, [sample(item, "pass") for item in repeats])["normal"]["math1"]
    assert (change.only_second, change.difference.n) == (4, 2) and change.p_value > 0.05
    alone = unisandbox.score(answers("mapping2", *["pass"] * 8))["normal"]["mapping2"]
    assert (alone.n, alone.distinct) == (4, None)


def test_strategies_stand_beside_every_set() -> None:
    found = unisandbox.strategies(SETS)
    assert tuple(found) == unisandbox.SETS
    assert all(one.estimate.n == 4 for by_set in found.values() for one in by_set)
    shares = [one.estimate.value or 0 for one in found["math3"]]
    assert shares == sorted(shares, reverse=True) and found["math3"][0].chance == get_task("maths").chance
    rows = answers("mapping2", *["pass"] * 8) + answers("math1", *["pass"] * 4)
    assert unisandbox.items_of(reversed(rows)) == {
        "math1": SETS["math1"][::-1], "mapping2": SETS["mapping2"][::-1]
    }  # fmt: skip
