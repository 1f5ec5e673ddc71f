"""The inverse search beside choosing one of the two: images of the right one, of the other, and of neither."""

from __future__ import annotations

import pytest

from uni_train.data_gen import sprites
from uni_train.data_gen.knowledge.injection import subjects
from uni_train.eval.benchmark import Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.cases import Questions, knowledge_case
from uni_train.eval.generation import asks_of
from uni_train.eval.statistics import Estimate
from uni_train.eval.task_benchmark import item_of
from uni_train.models.pictures import encode_png
from uni_train.recipes.knowledge import injected
from uni_train.recipes.knowledge.injected import OTHER, InjectedModel, Reply


def inverse(world: str) -> tuple[UniSandbox, InjectedModel]:
    """The questions about a pair, and the pair as it was taught: its direct answers in words are wrong."""
    (pair,) = subjects(world, 2, 0, "test", ("inverse",))
    cases = tuple(knowledge_case(one, world) for one in pair.pictures)
    twins = {case.id: Reply(case.prompt, "", False) for case in cases}
    asked = UniSandbox(Source(), questions=Questions(cases, {}, False), settings=("normal",))
    return asked, InjectedModel(pair.names, "inverse", 1, (), twins)


def test_an_image_of_the_other_of_the_pair_is_told_from_one_of_neither() -> None:
    asked, taught = inverse("nano")
    cases = asked.cases()
    answers = [(item_of(case).facts["object"], item_of(case).facts["count"]) for case in cases]
    assert answers[0] == answers[1] != answers[2] == answers[3]
    # Right, the other, the other, neither (the other's object in the number of the first).
    shown = [answers[0], answers[2], answers[0], (answers[0][0], answers[2][1])]
    scored = []
    for ask, (noun, count) in zip(asks_of(cases, ["normal"]), shown, strict=True):
        sample = Sample(ask, prompt=ask.case.prompt, parts=(encode_png(sprites.render(noun, count, 1)),))
        scored.append(injected.attributed(asked, Scored(sample, asked.check(sample)), taught))
    assert [one.cause for one in scored] == ["", OTHER, OTHER, injected.KNOWS_NOT]
    found = injected.scores(asked, [taught], scored)
    tables = {table.title: table for table in injected.tables(asked, [taught], scored, found, found)}
    (row,) = tables["Inverse search beside choosing one of the two"].rows
    values = [cell.value for cell in row if isinstance(cell, Estimate)]
    assert values == [pytest.approx(1 / 4), pytest.approx(3 / 4), pytest.approx(1 / 3)] and row[-1] == "0.50"


def test_where_a_judge_tells_there_is_no_such_table() -> None:
    asked, taught = inverse("everyday")
    samples = [Sample(ask, parts=(b"",)) for ask in asks_of(asked.cases(), ["normal"])]
    scored = [Scored(one, by="judge", failure="judge_failed") for one in samples]
    found = injected.scores(asked, [taught], scored)
    titles = [table.title for table in injected.tables(asked, [taught], scored, found, found)]
    assert "Known in text, drawn or not" in titles and "Inverse search beside choosing one of the two" not in titles
