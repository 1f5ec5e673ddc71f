"""What judges say and do, and what becomes of it: an outcome with its reason, in bounded time and memory."""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock, call

import anyio
import pytest

from tests.eval.judges.criteria import NO, PNG, YES, Criteria, judged, number, odd
from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.hostile import FORMS, Hostile, chat
from tests.processes import FORKS
from uni_train.config.build import build_section
from uni_train.config.schema import JudgeConfig, RemoteConfig
from uni_train.core.addresses import held_port, key_for
from uni_train.core.errors import UsageError, UserError
from uni_train.core.http_client import LETTERS_A_TOKEN, Client
from uni_train.core.reading_limits import read_json
from uni_train.eval.judges import agreement as calibration
from uni_train.eval.judges import run, with_served_revision
from uni_train.eval.judges.calibrate import Anchor, calibrate
from uni_train.eval.judges.judge import DEAD_AFTER, Session, Spent
from uni_train.eval.judges.replies import ReplyStore, Turn
from uni_train.eval.sample import mostly_failed
from uni_train.eval.statistics import Estimate
from uni_train.eval.store import LastSeen
from uni_train.models.base import Request
from uni_train.models.remote import RemoteModel


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
ASKED = "it must give <answer>Yes</answer> or <answer>No</answer>, one of them"
NO_ANSWERS = {
    "unparseable": (3, "judge unparseable 1 of 1 ({said!r}: " + ASKED + ")"),
    "judge_blank": (3, "judge blank 1 of 1"),
    "judge_filtered": (1, "judge filtered 1 of 1"),
    "judge_refused": (1, "judge refused 1 of 1"),
}


@pytest.mark.parametrize(
    ("behave", "said", "outcome"),
    [
        ("prose", "The eyes of the picture say yes.", "unparseable"),
        ("both answers", f"{YES} if it matches, {NO} if not", "unparseable"),
        ("an answer in Chinese", "<answer>是</answer>", "unparseable"),
        ("filtered", "I cannot", "judge_filtered"), ("filtered at once", "", "judge_filtered"),
        ("a refusal", "I cannot", "judge_refused"), ("a refusal by its reason", "I cannot", "judge_refused"),
        ("a refusal part", "I cannot", "judge_refused"), ("a refused response", "I cannot", "judge_refused"),
        ("filtered without a choice", "", "judge_filtered"), ("filtered without a message", "", "judge_filtered"),
        ("filtered by an error", "", "judge_filtered"), ("a filtered response", "", "judge_filtered"),
        ("blank", "", "judge_blank"), ("white space", " \n", "judge_blank"), ("thoughts alone", "", "judge_blank"),
    ],
)  # fmt: skip
def test_what_does_not_answer_says_how(tmp_path: Path, behave: str, said: str, outcome: str) -> None:
    once, why = NO_ANSWERS[outcome]
    for way, asks in (("published", once), ("majority", 5 * once)):
        with Hostile(behave) as server:
            (scored,) = judged(1, server, tmp_path / way, way=way)
            assert (scored.outcome, scored.verdict) == (outcome, None)
            assert mostly_failed([scored]) == why.format(said=said)
            note = (f"[unparseable: {said!r}: {ASKED}]",) if outcome == "unparseable" else ()
            assert scored.replies == (*(said,) * asks, *note) and len(server.asked) == asks
            again = asks if outcome == "judge_blank" else 0  # a blank reply is no answer to keep
            assert judged(1, server, tmp_path / way, way=way) == [scored] and len(server.asked) == asks + again


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_is_read_in_whichever_form_its_server_sends_it(tmp_path: Path, form: str) -> None:
    """By judges and by remote models, through one reader."""
    with Hostile(form) as server:
        (scored,) = judged(1, server, tmp_path)
        answers = RemoteModel.open(f"{server.url}#judge", RemoteConfig(retries=0)).answer([Request("a", "x")])
    assert scored.passed and scored.replies == (YES,) and answers == [YES]


@pytest.mark.parametrize(("needed", "asked"), [(1, [100]), (2, [100, 200]), (4, [100, 200, 400]), (8, [100, 200, 400])])
def test_a_reply_that_is_cut_off_is_asked_for_with_more_tokens(tmp_path: Path, needed: int, asked: list[int]) -> None:
    def reply(question: Asked) -> bytes:
        tokens = question.body["max_tokens"]
        whole = tokens >= needed * 100
        usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": tokens + 10}
        return chat(YES if whole else f"{NO}, or", "stop" if whole else "length", **usage)

    with JudgeServer(reply) as server:
        (scored,) = judged(1, server, tmp_path, max_tokens=100)
        assert [one.body["max_tokens"] for one in server.asked] == asked
        (part,) = read_json(tmp_path / "judge" / "record.json")["parts"].values()
        assert (part["input_tokens"], part["output_tokens"]) == (10 * len(asked), sum(asked)), "all is paid for"
        assert judged(1, server, tmp_path, max_tokens=100) == [scored] and len(server.asked) == len(asked)
    if needed > 4:
        why = "it was cut off after 700 tokens in all: raise judge.max_tokens"
        assert scored.outcome == "unparseable" and scored.replies[-1] == f"[unparseable: {f'{NO}, or'!r}: {why}]"
    else:
        assert scored.passed and scored.replies == (YES,)


def test_a_server_that_allows_no_more_tokens_has_cut_its_reply_off(tmp_path: Path) -> None:
    replies = iter([chat("I think", "length"), *[Refused(400, "max_tokens is too large")] * 9])
    with JudgeServer(lambda asked: next(replies)) as server:
        (scored,) = judged(1, server, tmp_path, max_tokens=100)
    assert scored.outcome == "unparseable" and "raise judge.max_tokens" in scored.replies[-1]


def test_replies_that_would_do_harm_are_mended(tmp_path: Path) -> None:
    """No file can hold one; readers of another would take hours (the square of its length); a count cannot be."""
    thinks: dict[str, Any] = {"way": "chain_of_thought", "max_tokens": 64}
    for behave, outcome, reply, settings in (
        ("surrogate", "pass", f"\ufffd broken {YES}", {}),
        ("talking on", "unparseable", ("<think>" * 1000)[: 64 * LETTERS_A_TOKEN], thinks),
        ("odd usage", "pass", YES, {}),
    ):
        with Hostile(behave) as server:
            (first,) = judged(1, server, tmp_path / behave, **settings)
        assert first.outcome == outcome and first.replies[0] == reply and len(server.asked) == 1
        assert judged(1, server, tmp_path / behave, **settings) == [first]  # the server is gone by now


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
def test_a_judge_that_is_down_fails_what_it_was_not_asked_and_is_asked_later(tmp_path: Path) -> None:
    with held_port() as port:  # and nobody listens
        nobody = SimpleNamespace(url=f"http://127.0.0.1:{port}/v1")
        scored = judged(40, nobody, tmp_path, retries=0, connections=2, revision="r")
    assert {one.outcome for one in scored} == {"judge_failed"}
    why = [one.replies[0] for one in scored]
    assert sum("no connection" in one and "does not answer" not in one for one in why) >= DEAD_AFTER - 1
    assert "does not answer" in why[-1]
    with JudgeServer(odd) as server:  # elsewhere, but of the same revision: the same judge
        assert sum(one.passed for one in judged(40, server, tmp_path, revision="r")) == 20


@pytest.mark.slow
def test_somebody_who_waits_is_seen_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uni_train.core.http_client.HEARTBEAT", 0.05)
    watched, benchmark = MagicMock(), Criteria(2)
    with Hostile("silence") as server:
        judge = JudgeConfig(model=f"{server.url}#judge", retries=0, timeout=1)
        scored = run(benchmark.samples(), benchmark, judge, tmp_path, watched)
    advance = watched.bar.return_value.__enter__.return_value.advance
    assert call(0) in advance.mock_calls and advance.mock_calls.count(call()) == 2
    why = f"[no reply: nothing came from {server.url}/chat/completions within 1 s]"
    assert {one.replies for one in scored} == {(why,)}


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
    assert key not in messages + "".join(capfd.readouterr())
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        contents = [file.read_bytes()]
        if zipfile.is_zipfile(file):  # a log
            with zipfile.ZipFile(file) as archive:
                contents = [archive.read(name) for name in archive.namelist()]
        assert not any(key.encode() in part for part in contents), file


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


def judge_60(url: str, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    judged(60, SimpleNamespace(url=url), folder, connections=4)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_asks_for_nothing_that_was_answered(tmp_path: Path, how: signal.Signals) -> None:
    with JudgeServer(odd, delay=0.05) as server:
        child = FORKS.Process(target=judge_60, args=(server.url, tmp_path))
        child.start()
        while len(server.asked) < 20 and child.is_alive():
            time.sleep(0.02)
        os.kill(child.pid, how)
        child.join()
        assert child.exitcode == (1 if how == signal.SIGINT else -how)
        scored = judged(60, server, tmp_path)
        assert [one.passed for one in scored] == [False, True] * 30
        assert 60 <= len(server.asked) <= 64  # at most those under way were asked twice


BENCHMARK = Criteria(20)
WRONG = {"a": {3, 4}, "b": {4, 5, 6}, "large": {6, 7}}
"""Judge -> the numbers that it gets wrong; odd ones are right."""


def reply(asked: Asked) -> str:
    right = (number(asked) % 2 == 1) != (number(asked) in WRONG[asked.body["model"]])
    return YES if right else NO


def models(server: JudgeServer) -> Counter[str]:
    return Counter(one.body["model"] for one in server.asked)


def cascade(url: str, **settings: Any) -> JudgeConfig:
    a, b = (JudgeConfig(model=f"{url}#{name}", **settings) for name in ("a", "b"))
    return JudgeConfig(model=f"{url}#large", small=(a, b))


@pytest.mark.slow
def test_the_large_judge_is_asked_where_small_ones_disagree(tmp_path: Path) -> None:
    with JudgeServer(reply) as server:
        judge = cascade(server.url)
        samples = [*BENCHMARK.samples(), replace(BENCHMARK.samples()[0], status="generation_failed")]
        scored = run(samples, BENCHMARK, judge, tmp_path)
        assert models(server) == {"a": 20, "b": 20, "large": 3}
        assert run(samples, BENCHMARK, judge, tmp_path) == scored and len(server.asked) == 43
    by = Counter(one.by for one in scored[:-1])
    assert by == {"a+b": 17, "large": 3} and scored[-1].outcome == "generation_failed"
    wrong = [i for i, one in enumerate(scored[:-1]) if one.passed != (i % 2 == 1)]
    assert wrong == [4, 6]  # where both small ones err, and where the large one does
    assert len(scored[0].replies) == 2 and len(scored[5].replies) == 1
    with JudgeServer(lambda asked: "hm" if asked.body["model"] == "a" else reply(asked)) as server:
        scored = run(samples[:5], BENCHMARK, cascade(server.url, attempts=1), tmp_path / "hm")
        assert {one.by for one in scored} == {"large"}, "one that fails settles nothing, and the next one is not asked"
        assert models(server) == {"a": 5, "large": 5}


@pytest.mark.slow
def test_draws_that_differ_and_words_of_doubt_go_to_the_large_judge(tmp_path: Path) -> None:
    seen = Counter[int]()

    def doubtful(asked: Asked) -> str:
        said = reply(asked)
        if asked.body["model"] == "large":
            return said
        if "Confidence" in asked.last:
            return f"{said}\nConfidence: {60 if number(asked) < 5 else 90}"
        seen[number(asked)] += 1
        return {YES: NO, NO: YES}[said] if number(asked) == 0 and seen[0] == 2 else said

    with JudgeServer(doubtful) as server:
        small = JudgeConfig(model=f"{server.url}#a", way="majority", draws=3, connections=1)
        judge = JudgeConfig(model=f"{server.url}#large", small=(small,))
        by = Counter(one.by for one in run(BENCHMARK.samples(), BENCHMARK, judge, tmp_path / "drawn"))
        # 0 is in doubt after its second draw, and is spared the third.
        assert by == {"a": 19, "large": 1} and models(server) == {"a": 59, "large": 1}
        heats = {(asked.body["model"], asked.body["temperature"]) for asked in server.asked}
        assert heats == {("a", 0.7), ("large", 0.0)}  # at 0 all draws would be one reply
        unsure = JudgeConfig(model=f"{server.url}#large", small=(replace(small, way="confidence", draws=1),))
        by = Counter(one.by for one in run(BENCHMARK.samples(), BENCHMARK, unsure, tmp_path / "unsure"))
        assert by == {"a": 15, "large": 5}
        brave = replace(unsure, sure=0.5)
        assert {one.by for one in run(BENCHMARK.samples(), BENCHMARK, brave, tmp_path / "brave")} == {"a"}


@pytest.mark.slow
def test_its_saving_and_bias_are_measured_on_known_samples(tmp_path: Path) -> None:
    anchors = [Anchor(one, i % 2 == 1, "program") for i, one in enumerate(BENCHMARK.samples())]
    with JudgeServer(reply) as server:
        judge = cascade(server.url)
        found = calibrate(anchors, BENCHMARK, judge, tmp_path, store=tmp_path / "store")
    about = found.cascade
    assert about is not None and about["saving"] == pytest.approx(20 / 3) and about["asked"]["value"] == 3 / 20
    # The large judge passes 6 and not 7, the cascade 4 and 6: of twenty, one more.
    bias, error, large = (Estimate.from_dict(about[name]) for name in ("bias", "error", "large_error"))
    assert bias.value == pytest.approx(2 / 20) and bias.low < 0 < bias.high
    assert error.value == pytest.approx(2 / 20) and large.value == pytest.approx(0)
    store = tmp_path / "store"
    assert calibration.find(store, judge, "criteria") == found
    assert calibration.find(store, judge.small[0], "criteria") is None
    cited = calibration.sentence_of(calibration.citation(store, judge, BENCHMARK))
    assert "the large judge was asked about 0.15" in cited and "bias of 0.10" in cited
    assert calibration.citation(store, replace(judge, small=()), BENCHMARK) is None  # alone it is another judge


NOBODY = {"model": "http://127.0.0.1:9/v1#judge"}
SMALL = {"model": "http://127.0.0.1:9/v1#small"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "gpt-4o"}, "'gpt-4o' is no judge"), ({"model": "vllm/Qwen"}, "is no judge"),
        ({"model": "http://x:99999999/v1#m"}, "no address"),
        ({"model": "http://host/v1"}, "does not say which model"),
        ({"model": "http://me:secret@host/v1#m"}, "holds a user name"),
        ({"model": "https://host/v1?key=secret#m"}, "holds a user name, a password or parameters"),
        ({"dialect": "nanno"}, "judge.dialect must be one of paper, nano"),
        ({"extra_body": {"api_key": "secret"}}, "a key has no place"),
        ({"temperature": -1.0}, "temperature must be at least 0"), ({"cost_limit": 1.0}, "needs a price"),
        ({"way": "tournment"}, "Did you mean tournament"),
        ({"way": "majority", "draws": 4, "temperature": 1}, "may be a tie"),
        ({"way": "confidence", "draws": 3, "temperature": 0}, "at temperature 0 are one reply"),
        ({"way": "binary", "dialect": "nano"}, "nano cannot be asked by judge.way=binary"),
        ({"small": [SMALL]}, "never in doubt"), ({"small": [SMALL, NOBODY]}, "is called judge"),
        ({"small": [SMALL, SMALL | {"way": "tournament"}]}, "one by one"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_and_secrets_are_not_shown(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem.removeprefix("judge.")) as caught:
        build_section(JudgeConfig, NOBODY | settings)
    assert "secret" not in str(caught.value)


def test_one_rule_says_which_key_goes_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "GOOGLE_API_KEY", "MY_KEY"):
        monkeypatch.setenv(variable, f" {variable.lower()} ")
    assert JudgeConfig(model="google/gemini-2.5-pro").address.endswith("/v1beta/openai#gemini-2.5-pro")
    for model, key_env, key in (
        ("openai/gpt-4o", None, "openai_api_key"),
        ("https://eu.api.openai.com/v1#gpt-4o", None, "openai_api_key"),
        ("google/gemini-2.5-pro", None, "google_api_key"),
        ("openai/gpt-4o", "MY_KEY", "my_key"),
        ("http://127.0.0.1:8000/v1#m", None, ""),
        ("https://notapi.openai.com.example/v1#m", None, ""),
        ("http://127.0.0.1:8000/v1#m", "MY_KEY", "my_key"),
    ):
        assert key_for(JudgeConfig(model=model).address, key_env) == key
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(UserError, match="OPENAI_API_KEY is empty"):
        key_for(JudgeConfig(model="openai/gpt-4o").address)


def test_identity_is_what_changes_replies() -> None:
    one, two = JudgeConfig(model="http://a/v1#m"), JudgeConfig(model="http://b/v1#m")
    assert one.key != two.key != replace(two, temperature=1.0).key
    assert one.key == replace(one, attempts=1, connections=2, timeout=5, retries=0).key
    # An address is read as that of a remote model is.
    assert all(JudgeConfig(model=f"http://a{end}#m").key == one.key for end in ("", "/", "/v1/"))
    # A revision says what is served, wherever it is.
    assert replace(one, revision="7").key == replace(two, revision="7").key != replace(one, revision="8").key
    assert replace(one, price=(1.25, 10.0)).dollars(2_000_000, 500_000) == pytest.approx(7.5)  # of a million tokens
    # A way changes no reply, and makes another judging.
    majority = replace(one, way="majority", temperature=0.5)
    assert majority.key == replace(one, temperature=0.5).key and majority.label == "majority of 5"
    assert one.protocol == {**one.identity, "dialect": "paper"}  # as evaluations of before ways have it
    assert majority.protocol["way"] == "majority"


def test_a_server_that_says_what_it_serves_is_believed_and_remembered(tmp_path: Path) -> None:
    seen = LastSeen(tmp_path)
    models = [{"id": "nano", "uni_train": {"content": "abc"}}, {"id": "vlm"}, {"id": "v", "root": "/a"}]
    with JudgeServer(lambda asked: "", models=models) as server:
        served = JudgeConfig(model=f"{server.url}#nano")
        found = with_served_revision(served, seen)
        assert found == replace(served, served="abc")
        assert found.key == replace(served, revision="abc").key  # its replies are those of the revision
        for judge in (JudgeConfig(model=f"{server.url}#vlm"), JudgeConfig(model=f"{server.url}#nano", revision="7")):
            assert with_served_revision(judge, seen) == judge
        other = with_served_revision(JudgeConfig(model=f"{server.url}#v"))
        assert other.served.startswith(f"{server.url}@"), "vLLM says where its weights lie"
    assert with_served_revision(served, seen) == found  # nobody there
    with Hostile("500", models=True) as gateway:
        behind = JudgeConfig(model=f"{gateway.url}#nano")
        seen.keep({"judge": "nano", "at": gateway.url}, {"content": "abc"})
        for _ in range(2):  # whose error is not taken for another model, and not remembered
            assert with_served_revision(behind, seen).served == "abc"
    assert with_served_revision(served, LastSeen(tmp_path / "other")) == with_served_revision(served) == served
    assert with_served_revision(JudgeConfig(model="openai/gpt-4o")) == JudgeConfig(model="openai/gpt-4o")
