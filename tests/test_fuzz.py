"""Made-up inputs (hypothesis): schema, parsers and readers refuse, or take and keep to what they promise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.bad_inputs_corpus import images, png, safetensors
from uni_train.config.build import build, to_plain
from uni_train.config.compose import compose
from uni_train.console.terminal import plain
from uni_train.core.errors import DataError, UserError
from uni_train.core.http_client import clean, parsed
from uni_train.core.reading_limits import Unreadable, open_image, parse_json, parse_yaml
from uni_train.data_gen.jsonl import read_items, read_objects, read_published
from uni_train.data_gen.mapping.reading import read_mapping
from uni_train.eval.judges.ways import JsonReader
from uni_train.models.weights import Weights
from uni_train.serving.protocol import MOST_AT_ONCE, parse_chat, parse_drawing

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
REFUSED = (UserError, DataError)


def refuses_or(take: Callable[[], Any]) -> Any:
    """What is taken, or None where it is refused; anything else is a failure."""
    try:
        return take()
    except REFUSED as error:
        assert 0 < len(str(error)) < 3000
        return None


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return to_plain(compose("stars_curriculum"))


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [path for key, one in inside for path in paths(one, (*at, key))]


@FEW
@given(data=st.data())
def test_a_recipe_with_any_value_anywhere(data: st.DataObject, recipe: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(recipe))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(changed)))
        place = changed
        for key in path[:-1]:
            place = place[key]
        if data.draw(st.booleans()) or isinstance(place, list):
            place[path[-1]] = data.draw(VALUES)
        else:
            del place[path[-1]]
    config = refuses_or(lambda: build(changed))
    if config is not None:
        assert build(to_plain(config)) == config
        json.dumps(to_plain(config), allow_nan=False)


@pytest.mark.slow
@FEW
@given(st.text(max_size=60).filter(lambda text: "\n" not in text))
def test_any_override(text: str) -> None:
    refuses_or(lambda: compose("stars_curriculum", [text]))
    refuses_or(lambda: compose("stars_curriculum", [f"seed={text}"]))


@given(st.text(max_size=200) | VALUES.map(lambda value: json.dumps(value, allow_nan=True)))
def test_any_yaml(text: str) -> None:
    value = refuses_or(lambda: parse_yaml(text, "here"))
    json.dumps(value, default=str, skipkeys=True, ensure_ascii=False).encode()  # it can be stored


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_json(data: bytes) -> None:
    value = refuses_or(lambda: parse_json(data, "here", 7))
    if value is not None:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()  # it can be stored
    try:
        reply = parsed(data)
    except ValueError:
        return
    json.dumps(reply, ensure_ascii=False).encode()


def test_what_is_good_is_kept_and_the_line_of_an_error_named() -> None:
    good = {"a": [1, 2.5, None, True, "é 日 \U0001f600"], "b": {"c": -(10**30)}}
    assert parse_json(json.dumps(good), "x") == parse_json(json.dumps(good, ensure_ascii=False), "x") == good
    with pytest.raises(Unreadable, match=r"^x\.json, line 3: not JSON \(.*column 6\)$"):
        parse_json('{"a": 1,\n\n"b": }', "x.json")
    with pytest.raises(Unreadable, match=r"^f, line 9: not JSON \(expected value, column 2\)$"):
        parse_json("[NaN]", "f", 9)
    assert math.isnan(parse_json("[NaN]", "f", nan=True)[0])
    text = "a: &x {lr: 1.0e-3, n: 3}\nb: *x\nc: {<<: *x, n: 4}\nd: [1, yes, ~, '3']\n"
    inner = {"lr": 1e-3, "n": 3}
    assert parse_yaml(text, "x") == {"a": inner, "b": inner, "c": {**inner, "n": 4}, "d": [1, True, None, "3"]}


ROWS = st.dictionaries(
    st.sampled_from(["id", "ID", "Question", "Question_A", "Question_B", "Answer", "task", "level", "split", "prompt",
                     "answer", "facts", "thought", "pair"]),
    VALUES, max_size=10,
)  # fmt: skip


@FEW
@given(st.lists(st.binary(max_size=40) | ROWS.map(lambda row: json.dumps(row).encode()), max_size=4))
def test_any_file_of_rows(tmp_path: Path, lines: list[bytes]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join(lines))
    for read in (lambda path: list(read_objects(path)), read_published, read_items):
        refuses_or(lambda read=read: read(file))  # type: ignore[misc]


COUNT = {"type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}}


@given(
    st.text(max_size=120)
    | st.text("ABC#@means .'Draw what represents object by the", max_size=120)
    | VALUES.map(json.dumps)
)
def test_any_question_or_reply_of_a_judge(text: str) -> None:
    refuses_or(lambda: read_mapping(text))
    try:
        found = JsonReader(COUNT)(text)
    except ValueError:
        return
    assert isinstance(found["count"], int | float)


@FEW
@given(
    VALUES,
    st.sampled_from(["messages", "prompt", "n", "seed", "size", "temperature", "max_tokens", "thought"]),
    st.lists(st.dictionaries(st.sampled_from(["role", "content"]), VALUES), max_size=2),
)
def test_any_body(value: Any, key: str, messages: list[Any]) -> None:
    said = [{"role": "user", "content": "a"}]
    for read, good in (
        (parse_chat, {"messages": said}),
        (parse_chat, {"messages": messages}),
        (parse_drawing, {"prompt": "a"}),
    ):
        for body in ({**good, key: value}, value):
            tasks = refuses_or(lambda read=read, body=body: read(body).tasks())  # type: ignore[misc]
            assert tasks is None or 1 <= len(tasks) <= MOST_AT_ONCE


def decoded(data: bytes) -> None:
    with open_image(data, "image 1") as image:
        image.convert("RGB")


@FEW
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_any_damage_to_an_image(at: int, how: bytes) -> None:
    data = png(20, 20)
    at %= len(data)
    refuses_or(lambda: decoded(data[:at] + how + data[at + len(how) :]))


@pytest.mark.parametrize("name", images())
def test_an_image_that_is_none_names_itself(name: str) -> None:
    with pytest.raises(Unreadable, match=r"^image 1: "):
        decoded(images()[name])


@FEW
@given(VALUES, st.binary(max_size=32))
def test_any_header_of_weights(tmp_path: Path, header: Any, rest: bytes) -> None:
    file = tmp_path / "model.safetensors"
    for content in (safetensors(header, rest), rest, safetensors({"a": header}, rest)):
        file.write_bytes(content)
        refuses_or(lambda: [Weights([file]).read(name) for name in Weights([file])])


@given(st.text(st.characters(codec=None), max_size=60))
def test_what_is_printed_steers_no_terminal(text: str) -> None:
    shown = plain(clean(text))
    shown.encode()
    assert not any(ord(letter) < 32 and letter not in "\t\n" for letter in shown)
    assert plain(shown) == shown
