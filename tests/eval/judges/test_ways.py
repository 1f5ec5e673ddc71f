"""What is asked in which words, how replies are read, and ways of asking."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.eval.benchmarks.doubles import Judge
from tests.eval.judges.criteria import NO, PNG, YES, Counted, Criteria, judged, number
from tests.eval.judges.server import Asked, JudgeServer, Refused
from uni_train.config.schema import JudgeConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.reading_limits import read_json
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample
from uni_train.eval.images import ImageStore
from uni_train.eval.judges import caption_matches, image_satisfies, run, thought_satisfies
from uni_train.eval.judges.ways import combined, least_confidence, reader, split_confidence
from uni_train.eval.reading import JsonReader


def scripted(*replies: str, dialect: str = "paper") -> Judge:
    """A judge that says its replies in turn."""
    said = iter(replies)
    return Judge(lambda prompt, images: next(said), dialect)


@pytest.mark.parametrize(
    ("kind", "replies", "expected", "compared", "reason"),
    [
        ("maths", ("Caption: 4 chairs", "Score: YES"), "4 chairs",
         ("**Generated Caption:** 4 chairs\n", "**Expected Answer:** 4 chairs\n"), ""),
        ("mapping", ("Caption: 3 chairs", "Score: NO"), "4 chairs", (), "captioned '3 chairs', expected '4 chairs'"),
        ("knowledge", ("Flower: rose", "Score: YES"), "roses",  # Table 11
         ("Input: Generated: Flower: rose — GroundTruth: roses",), ""),
        ("maths", ("Caption: Error",), "2 cups", (), "captions the image 'Error'"),  # no comparison
        ("knowledge", ("Reject",), "a peony", (), "captions the image 'Reject'"),
    ],
)  # fmt: skip
def test_a_caption_is_made_before_the_answer_is_known(
    kind: str, replies: tuple[str, ...], expected: str, compared: tuple[str, ...], reason: str
) -> None:
    judge = scripted(*replies)
    found = anyio.run(partial(caption_matches, judge, PNG, expected, kind=kind))
    assert found.passed is not bool(reason) and reason in found.reason
    (shown, of_image), *second = judge.asked
    assert of_image == (PNG,) and all(images == () for _, images in second)
    assert expected not in shown.replace("2 chairs", "")
    assert len(judge.asked) == len(replies) and all(part in second[0][0] for part in compared)


def test_criteria_are_asked_in_the_words_of_figures_25_and_26() -> None:
    judge = scripted("Good.\n<answer>Yes</answer>", "<answer>No</answer>")
    assert anyio.run(image_satisfies, judge, PNG, 'a "red" cup').passed
    found = anyio.run(thought_satisfies, judge, "Draw {criteria}", "{user_prompt}", "three cups")
    assert found.status == "fail" and "three cups" in found.reason
    (of_image, images), (of_thought, _) = judge.asked
    assert 'Target Description: "a "red" cup"' in of_image and images == (PNG,)
    for part in ("=== User Prompt ===\nDraw {criteria}\n", "=== Model Thought Process ===\n{user_prompt}\n"):
        assert part in of_thought


def test_nano_is_asked_in_its_own_words() -> None:
    judge = scripted("Seen 3 apples .\nFinal Answer: YES", dialect="nano")
    assert anyio.run(image_satisfies, judge, PNG, "Draw 3 apples .").passed
    assert judge.asked == [("Question : Draw 3 apples . Is the image right ?", (PNG,))]
    for caption, expected, kind, passes in [
        ("2 leaves", "2 leaves", "mapping", True), ("1 leaf", "2 leaves", "mapping", False),
        ("1 leaf", "2 leaves", "mapping_official", True), ("2 leaves", "Leaves", "mapping", True),
        ("2 cups", "2 leaves", "mapping_official", False), ("unclear", "2 leaves", "mapping", False),
    ]:  # fmt: skip
        judge = scripted(f"Caption: {caption}", dialect="nano")
        found = anyio.run(partial(caption_matches, judge, PNG, expected, kind=kind))
        assert found.passed is passes and judge.asked == [("Caption :", (PNG,))], (caption, expected, kind)
    with pytest.raises(UsageError, match="text"):
        anyio.run(thought_satisfies, judge, "a", "b", "c")
    with pytest.raises(UsageError, match="portraits"):
        anyio.run(partial(caption_matches, judge, PNG, "rose", kind="knowledge"))


SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "kinds": {"type": "array", "items": {"enum": ["cup", "ball"]}}},
    "required": ["count"],
    "additionalProperties": False,
}


FENCED = ("{}", "So:\n```json\n{}\n```\nDone.", "```json\r\n{}\r\n```\r\n", "```json {} ```", "```{}```",
          "So: ```JSON {} ``` Done.", "````json\n{}\n````", "~~~json\n{}\n~~~", "   ```\n\n  {}\n  ```")  # fmt: skip


@pytest.mark.parametrize(
    ("why", "is_"),
    [
        ('"three"', "three"),
        (r'"it says ```json {1}``` and\n``` here"', "it says ```json {1}``` and\n``` here"),
        (r'"\(x\) is \frac12, \underline{\nu} \\ \"a\" \u00e9"', r'\(x\) is \frac12, \underline{\nu} \ "a" é'),
        ('"no </ think>"', "no </ think>"),
    ],
)
def test_json_alone_fenced_or_after_thinking(why: str, is_: str) -> None:
    thoughts = ("", "<think>{1} ```json\n2\n```</think>\n", "So I count {1} </think>", "<THINK></THINK>")
    for way, fenced, before in product(("published", "chain_of_thought"), FENCED, thoughts):
        read = reader(way, JsonReader(SCHEMA | {"additionalProperties": True}))
        text = before + fenced.replace("{}", f'{{"count": 3, "why": {why}}}')
        assert read(text) == ({"count": 3, "why": is_}, None), (way, text)


def test_a_server_that_takes_no_schema_is_asked_in_words(tmp_path: Path) -> None:
    with JudgeServer(
        lambda asked: Refused(400, "response_format") if "response_format" in asked.body else '{"count": 3}'
    ) as server:
        for _ in range(2):  # the second finds the reply in the store
            (scored,) = judged(1, server, tmp_path, Counted)
            (part,) = read_json(tmp_path / "judge" / "record.json")["parts"].values()
            assert scored.passed and part["refused"] == ["response_format"]
    wanted, again = (asked.body.get("response_format") for asked in server.asked)
    assert wanted["json_schema"]["schema"] == Counted.schema and again is None


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
    images = ImageStore(tmp_path / "images")
    cases = [replace(case, images=(images.put(PNG),)) for case in benchmark.cases()]
    samples = [
        Sample(Ask(case, "direct", k, k), parts=(images.put(PNG + f"{case.id} {k}".encode()), f"worth {worth}"))
        for case in cases
        for k, worth in enumerate((3, 1, 2))
    ]

    def reply(asked: Asked) -> str:
        a, b = (int(one) for one in re.findall(r"worth (\d)", asked.words))
        if {a, b} == {1, 2}:  # one that goes by the order counts half, as one that sees no difference
            return "<answer>A</answer>" if "It shows 0." in asked.words else "<answer>Equal</answer>"
        return f"<answer>{'A' if a > b else 'B'}</answer>"

    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge", way="tournament")
        scored = run(samples, benchmark, judge, tmp_path)
        assert [one.value for one in scored] == [1.0, 0.25, 0.25] * 2
        assert [one.passed for one in scored][:2] == [True, False]
        assert len(server.asked) == 12 and all(len(one.images) == 3 for one in server.asked)
        facts = ("It shows 0.", "1 given with the request; 1 of candidate A; 1 of candidate B")
        assert any(all(fact in one.words for fact in facts) for one in server.asked)
        with pytest.raises(UserError, match="several samples of a case"):
            run(benchmark.samples(), benchmark, judge, tmp_path)
        lonely = run([*samples, replace(samples[0], ask=Ask(cases[0], "other", 0, 0))], benchmark, judge, tmp_path)
    assert lonely[-1].outcome == "unreadable" and len(server.asked) == 12
