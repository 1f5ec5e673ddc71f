"""The tutorials and the notebook are executed, with smaller numbers, in one empty folder each."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from tests.test_plugin_task import forget
from tests.tiny import QUICK
from uni_train.cli.main import uni_train
from uni_train.core import registry
from uni_train.core.addresses import held_port

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
NOTEBOOK = ROOT / "examples/demo.ipynb"
BLOCK = re.compile(r'^```(python|bash)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

SMALLER = (
    ("--n 20000", "--n 16 --seed 44"), ("--n 400", "--n 32"), ("--n 60", "--n 8"),  # of seed 44, 12 images are right
    ("--held-out", "--updates 80 --batch 16 --width 32 --layers 1 --rate 0.005 --grpo 1 --held-out"),
    ("prompts:256,updates:40", "prompts:16,updates:2"),
    (r"--subset 8\b", "--subset 2 sampling.steps=2"), ("subset=8", 'subset=2, sampling={"steps": 2}'),
    (r"--n (4|6|12)\b", "--n 1"), (r" n=(6|12)\b", " n=4"), (r" n=4 maps=2", " n=2 maps=1"),
    ("--anchors 8", "--anchors 4"), ("prompts=320", "prompts=16 model.threads=1 model.sampling.steps=2"),
    ("updates=60", "updates=2 batch.prompts=16"), (r"evaluation\.n=50", "evaluation.n=2"),
    ("draws=1 out", "draws=1 epochs=2 least_epochs=0 exam_every=2 model.threads=1 out"),
    ('"prompts": 100,', '"prompts": 16,'), ('"updates": 60,', '"updates": 2,'), ('"n": 10,', '"n": 4,'),
    ('"prompts_per_epoch": 4, "group_size": 4', '"prompts_per_epoch": 2, "group_size": 2'),
)  # fmt: skip
"""Patterns of the pages -> what is run."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as python does for the current folder
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "hf/hub").mkdir(parents=True)  # without it `transformers serve` lists no models
    names: dict[str, Any] = {"__name__": page.stem}
    with ExitStack() as stack:
        port = str(stack.enter_context(held_port()))
        text = page.read_text(encoding="utf-8").replace("8123", port)
        for pattern, smaller in SMALLER:
            text = re.sub(pattern, smaller, text)
        blocks = BLOCK.findall(text)
        assert blocks
        stack.callback(forget, "my_task")
        for language, title, code in blocks:
            if title == "server":
                stack.enter_context(serving(code, port))
            elif title:  # a file that the reader writes
                Path(title).parent.mkdir(parents=True, exist_ok=True)
                Path(title).write_text(code, encoding="utf-8")
            elif language == "python":
                exec(compile(code, f"{page.name}: {code.splitlines()[0]}", "exec"), names)
            else:
                for command in code.splitlines():
                    typed(command)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = ("model.checkpoint", "model.architecture")  # the shipped nano's
    small = dict(key.split("=", 1) for key in QUICK if not key.startswith(own))
    names: dict[str, Any] = {"__name__": NOTEBOOK.stem}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace("settings = {}", f"settings = {small}")
            exec(compile(code, f"{NOTEBOOK.name} {cell['id']}", "exec"), names)
    assert names["scores"]["after"]["normal"].keys() == {"mapping1"} and names["run"].report.is_file()


def typed(command: str) -> None:
    """Run it in this process, which has imported torch already; with a variable of its own, in a new one."""
    if command.startswith("python examples/"):
        _, script, *arguments = shlex.split(command)
        subprocess.run([sys.executable, str(ROOT / script), *arguments], check=True)
        return
    variables = [word for word in shlex.split(command) if re.match(r"[A-Z_]+=", word)]
    python, dash_m, program, *arguments = [word for word in shlex.split(command) if word not in variables]
    assert (python, dash_m, program) == ("python", "-m", "uni_train")
    if variables:
        environment = {**os.environ, **dict(one.split("=", 1) for one in variables)}
        subprocess.run([sys.executable, dash_m, program, *arguments], env=environment, check=True)
        return
    result = CliRunner().invoke(uni_train, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{command}\n{result.output}"


@contextmanager
def serving(command: str, port: str) -> Iterator[None]:
    """The server of a tutorial, until its end."""
    program, *arguments = shlex.split(command)
    if program == "transformers":
        arguments = ["-m", "transformers.cli.transformers", *arguments]
    server = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while True:
            assert server.poll() is None, (server.stderr.read() if server.stderr else b"").decode()
            with suppress(OSError):
                urlopen(f"http://127.0.0.1:{port}/v1/models").close()
                break
            time.sleep(0.5)
        yield
    finally:
        server.terminate()
        server.wait()
