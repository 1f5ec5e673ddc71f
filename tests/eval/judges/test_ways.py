from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.eval.judges.criteria import NO, PNG, YES, Counted, Criteria, judged, number
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.build import build_section
from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError, UserError
from uni_train.eval.benchmark import Ask, Case, Sample
from uni_train.eval.images import ImageStore
from uni_train.eval.judges import run
from uni_train.eval.judges.ways import _comparison, combined, least_confidence, split_confidence


def test_other_words_are_other_questions_and_the_default_adds_none(tmp_path: Path) -> None:
    def reply(asked: Asked) -> str:
        return f"<think>{NO} at first sight, but look.</think> {YES}" if "<think>" in asked.last else YES

    with JudgeServer(reply) as server:
        published = judged(1, server, tmp_path)
        binary, thought = (judged(1, server, tmp_path, way=way) for way in ("binary", "chain_of_thought"))
        assert judged(1, server, tmp_path) == published and len(server.asked) == 3
    prompts = [one.last for one in server.asked]
    assert prompts[1] == prompts[0] + prompts[1].removeprefix(prompts[0]) and "without any reasoning" in prompts[1]
    assert prompts[2].startswith(prompts[0]) and "<think>" in prompts[2]
    assert published[0].passed and binary[0].passed and thought[0].passed and len(thought[0].replies) == 1


def test_a_majority_has_draws_of_its_own_each_asked_once(tmp_path: Path) -> None:
    seen = Counter[int]()

    def reply(asked: Asked) -> str:
        seen[shown := number(asked)] += 1
        return {0: (YES, NO, YES), 1: (YES, NO, NO), 2: ("hm", YES, YES)}[shown][(seen[shown] - 1) % 3]

    asking: dict[str, Any] = {"way": "majority", "draws": 3, "temperature": 0.7, "attempts": 1, "connections": 1}
    with JudgeServer(reply) as server:
        scored = judged(3, server, tmp_path, **asking)
        assert [one.outcome for one in scored] == ["pass", "fail", "pass"]
        assert scored[0].replies == (YES, NO, YES) and len(server.asked) == 9
        assert scored[1].verdict is not None and "(2 of 3 draws)" in scored[1].verdict.reason
        assert judged(3, server, tmp_path, **asking) == scored and len(server.asked) == 9
        judged(3, server, tmp_path, **{**asking, "way": "published"})  # the first draw is the question as ever
        assert len(server.asked) == 9
        judged(3, server, tmp_path, **{**asking, "draws": 5})
        assert len(server.asked) == 15
        # A server that gives one reply a seed is told which draw it is; the first question is the one of before.
        assert Counter(one.body.get("seed") for one in server.asked[:9]) == {None: 3, 1: 3, 2: 3}
        judged(1, server, tmp_path, **asking, seed=7)
        assert [one.body["seed"] for one in server.asked[15:]] == [7, 8, 9]


def test_confidence_weighs_votes_and_is_demanded(tmp_path: Path) -> None:
    said = [f"{YES}\nConfidence: 95", f"{NO}\nConfidence: 20", NO, f"{NO}\n**Confidence: 30%**"]

    with JudgeServer(lambda asked: said.pop(0)) as server:
        (scored,) = judged(1, server, tmp_path, way="confidence", draws=3, temperature=0.7, connections=1)
        assert scored.passed and len(server.asked) == 4  # 0.95 against 0.20 and 0.30
        assert '"Confidence: N"' in server.asked[3].last
    assert least_confidence(scored.replies) == 0.2 and least_confidence([YES]) == 0.0
    with pytest.raises(ValueError, match="0 to 100"):
        split_confidence(f"{YES}\nConfidence: 101")


def test_a_form_and_words_beside_it(tmp_path: Path) -> None:
    form, other = '{"count": 3}', '{"count": 1}'
    for way, reply in (
        ("confidence", f"{form}\nConfidence: 70"),
        ("chain_of_thought", f"<think>{other}?</think>\n{form}"),
    ):
        with JudgeServer(lambda asked, reply=reply: reply) as server:  # type: ignore[misc]
            (scored,) = judged(1, server, tmp_path / way, Counted, way=way, draws=1)
        assert scored.passed and "response_format" not in server.asked[0].body


def test_votes_are_counted_check_by_check() -> None:
    def verdict(**checks: str) -> Verdict:
        return Verdict(tuple(Check(name, status) for name, status in checks.items()))  # type: ignore[arg-type]

    rubrics = [verdict(a="pass", b="fail"), verdict(a="fail", b="fail"), verdict(a="pass", b="unreadable")]
    assert [(one.name, one.status) for one in combined(rubrics, [1, 1, 1]).checks] == [("a", "pass"), ("b", "fail")]
    # What only a failure is asked for does not outlive an outvoted failure.
    chain = [verdict(criterion="pass"), verdict(criterion="fail", reasoning="fail"), verdict(criterion="pass")]
    assert combined(chain, [1, 1, 1]).passed and len(combined(chain, [1, 1, 1]).checks) == 1
    assert not combined([verdict(a="pass"), verdict(a="fail")], [1, 1]).passed  # a tie proves nothing
    assert combined([verdict(a="pass"), verdict(a="fail")], [0.9, 0.1]).passed
    assert combined([verdict(a="pass"), verdict(a="pass")], [0, 0]).passed
    graded = [Verdict((Check("a", "pass", value=x),)) for x in (0.2, 0.9, 0.5)]
    assert combined(graded, [1, 1, 1]).value == 0.5 and combined(graded, [1, 5, 1]).value == 0.9


def test_a_tournament_compares_pairs_in_both_orders(tmp_path: Path) -> None:
    benchmark = Criteria(2)
    cases = benchmark.cases()
    samples = [
        Sample(Ask(case, "direct", k, k), parts=(PNG + f"{case.id} {k}".encode(), f"worth {worth}"))
        for case in cases
        for k, worth in enumerate((3, 1, 2))
    ]

    def reply(asked: Asked) -> str:
        a, b = (int(one) for one in re.findall(r"worth (\d)", asked.words))
        if {a, b} == {1, 2}:
            return "<answer>A</answer>"  # one that goes by the order counts half
        return f"<answer>{'A' if a > b else 'B'}</answer>"

    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge", way="tournament")
        scored = run(samples, benchmark, judge, tmp_path)
        assert [one.value for one in scored] == [1.0, 0.25, 0.25] * 2
        assert [one.passed for one in scored][:2] == [True, False]
        assert len(server.asked) == 12 and all(len(one.images) == 2 for one in server.asked)
        facts = ("It shows 0.", "1 of candidate A; 1 of candidate B")
        assert any(all(fact in one.words for fact in facts) for one in server.asked)
        with pytest.raises(UserError, match="several samples of a case"):
            run(benchmark.samples(), benchmark, judge, tmp_path)
        lonely = run([*samples, replace(samples[0], ask=Ask(cases[0], "other", 0, 0))], benchmark, judge, tmp_path)
    assert lonely[-1].outcome == "unreadable" and len(server.asked) == 12


def test_a_tournament_reads_images_of_a_store(tmp_path: Path) -> None:
    stored = ImageStore(tmp_path).put(PNG)
    one, two = (Sample(Ask(Case("a", "all", "Draw.", (stored,)), "direct", k, 0), parts=(stored,)) for k in range(2))
    prompt, images = _comparison(Criteria(1), one, two)
    assert images == (PNG,) * 3 and all(isinstance(image, bytes) for image in images)
    assert "1 given with the request; 1 of candidate A; 1 of candidate B" in prompt


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"way": "tournment"}, "Did you mean tournament"),
        ({"way": "majority", "draws": 4, "temperature": 1}, "may be a tie"),
        ({"way": "confidence", "draws": 3, "temperature": 0}, "at temperature 0 are one reply"),
        ({"way": "binary", "dialect": "nano"}, "nano cannot be asked by judge.way=binary"),
    ],
)
def test_ways_that_cannot_be_meant(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        build_section(JudgeConfig, {"model": "http://127.0.0.1:9/v1#judge", **settings})


def test_what_makes_two_judgings_the_same() -> None:
    judge = JudgeConfig(model="http://127.0.0.1:9/v1#judge")
    assert judge.manner == {**judge.identity, "dialect": "paper"}  # as evaluations of before ways have it
    majority = replace(judge, way="majority", temperature=0.5)
    assert majority.manner["way"] == "majority" and majority.label == "majority of 5"
    assert majority.key == replace(judge, temperature=0.5).key  # a way changes no reply
