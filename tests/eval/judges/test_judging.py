from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.eval.judges.criteria import PNG, Criteria
from tests.eval.judges.server import Asked, JudgeServer, Refused, Said
from uni_train.addresses import held_port
from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges import run
from uni_train.eval.judges.asking import DEAD_AFTER, Session, Spent
from uni_train.eval.judges.failures import mostly_failed
from uni_train.eval.judges.replies import Reply, ReplyStore, Turn

ROOT = Path(__file__).resolve().parents[3]


def odd(asked: Asked) -> str:
    """Yes for odd numbers, after some reasoning."""
    shown = int(re.search(r"shows (\d+)", asked.words)[1])  # type: ignore[index]
    return f"I look at it with both eyes.\n<answer>{'Yes' if shown % 2 else 'No'}</answer>"


def judged(n: int, server: JudgeServer, folder: Path, **settings: Any) -> list[Scored]:
    benchmark = Criteria(n)
    return run(benchmark.samples(), benchmark, JudgeConfig(model=f"{server.url}#judge", **settings), folder)


def test_every_sample_is_judged_once_and_logged(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    with JudgeServer(odd) as server:
        first = judged(7, server, tmp_path)
        assert [one.outcome for one in first] == ["fail", "pass"] * 3 + ["fail"]
        assert first[1].by == "judge" and first[1].replies[0].endswith("<answer>Yes</answer>")
        shown = {f"data:image/png;base64,{base64.b64encode(PNG + f'c{i}'.encode()).decode()}" for i in range(7)}
        assert len(server.asked) == 7 and {one.images for one in server.asked} == {(url,) for url in shown}
        assert judged(7, server, tmp_path) == first  # nothing is asked again
        assert len(server.asked) == 7
        more = judged(9, server, tmp_path)  # and of a larger evaluation only what is new
        assert more[:7] == first and len(server.asked) == 9
    logs = [read_eval_log(str(file)) for file in (tmp_path / "judge" / "logs").glob("*.eval")]
    assert sorted(len(log.samples or ()) for log in logs) == [2, 7]  # a run that asked for nothing has none
    log = max(logs, key=lambda log: len(log.samples or ()))
    assert log.status == "success"
    assert log.results is not None and log.results.scores[0].metrics["mean"].value == pytest.approx(3 / 7)
    entry = (log.samples or [])[1]
    assert entry.scores is not None and entry.scores["passed"].value == 1.0
    assert entry.messages[-1].text.endswith("<answer>Yes</answer>")


def test_a_session_keeps_no_image(tmp_path: Path) -> None:
    image = PNG + bytes(1000)
    replies = ReplyStore(tmp_path)
    session = Session(JudgeConfig(model="http://127.0.0.1:9/v1#judge"), replies, Spent())

    async def asker(turns: Any, schema: Any, draw: int) -> Reply:
        return Reply("yes")

    before = sys.getrefcount(image)
    anyio.run(session.reply, [Turn("user", "What is it?", (image,))], None, asker)
    assert sys.getrefcount(image) == before, "an evaluation may have more images than memory"


@pytest.mark.parametrize(
    ("reply", "asks", "outcome", "why"),
    [
        ("The eyes of the picture say yes.", 3, "unparseable", "no reply answers"),
        ("<answer>Yes</answer> if it matches, <answer>No</answer> if not", 3, "unparseable", "no reply answers"),
        ("<answer>是</answer>", 3, "unparseable", "no reply answers"),
        (Said("I think about the picture and", stop="length"), 3, "unparseable", "no reply answers"),
        (Said("I cannot", stop="content_filter"), 1, "judge_filtered", "its server filters"),
        (Said("", stop="content_filter"), 1, "judge_filtered", "its server filters"),
        (Said("I cannot", refusal=True), 1, "judge_refused", "it refuses"),
        (Said("I cannot", stop="refusal"), 1, "judge_refused", "it refuses"),
        (Said("", stop="length"), 3, "unparseable", "no reply answers"),
        ("", 3, "judge_blank", "blank replies"),
        (" \n", 3, "judge_blank", "blank replies"),
    ],
)
@pytest.mark.parametrize("way", ["published", "majority"])
def test_what_does_not_answer_says_how(
    tmp_path: Path, reply: str | Said, asks: int, outcome: str, why: str, way: Any
) -> None:
    asks *= 1 if way == "published" else 5
    with JudgeServer(lambda asked: reply) as server:
        (scored,) = judged(1, server, tmp_path, way=way)
        assert scored.outcome == outcome and scored.verdict is None
        assert mostly_failed([scored]) == f"judge failed 1 of 1 ({why})"
        said = reply if isinstance(reply, str) else reply.text
        assert scored.replies == (said,) * asks and len(server.asked) == asks
        again = asks if outcome == "judge_blank" else 0  # a blank reply is no answer to keep
        assert judged(1, server, tmp_path, way=way) == [scored] and len(server.asked) == asks + again


@pytest.mark.parametrize("blanks", [1, 2, 3])
def test_after_a_blank_reply_the_same_words_are_asked(tmp_path: Path, blanks: int) -> None:
    said = [""] * blanks + ["<answer>Yes</answer>"]
    with JudgeServer(lambda asked: said.pop(0)) as server:
        runs = [judged(1, server, tmp_path)[0].outcome]
        (part,) = read_json(tmp_path / "judge" / "record.json")["parts"].values()
        assert part["questions"] == min(blanks + 1, 3), "each is paid for"
        runs += [judged(1, server, tmp_path)[0].outcome for _ in range(2)]
    assert runs == (["pass"] * 3 if blanks < 3 else ["judge_blank", "pass", "pass"])
    assert len(server.asked) == blanks + 1 and len({one.words for one in server.asked}) == 1


def test_the_judge_is_asked_again_with_the_reason(tmp_path: Path) -> None:
    def reply(asked: Asked) -> str:
        return "<answer>Yes</answer>" if "could not be read" in asked.last else "Yes, it does."

    with JudgeServer(reply) as server:
        (scored,) = judged(1, server, tmp_path)
    assert scored.passed and scored.replies == ("Yes, it does.", "<answer>Yes</answer>")
    assert "Yes, it does." in server.asked[1].words and "<answer>Yes</answer> or" in server.asked[1].last


@pytest.mark.slow
def test_a_busy_judge_is_waited_for(tmp_path: Path) -> None:
    troubles = [Refused(429, "slow down", retry_after="2"), Refused(503), Said("<answer>Yes</answer>")]
    came: list[float] = []

    def reply(asked: Asked) -> Said | Refused:
        came.append(time.monotonic())
        return troubles.pop(0)

    with JudgeServer(reply) as server:
        (scored,) = judged(1, server, tmp_path)
    assert scored.passed
    assert came[1] - came[0] >= 2.0  # what the server asked for
    assert came[2] - came[1] >= 1.0  # a pause of our own


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "logs").write_text("no folder")
    with JudgeServer(odd) as server, pytest.raises(UserError, match=r"logs.*cannot be written"):
        judged(1, server, tmp_path)


def test_a_question_that_the_judge_refuses_fails_alone(tmp_path: Path) -> None:
    with JudgeServer(lambda asked: Refused(400, "no such word") if "shows 1." in asked.words else odd(asked)) as server:
        scored = judged(3, server, tmp_path)
        assert [one.outcome for one in scored] == ["fail", "judge_failed", "fail"]
        assert scored[1].replies == ("[no reply: 400: no such word]",)


def test_a_judge_that_fails_for_half_has_not_failed(tmp_path: Path) -> None:
    for refused, why in ((("1.", "2."), ""), (("0.", "1.", "2."), "judge failed 3 of 4 (HTTP 400)")):
        with JudgeServer(
            lambda asked, refused=refused: (  # type: ignore[misc]
                Refused(400, "no") if any(f"shows {one}" in asked.words for one in refused) else odd(asked)
            )
        ) as server:
            assert mostly_failed(judged(4, server, tmp_path / str(len(refused)))) == why


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
        config = JudgeConfig(model=f"{server.url}#judge", revision="r")
        assert sum(one.passed for one in run(benchmark.samples(), benchmark, config, tmp_path)) == 20


@pytest.mark.slow
def test_a_slow_judge_runs_out_of_time(tmp_path: Path) -> None:
    ended = threading.Event()
    with JudgeServer(lambda asked: odd(asked) if ended.wait() else "") as server:
        (scored,) = judged(1, server, tmp_path, timeout=1, retries=0)
        ended.set()
    assert scored.outcome == "judge_failed" and scored.replies == (
        f"[no reply: nothing came from {server.url}/chat/completions within 1 s]",
    )


@pytest.mark.parametrize("status", [401, 400, 500])
def test_a_key_is_in_no_file_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int
) -> None:
    key = "sk-veryverysecret-1234567890"
    monkeypatch.setenv("MY_KEY", key)
    benchmark, messages = Criteria(2), ""
    with JudgeServer(lambda asked: Refused(status, f"the key {asked.key} is wrong")) as server:
        config = JudgeConfig(model=f"{server.url}#judge", key_env="MY_KEY", retries=0)
        try:
            messages = repr(run(benchmark.samples(), benchmark, config, tmp_path))
        except UserError as error:
            messages = str(error)
            assert "refuses the key in MY_KEY (401)" in messages
        assert (status == 401) == ("refuses the key" in messages)
        assert server.asked[0].key == key
    printed = "".join(capfd.readouterr())
    found = [file for file in tmp_path.rglob("*") if file.is_file() for part in _contents(file) if key.encode() in part]
    assert not found and key not in messages + printed


def _contents(file: Path) -> list[bytes]:
    """Of a file, or of all files in an archive."""
    if not zipfile.is_zipfile(file):
        return [file.read_bytes()]
    with zipfile.ZipFile(file) as archive:
        return [_inflated(archive, name) for name in archive.namelist()]


def _inflated(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).compress_type != 93:
        return archive.read(name)
    import zstandard

    entry = archive.getinfo(name)
    assert archive.fp is not None
    archive.fp.seek(entry.header_offset + 26)
    name_length, extra = (int.from_bytes(archive.fp.read(2), "little") for _ in range(2))
    archive.fp.seek(entry.header_offset + 30 + name_length + extra)
    return zstandard.ZstdDecompressor().decompressobj().decompress(archive.fp.read(entry.compress_size))


def test_a_key_that_is_not_set_and_a_model_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with JudgeServer(lambda asked: Refused(404, "no model judge")) as server:
        with pytest.raises(UserError, match="NO_KEY is empty"):
            judged(1, server, tmp_path, key_env="NO_KEY")
        with pytest.raises(UserError, match=r"there is no judge judge at .*no model judge"):
            judged(1, server, tmp_path)
    benchmark = Criteria(1)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        run(benchmark.samples(), benchmark, JudgeConfig(model="openai/gpt-4o"), tmp_path)


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


def test_another_judge_or_prompt_is_another_question(tmp_path: Path) -> None:
    with JudgeServer(odd) as server:
        judged(1, server, tmp_path)
        judged(1, server, tmp_path, temperature=0.5)
        assert len(server.asked) == 2
        judged(1, server, tmp_path, attempts=1, connections=3)  # nothing that changes a reply
        assert len(server.asked) == 2


def test_equal_questions_at_once_are_asked_once(tmp_path: Path) -> None:
    benchmark = Criteria(1)
    with JudgeServer(odd, delay=0.2) as server:
        scored = run(benchmark.samples() * 6, benchmark, JudgeConfig(model=f"{server.url}#judge"), tmp_path)
    assert len(server.asked) == 1 and [one.outcome for one in scored] == ["fail"] * 6


CHILD = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from uni_train.addresses import held_port
from uni_train.config.schema import JudgeConfig
from uni_train.eval.judges import run
from tests.eval.judges.criteria import Criteria
benchmark = Criteria(60)
config = JudgeConfig(model=f"{sys.argv[1]}#judge", connections=4)
run(benchmark.samples(), benchmark, config, Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_asks_for_nothing_that_was_answered(tmp_path: Path, how: signal.Signals) -> None:
    with JudgeServer(odd, delay=0.1) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.url, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL,
        )
        while len(server.asked) < 20 and child.poll() is None:
            time.sleep(0.02)
        child.send_signal(how)
        assert child.wait() != 0
        scored = judged(60, server, tmp_path)
        assert [one.passed for one in scored] == [False, True] * 30
        assert 60 <= len(server.asked) <= 64  # at most those under way were asked twice
