"""A fake server for each dialect that is not OpenAI's (those: test_remote.py), as strict as its protocol."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tests.models.test_doctor import doctor
from tests.models.test_remote import KEY, PICTURE, Endpoint, Reply, drawn, endpoint, refused
from uni_train.config.schema import JudgeConfig, RemoteConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.http_client import key_header
from uni_train.models.base import Request
from uni_train.models.batches import ModelDown
from uni_train.models.dialects import DIALECTS, find_dialect
from uni_train.models.pictures import data_url, decode_data_url, decode_picture, encode_png
from uni_train.models.remote import RemoteModel

CONFIG = {"seed", "temperature", "maxOutputTokens", "responseModalities", "imageConfig", "thinkingConfig"}
RED = np.full((4, 4, 3), (250, 10, 10), np.uint8)


def inline(image: np.ndarray) -> dict[str, Any]:
    return {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(encode_png(image)).decode()}}


def candidate(*parts: dict[str, Any], reason: str = "STOP") -> Reply:
    content = {"content": {"role": "model", "parts": [*parts]}} if parts else {}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 7, "thoughtsTokenCount": 900, "totalTokenCount": 912}
    return 200, {"candidates": [{**content, "finishReason": reason, "index": 0}], "usageMetadata": usage}


def gemini(path: str, body: bytes) -> Reply:
    """Google's server: a model that answers, draws and interleaves by the last text of the request."""
    if path.endswith("/models"):
        return 200, {"models": [{"name": "models/painter", "version": "001"}], "nextPageToken": "x"}
    if path != "/v1beta/models/painter:generateContent":
        return refused(404, "Not Found")
    asked = json.loads(body)
    config = asked.get("generationConfig", {})
    for section, known in ((asked, {"contents", "systemInstruction", "generationConfig"}), (config, CONFIG)):
        if unknown := [name for name in section if name not in known]:
            return refused(400, f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.')
    assert {turn["role"] for turn in asked["contents"]} <= {"user", "model"} and 0 <= config["seed"] < 1 << 31
    parts = [part for turn in asked["contents"] for part in turn["parts"]]
    text, shown = parts[-1]["text"], [part for part in parts if "inlineData" in part]
    if "responseModalities" in config:
        picture = {"as it is": RED, "trees": PICTURE * 2}
        image = inline(next((image for word, image in picture.items() if word in text), PICTURE))
        replies = {"both": (text_part("first"), image, text_part("then"), image), "no picture": (text_part("sorry"),)}
        return candidate(*next((reply for word, reply in replies.items() if word in text), (image,)))
    if "blocked" in text:
        return 200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}}
    if "long" in text:
        return candidate(text_part("The answer is"), reason="MAX_TOKENS")
    if "unsafe" in text:
        return candidate(reason="SAFETY")
    thought = {"text": "hm", "thought": True}
    return candidate(thought, text_part("Red." if shown else "3" if "systemInstruction" not in asked else "a plan"))


def text_part(text: str) -> dict[str, Any]:
    return {"text": text}


def ark(path: str, body: bytes) -> Reply:
    """Ark's server: JSON alone, and one address."""
    if path != "/v1/images/generations":
        return refused(404, "Not Found")
    asked = json.loads(body)
    given = asked.get("image", [])
    urls = [given] if isinstance(given, str) else given
    images = [decode_picture(decode_data_url(url, "it"), "it") for url in urls]
    picture = images[0] if images else PICTURE * (2 if "trees" in asked["prompt"] else 1)
    return 200, {"model": "painter", "data": [{"b64_json": base64.b64encode(encode_png(picture)).decode()}]}


def opened(server: Endpoint, root: str = "v1", **settings: Any) -> RemoteModel:
    return RemoteModel.open(f"{server.url.removesuffix('v1')}{root}#painter", RemoteConfig(retries=0, **settings))


def bodies(server: Endpoint) -> list[dict[str, Any]]:
    return [json.loads(body) for path, body, _ in server.asked if body]


def test_gemini_reads_and_draws_between_texts() -> None:
    with endpoint(gemini) as server:
        model = opened(server, "v1beta", text="gemini", drawing="gemini", max_tokens=9, temperature=0.5)
        assert model.listed
        looking = Request("a", "what colour", (RED,), seed=1 << 40)
        assert model.answer([looking, Request("b", "how many")]) == ["Red.", "3"], "thoughts are no answer"
        assert model.think([Request("c", "a boat")]) == ["a plan"]
        (image,) = model.draw([Request("d", "a boat", thought="it is red", size=(48, 64))])
        (composed,) = model.compose([Request("e", "both")])
        (sorry,) = model.draw([Request("f", "no picture")])
        blocked, long, unsafe = model.answer([Request("g", word) for word in ("blocked", "long", "unsafe")])
    asked = next(body for body in bodies(server) if "what colour" in json.dumps(body))
    assert asked["contents"][0]["parts"] == [inline(RED), {"text": "what colour"}]
    assert asked["generationConfig"] == {"seed": 0, "temperature": 0.5, "maxOutputTokens": 9}
    drawing = next(body for body in bodies(server) if "it is red" in json.dumps(body))
    assert [turn["role"] for turn in drawing["contents"]] == ["user", "model", "user"]
    assert drawing["generationConfig"]["imageConfig"] == {"aspectRatio": "4:3"}
    assert np.array_equal(image, PICTURE)
    assert [type(part) for part in composed] == [str, np.ndarray, str, np.ndarray] and composed[2] == "then"
    assert isinstance(sorry, UserError) and "sorry" in str(sorry) and "uni_train doctor" in str(sorry)
    assert "its server's filter ended the reply" in str(blocked) and "its server's filter ended" in str(unsafe)
    assert "the answer was cut off after 7 tokens" in str(long)


def test_what_gemini_refuses() -> None:
    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models"):
            return gemini(path, body)
        if b"imageConfig" in body:
            return refused(400, "Unknown name \"imageConfig\" at 'generation_config': Cannot find field.")
        return refused(400, "API key not valid. Please pass a valid API key.") if b"key" in body else gemini(path, body)

    with endpoint(reply) as server:
        model = opened(server, "v1beta", text="gemini", drawing="gemini")
        for _ in range(2):
            assert np.array_equal(model.draw([Request("a", "a boat", size=(8, 8))])[0], PICTURE)
        assert len(bodies(server)) == 3, "it is left out from then on"
        with pytest.raises(ModelDown, match="wants a key"):
            model.answer([Request("b", "key")])


def test_ark_edits_by_json() -> None:
    with endpoint(ark) as server:
        model = opened(server, drawing="ark", extra_body={"guidance_scale": 2.5})
        edited, both, plain = model.draw(
            [
                Request("a", "keep", (RED,), seed=7),
                Request("b", "mix", (RED, PICTURE)),
                Request("c", "x", size=(32, 64)),
            ]
        )
    assert np.array_equal(edited, RED) and np.array_equal(both, RED) and np.array_equal(plain, PICTURE)
    by = {body["prompt"]: body for body in bodies(server)}
    assert by["keep"]["image"] == data_url(encode_png(RED)) and len(by["mix"]["image"]) == 2
    assert by["x"]["size"] == "64x32"
    assert all((body["guidance_scale"], body["watermark"]) == (2.5, False) for body in by.values())


def test_more_keys_of_a_body() -> None:
    """They replace ours, sections by their keys, go into forms too, and are another identity; they hold no key."""
    with endpoint(gemini) as server:
        more = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}, "temperature": 0}}
        model = opened(server, "v1beta", text="gemini", extra_body=more, temperature=0.5)
        assert model.answer([Request("a", "how many", seed=3)]) == ["3"]
        assert model.identity.key != opened(server, "v1beta", text="gemini", temperature=0.5).identity.key
    config = bodies(server)[0]["generationConfig"]
    assert config == {"seed": 3, "temperature": 0, "thinkingConfig": {"thinkingLevel": "low"}}
    with endpoint(lambda path, body: drawn()) as server:
        opened(server, extra_body={"quality": "high"}).draw([Request("a", "x", (RED,))])
    assert b'name="quality"\r\n\r\nhigh' in server.asked[-1][1]
    for section, config in (("remote", RemoteConfig), ("judge", JudgeConfig)):
        with pytest.raises(UsageError, match=rf"a key has no place in {section}\.extra_body"):
            config(extra_body={"api_key": "x"})


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://generativelanguage.googleapis.com/v1beta/models/x:generateContent", "x-goog-api-key"),
        ("https://generativelanguage.googleapis.com/v1beta/models", "x-goog-api-key"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", "Authorization"),
        ("https://generativelanguage.googleapis.com.example.org/v1beta/models", "Authorization"),
        ("https://ark.cn-beijing.volces.com/api/v3/images/generations", "Authorization"),
    ],
)
def test_the_header_of_a_key(url: str, header: str) -> None:
    assert key_header(url, KEY) == {header: KEY if header != "Authorization" else f"Bearer {KEY}"}


def test_names_of_dialects() -> None:
    assert set(DIALECTS.names()) >= {"chat", "responses", "images", "gemini", "ark"}
    with pytest.raises(UsageError, match=r"remote\.text=gemeni: no such dialect\n.*gemini"):
        RemoteModel.open("http://127.0.0.1:9/v1#m", RemoteConfig(text="gemeni"))
    with pytest.raises(UsageError, match=r"remote\.text=ark: this dialect has no texts"):
        find_dialect("text", "ark")


@pytest.mark.parametrize(
    ("reply", "root", "keys", "line"),
    [
        (gemini, "v1beta", "remote.text=gemini remote.drawing=gemini", "ok    editing: gemini    4 x 4"),
        (ark, "v1", "remote.drawing=ark", "ok    editing: ark       64 x 64"),
        (
            lambda path, body: drawn() if path.endswith("/generations") else refused(404, "Not Found"), "v1", "",
            "note  editing: ark       a red picture that it was to keep is not red: its image is not read",
        ),
    ],
    ids=["gemini", "ark", "reads no image"],
)  # fmt: skip
def test_doctor_says_which_dialects_fit(reply: Any, root: str, keys: str, line: str) -> None:
    with endpoint(reply) as server:
        _, said = doctor(f"{server.url.removesuffix('v1')}{root}#painter")
    assert line in said, said
    command = next(text for text in said.splitlines() if "evaluate it:" in text)
    assert command.partition("--subset 50")[2].strip() == keys
