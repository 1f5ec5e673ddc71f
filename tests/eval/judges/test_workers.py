from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eval.benchmark import Scored
from eval.judges import JudgeConfig, run, workers
from eval.judges.workers import processes_for
from tests.eval.judges.criteria import Criteria
from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.eval.judges.test_judging import odd
from uni_train.errors import UsageError, UserError


def judged(n: int, server: JudgeServer, folder: Path, processes: int = 2, **settings: Any) -> list[Scored]:
    benchmark = Criteria(n)
    config = JudgeConfig("judge", server.url, processes=processes, max_connections=4, **settings)
    return run(benchmark.samples(), benchmark, config, folder)


def running() -> dict[int, str]:
    """The processes that this one has started to ask, with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            command = (folder / "cmdline").read_text()
        except (OSError, IndexError):
            continue
        if "eval.judges.worker" in command and parent == str(os.getpid()):
            found[int(folder.name)] = command
    return found


def test_processes_are_started_where_they_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})

    def number(questions: int, **settings: Any) -> int:
        return processes_for(JudgeConfig("judge", "http://127.0.0.1:1/v1", **settings), questions)

    assert [number(n, max_connections=50) for n in (0, 1, 999, 1000, 1500, 5000)] == [1, 1, 1, 2, 3, 3]
    assert number(5000) == 1 and number(5000, max_connections=200) == 4
    assert number(1, processes=3) == 3 and number(1, processes=3, max_connections=2) == 2
    assert processes_for(JudgeConfig("openai/gpt-4o", max_connections=50), 5000) == 1
    with pytest.raises(UsageError, match="openai/gpt-4o cannot be asked by 2 processes"):
        JudgeConfig("openai/gpt-4o", processes=2)


@pytest.mark.slow
def test_two_processes_judge_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.log import read_eval_log

    key = "sk-veryverysecret-1234567890"
    monkeypatch.setenv("MY_KEY", key)
    monkeypatch.setattr("eval.judges.judging.SINGLY", 5)
    monkeypatch.setattr("eval.judges.judging.GROUP", 4)
    lock, now, most = threading.Lock(), 0, 0
    commands: dict[int, str] = {}

    def reply(asked: Asked) -> str:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        commands.update(running())
        time.sleep(0.1)
        with lock:
            now -= 1
        return odd(asked)

    with JudgeServer(reply) as server:
        scored = judged(24, server, tmp_path, key_env="MY_KEY")
        assert [one.outcome for one in scored] == ["fail", "pass"] * 12
        assert len(server.asked) == 24 and {one.key for one in server.asked} == {key}
        assert most == 4  # of both together
        assert judged(24, server, tmp_path, key_env="MY_KEY") == scored and len(server.asked) == 24
    assert len(commands) == 2 and not running()
    logs = [read_eval_log(str(file)) for file in (tmp_path / "judge" / "logs").glob("*.eval")]
    assert [log.status for log in logs] == ["success", "success"]
    entries = [sample for log in logs for sample in log.samples or ()]
    assert len(entries) == 6 and [len(log.samples or ()) for log in logs] == [3, 3]
    assert {sample.scores["passed"].value for sample in entries if sample.scores} == {0.5}
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(key.encode() in file.read_bytes() for file in files) and key not in "".join(commands.values())


@pytest.mark.slow
def test_of_a_killed_process_only_its_own_questions_are_asked_again(tmp_path: Path) -> None:
    killed: set[int] = set()

    def reply(asked: Asked) -> str:
        if len(server.asked) == 9 and not killed:
            killed.add(min(running()))
            os.kill(min(killed), signal.SIGKILL)
        time.sleep(0.05)
        return odd(asked)

    with JudgeServer(reply) as server:
        scored = judged(24, server, tmp_path)
        assert killed and [one.outcome for one in scored] == ["fail", "pass"] * 12
        times = Counter(asked.images for asked in server.asked)
    assert len(times) == 24 and max(times.values()) <= 2
    assert sum(times.values()) <= 24 + 4  # those under way
    assert not running()


@pytest.mark.slow
def test_what_ends_a_process_is_one_error_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(asked: Asked) -> str:
        for process in running():
            os.kill(process, signal.SIGKILL)
        return odd(asked)

    monkeypatch.setattr(workers, "DEATHS", 1)
    with JudgeServer(kill) as server, pytest.raises(UserError, match="ended 1 times: by signal 9"):
        judged(4, server, tmp_path / "killed")
    assert not running()
    with JudgeServer(lambda asked: Refused(401)) as server, pytest.raises(UserError, match=r"refuses the key \(401\)"):
        judged(4, server, tmp_path / "refused")
    (tmp_path / "blocked" / "judge").mkdir(parents=True)
    (tmp_path / "blocked" / "judge" / "logs").write_text("no folder")
    with JudgeServer(odd) as server, pytest.raises(UserError, match=r"inspect-ai cannot write .*logs"):
        judged(4, server, tmp_path / "blocked")
    assert not running()
