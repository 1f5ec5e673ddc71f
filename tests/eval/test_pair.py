"""Two models as one system: `text_model` thinks and answers, the checkpoint draws."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.models.test_remote import PICTURE, Reply, endpoint, refused, says
from tests.tiny import save_talker
from uni_train import api
from uni_train.cli.main import uni_train
from uni_train.core.errors import UsageError
from uni_train.eval.store import Store
from uni_train.models.pictures import encode_png


def evaluate(folder: Path, *given: str) -> Any:
    model, *keys = given
    words = ["eval", model, "-b", "ureason", "--n", "2", "sets=[code]", f"out={folder}", "name=it", "remote.retries=0"]
    words += keys
    return CliRunner().invoke(uni_train, words)


def writer(path: str, body: bytes) -> Reply:
    """A language model that draws nothing, and says what nano understands."""
    return says("Draw 3 apples .") if path.endswith("/chat/completions") else refused(404, "Not Found")


def painter(path: str, body: bytes) -> Reply:
    """A model of images alone."""
    if not path.endswith("/images/generations"):
        return refused(404, "Not Found")
    return 200, {"data": [{"b64_json": base64.b64encode(encode_png(PICTURE)).decode()}]}


def asked(server: Any, part: str) -> list[dict[str, Any]]:
    return [json.loads(body) for path, body, _ in server.asked if part in path]


def test_a_language_model_thinks_for_an_image_model(tmp_path: Path) -> None:
    """Both remote, then mixed: the thoughts of the first evaluation are read from the store in the second."""
    with endpoint(writer) as text, endpoint(painter) as image:
        address = f"text_model={text.url}#writer"
        done = evaluate(tmp_path, f"{image.url}#painter", address, "settings=[direct,reasoning_guided]", "world=nano")
        assert done.exit_code == 0, done.output
        thoughts, drawings = asked(text, "chat"), asked(image, "images")
        assert len(drawings) == 4 and asked(image, "chat") == [] and asked(text, "images") == []
        assert sum("Draw 3 apples ." in drawing["prompt"] for drawing in drawings) == 2
        more = evaluate(tmp_path, "nano", address, "settings=[reasoning_guided]", "name=mixed")
        assert more.exit_code == 0, more.output
        assert len(asked(text, "chat")) == len(thoughts), "its calls are its own, whoever draws by them"
    about = json.loads((tmp_path / "it/evaluation.json").read_text())["model"]
    assert about["name"] == "writer+painter" and set(about["settings"]) == {"text", "image"}
    assert "writer+nano" in json.loads((tmp_path / "mixed/evaluation.json").read_text())["model"]["name"]


def test_both_are_here(tmp_path: Path) -> None:
    talker = save_talker(tmp_path / "talker", "Draw 3 apples .")
    words = ["eval", "nano", f"text_model={talker}", "-b", "unisandbox", "--subset", "2", "sets=[math1]",
             "settings=[cot]", f"out={tmp_path}", "name=it", "sampling.steps=2"]  # fmt: skip
    done = CliRunner().invoke(uni_train, words)
    assert done.exit_code == 0, done.output
    about = json.loads((tmp_path / "it/evaluation.json").read_text())["model"]
    assert about["name"] == "talker+nano" and about["settings"]["image"]["settings"]["sampling"]["steps"] == 2
    assert about["settings"]["text"]["settings"]["sampling"]["steps"] != 2, "sampling is of the one that draws"


def test_a_function_draws(tmp_path: Path) -> None:
    prompts: list[str] = []

    def draw(prompt: str, images: Any, seed: int) -> np.ndarray:
        prompts.append(prompt)
        return PICTURE

    keys = {"n": 2, "sets": ["code"], "settings": ["reasoning_guided"], "world": "nano", "out": str(tmp_path)}
    with endpoint(writer) as text:
        done = api.evaluate(draw, "ureason", text_model=f"{text.url}#writer", **keys)
    with pytest.raises(UsageError, match=r"sampling=.*an object or a function draws in its own way"):
        api.evaluate(draw, "ureason", sampling={"steps": 4}, **keys)
    assert done.asked["model"]["name"] == "writer+draw" and all("Draw 3 apples ." in prompt for prompt in prompts)


@pytest.mark.parametrize(
    ("checkpoint", "text", "settings", "messages"),
    [
        ("writer", "painter", "reasoning_guided", ("painter cannot", "need more")),
        ("writer", "painter", "direct", ("writer cannot", "need more")),
        ("painter", "nothing", "direct", ("text_model=nothing: no model nothing",)),
    ],
)
def test_a_pair_the_other_way_round_is_refused(
    checkpoint: str, text: str, settings: str, messages: tuple[str, ...], tmp_path: Path
) -> None:
    with endpoint(writer) as one, endpoint(painter) as other:
        by = {"writer": f"{one.url}#writer", "painter": f"{other.url}#painter", "nothing": "nothing"}
        done = evaluate(tmp_path, by[checkpoint], f"text_model={by[text]}", f"settings=[{settings}]")
    assert done.exit_code != 0 and isinstance(done.exception, SystemExit)
    assert all(message in done.output for message in messages), done.output


def test_a_folder_of_answers_has_no_second_model(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    (folder / "math1-00000.png").write_bytes(encode_png(np.zeros((8, 8, 3), np.uint8)))
    done = CliRunner().invoke(uni_train, ["eval", str(folder), "-b", "ureason", "text_model=nano", f"out={tmp_path}"])
    assert done.exit_code == 2 and "text_model=nano" in done.output and "Leave text_model out" in done.output


def test_calls_lie_with_their_models(tmp_path: Path) -> None:
    with endpoint(writer) as text, endpoint(painter) as image:
        evaluate(tmp_path, f"{image.url}#painter", f"text_model={text.url}#writer", "settings=[reasoning_guided]")
    kept = sorted(json.loads(file.read_text())["name"] for file in (tmp_path / "store/calls").glob("*/model.json"))
    assert kept == ["painter", "writer"] and Store(tmp_path / "store").measured()
