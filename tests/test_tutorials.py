"""The tutorials are executed: every block that has a language, from top to bottom, in one empty folder a page."""

from __future__ import annotations

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

import uni_train as uni_train_api
from tests.tiny import MODEL, fit
from uni_train.addresses import held_port
from uni_train.cli.main import uni_train
from uni_train.data_gen import registry

README = Path(__file__).parents[1] / "README.md"
PAGES = sorted((Path(__file__).parents[1] / "docs/tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(python|bash)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as python does for the current folder
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    names: dict[str, Any] = {"__name__": page.stem}
    with ExitStack() as stack:
        port = str(stack.enter_context(held_port()))
        blocks = BLOCK.findall(page.read_text(encoding="utf-8").replace("8123", port))
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


def test_the_readmes_task_is_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn, verified, published as data, and trained on and scored by name."""
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    monkeypatch.syspath_prepend(tmp_path)
    blocks = re.findall(r"(?:^    .+\n)+|^```python\n(?:.*\n)+?```", README.read_text(encoding="utf-8"), re.MULTILINE)
    code = blocks[1].removeprefix("```python\n").removesuffix("```")
    assert code.startswith("from uni_train") and len(code.splitlines()) <= 60
    (tmp_path / "my_task.py").write_text(code, encoding="utf-8")
    with ExitStack() as stack:
        stack.callback(forget, "my_task")
        registry.load_plugins(["my_task"])
        task = uni_train_api.get_task("halving")
        for split in task.splits:
            task.validate(1, split)
        train, test = (task.generate(n, 1, split, 0) for n, split in ((20, "train"), (3, "test")))
        assert not {one.prompt for one in train} & {one.prompt for one in test}
        assert all(task.verify(one, task.render(one, 7)).passed for one in train)
        out = str(tmp_path / "data")
        typed(f"python -m uni_train data make --task halving --n 8 --out {out}")
        asked = "rounds=[{task:halving,level:1,prompts:16,updates:2}] evaluation.sets=[halving1] evaluation.n=3"
        ended = fit(tmp_path / "runs", *MODEL, *asked.split(), "batch.prompts=8", "filter=none", recipe="stars_math")
        assert ended.exit_code == 0, ended.output
        shown = " ".join(ended.output.split())
        assert "halving" in shown and "guessing the count gives 0.17" in shown


def forget(module: str) -> None:
    """A plug-in that a page has written and registered."""
    sys.modules.pop(module, None)
    for name in [name for name, entry in registry.TASKS._entries.items() if entry.module == module]:
        del registry.TASKS._entries[name]


def typed(command: str) -> None:
    """Run it in this process, which has imported torch already; with a variable of its own, in a new one."""
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
    _, *arguments = shlex.split(command)
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
