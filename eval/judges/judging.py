"""Judging samples: what is stored is read again, the rest asked, and logged in inspect-ai's format (`inspect view`).

    scored = run(samples, benchmark, JudgeConfig(model="openai/gpt-4o"), folder)

`folder`/judge then holds logs/*.eval, one a run, and record.json (what was asked, what it cost), and
replies/ unless those lie in a `store` of several evaluations. Run again, it asks for nothing that was answered. A
sample without a reply is "judge_failed", one of blank replies "judge_blank": the next run asks both again. Replies
that never answer are "judge_refused", "judge_filtered" or "unparseable", and are kept. No sample is dropped.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.eval.benchmark import Benchmark, Sample, Scored, Unparseable
from uni_train.eval.judges.asking import Asker, NoReply, NotStored, Questioner, Session, Spent
from uni_train.eval.judges.calibration import cited
from uni_train.eval.judges.client import ask, client_of
from uni_train.eval.judges.failures import no_reply
from uni_train.eval.judges.log import write_log
from uni_train.eval.judges.replies import ReplyStore, Turn
from uni_train.eval.judges.ways import judged
from uni_train.eval.progress import Bar, Progress, Silent
from uni_train.files import atomic_write_json
from uni_train.models.nano import language
from uni_train.models.pictures import encode_png

HEARTBEAT = 1.0  # seconds between two signs that a judge is waited for


def run(
    samples: Sequence[Sample],
    benchmark: Benchmark,
    judge: JudgeConfig,
    folder: Path,
    progress: Progress | None = None,
    *,
    store: Path | None = None,
) -> list[Scored]:
    """Judge the samples by `benchmark.judge`; one Scored a sample, in their order, without a cause.

    Args:
        samples: those that no program can check; one whose status is not "ok" is returned as it is.
        folder: of the evaluation. Its record counts what earlier calls spent on other samples of it, for the limits.
        store: where replies lie, for any number of evaluations and processes; None: in the evaluation's folder.

    Raises:
        UserError: a wrong or missing key, no such model, a disk that is full: what was judged so far is kept; a
            tournament in which no case has two samples.
    """
    import anyio

    progress, folder = progress or Silent(), Path(folder) / "judge"
    store = folder if store is None else Path(store)
    record = _Record(folder / "record.json", samples, benchmark, store)
    scored: dict[int, Scored] = {i: Scored(sample) for i, sample in enumerate(samples) if sample.status != "ok"}
    todo = [i for i in range(len(samples)) if i not in scored]
    rivals = _rivals(samples, todo) if judge.way == "tournament" else {}
    logs: list[str] = []
    with ReplyStore(store / "replies") as replies:
        session = Session(judge, replies, record.spent_elsewhere())

        async def from_store() -> None:
            for i in todo:
                found = await _judge(samples[i], rivals.get(i, ()), benchmark, session)
                if found is not None:
                    scored[i] = found

        anyio.run(from_store)
        _raise(session)
        left = [i for i in todo if i not in scored]
        if len(left) < len(todo) and judge.base_url and not (judge.revision or judge.served):
            progress.say(
                f"  {judge.base_url} does not say which weights {judge.name} has: {len(todo) - len(left)} stored "
                "verdicts are used. If it is another model by now, give it a judge.revision."
            )
        started = time.monotonic()
        if left:
            with progress.bar(f"judge {benchmark.name}", len(samples), len(samples) - len(left)) as bar, _waiting(bar):

                async def ask_all() -> None:
                    places = iter(left)

                    async def work() -> None:
                        for i in places:
                            asker = partial(ask, client, judge)
                            found = await _judge(samples[i], rivals.get(i, ()), benchmark, session, asker)
                            assert found is not None  # one with an asker leaves no question to the store alone
                            scored[i] = found
                            bar.advance()

                    async with client_of(judge) as client, anyio.create_task_group() as tasks:
                        for _ in range(2 * judge.connections):  # each connection finds its next question waiting
                            tasks.start_soon(work)

                anyio.run(ask_all)
            log = write_log(folder / "logs", benchmark, judge, [scored[i] for i in left])
            logs = [log] if log else []
        in_order = [scored[i] for i in range(len(samples)) if i in scored]
        record.write(judge, session, in_order, len(left), time.monotonic() - started, logs)
    _raise(session)
    if session.refused:
        progress.say(f"  {judge.name} refuses {', '.join(sorted(session.refused))}: it was asked without")
    if session.stopped:
        without = sum(one.failure == "judge_failed" for one in in_order)
        progress.say(
            f"  {session.stopped}: {without} of {len(samples)} samples have no verdict; the same command continues"
        )
    return in_order


def expect_answer(judge: JudgeConfig) -> None:
    """Show the judge a grey image, so that one that cannot be asked is known before anything is drawn for it.

    Raises:
        UserError: no reply, after all retries; a wrong or missing key; no such model.
    """
    import anyio
    import numpy as np

    side = 24 if judge.dialect == "nano" else 64
    shown = encode_png(np.full((side, side, 3), 128, np.uint8))
    words = language.CAPTION_PROMPT if judge.dialect == "nano" else "What does this image show? Answer in one word."

    async def once() -> None:
        async with client_of(judge) as client:
            await ask(client, judge, [Turn("user", words, (shown,))], None)

    try:
        anyio.run(once)
    except NoReply as error:
        raise UserError(
            f"the judge {judge.name}{judge.where} does not answer ({error})",
            "Start it, or wait until it is up, and run the same command again.",
        ) from None


@contextmanager
def _waiting(bar: Bar) -> Iterator[None]:
    """Shows by the bar, from a thread, that somebody waits: a judge may take minutes for its first reply."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT):
            bar.advance(0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def _judge(
    sample: Sample, rivals: Sequence[Sample], benchmark: Benchmark, session: Session, asker: Asker | None = None
) -> Scored | None:
    """One sample; None where a reply is not in the store and there is nobody to ask."""
    name, ask = session.config.name, Questioner(session, asker, draw=session.config.first_draw)
    try:
        return Scored(sample, await judged(benchmark, sample, rivals, ask), name, "", tuple(ask.replies))
    except Exception as error:
        # A benchmark that asks several things at once wraps in a group what one of them raised.
        problem = ask.raised if isinstance(error, ExceptionGroup) and ask.raised else error
    if isinstance(problem, NotStored):
        return None
    if isinstance(problem, Unparseable):
        return Scored(sample, None, name, problem.outcome, tuple(ask.replies))
    if not isinstance(problem, NoReply):  # a mistake of ours or of the configuration: every sample would meet it
        session.stop(str(problem), problem)
    return Scored(sample, None, name, "judge_failed", (*ask.replies, no_reply(str(problem))))


def _rivals(samples: Sequence[Sample], places: Sequence[int]) -> dict[int, list[Sample]]:
    """Place of a sample -> the others of its case and setting."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place in places:
        alike.setdefault((samples[place].ask.case.id, samples[place].ask.setting), []).append(place)
    if places and all(len(group) == 1 for group in alike.values()):
        raise UserError("a tournament needs several samples of a case, and there is one of each", "Ask with --k 2.")
    return {place: [samples[i] for i in group if i != place] for group in alike.values() for place in group}


def _raise(session: Session) -> None:
    if session.fatal is not None:
        raise session.fatal


class _Record:
    """record.json: a part a set of samples, each with what its judging took; written when a call ends."""

    def __init__(self, path: Path, samples: Sequence[Sample], benchmark: Benchmark, store: Path) -> None:
        self.path, self.benchmark, self.store = path, benchmark, store
        keys = json.dumps([benchmark.name, [sample.key for sample in samples]])
        self.part = hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()
        try:
            self.parts: dict[str, Any] = read_json(path)["parts"]
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: replies are what counts
            self.parts = {}

    def spent_elsewhere(self) -> Spent:
        """On other samples of this evaluation."""
        others = [part for name, part in self.parts.items() if name != self.part]
        return Spent(
            sum(part["questions"] for part in others),
            sum(part["input_tokens"] for part in others),
            sum(part["output_tokens"] for part in others),
        )

    def write(
        self,
        judge: JudgeConfig,
        session: Session,
        scored: Sequence[Scored],
        asked: int,
        seconds: float,
        logs: Sequence[str],
    ) -> None:
        spent, before = session.spent, self.parts.get(self.part, {})
        runs = list(before.get("runs", []))
        if asked:
            runs.append(
                {"samples": asked, "seconds": round(seconds, 3), "stopped": session.stopped, "logs": list(logs)}
            )
        part = {
            "benchmark": self.benchmark.name,
            "benchmark_revision": self.benchmark.revision,
            "samples": len(scored),
            "outcomes": dict(Counter(one.outcome for one in scored)),
            "questions": spent.questions,
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "dollars": judge.dollars(spent.input_tokens, spent.output_tokens),
            **({"refused": sorted(session.refused)} if session.refused else {}),
            "damaged_replies": session.store.damaged,
            "calibration": cited(self.store, judge, self.benchmark),
            "runs": runs,
        }
        self.parts[self.part] = part
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(self.path, {"judge": judge.to_dict(), "parts": self.parts})
