"""What judges say and do, and what becomes of it: an outcome with its reason, in bounded time and memory."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import anyio
import pytest

from tests.eval.judges.criteria import NO, PNG, YES, Criteria, judged, number, odd
from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.hostile import Hostile
from uni_train.addresses import held_port
from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.eval.judges import mostly_failed, run, with_served_revision
from uni_train.eval.judges.judge import DEAD_AFTER, Session, Spent
from uni_train.eval.judges.replies import ReplyStore, Turn
from uni_train.http_client import LETTERS_A_TOKEN, Client

ROOT = Path(__file__).resolve().parents[3]


def test_every_sample_is_judged_once_and_logged(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    with JudgeServer(odd) as server:
        first = judged(7, server, tmp_path)
        assert [one.outcome for one in first] == ["fail", "pass"] * 3 + ["fail"]
        assert first[1].by == "judge" and first[1].replies[0].endswith(YES)
        shown = {f"data:image/png;base64,{base64.b64encode(PNG + f'c{i}'.encode()).decode()}" for i in range(7)}
        assert len(server.asked) == 7 and {one.images for one in server.asked} == {(url,) for url in shown}
        assert judged(7, server, tmp_path, attempts=1, connections=3) == first  # nothing that changes a reply
        assert len(server.asked) == 7
        more = judged(9, server, tmp_path)  # of a larger evaluation only what is new
        assert more[:7] == first and len(server.asked) == 9
        logs = [read_eval_log(str(file)) for file in (tmp_path / "judge" / "logs").glob("*.eval")]
        judged(1, server, tmp_path, temperature=0.5)  # another judge
        assert len(server.asked) == 10
    assert sorted(len(log.samples or ()) for log in logs) == [2, 7]  # a run that asked for nothing has none
    log = max(logs, key=lambda log: len(log.samples or ()))
    assert log.status == "success"
    assert log.results is not None and log.results.scores[0].metrics["mean"].value == pytest.approx(3 / 7)
    entry = (log.samples or [])[1]
    assert entry.scores is not None and entry.scores["passed"].value == 1.0
    assert entry.messages[-1].text.endswith(YES)


def test_a_session_keeps_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = PNG + bytes(1000)
    session = Session(JudgeConfig(model="http://127.0.0.1:9/v1#judge"), ReplyStore(tmp_path), Spent())
    session.client = Client("", session.config)
    answer = {"choices": [{"message": {"content": "yes"}}]}
    monkeypatch.setattr(Client, "ask", AsyncMock(side_effect=lambda url, body: answer))
    before = sys.getrefcount(image)
    anyio.run(session.reply, [Turn("user", "What is it?", (image,))], None)
    assert sys.getrefcount(image) == before, "an evaluation may have more images than memory"


# --- what judges say --------------------------------------------------------------------------------------------------

# Outcome -> how often a question is asked, and what a person is told.
NO_ANSWERS = {
    "unparseable": (3, "no reply answers"),
    "judge_blank": (3, "blank replies"),
    "judge_filtered": (1, "its server filters"),
    "judge_refused": (1, "it refuses"),
}


@pytest.mark.parametrize(
    ("behave", "said", "outcome"),
    [
        ("prose", "The eyes of the picture say yes.", "unparseable"),
        ("both answers", f"{YES} if it matches, {NO} if not", "unparseable"),
        ("an answer in Chinese", "<answer>是</answer>", "unparseable"),
        ("cut short", "I think about the picture and", "unparseable"),
        ("cut at once", "", "unparseable"),
        ("filtered", "I cannot", "judge_filtered"),
        ("filtered at once", "", "judge_filtered"),
        ("a refusal", "I cannot", "judge_refused"),
        ("a refusal by its reason", "I cannot", "judge_refused"),
        ("blank", "", "judge_blank"),
        ("white space", " \n", "judge_blank"),
    ],
)
def test_what_does_not_answer_says_how(tmp_path: Path, behave: str, said: str, outcome: str) -> None:
    once, why = NO_ANSWERS[outcome]
    for way, asks in (("published", once), ("majority", 5 * once)):
        with Hostile(behave) as server:
            (scored,) = judged(1, server, tmp_path / way, way=way)
            assert (scored.outcome, scored.verdict) == (outcome, None)
            assert mostly_failed([scored]) == f"judge failed 1 of 1 ({why})"
            assert scored.replies == (said,) * asks and len(server.asked) == asks
            again = asks if outcome == "judge_blank" else 0  # a blank reply is no answer to keep
            assert judged(1, server, tmp_path / way, way=way) == [scored] and len(server.asked) == asks + again


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behave", "why"),
    [
        ("endless", "sent more than 64 MiB"),
        ("bomb", "sent more than 64 MiB"),
        ("trickle", "nothing came from .* within 2 s"),
        ("wait for ever", "asks to wait inf s"),
        ("html", "sent no JSON .* but '<html>"),
        ("deep", "recursion limit"),
        ("nothing", "sent an empty reply"),
        ("null", "no chat completion at http.* but 'None'"),
    ],
)
def test_no_judge_takes_memory_or_time_beyond_its_limits(tmp_path: Path, behave: str, why: str) -> None:
    with Hostile(behave) as server:
        (scored,) = judged(1, server, tmp_path, retries=0, timeout=2 if "within" in why else 300)
        assert server.sent < 1 << 29  # it hung up
    assert scored.outcome == "judge_failed" and re.search(why, scored.replies[-1]), scored.replies
    assert "HTTP 502" not in mostly_failed([scored])
    assert server.url in scored.replies[-1] or behave == "wait for ever"


def test_replies_that_would_do_harm_are_mended(tmp_path: Path) -> None:
    """No file can hold one; readers of another would take hours (the square of its length); a count cannot be."""
    for behave, outcome, reply, settings in (
        ("surrogate", "pass", f"\ufffd broken {YES}", {"revision": "r"}),
        ("talking on", "unparseable", ("<think>" * 1000)[: 64 * LETTERS_A_TOKEN],
         {"way": "chain_of_thought", "max_tokens": 64}),
        ("odd usage", "pass", YES, {}),
    ):  # fmt: skip
        with Hostile(behave) as server:
            first = judged(2, server, tmp_path / behave, **settings)
        assert {one.outcome for one in first} == {outcome} and {text for one in first for text in one.replies} == {
            reply
        }
        asked = len(server.asked)  # it is gone by now
        assert behave != "surrogate" or judged(2, server, tmp_path / behave, **settings) == first
        assert len(server.asked) == asked


@pytest.mark.parametrize("blanks", [1, 2, 3])
def test_after_a_blank_reply_the_same_words_are_asked(tmp_path: Path, blanks: int) -> None:
    said = [""] * blanks + [YES]
    with JudgeServer(lambda asked: said.pop(0)) as server:
        runs = [judged(1, server, tmp_path)[0].outcome]
        (part,) = read_json(tmp_path / "judge" / "record.json")["parts"].values()
        assert part["questions"] == min(blanks + 1, 3), "each is paid for"
        runs += [judged(1, server, tmp_path)[0].outcome for _ in range(2)]
    assert runs == (["pass"] * 3 if blanks < 3 else ["judge_blank", "pass", "pass"])
    assert len(server.asked) == blanks + 1 and len({one.words for one in server.asked}) == 1


def test_the_judge_is_asked_again_with_the_reason(tmp_path: Path) -> None:
    with JudgeServer(lambda asked: YES if "could not be read" in asked.last else "Yes, it does.") as server:
        (scored,) = judged(1, server, tmp_path)
    assert scored.passed and scored.replies == ("Yes, it does.", YES)
    assert "Yes, it does." in server.asked[1].words and f"{YES} or" in server.asked[1].last


# --- how judges fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("refused", "why"), [((1, 2), ""), ((0, 1, 2), "judge failed 3 of 4 (HTTP 400)")])
def test_a_question_that_the_judge_refuses_fails_alone(tmp_path: Path, refused: tuple[int, ...], why: str) -> None:
    """One that fails for half has not failed."""
    with JudgeServer(lambda asked: Refused(400, "no word") if number(asked) in refused else odd(asked)) as server:
        scored = judged(4, server, tmp_path)
    assert [one.outcome == "judge_failed" for one in scored] == [i in refused for i in range(4)]
    assert scored[1].replies == ("[no reply: 400: no word]",) and mostly_failed(scored) == why


@pytest.mark.slow
def test_a_busy_judge_is_waited_for(tmp_path: Path) -> None:
    troubles = [Refused(429, "slow down", retry_after="2"), Refused(503), YES]
    came: list[float] = []

    def reply(asked: Asked) -> str | Refused:
        came.append(time.monotonic())
        return troubles.pop(0)

    with JudgeServer(reply) as server:
        (scored,) = judged(1, server, tmp_path)
    assert scored.passed
    assert came[1] - came[0] >= 2.0  # what the server asked for
    assert came[2] - came[1] >= 1.0  # a pause of our own


@pytest.mark.slow
def test_a_judge_that_is_down_fails_what_it_was_not_asked_and_is_asked_later(tmp_path: Path) -> None:
    benchmark = Criteria(40)
    with held_port() as port:  # and nobody listens
        config = JudgeConfig(model=f"http://127.0.0.1:{port}/v1#judge", retries=0, connections=2, revision="r")
        scored = run(benchmark.samples(), benchmark, config, tmp_path)
    assert {one.outcome for one in scored} == {"judge_failed"}
    why = [one.replies[0] for one in scored]
    assert sum("no connection" in one and "does not answer" not in one for one in why) >= DEAD_AFTER - 1
    assert "does not answer" in why[-1]
    with JudgeServer(odd) as server:  # elsewhere, but of the same revision: the same judge
        assert sum(one.passed for one in judged(40, server, tmp_path, revision="r")) == 20


@pytest.mark.slow
def test_somebody_who_waits_is_seen_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uni_train.http_client.HEARTBEAT", 0.05)
    beats: list[int] = []

    class Watched:
        def say(self, text: str) -> None:
            return

        @contextmanager
        def bar(self, title: str, total: int, done: int = 0) -> Iterator[Any]:
            yield self

        def advance(self, by: int = 1, **figures: float) -> None:
            beats.append(by)

    benchmark = Criteria(2)
    with Hostile("silence") as server:
        judge = JudgeConfig(model=f"{server.url}#judge", retries=0, timeout=1)
        scored = run(benchmark.samples(), benchmark, judge, tmp_path, Watched())  # type: ignore[arg-type]
    assert beats.count(0) >= 1 and beats.count(1) == 2
    assert {one.replies for one in scored} == {
        (f"[no reply: nothing came from {server.url}/chat/completions within 1 s]",)
    }


# --- keys, costs, what was asked before -------------------------------------------------------------------------------


def test_a_key_follows_no_redirect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-a-secret-of-ours")
    with Hostile("500", models=True) as other:
        with Hostile("redirect", models=True, to=other.url.removesuffix("/v1")) as server:
            judge = JudgeConfig(model=f"{server.url}#judge", key_env="MY_KEY")
            assert with_served_revision(judge) == judge
            with pytest.raises(UserError, match=rf"{server.url} is elsewhere \(307: .* redirects to {other.url}"):
                judged(2, server, tmp_path, key_env="MY_KEY")
        assert {key for _, key in server.asked} == {"Bearer sk-a-secret-of-ours"}
    assert other.asked == []


@pytest.mark.parametrize("status", [401, 400, 500])
def test_a_key_is_in_no_file_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    key = "sk-veryverysecret-1234567890"
    monkeypatch.setenv("MY_KEY", key)
    with JudgeServer(lambda asked: Refused(status, f"the key {asked.key} is wrong")) as server:
        try:
            messages = repr(judged(2, server, tmp_path, key_env="MY_KEY", retries=0))
        except UserError as error:
            messages = str(error)
        assert (status == 401) == ("refuses the key in MY_KEY (401)" in messages)
        assert server.asked[0].key == key
    printed = "".join(capfd.readouterr())
    found = [file for file in tmp_path.rglob("*") if file.is_file() for part in _contents(file) if key.encode() in part]
    assert not found and key not in messages + printed


def _contents(file: Path) -> list[bytes]:
    """Of a file, or of all files in an archive, as inspect_ai has taught zipfile to read its own."""
    if not zipfile.is_zipfile(file):
        return [file.read_bytes()]
    with zipfile.ZipFile(file) as archive:
        return [archive.read(name) for name in archive.namelist()]


def test_what_must_be_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, a model, a folder for logs."""
    for variable in ("NO_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with JudgeServer(lambda asked: Refused(404, "no model judge")) as server:
        with pytest.raises(UserError, match="NO_KEY is empty"):
            judged(1, server, tmp_path, key_env="NO_KEY")
        with pytest.raises(UserError, match=r"there is no judge judge at .*no model judge"):
            judged(1, server, tmp_path)
        with pytest.raises(UserError, match="OPENAI_API_KEY"):
            run(Criteria(1).samples(), Criteria(1), JudgeConfig(model="openai/gpt-4o"), tmp_path)
        (tmp_path / "full" / "judge").mkdir(parents=True)
        (tmp_path / "full" / "judge" / "logs").write_text("no folder")
        with pytest.raises(UserError, match=r"logs.*cannot be written"):
            judged(1, server, tmp_path / "full")


def test_judging_stops_at_its_cost_limit_and_keeps_what_it_has(tmp_path: Path) -> None:
    # Each reply is counted as 100 tokens read and 10 written: $0.0002. The dearest that may come is 1,000 + and 20.
    limits: dict[str, Any] = {"price": (1.0, 10.0), "max_tokens": 20, "connections": 4}
    with JudgeServer(odd) as server:
        scored = judged(30, server, tmp_path, cost_limit=0.004, **limits)
        spent = len(server.asked)
        assert 5 <= spent <= 20  # never above the limit
        assert sum(one.outcome in ("pass", "fail") for one in scored) == spent
        assert any("the limit of $0.004 is reached" in one.replies[-1] for one in scored)
        again = judged(30, server, tmp_path, cost_limit=0.004, **limits)  # a restart does not get a new budget
        assert len(server.asked) <= 20
        assert sum(one.outcome == "judge_failed" for one in again) == 30 - len(server.asked)
        assert all(one.failure == "" for one in judged(30, server, tmp_path, cost_limit=1.0, **limits))
        assert len(server.asked) == 30


def test_equal_questions_at_once_are_asked_once(tmp_path: Path) -> None:
    benchmark = Criteria(1)
    with JudgeServer(odd, delay=0.2) as server:
        scored = run(benchmark.samples() * 6, benchmark, JudgeConfig(model=f"{server.url}#judge"), tmp_path)
    assert len(server.asked) == 1 and [one.outcome for one in scored] == ["fail"] * 6


CHILD = """
import signal, sys
from pathlib import Path
from types import SimpleNamespace
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from tests.eval.judges.criteria import judged
judged(60, SimpleNamespace(url=sys.argv[1]), Path(sys.argv[2]), connections=4)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_asks_for_nothing_that_was_answered(tmp_path: Path, how: signal.Signals) -> None:
    with JudgeServer(odd, delay=0.1) as server:
        command = [sys.executable, "-c", CHILD, server.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        while len(server.asked) < 20 and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(how)
        assert child.wait() != 0
        scored = judged(60, server, tmp_path)
        assert [one.passed for one in scored] == [False, True] * 30
        assert 60 <= len(server.asked) <= 64  # at most those under way were asked twice
