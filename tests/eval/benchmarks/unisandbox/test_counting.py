from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from uni_train.data_gen.task import Check, Status, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source, Table
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.results import Results, changes
from uni_train.eval.sets.counting import accuracy, average, by_cell, units
from uni_train.eval.statistics import Estimate, PairedComparison


def one(case: Case, right: bool | Status, setting: str = "normal", k: int = 0, thought: str | None = None) -> Scored:
    status: Status = right if isinstance(right, str) else "pass" if right else "fail"
    sample = Sample(Ask(case, setting, k, 0), parts=(b"png",), thought=thought)
    return Scored(sample, Verdict((Check("caption", status),)))


def cell(tables: list[Table], title: str, row: str, column: str) -> Any:
    table = next(table for table in tables if table.title.startswith(title))
    return next(r for r in table.rows if r[0] == row)[table.columns.index(column)]


def test_official_and_corrected_stand_side_by_side(repository: Path) -> None:
    """A model that is right by the true answer, and draws two chairs where the file wrongly says four."""
    benchmark = UniSandbox(Source(data=repository, sets=("math1", "mapping2")), labels="both", settings=("normal",))
    right = {"math1/1", "math1/2/corrected", "math1/5/corrected"}
    scored = [one(case, case.set == "mapping2" or case.id in right) for case in benchmark.cases()]
    scores = benchmark.scores(scored)
    official, corrected = (scores["labels"][label]["normal"] for label in ("official", "corrected"))
    assert scores["normal"] == official
    assert (official["math1"]["value"], official["math1"]["n"]) == (1 / 6, 6)
    assert (corrected["math1"]["value"], corrected["math1"]["n"]) == (1.0, 3)
    assert (official["mapping2"]["n"], corrected["mapping2"]["n"]) == (4, 2)
    tables = benchmark.tables(scored)
    assert cell(tables, "Reasoning", "Normal, corrected labels", "Math1").n == 3
    assert "Math1 3, Mapping2 2" in tables[0].note
    assert set(scores["excluded"]["math1"]) == {"math1/3", "math1/4", "math1/6"}
    for label, n, without in (("official", 6, 0), ("corrected", 3, 3)):  # one label alone
        alone = UniSandbox(Source(data=repository, sets=("math1",)), labels=label)
        scores = alone.scores([one(case, True) for case in alone.cases()])
        assert (len(alone.cases()), scores["label"], len(scores["excluded"].get("math1", ()))) == (n, label, without)


def test_pairs_and_what_lies_below_them() -> None:
    benchmark = UniSandbox(Source(n=4, sets=("mapping1",)), settings=("normal",))
    marks: list[bool | Status] = [True, True, True, False, False, "unreadable", True, False]
    scored = [one(case, mark) for case, mark in zip(benchmark.cases(), marks, strict=True)]
    scores = benchmark.scores(scored)
    assert scores["normal"]["mapping1"]["value"] == 0.25
    assert scores["per_image"]["normal"]["mapping1"]["value"] == 0.5
    assert scores["one_of_two"]["normal"]["mapping1"]["value"] == 0.5
    outcomes = scores["outcomes"]["normal"]["mapping1"]
    assert outcomes["unreadable"]["value"] == 1 / 8
    assert (outcomes["pass"]["n"], outcomes["pass"]["distinct"]) == (8, 4)  # clustered by pair
    half = benchmark.scores(scored[:1])["normal"]["mapping1"]
    assert (half["value"], half["n"]) == (0.0, 1)  # the other of the pair was not asked
    with pytest.raises(ValueError, match="appears twice"):
        units([*scored, scored[0]], "official")


def test_cot_is_compared_with_normal_on_the_same_questions() -> None:
    benchmark = UniSandbox(Source(n=3, sets=("math1", "mapping1")))
    scored = [one(case, setting == "cot", setting) for case in benchmark.cases() for setting in benchmark.settings]
    scores = benchmark.scores(scored)
    gain = scores["cot_gain"]["mapping1"]
    assert (gain["only_second"], gain["difference"]["value"], gain["difference"]["n"]) == (3, 1.0, 3)
    assert scores["cot_gain"]["average"]["difference"]["n"] == 6
    shown = cell(benchmark.tables(scored), "What a thought changes", "Reasoning, average", "CoT - Normal")
    assert isinstance(shown, PairedComparison)
    normal_only = [x for x in scored if x.sample.ask.setting == "normal"]
    assert benchmark.scores(normal_only)["cot_gain"] == {} and benchmark.scores(normal_only)["cot"] == {}
    assert not any(table.title.startswith("What a thought") for table in benchmark.tables(normal_only))


def test_thoughts_and_causes_are_counted() -> None:
    benchmark = UniSandbox(Source(n=4, sets=("math1",)), settings=("cot",))
    thoughts = [case.facts["item"]["thought"] for case in benchmark.cases()]
    thoughts[3] = "So draw 6 moons ."
    asked = enumerate(zip(benchmark.cases(), thoughts, strict=True))
    scored = [one(case, i < 2, "cot", thought=thought) for i, (case, thought) in asked]
    scored = [Scored(x.sample, x.verdict, cause=benchmark.attribute(x)) for x in scored]
    scores = benchmark.scores(scored)
    assert scores["causes"] == {"cot": {"math1": {"drawn wrong": 1, "reasoning wrong": 1}}}
    assert scores["thoughts"]["math1"]["right"]["value"] == 0.75
    assert scores["thoughts"]["math1"]["drawn_right"]["value"] == pytest.approx(2 / 3)


def test_table_4_pools_its_questions(repository: Path) -> None:
    benchmark = UniSandbox(Source(data=repository, sets=("forward", "inverse")))
    benchmark.published = True
    asked = [(case, setting) for case in benchmark.cases() for setting in ("normal", "cot")]
    scored = [one(case, case.category == "fruit", setting) for case, setting in asked]
    tables = benchmark.tables(scored)
    overall = cell(tables, "Knowledge transfer", "Overall", "Normal")
    assert isinstance(overall, Estimate) and (overall.value, overall.n) == (0.25, 2)  # models
    assert cell(tables, "Knowledge transfer", "Forward Retrieval", "CoT").n == 1
    assert cell(tables, "Knowledge transfer", "Overall", "CoT - Normal").difference.n == 2
    assert cell(tables, "Knowledge transfer", "Inverse Search", "BAGEL + CoT in the paper") == "0.15"
    assert not any(table.title.startswith("Reasoning generation") for table in tables)


def test_the_best_trivial_strategy_and_chance_stand_below_the_scores(repository: Path) -> None:
    benchmark = UniSandbox(Source(n=6), settings=("normal",))
    scored = [one(case, True) for case in benchmark.cases()]
    tables, strategies = benchmark.tables(scored), benchmark.scores(scored)["strategies"]
    assert tuple(strategies) == benchmark.sets and all(each["n"] == 6 for some in strategies.values() for each in some)
    shares = [each["value"] for each in strategies["math3"]]
    assert shares == sorted(shares, reverse=True)
    plain, leading = cell(tables, "Reasoning", "Best trivial strategy", "Mapping2"), strategies["mapping2"][0]
    assert isinstance(plain, Estimate) and (plain.value, plain.n) == (leading["value"], 6)
    assert f"Mapping2 {leading['name']}" in tables[0].note
    assert [cell(tables, "Reasoning", "Chance", name) for name in ("Math2", "Mapping2")] == ["0.17", "0.25"]
    assert cell(tables, "Reasoning", "n / distinct", "Mapping2") == "6 / 6"

    published = UniSandbox(
        Source(data=repository, sets=("math1", "mapping2")), labels="corrected", settings=("normal",)
    )
    scored = [one(case, False) for case in published.cases()]
    assert set(published.scores(scored)["strategies"]) == {"math1", "mapping2"}
    assert cell(published.tables(scored), "Reasoning", "n / distinct", "Math1") == "3 / 3"


def answers(name: str, *marks: bool) -> list[Scored]:
    return [one(case, mark) for case, mark in zip(UniSandbox(Source(n=4, sets=(name,))).cases(), marks, strict=False)]


def test_a_pair_is_drawn_as_a_pair_each_time() -> None:
    a, b = UniSandbox(Source(n=4, sets=("mapping1",))).cases()[:2]
    scored = [one(a, True), one(b, False), one(a, False, k=1), one(b, True, k=1)]
    found = by_cell(units(scored, "official"), accuracy)["normal"]["mapping1"]
    assert (found.value, found.n) == (0.0, 1)
    three = [one(replace(s.sample.ask.case, cluster="one"), True) for s in answers("mapping1", True, True, True)]
    with pytest.raises(ValueError, match="at most 2 belong together"):
        units(three, "official")


def test_average_is_the_mean_of_the_columns() -> None:
    scored = answers("mapping1", *[True] * 8) + answers("mapping2", *[True] * 2, *[False] * 6)
    asked = units([*scored, *(one(s.sample.ask.case, False, "cot") for s in scored)], "official")
    assert average(asked, "mapping").value == pytest.approx((1 + 0.25 + 0 + 0) / 4)
    assert average(asked, "maths").value is None


def test_prompts_that_ask_for_one_expression_are_one_cluster() -> None:
    """Eight prompts of two expressions, one of them always right: that is two findings, not eight."""
    first, second, *_ = UniSandbox(Source(n=4, sets=("math1",))).cases()

    def repeat(case: Case, name: str, i: int) -> Case:
        item = {**case.facts["item"], "facts": {**case.facts["item"]["facts"], "canonical": name}}
        again = f"{case.id}-{i}"
        return replace(case, id=again, facts={**case.facts, "drawn_as": again, "item": item})

    repeats = [repeat(case, name, i) for name, case in (("a", first), ("b", second)) for i in range(4)]
    asked = units([one(case, i < 4) for i, case in enumerate(repeats)], "official")
    found = by_cell(asked, accuracy)["normal"]["math1"]
    assert (found.value, found.n, found.distinct) == (0.5, 8, 2) and found.high - found.low > 0.9
    assert average(asked, "maths").distinct == 2
    later = units([one(case, i > 0) for i, case in enumerate(repeats)], "official")
    change = changes(asked, later)["normal"]["math1"]
    assert (change.only_first, change.only_second, change.neither, change.difference.n) == (1, 4, 0, 2)
    assert change.p_value > 0.05
    with pytest.raises(ValueError, match="same items"):
        changes(asked, Results(later.units[:2]))
