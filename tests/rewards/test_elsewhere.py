"""Rewards of another interpreter and of a server: equal to those of this process, and every way to get no value."""

from __future__ import annotations

import ast
import json
import re
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hostile import Hostile, Listening, plain
from uni_train.config.schema import ServerConfig
from uni_train.core.errors import UserError
from uni_train.data_gen.registry import get_task
from uni_train.models.batches import ModelDown
from uni_train.rewards import worker
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.contract import Reward, score
from uni_train.rewards.registry import Trained, find_reward, implementation_of

IMAGES = [np.full((4, 5, 3), 10 * i, np.uint8) for i in range(8)]
ITEM = get_task("maths", "nano").sample(0, 1)[0]
COLUMNS = {
    "id": list("abcdefgh"),
    "item": [ITEM, None] * 4,
    "images": [[IMAGES[3]], []] * 4,
    "wanted": [{"share": 0.1, "text": "\ud83d\ude00 {}"}] * 8,
}
FUNCTIONS = '''
import asyncio, os, signal, sys, time
import numpy as np

print("loaded", os.environ.get("CUDA_VISIBLE_DEVICES"), "VIRTUAL_ENV" in os.environ, "RANK" in os.environ)

def good(prompts, completions, **columns):
    os.write(1, b"garbage\\0on stdout\\n")
    given = [0 if item is None else len(item["prompt"]) for item in map(plain, columns["item"])]
    shown = [float(np.mean(images[0])) / 7 if images else 0.0 for images in columns["images"]]
    scored = [float(image.mean()) / 3 + len(image.shape) for image in completions]
    completions[0][:] = 0  # as in our own process, it may be written to
    return [sum(values) + wanted["share"] for *values, wanted in zip(given, shown, scored, columns["wanted"])]

def plain(item):
    return item if item is None or isinstance(item, dict) else item.to_dict()

async def later(prompts, completions, **columns):
    await asyncio.sleep(0)
    return good(prompts, completions, **columns)

def numbers(completions, **_):
    return [None if image.max() == 10 else image.mean(dtype=np.float32) / 7 for image in completions]

def failing(completions, **_):
    if completions[0].max() == 20:
        raise KeyError("no such thing")
    return [1.0] * len(completions)

def ending(completions, **_):
    if completions[0].max() == 20:
        print("these are my last words")
        os._exit(3)
    return [1.0] * len(completions)

def killed(completions, **_):
    if completions[0].max() == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return [1.0] * len(completions)

def hanging(completions, **_):
    if completions[0].max() == 20:
        time.sleep(600)
    return [1.0] * len(completions)

def exiting(completions, **_):
    sys.exit("no more")

def gone(completions, **_):
    print("these are my last words")
    os._exit(3)

def fewer(completions, **_):
    return [1.0] * (len(completions) - 1)

def not_a_number(completions, **_):
    return [float("nan")] * len(completions)

def texts(completions, **_):
    return ["0.5"] * len(completions)

def nothing(completions, **_):
    return None

class Made:
    pass
'''  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(FUNCTIONS)
    return path


def made(**keys: Any) -> Any:
    """A reward as a recipe makes it."""
    config = RewardConfig(**keys)
    return implementation_of(config)(config, Trained(None, None, 1, name="mine"))  # type: ignore[arg-type]


def scored(function: Any, **columns: Any) -> list[float]:
    copies = [image.copy() for image in IMAGES]
    values = score([Reward("mine", function)], ["x"] * 8, copies, COLUMNS | columns).each[:, 0]
    return [None if np.isnan(value) else float(value) for value in values]


@pytest.mark.parametrize("name", ["good", "later", "numbers"])
@pytest.mark.parametrize("batch", [3, 100])
def test_another_interpreter_pays_what_this_one_does_to_the_bit(name: str, batch: int, file: Path) -> None:
    elsewhere = made(function=f"{file}:{name}", python=sys.executable, batch=batch)
    assert scored(elsewhere) == scored(find_reward(f"{file}:{name}"))


def test_the_process_sees_its_device_and_nothing_of_ours_and_columns_that_are_no_json_are_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("VIRTUAL_ENV", "RANK", "PYTHONHOME"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5")
    config = RewardConfig(function=f"{file}:good", python=sys.executable)
    trained = Trained(None, None, 1, name="a/b", device="cuda:1", folder=tmp_path)  # type: ignore[arg-type]
    elsewhere = implementation_of(config)(config, trained)
    for _ in range(2):
        assert None not in scored(elsewhere, verdict=[{1}] * 8, share=[float("nan")] * 8)
    assert (tmp_path / "a_b.log").read_bytes() == b"loaded GPU-5 False False\n" + b"garbage\0on stdout\n" * 2
    printed = capfd.readouterr().err
    assert printed.count("does not get the column verdict") == printed.count("does not get the column share") == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("failing", r"KeyError: 'no such thing' \(.*mine.py, line \d+: raise KeyError"),
        ("ending", "ended with exit code 3"),
        ("killed", "ended with exit code -9"),
        ("hanging", "gave no reply within 2 s"),
    ],
)
def test_a_batch_that_fails_has_no_value_and_the_next_one_has(
    name: str, why: str, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    patience = 2 if name == "hanging" else 300
    elsewhere = made(function=f"{file}:{name}", python=sys.executable, batch=2, patience=patience)
    assert scored(elsewhere) == [1, 1, None, None, 1, 1, 1, 1]
    assert re.search(rf"mine has no value for 2 of 8 images \(2 so far\): {why}", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("exiting", ModelDown, r"mine has no value for 8 of 8 images: SystemExit: no more"),
        ("nothing", ModelDown, "mine has no value for 8 of 8 images: TypeError"),
        ("gone", UserError, r"its process ended with exit code 3, 4 times in a row\n(.*\n)+  these are my last words"),
        ("fewer", UserError, "the reward mine returned 1 values for 2 images"),
        ("not_a_number", UserError, "the reward mine of the image of a is nan"),
        ("texts", UserError, "the reward mine of the image of a is .*0.5"),
    ],
)
def test_a_function_that_always_fails_or_returns_something_else_is_one_error(
    name: str, error: type[Exception], why: str, file: Path
) -> None:
    elsewhere = made(function=f"{file}:{name}", python=sys.executable, batch=2)
    with pytest.raises(error, match=why):
        scored(elsewhere)


def test_what_cannot_run_the_function_is_named_before_anything_is_drawn(file: Path, tmp_path: Path) -> None:
    bare, deaf = tmp_path / "bare", tmp_path / "deaf"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    deaf.write_text("no program\n")
    bare.chmod(0o755), deaf.chmod(0o755)
    for python, function, why in (
        ("python", f"{file}:good", "there is no such program"),
        (str(tmp_path), f"{file}:good", "there is no such program"),
        ("/no/bin/python", f"{file}:good", "there is no such program"),
        (str(deaf), f"{file}:good", "Exec format error"),
        ("/bin/echo", f"{file}:good", r"ended with exit code 0"),
        (str(bare), f"{file}:good", "No module named 'numpy'"),
        (sys.executable, f"{file}:bad", f"{file} has no function bad"),
        (sys.executable, f"{file}:Made", f"{file} has no function Made"),
        (sys.executable, "no.such.module:f", "No module named 'no'"),
        (sys.executable, f"{tmp_path}/none.py:f", "FileNotFoundError"),
    ):
        with pytest.raises(UserError, match=re.escape(f"rewards.mine.python={python} ") + f".*{why}"):
            made(function=function, python=python)


def test_the_process_ends_with_the_reward_and_the_file_is_that_of_an_old_python(file: Path) -> None:
    elsewhere = made(function=f"{file}:good", python=sys.executable)
    process = elsewhere.process
    del elsewhere
    assert process.returncode == -9
    tree = ast.parse(Path(worker.__file__).read_text(), feature_version=(3, 8))
    names = {alias.name for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"numpy"}


# --- a server ---------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/rewards.md"


def asking(url: str, **keys: Any) -> Any:
    server = ServerConfig(retries=0, timeout=20.0, **keys)
    return made(function="server", address=url, server=server, batch=3)


def test_the_server_of_the_page_is_asked_for_all_and_gets_items_and_images() -> None:
    block = re.search(r'^```python title="server"\n(.*?)^```', PAGE.read_text(), re.M | re.S)
    assert block is not None and len(block[1].splitlines()) <= 25
    names: dict[str, Any] = {}
    exec(compile(block[1], str(PAGE), "exec"), names)
    bodies: list[dict[str, Any]] = []

    class Handler(names["Scores"]):  # type: ignore[misc]
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            read = self.rfile.read

            def keeping(size: int) -> bytes:
                data = read(size)
                bodies.append(json.loads(data))
                return data

            self.rfile.read = keeping
            super().do_POST()

    with Listening(Handler) as server:
        found = scored(asking(server.url, extra_body={"scale": 2}), verdict=[{1}] * 8)
    assert found == [image[..., 0].mean() / 255 for image in IMAGES]
    first = next(body for body in bodies if body["columns"]["id"] == ["a", "b", "c"])
    assert first["scale"] == 2 and first["prompts"] == ["x"] * 3 and "verdict" not in first["columns"]
    assert first["columns"]["item"][:2] == [ITEM.to_dict(), None]
    assert len(first["columns"]["images"][0]) == 1 and isinstance(first["columns"]["images"][0][0], str)


@pytest.mark.parametrize(
    ("behave", "error", "why"),
    [
        ("500", ModelDown, "mine has no value for 8 of 8 images: http.* answers 500: no"),
        ("400", ModelDown, "answers 400: no"),
        ("html", ModelDown, "sent no JSON .*It works!"),
        ("hang up", ModelDown, "no connection to"),
        ("redirect", ModelDown, "is not followed"),
        ("null", UserError, "the reward mine returned null for 3 images"),
        ("a list", UserError, r"the reward mine returned \[null\] for 3 images"),
    ],
)
def test_a_server_without_an_answer_is_an_error_that_says_what_came(behave: str, error: Any, why: str) -> None:
    with Hostile(behave) as server, pytest.raises(error, match=why):
        scored(asking(server.url))


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([1.0, 2.0], "returned 2 values for 3 images"),
        ([1.0, float("nan"), 2.0], "of the image of b is nan"),
        (["high", 1, 2], "of the image of a is 'high'"),
        ("111", "returned .*111.* for 3 images"),
    ],
)
def test_numbers_that_are_none_end_the_run_and_one_failure_is_no_zero(rewards: Any, why: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            late = asked["columns"]["id"] == ["d", "e", "f"]
            n, wrong = len(asked["images"]), self.path.endswith("bad")
            values = rewards[:n] if wrong else [None, *[1.0] * (n - 1)]
            plain(self, json.dumps({"rewards": values}).encode(), 503 if late else 200)

        def log_message(self, *_: object) -> None: ...

    with Listening(Handler) as server:
        assert scored(asking(server.url)) == [None, 1, 1, None, None, None, None, 1]
        with pytest.raises(UserError, match=why):
            scored(asking(f"{server.url}/bad"))
    with pytest.raises(ModelDown, match="no connection"):
        scored(asking(server.url))
    with pytest.raises(UserError, match="user name, a password or parameters"):
        asking("http://me:secret@127.0.0.1/x")
