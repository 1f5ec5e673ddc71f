"""What `doctor URL#MODEL` says of endpoints with other protocols and faults."""

from __future__ import annotations

import base64
import json
from itertools import count

import numpy as np
import pytest

from tests.models.test_doctor import doctor
from tests.models.test_remote import KEY, PICTURE, Reply, endpoint, refused, says, serving
from uni_train.models.pictures import encode_png


def test_an_endpoint_that_has_the_responses_api_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINTER_KEY", KEY)
    png = base64.b64encode(encode_png(PICTURE)).decode()

    def reply(path: str, body: bytes) -> Reply:
        if not path.endswith("/responses"):
            return refused(404, "Not Found")
        text = [{"type": "output_text", "text": "Red." if b"colour" in body else "3"}]
        drawing = {"type": "image_generation_call", "result": png}
        return 200, {"output": [drawing if b"tools" in body else {"type": "message", "content": text}]}

    with serving(reply) as one:
        code, said = doctor(f"{one.url}#painter", "remote.key_env=PAINTER_KEY")
        assert len(one.asked) <= 10 and {key for *_, key in one.asked} == {f"Bearer {KEY}"}
    assert code == 0 and KEY not in said
    for found in (
        "note  text: chat         painter cannot be asked by chat/completions: Not Found",
        "ok    text: responses    '3'; ",
        "ok    images             'Red.'",
        "note  drawing: images    painter cannot be asked by images/generations",
        "ok    drawing: responses 4 x 4, pixels 0 to 47",
        "ok    editing            4 x 4",
        "ok    seeds              the same seed draws the same image",
        "ok    unisandbox         normal, cot\n",
    ):
        assert found in said, said
    command = said.splitlines()[-2]
    start = f"evaluate it: python -m uni_train eval '{one.url}#painter' -b ueval,ufo,unisandbox,ureason,vigor,wise"
    assert command.startswith(start)
    assert command.endswith("remote.key_env=PAINTER_KEY remote.text=responses remote.drawing=responses")


def test_an_endpoint_that_draws_alone_and_does_not_list_its_models() -> None:
    pictures = count()

    def reply(path: str, body: bytes) -> Reply:
        if not path.endswith("/generations"):
            return refused(404, "Not Found")
        png = encode_png(np.roll(PICTURE, next(pictures), axis=0))
        return 200, {"data": [{"b64_json": base64.b64encode(png).decode()}]}

    with endpoint(reply) as one:
        code, said = doctor(f"{one.url}#painter")
    assert code == 0 and f"note  models             {one.url} does not list the model" in said
    assert "note  seeds              the same seed draws another image" in said
    assert "ok    unisandbox         normal; cannot write texts: cot" in said
    assert "note  vigor              nothing; cannot edit images: direct; cannot write texts: cot" in said
    assert "-b ufo,unisandbox,ureason,wise" in said.splitlines()[-2]


def test_wrong_replies_are_quoted_beside_the_form_that_was_expected() -> None:
    odd = {"images": ["x" * 300]}

    def reply(path: str, body: bytes) -> Reply:
        if "images/" in path:
            return 200, odd
        if path.endswith("/responses"):
            return 200, {"output": [{"type": "image_generation_call", "result": "???"}]}
        return says("I see a red square") if b"image_url" in body else says("I cannot draw")

    with serving(reply) as one:
        code, said = doctor(f"{one.url}#painter")
    quoted = json.dumps(odd)[:200]
    assert code == 1 and f'painter answered {quoted}; expected {{"data": [{{"b64_json": "BASE64"}}]}}' in said
    assert "ok    images             'I see a red square'" in said
    assert 'note  drawing: chat      painter answered {"role": "assistant", "content": "I cannot draw"}' in said
    assert "wrong drawing: responses painter answered with an unreadable image: the image is damaged" in said
    assert f"{one.url}#painter: wrong: text: responses, drawing: images, drawing: responses, editing" in said


def test_pictures_at_another_host_name_the_key_and_nothing_at_all_is_wrong() -> None:
    address = {"data": [{"url": "http://cdn.example.com/x.png"}]}
    with serving(lambda path, body: (200, address) if "images/" in path else refused(404, "Not Found")) as one:
        code, said = doctor(f"{one.url}#painter")
    assert code == 1 and "remote.image_hosts=[cdn.example.com]" in said
    with serving(lambda path, body: refused(404, "Not Found")) as one:
        code, said = doctor(f"{one.url}#painter")
    assert code == 1 and "wrong skills             it neither writes nor draws" in said and " eval " not in said


def test_keys_that_are_none_of_an_endpoint_are_refused() -> None:
    for arguments in (("nano", "remote.retries=1"), ("http://127.0.0.1:9/v1#m", "seed=1")):
        code, said = doctor(*arguments)
        assert code == 2 and f"doctor takes no '{arguments[1]}'" in said
