from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.eval.judges.criteria import Counted, judged
from tests.eval.judges.server import JudgeServer, Refused
from uni_train.data_gen.reading_limits import read_json
from uni_train.eval.judges.ways import JsonReader, reader

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
