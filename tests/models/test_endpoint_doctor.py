"""What `doctor URL#MODEL` says of endpoints with other protocols and faults."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from contextlib import AbstractContextManager
from itertools import count

import numpy as np
import pytest

from tests.models.test_doctor import doctor
from tests.models.test_remote import KEY, PICTURE, Endpoint, Reply, drawn, endpoint, refused, says, serving
from uni_train.core.errors import UsageError
from uni_train.core.registry import _Entry
from uni_train.eval.benchmark import BENCHMARKS, Benchmark, Sample, Source
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.identity import identify
from uni_train.models.load import build_model, model_config
from uni_train.models.pictures import encode_png

RED = np.full((4, 4, 3), (250, 10, 10), np.uint8)


def test_an_endpoint_that_has_the_responses_api_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINTER_KEY", KEY)

    def reply(path: str, body: bytes) -> Reply:
        if not path.endswith("/responses"):
            return refused(404, "Not Found")
        text = [{"type": "output_text", "text": "Red." if b"colour" in body else "3"}]
        picture = RED if b"as it is" in body else PICTURE * (2 if b"trees" in body else 1)
        drawing = {"type": "image_generation_call", "result": base64.b64encode(encode_png(picture)).decode()}
        return 200, {"output": [drawing if b"tools" in body else {"type": "message", "content": text}]}

    class NeedsFiles(Benchmark):
        """Of a plug-in, without questions of its own."""

        name, title, known_sets = "own", "Own", ("own",)

        def __init__(self, source: Source) -> None:
            raise UsageError("there are no questions", "Name its files.")

        def check(self, sample: Sample) -> None:
            """Never asked."""

    monkeypatch.setitem(BENCHMARKS._entries, "own", _Entry(NeedsFiles, __name__))
    with serving(reply) as one:
        code, said = doctor(f"{one.url}#painter", "remote.key_env=PAINTER_KEY")
        assert len(one.asked) <= 13 and {key for *_, key in one.asked} == {f"Bearer {KEY}"}
    assert code == 0 and KEY not in said
    for found in (
        "note  text: chat         painter cannot be asked by chat/completions: Not Found",
        "ok    text: responses    '3'; ",
        "ok    images             'Red.'",
        "note  drawing: images    painter cannot be asked by images/generations",
        "ok    drawing: responses 4 x 4, pixels 0 to 47",
        "ok    editing: responses 4 x 4",
        "ok    seeds              the same seed draws the same image",
        "ok    prompts            another prompt draws another image",
        "ok    unisandbox         normal, cot\n",
        "note  own                there are no questions: Name its files.\n",
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
        png = encode_png(np.roll(PICTURE, next(pictures)))
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
    assert (
        f"{one.url}#painter: wrong: text: responses, drawing: images, drawing: ark, drawing: responses, editing: images"
        in said
    )


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
    code, said = doctor("nano", "--against", "nano")
    assert code == 2 and "--against is for an endpoint" in said


@pytest.fixture(scope="module")
def nano() -> UnifiedModel:
    return build_model(model_config("nano"))


def engine(model: UnifiedModel, faults: Collection[str] = ()) -> AbstractContextManager[Endpoint]:
    """An endpoint that draws and answers by a model, without saying which."""

    def reply(path: str, body: bytes) -> Reply:
        asked = {} if path.endswith("/edits") else json.loads(body)
        if "image" in asked:
            return refused(400, "extra fields not permitted: image")
        if path.endswith("/generations"):
            prompt = "Draw 1 ball ." if "blind" in faults else asked["prompt"]
            (picture,) = model.draw([Request("it", prompt, seed=asked["seed"] + ("noise" in faults))])
            return 200, {"data": [{"b64_json": base64.b64encode(encode_png(picture)).decode()}]}
        if path.endswith("/chat/completions"):
            content = asked["messages"][0]["content"]
            return says(model.answer([Request("it", content)])[0] if isinstance(content, str) else "Red.")
        return refused(404, "Not Found")

    return serving(reply)


@pytest.mark.parametrize(
    ("faults", "code", "expected"),
    [
        ((), 0, ["ok    prompts", "ok    parity: images     0.0 levels from", "ok    parity: text       the same"]),
        (("noise",), 0, ["ok    prompts", "note  parity: images", "other noise for a seed"]),
        (("blind",), 1, ["wrong prompts            two prompts draw the same image: none is read"]),
    ],
)
def test_an_engine_is_compared_with_the_checkpoint_it_serves(
    faults: Collection[str], code: int, expected: list[str], nano: UnifiedModel
) -> None:
    with engine(nano, faults) as one:
        found, said = doctor(f"{one.url}#painter", "--against", "nano")
    assert found == code, said
    for line in expected:
        assert line in said, said


def test_a_server_of_ours_must_have_the_checkpoints_weights_and_answers(nano: UnifiedModel) -> None:
    own = identify(model_config("nano"))
    about = {"content": "0" * 32, "settings": {**own.settings, "dtype": "bfloat16"}}

    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models"):
            return 200, {"data": [{"id": "painter", "uni_train": about}]}
        return says("a house") if path.endswith("/chat/completions") else drawn()

    with endpoint(reply) as one:
        code, said = doctor(f"{one.url}#painter", "--against", "nano")
    assert code == 1
    for line in (
        "wrong parity: weights    others as nano",
        "note  parity: settings   the server has another dtype",
        "wrong parity: images     255.0 levels from",
        "wrong parity: text       'a house', the checkpoint",
    ):
        assert line in said, said
