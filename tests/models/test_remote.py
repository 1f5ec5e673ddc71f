"""What endpoints do to a remote model. How a real one of ours answers is in tests/serving/test_server.py."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from tests.hostile import Hostile
from uni_train.config.schema import RemoteConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.models.base import Request, SkillMissing
from uni_train.models.batches import ModelDown
from uni_train.models.pictures import data_url, encode_png
from uni_train.models.remote import RemoteModel

PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
KEY = "sk-a-secret-that-nobody-may-see"
Reply = tuple[int, dict[str, Any] | bytes]


class Endpoint:
    """A server on a real port; `reply` maps (path, body) to a status and a body: bytes, or what becomes JSON.

    The body of status 302 is an address."""

    def __init__(self, reply: Callable[[str, bytes], Reply]) -> None:
        self.reply = reply
        self.asked: list[tuple[str, bytes, str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                endpoint.asked.append((self.path, body, self.headers.get("Authorization", "")))
                status, answer = endpoint.reply(self.path, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "1")
                if status == 302:
                    self.send_header("Location", data.decode())
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@contextmanager
def endpoint(reply: Callable[[str, bytes], Reply]) -> Iterator[Endpoint]:
    one = Endpoint(reply)
    threading.Thread(target=one.server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield one
    finally:
        one.server.shutdown()
        one.server.server_close()


def models(path: str, body: bytes) -> Reply:
    return 200, {"object": "list", "data": [{"id": "painter", "object": "model", "created": 0, "owned_by": "x"}]}


def serving(reply: Callable[[str, bytes], Reply]) -> AbstractContextManager[Endpoint]:
    """An endpoint that lists its model, and replies like this to all else."""
    return endpoint(lambda path, body: models(path, body) if path.endswith("/models") else reply(path, body))


def says(text: str | list[Any] | None, **more: Any) -> Reply:
    message = {"role": "assistant", "content": text, **more}
    return 200, {
        "id": "1", "object": "chat.completion", "created": 0, "model": "painter",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip


def drawn() -> Reply:
    return 200, {"created": 0, "data": [{"b64_json": base64.b64encode(encode_png(PICTURE)).decode()}]}


def refused(status: int, message: str, code: str | None = None) -> Reply:
    return status, {"error": {"message": message, "type": "error", "param": None, "code": code}}


def open_model(one: Endpoint, **settings: Any) -> RemoteModel:
    return RemoteModel.open(f"{one.url}#painter", RemoteConfig(**{"retries": 0, **settings}))


def test_texts_and_pictures_go_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    request = Request("a", "what is it", (PICTURE,), seed=7)
    echo = lambda body: says(json.loads(body)["messages"][-1]["content"][-1]["text"])  # noqa: E731
    with serving(lambda path, body: drawn() if "images" in path else echo(body)) as one:
        model = open_model(one, temperature=0.5)
        assert model.answer([request]) == ["what is it"]
        (picture,) = model.draw([Request("b", "a boat", thought="it is red", seed=8, size=(32, 64))])
        (edited,) = model.draw([request])
        (thought,) = model.think([Request("c", "x", (PICTURE,), seed=9)])
    assert np.array_equal(picture, PICTURE) and np.array_equal(edited, PICTURE) and thought == "x"
    chat, drawing, editing, thinking = (body for path, body, _ in one.asked if not path.endswith("/models"))
    asked = json.loads(chat)
    assert (asked["seed"], asked["temperature"], asked["model"]) == (7, 0.5, "painter")
    assert asked["messages"][0]["content"][0]["image_url"]["url"] == data_url(encode_png(PICTURE))
    said = json.loads(drawing)
    assert said["prompt"] == "a boat\n\nit is red" and said["size"] == "64x32" and said["seed"] == 8
    assert encode_png(PICTURE) in editing and b"what is it" in editing
    assert "planning process" in json.loads(thinking)["messages"][0]["content"]
    assert {key for *_, key in one.asked} == {""}  # no key goes where none was named, OpenAI's neither


def test_pictures_and_texts_in_one_answer() -> None:
    shown = {"type": "image_url", "image_url": {"url": data_url(encode_png(PICTURE))}}
    replies = {
        "in order": says([{"type": "text", "text": "first"}, shown, {"type": "text", "text": "then"}, shown]),
        "beside": says("here", images=[shown]),
        "nothing": says(""),
        "prose": says("I would rather not draw that."),
    }
    with serving(lambda path, body: next(reply for key, reply in replies.items() if key in body.decode())) as one:
        prompts = [Request(prompt, prompt, seed=3) for prompt in replies]
        ordered, beside, empty = open_model(one).compose(prompts[:3])
        asked = json.loads(next(body for path, body, _ in one.asked if "chat" in path))
        picture, prose = open_model(one, drawing="chat").draw([prompts[1], prompts[3]])
    assert asked["modalities"] == ["image", "text"] and asked["seed"] == 3
    assert [type(part) for part in ordered] == [str, np.ndarray, str, np.ndarray] and ordered[2] == "then"
    assert beside[0] == "here" and np.array_equal(beside[1], PICTURE) and np.array_equal(picture, PICTURE)
    assert isinstance(empty, UserError) and 'answered {"role": "assistant", "content": ""}; expected' in str(empty)
    assert isinstance(prose, UserError) and "rather not" in str(prose)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (says(""), 'painter answered {"role": "assistant", "content": ""}; expected {"choices"'),
        ((200, b'["pong"]'), """painter answered ["pong"]; expected {"choices": [{"message": {"content": "..."}}]}"""),
        (says(None, refusal="not that"), "refused: not that"),
        ((200, {"error": "busy", "choices": []}), 'painter answered "busy"; expected'),
        (refused(400, "too long\nby far"), "too long by far"),
        (refused(422, "odd"), "odd"),
    ],
)
def test_a_request_that_fails_alone_is_an_exception_in_its_place(reply: Reply, message: str) -> None:
    with serving(lambda path, body: says("fine") if b"good" in body else reply) as one:
        answers = open_model(one).answer([Request("a", "good"), Request("b", "bad"), Request("c", "good too")])
    assert (answers[0], answers[2]) == ("fine", "fine")
    assert isinstance(answers[1], UserError) and message in str(answers[1])


def test_an_answer_that_is_cut_off_or_filtered_is_none() -> None:
    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/responses"):
            output = [{"type": "message", "content": [{"type": "output_text", "text": "The answer is"}]}]
            why = {"reason": "max_output_tokens"}
            return 200, {"status": "incomplete", "incomplete_details": why, "output": output}
        status, answer = says("The answer is")
        assert isinstance(answer, dict)
        answer["choices"][0]["finish_reason"] = "content_filter" if b"filtered" in body else "length"
        return status, {**answer, "usage": {"completion_tokens": 9}}

    with serving(reply) as one:
        model = open_model(one, max_tokens=9)
        cut, filtered = model.answer([Request("a", "x"), Request("b", "filtered")])
        (composed,) = model.compose([Request("a", "x")])
        (response,) = open_model(one, text="responses").answer([Request("a", "x")])
        assert model.think([Request("a", "x")]) == ["The answer is"], "an unfinished thought is one to draw by"
    why = "the answer was cut off after 9 tokens, which is none: raise max_tokens (remote.max_tokens)"
    assert why in str(cut) and why in str(composed) and "cut off by its limit, which is none" in str(response)
    assert "its server's filter ended the reply: The answer is" in str(filtered)


def test_pictures_that_are_none_are_named() -> None:
    for picture, message in (
        ({"b64_json": "bm8gcGljdHVyZQ=="}, "no image that can"),
        ({"b64_json": "???"}, "base64"),
        ({"url": "ftp://elsewhere/x.png"}, "'ftp://elsewhere/x.png' is no http(s) address"),
        ({"revised_prompt": "x" * 200}, f'answered {{"created": 0, "data": [{{"revised_prompt": "{"x" * 76}; expected'),
    ):
        with serving(lambda *_, picture=picture: (200, {"created": 0, "data": [picture]})) as one:
            assert message in str(open_model(one).draw([Request("a", "x")])[0])


@pytest.mark.parametrize("drawing", ["images", "chat"])
def test_pictures_by_address_are_fetched_where_that_is_permitted(drawing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINTER_KEY", KEY)
    shown: list[str] = []  # addresses; the last one is replied

    def reply(path: str, body: bytes) -> Reply:
        if path == "/x.png":
            return 200, encode_png(PICTURE)
        chat = says("", images=[{"image_url": {"url": shown[-1]}}])
        return (200, {"data": [{"url": shown[-1]}]}) if drawing == "images" else chat

    def draws(address: str, *hosts: str) -> Any:
        shown.append(address)
        model = open_model(one, drawing=drawing, key_env="PAINTER_KEY", image_hosts=hosts)
        return model.draw([Request("a", "a boat")])[0]

    with serving(reply) as one, serving(reply) as other, Hostile("redirect", models=True, to=other.url) as moved:
        home, host, third = (server.url.removeprefix("http://").removesuffix("/v1") for server in (one, other, moved))
        assert np.array_equal(draws(f"http://{home}/x.png"), PICTURE)
        with pytest.raises(ModelDown, match=rf"another host, {host}\n.*remote.image_hosts=\[{host}\]"):
            draws(f"http://{host}/x.png", third)
        assert other.asked == []
        assert np.array_equal(draws(f"http://{host}/x.png", host), PICTURE)
        assert "which is not followed" in str(draws(f"http://{third}/x.png", third))
    assert [key for *_, key in other.asked] == [key for _, key in moved.asked] == [""]
    assert {key for *_, key in one.asked} == {f"Bearer {KEY}"}


def test_the_responses_api() -> None:
    png = base64.b64encode(encode_png(PICTURE)).decode()
    drawing = {"type": "image_generation_call", "status": "completed", "result": png}
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a boat"}]}
    thinking = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "not that"}]}
    outputs = {"compose": [words, drawing], "say": [thinking, words], "draw": [drawing], "no": [refusal], "odd": []}

    def reply(path: str, body: bytes) -> Reply:
        assert path == "/v1/responses"
        said = json.loads(body)["input"][0]["content"]
        return 200, {"object": "response", "output": outputs[said if isinstance(said, str) else said[-1]["text"]]}

    with serving(reply) as one:
        model = open_model(one, text="responses", drawing="responses", temperature=0.5, max_tokens=9)
        said, no, odd = model.answer([Request(word, word, (PICTURE,), seed=7) for word in ("say", "no", "odd")])
        drawn = model.draw([Request("d", "draw", thought="it is red", size=(32, 64))])
        ((first, second),) = model.compose([Request("c", "compose")])
        bodies = [json.loads(body) for path, body, _ in one.asked if path.endswith("responses")]
    assert said == "a boat" and "refused: not that" in str(no) and 'expected {"output": [{"content"' in str(odd)
    assert first == "a boat" and np.array_equal(second, PICTURE) and np.array_equal(drawn[0], PICTURE)
    for body in bodies:
        TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(body)
    asked = next(body for body in bodies if "say" in json.dumps(body))
    url = data_url(encode_png(PICTURE))
    shown = [{"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": "say"}]
    assert asked == {
        "model": "painter", "input": [{"role": "user", "content": shown}], "temperature": 0.5, "max_output_tokens": 9
    }  # fmt: skip
    assert bodies[3]["tools"] == [{"type": "image_generation", "size": "64x32"}]
    assert [turn["role"] for turn in bodies[3]["input"]] == ["user", "assistant", "user"]


SUMMARY = [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}]
SAID = {"type": "message", "content": [{"type": "output_text", "text": "3"}]}
THOUGHTS = [{"text": "First.", "thought": True}, {"text": "Then.", "thought": True}]
DETAILS = [{"type": "reasoning.text", "text": "First. Then."}]
TRACES: dict[str, tuple[str, Any]] = {
    "reasoning_content": ("chat", says("3", reasoning_content="First.\n\nThen.")[1]),
    "reasoning": ("chat", says("3", reasoning="First.\n\nThen.", reasoning_details=DETAILS)[1]),
    "thinking": ("chat", says([{"type": "thinking", "thinking": "First.\n\nThen."}, {"type": "text", "text": "3"}])[1]),
    "summary": ("responses", {"output": [{"type": "reasoning", "summary": SUMMARY}, SAID]}),
    "gemini": ("gemini", {"candidates": [{"content": {"parts": [*THOUGHTS, {"text": "3"}]}}]}),
}


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_that_comes_with_a_reply_is_a_thought_where_that_is_asked_for(name: str) -> None:
    text, body = TRACES[name]
    with serving(lambda *_: (200, body)) as one:
        traced, plain = (open_model(one, text=text, thoughts=thoughts) for thoughts in ("reasoning", "reply"))
        assert traced.think([Request("a", "1 + 2?")]) == ["First.\n\nThen."]
        assert "planning process" not in str(one.asked[-1][1]) and "1 + 2?" in str(one.asked[-1][1])
        assert plain.think([Request("a", "1 + 2?")]) == traced.answer([Request("a", "1 + 2?")]) == ["3"]
        assert traced.identity.settings == {**plain.identity.settings, "thoughts": "reasoning"}
    with serving(lambda *_: says("3")) as one:
        (error,) = open_model(one, thoughts="reasoning").think([Request("a", "1 + 2?")])
    assert "the reply has no reasoning: ask for it by remote.extra_body" in str(error)
    with serving(lambda *_: says("", refusal="not that", reasoning_content="I must refuse.")) as one:
        (error,) = open_model(one, thoughts="reasoning").think([Request("a", "1 + 2?")])
    assert "refused: not that" in str(error)


def test_what_an_endpoint_refuses_by_name_is_left_out_from_then_on() -> None:
    newer = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."

    def reply(path: str, body: bytes) -> Reply:
        for name in ("seed", "response_format", "max_tokens"):
            if f'"{name}"'.encode() in body:
                return refused(400, newer if name == "max_tokens" else f"Unknown parameter: '{name}'.")
        return drawn() if "images" in path else says("fine")

    with serving(reply) as one:
        model = open_model(one, max_tokens=9)
        for _ in range(2):
            assert np.array_equal(model.draw([Request("a", "a boat")])[0], PICTURE)
            assert model.answer([Request("a", "a boat")]) == ["fine"]
        paths = [path for path, *_ in one.asked]
    assert (paths.count("/v1/images/generations"), paths.count("/v1/chat/completions")) == (4, 4)
    assert json.loads(one.asked[-1][1])["max_completion_tokens"] == 9


@pytest.mark.slow
def test_passing_failures_are_tried_again_no_earlier_than_asked_for() -> None:
    left = iter([refused(503, "busy"), refused(429, "slow down"), says("at last")])
    with serving(lambda *_: next(left)) as one:
        began = time.monotonic()
        assert open_model(one, retries=2).answer([Request("a", "x")]) == ["at last"]
        assert time.monotonic() - began >= 1.5  # a first pause of half a second, then Retry-After


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (refused(503, "down for the day"), ModelDown, "answers none of 2 requests: down for the day"),
        (refused(429, "pay", "insufficient_quota"), ModelDown, "quota is used up"),
        (refused(400, "painter cannot look\nask another", "skill_missing"), SkillMissing, "painter cannot look"),
    ],
)
def test_what_concerns_every_request_stops_all_of_them(reply: Reply, error: type[Exception], message: str) -> None:
    with serving(lambda *_: reply) as one:
        model = open_model(one)
        with pytest.raises(error, match=message):
            model.answer([Request("a", "x"), Request("b", "y")])


@pytest.mark.parametrize(("listed", "status"), [(True, 404), (False, 404), (False, 405)])
def test_an_address_that_is_not_there_is_a_missing_skill(listed: bool, status: int) -> None:
    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models") and listed:
            return models(path, body)
        return drawn() if path.endswith("/generations") else refused(status, "Not Found")

    with endpoint(reply) as one:
        model = open_model(one)
        for _ in range(2):
            with pytest.raises(SkillMissing, match="painter cannot be asked by chat/completions: Not Found"):
                model.answer([Request("a", "x")])
        assert np.array_equal(model.draw([Request("a", "a boat")])[0], PICTURE)
        with pytest.raises(SkillMissing, match="cannot be asked by images/edits"):
            model.draw([Request("a", "a boat", (PICTURE,))])
        assert np.array_equal(model.draw([Request("a", "a boat")])[0], PICTURE), "without an image, it draws as before"
        assert sum("chat" in path for path, *_ in one.asked) == 1, "it is asked once"


@pytest.mark.parametrize(
    ("reason", "message"),
    [("The model `painter` does not exist.", "has no model painter"),
     ("Not Found", "has neither chat/completions nor images/generations: Not Found")],
)  # fmt: skip
def test_a_model_or_protocol_that_is_not_there_at_all_is_one_that_is_down(reason: str, message: str) -> None:
    with endpoint(lambda *_: refused(404, reason)) as one:
        model = open_model(one)
        with pytest.raises(ModelDown, match=message):
            with contextlib.suppress(SkillMissing):
                model.answer([Request("a", "x")])
            model.draw([Request("a", "x")])


def test_a_wrong_key_is_said_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINTER_KEY", KEY)
    fine, wrong = f"your key {KEY} is fine, your words are not", f"Incorrect API key provided: {KEY}"
    with serving(lambda path, body: refused(400, fine) if b"good" in body else refused(401, wrong)) as one:
        model = open_model(one, key_env="PAINTER_KEY")
        (failed,) = model.answer([Request("a", "good")])
        with pytest.raises(ModelDown, match="refuses the key in PAINTER_KEY") as caught:
            model.answer([Request("b", "bad")])
    assert {key for *_, key in one.asked} == {f"Bearer {KEY}"}
    for shown in (str(failed), str(caught.value), repr(model.identity), repr(model.settings)):
        assert KEY not in shown
    assert "your key [key] is fine" in str(failed)
    monkeypatch.delenv("PAINTER_KEY")
    with pytest.raises(UserError, match="PAINTER_KEY is empty"):
        open_model(one, key_env="PAINTER_KEY")


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for address, message in (
        ("http://", "no address"),
        ("ftp://host/v1#m", "no address"),
        ("http://host:port/v1#m", "no address"),
        (f"http://{KEY}@host/v1#m", "holds a user name"),
        (f"http://host/v1?key={KEY}#m", "parameters"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            RemoteModel.open(address, RemoteConfig())
        assert KEY not in str(caught.value)
    with endpoint(lambda path, body: refused(404, "no list here")) as one:
        assert open_model(one).identity.content == f"{one.url}#painter"
        assert open_model(one, revision="v2").identity.content == "painter@v2"
        with pytest.raises(UsageError, match="which model is meant"):
            RemoteModel.open(one.url, RemoteConfig())
    with endpoint(models) as one:
        assert RemoteModel.open(one.url.removesuffix("/v1"), RemoteConfig()).name == "painter"
    with pytest.raises(ModelDown, match="does not answer"):
        RemoteModel.open(f"{one.url}#painter", RemoteConfig(retries=0))


def test_what_decides_answers_is_in_the_identity() -> None:
    with endpoint(models) as one:
        plain = open_model(one).identity.key
        assert open_model(one, connections=2, timeout=3, retries=1).identity.key == plain
        others = {"temperature": 0.0, "max_tokens": 5, "drawing": "chat", "text": "responses", "revision": "1"}
        keys = {open_model(one, **{name: value}).identity.key for name, value in others.items()}
        assert len({plain, *keys}) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "message"),
    [
        ("redirect", "redirects to http://127.0.0.1:.*, which is not followed"),
        ("endless", "sent more than 64 MiB"),
        ("trickle", "nothing came from http://127.0.0.1:.*/v1/images/generations within 1 s"),
        ("wait long", "asks to wait 999,999 s"),
        ("html", r'sent no JSON .*It works!.*; expected \{"data": \[\{"b64_json": "BASE64"\}\]\}'),
    ],
)
def test_an_endpoint_that_misbehaves_is_one_that_is_down(
    behave: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else can happen to a request is in tests/test_http_client.py."""
    monkeypatch.setenv("PAINTER_KEY", KEY)
    monkeypatch.setattr("uni_train.core.http_client.HEARTBEAT", 0.05)
    seen: list[int] = []
    with Hostile("500") as other, Hostile(behave, to=other.url.removesuffix("/v1")) as server:
        patience = 1 if "within" in message else 300  # else time is not what is tested
        settings = RemoteConfig(key_env="PAINTER_KEY", retries=2, timeout=300, patience=patience, connections=2)
        model = RemoteModel.open(f"{server.url}#judge", settings)
        with pytest.raises(ModelDown, match=message):
            model.draw([Request("a", "x"), Request("b", "y")], on_step=lambda done, total: seen.append(done))
        assert other.asked == [] and server.sent < 1 << 29
    if "within" in message:
        assert seen[0] == 0  # somebody saw that it is waited for


def test_replies_of_another_form_fail_alone_and_texts_that_no_file_can_hold_are_made_such() -> None:
    for behave in ("null", "a list", "null within"):
        with Hostile(behave) as server:
            model = RemoteModel.open(f"{server.url}#judge", RemoteConfig(retries=0))
            for found in (*model.answer([Request("a", "x")]), *model.draw([Request("b", "y")])):
                assert isinstance(found, UserError) and "judge answered" in str(found)
        with Hostile(behave, models=True) as server, pytest.raises(UsageError, match="which model is meant"):
            RemoteModel.open(server.url, RemoteConfig(retries=0))
    with Hostile("surrogate") as server:
        model = RemoteModel.open(f"{server.url}#judge", RemoteConfig(retries=0))
        assert model.answer([Request("a", "x")]) == ["\ufffd broken <answer>Yes</answer>"]


def test_one_stuck_call_does_not_hold_the_others() -> None:
    others = threading.Event()
    with serving(lambda path, body: says("fine" if b"stuck" not in body or others.wait(300) else "alone")) as one:
        asked = [Request("s", "stuck"), *(Request(f"r{i}", "go") for i in range(8))]
        model = open_model(one, connections=2, timeout=600, patience=600)
        answers = model.answer(asked, on_step=lambda done, total: others.set() if done == 8 else None)
    assert answers == ["fine"] * 9
