"""What is asked in which words, how replies are read, and ways of asking."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.eval.judges.criteria import NO, PNG, YES, Counted, Criteria, judged, number
from tests.eval.judges.server import Asked, JudgeServer, Refused
from uni_train.config.build import build_section
from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.reading_limits import read_json
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError, UserError
from uni_train.eval.benchmark import Ask, Case, Sample
from uni_train.eval.images import ImageStore
from uni_train.eval.judges import caption_matches, image_satisfies, run, thought_satisfies
from uni_train.eval.judges.ways import JsonReader, _comparison, combined, least_confidence, reader, split_confidence

IMAGE = b"\x89PNG"


class Scripted:
    """A JudgeAsk that says its replies in turn; what it was asked is in `prompts`."""

    def __init__(self, *replies: str, dialect: str = "paper") -> None:
        self.replies, self.dialect = list(replies), dialect
        self.prompts: list[str] = []
        self.images: list[tuple[bytes, ...]] = []

    async def __call__(
        self,
        prompt: str,
        images: Sequence[bytes] = (),
        *,
        parse: Callable[[str], Any] | None = None,
        attempts: int = 3,
        schema: Mapping[str, Any] | None = None,
    ) -> Any:
        self.prompts.append(prompt)
        self.images.append(tuple(images))
        said = self.replies.pop(0)
        return parse(said) if parse else said


def verdict(question: Callable[..., Any], *args: Any, **kwargs: Any) -> Verdict:
    return anyio.run(partial(question, *args, **kwargs))


def test_a_caption_is_made_before_the_answer_is_known() -> None:
    ask = Scripted("Caption: 4 chairs", "Score: YES")
    assert verdict(caption_matches, ask, IMAGE, "4 chairs", kind="maths").passed
    assert ask.images == [(IMAGE,), ()] and "4 chairs" not in ask.prompts[0].replace("2 chairs", "")
    assert "**Generated Caption:** 4 chairs\n" in ask.prompts[1] and "**Expected Answer:** 4 chairs\n" in ask.prompts[1]
    found = verdict(caption_matches, Scripted("Caption: 3 chairs", "Score: NO"), IMAGE, "4 chairs", kind="mapping")
    assert found.status == "fail" and "captioned '3 chairs', expected '4 chairs'" in found.reason


def test_a_caption_that_refuses_the_picture_needs_no_comparison() -> None:
    for kind, caption in (("maths", "Caption: Error"), ("knowledge", "Reject")):
        ask = Scripted(caption)
        assert verdict(caption_matches, ask, IMAGE, "rose", kind=kind).status == "fail" and len(ask.prompts) == 1


def test_knowledge_is_compared_by_table_11() -> None:
    ask = Scripted("Flower: rose", "Score: YES")
    assert verdict(caption_matches, ask, IMAGE, "roses", kind="knowledge").passed
    assert "Input: Generated: Flower: rose — GroundTruth: roses" in ask.prompts[1]


def test_criteria_are_asked_in_the_words_of_figures_25_and_26() -> None:
    ask = Scripted("Good.\n<answer>Yes</answer>", "<answer>No</answer>")
    assert verdict(image_satisfies, ask, IMAGE, 'a "red" cup').passed
    assert 'Target Description: "a "red" cup"' in ask.prompts[0] and ask.images[0] == (IMAGE,)
    found = verdict(thought_satisfies, ask, "Draw {criteria}", "{user_prompt}", "three cups")
    assert found.status == "fail" and "three cups" in found.reason
    for part in ("=== User Prompt ===\nDraw {criteria}\n", "=== Model Thought Process ===\n{user_prompt}\n"):
        assert part in ask.prompts[1]


def test_nano_is_asked_in_its_own_words() -> None:
    ask = Scripted("Caption: 3 apples", "Seen 3 apples .\nFinal Answer: YES", dialect="nano")
    assert verdict(caption_matches, ask, IMAGE, "3 apples", kind="maths").passed
    assert verdict(image_satisfies, ask, IMAGE, "Draw 3 apples .").passed
    assert ask.prompts == ["Caption :", "Question : Draw 3 apples . Is the image right ?"]
    for caption, expected, kind, passes in [
        ("2 leaves", "2 leaves", "mapping", True),
        ("1 leaf", "2 leaves", "mapping", False),
        ("1 leaf", "2 leaves", "mapping_official", True),
        ("2 leaves", "Leaves", "mapping", True),
        ("2 cups", "2 leaves", "mapping_official", False),
        ("unclear", "2 leaves", "mapping", False),
    ]:
        ask = Scripted(f"Caption: {caption}", dialect="nano")
        assert verdict(caption_matches, ask, IMAGE, expected, kind=kind).passed is passes, (caption, expected, kind)
    with pytest.raises(UsageError, match="text"):
        verdict(thought_satisfies, Scripted(dialect="nano"), "a", "b", "c")
    with pytest.raises(UsageError, match="portraits"):
        verdict(caption_matches, Scripted(dialect="nano"), IMAGE, "rose", kind="knowledge")


SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "kinds": {"type": "array", "items": {"enum": ["cup", "ball"]}}},
    "required": ["count"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"count": 3', "not JSON"),
        ('I count three: {"count": 3}', "not JSON"),
        ('{"count": "3"}', "at count, '3' is not of type 'integer'"),
        ('{"count": 3, "kinds": ["cup", "hat"]}', "at kinds/1, 'hat' is not one of"),
        ('{"kinds": []}', "'count' is a required property"),
        ('{"count": 3, "count": 4}', "'count' appears twice"),
        ('{"count": NaN}', "NaN is not JSON"),
        ('```json\n{"count": 3}\n```\n```json\n{"count": 4}\n```', "several code blocks"),
        ('```json\n{"count": 3}', "not JSON"),
        ('{"kinds": "```1```", "count": 3', "not JSON"),
        ('{"count": 3, "why": "\\frac", "count": 4}', "'count' appears twice"),
        ("[" * 100_000, "not JSON|nested too deeply"),
        ("", "not JSON"),
    ],
)
def test_what_is_not_the_json_asked_for_says_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JsonReader(SCHEMA)(text)


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


def test_a_mark_in_the_json_is_no_thought() -> None:
    for why in ("<think>", "</think>"):
        text = json.dumps({"count": 3, "why": f"it wrote {why}"})
        assert json.dumps(JsonReader({})(text)) == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    assert JsonReader({})(json.dumps(value)) == value


def test_a_server_that_takes_no_schema_is_asked_in_words(tmp_path: Path) -> None:
    with JudgeServer(
        lambda asked: Refused(400, "response_format") if "response_format" in asked.body else '{"count": 3}'
    ) as server:
        for _ in range(2):  # the second finds the reply in the store
            (scored,) = judged(1, server, tmp_path, Counted)
            (part,) = read_json(tmp_path / "judge" / "record.json")["parts"].values()
            assert scored.passed and part["refused"] == ["response_format"]
    assert len(server.asked) == 2


def test_truncated_json_is_repaired_by_asking_again(tmp_path: Path) -> None:
    with JudgeServer(lambda asked: '{"count": 3}' if "not JSON" in asked.last else '{"count": 3, "kin') as server:
        (scored,) = judged(1, server, tmp_path, Counted)
    assert scored.passed and len(scored.replies) == 2
    wanted = server.asked[0].body["response_format"]["json_schema"]["schema"]
    assert wanted["properties"]["count"]["type"] == "integer" and wanted["required"] == ["count"]


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
