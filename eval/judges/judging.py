"""Judging samples: what is stored is read again, the rest asked in an inspect-ai evaluation (see it by `inspect view`).

    scored = run(samples, benchmark, JudgeConfig("openai/gpt-4o"), folder)

`folder`/judge then holds logs/*.eval, one a run, and record.json (what was asked, what it cost), and
replies/ unless those lie in a `store` of several evaluations. Run again, it asks for nothing that was answered. A
sample without a reply is "judge_failed" and is asked again by the next run; one whose replies never answer is
"unparseable"; neither is dropped.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.eval.benchmark import Benchmark, Sample, Scored, Unparseable
from uni_train.eval.judges.asking import Asker, NoReply, NotStored, Questioner, Session, Spent
from uni_train.eval.judges.calibration import cited
from uni_train.eval.judges.config import JudgeConfig
from uni_train.eval.judges.failures import no_reply
from uni_train.eval.judges.logged import Entry, Form, evaluate
from uni_train.eval.judges.model import ask, model_of, without_keys
from uni_train.eval.judges.replies import ReplyStore, Turn
from uni_train.eval.judges.ways import judged
from uni_train.eval.progress import Bar, Progress, Silent
from uni_train.files import atomic_write_json
from uni_train.models.nano import language
from uni_train.models.pictures import encode_png

HEARTBEAT = 1.0  # seconds between two signs that a judge is waited for
SINGLY, GROUP = 300, 50  # up to so many samples are logged one by one; of more, so many together


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
        started = time.monotonic()
        if left:
            title, done = f"judge {benchmark.name}", len(samples) - len(left)
            with progress.bar(title, len(samples), done) as bar:

                async def judged_now(place: int, asker: Asker) -> Scored:
                    i = left[place]
                    found = await _judge(samples[i], rivals.get(i, ()), benchmark, session, asker)
                    assert found is not None  # one with an asker leaves no question to the store alone
                    scored[i] = found
                    bar.advance()
                    return found

                try:
                    with _waiting(bar):
                        logs = [_ask([samples[i] for i in left], benchmark, judge, folder / "logs", judged_now)]
                except UserError as error:
                    raise session.fatal or error from None
        in_order = [scored[i] for i in range(len(samples)) if i in scored]
        record.write(judge, session, in_order, len(left), time.monotonic() - started, logs)
    _raise(session)
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
    clean = without_keys(judge)

    async def once() -> None:
        model = model_of(judge, clean)
        try:
            await ask(model, judge, clean, [Turn("user", words, (shown,))], None)
        finally:
            await model.api.aclose()

    try:
        anyio.run(once)
    except NoReply as error:
        where = f" at {judge.base_url}" if judge.base_url else ""
        raise UserError(
            f"the judge {judge.model}{where} does not answer ({error})",
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


def _ask(
    samples: Sequence[Sample],
    benchmark: Benchmark,
    judge: JudgeConfig,
    logs: Path,
    judged: Callable[[int, Asker], Awaitable[Scored]],
) -> str:
    """Judge samples in groups; the path of inspect-ai's log.

    Few are groups of one, for reading; of more, a group is of one set and one setting.
    """
    import anyio

    groups = _grouped(samples, 1 if len(samples) <= SINGLY else GROUP)
    asked = {
        name: "\n\n".join(f"{_name(samples[i])}: {samples[i].ask.case.prompt}" for i in places)
        for name, places in groups.items()
    }

    clean = without_keys(judge)
    model = model_of(judge, clean)
    asker = partial(ask, model, judge, clean)

    async def group(name: str) -> Entry:
        found: dict[int, Scored] = {}

        async def one(place: int) -> None:
            found[place] = await judged(place, asker)

        async with anyio.create_task_group() as tasks:
            for place in groups[name]:
                tasks.start_soon(one, place)
        return _entry([found[place] for place in groups[name]])

    per_group = len(samples) / len(groups)
    form = Form(
        f"judge_{benchmark.name}",
        logs,
        1 + round(2 * judge.max_connections / per_group),  # each connection finds its next question waiting
        {"benchmark": benchmark.name, "benchmark_revision": benchmark.revision, "judge": judge.to_dict()},
    )
    return evaluate(model, asked, group, form, clean)


async def _judge(
    sample: Sample, rivals: Sequence[Sample], benchmark: Benchmark, session: Session, asker: Asker | None = None
) -> Scored | None:
    """One sample; None where a reply is not in the store and there is nobody to ask."""
    name, ask = session.config.model, Questioner(session, asker, draw=session.config.first_draw)
    try:
        return Scored(sample, await judged(benchmark, sample, rivals, ask), name, "", tuple(ask.replies))
    except Exception as error:
        # A benchmark that asks several things at once wraps in a group what one of them raised.
        problem = ask.raised if isinstance(error, ExceptionGroup) and ask.raised else error
    if isinstance(problem, NotStored):
        return None
    if isinstance(problem, Unparseable):
        return Scored(sample, None, name, "unparseable", tuple(ask.replies))
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


def _grouped(samples: Sequence[Sample], size: int) -> dict[str, list[int]]:
    """Places of samples by the name of their group; a group is of one set and setting, with at most `size` members."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place, sample in enumerate(samples):
        alike.setdefault((sample.ask.case.set, sample.ask.setting), []).append(place)
    parts = [(kind, places[at : at + size]) for kind, places in alike.items() for at in range(0, len(places), size)]
    if size == 1:
        return {f"{place:06d} {_name(samples[place])}": [place] for _, (place,) in parts}
    return {f"{' '.join(kind)} {number:05d}": places for number, (kind, places) in enumerate(parts)}


def _entry(scored: Sequence[Scored]) -> Entry:
    outcomes = Counter(one.outcome for one in scored)
    return Entry(
        outcomes["pass"] / len(scored),
        ", ".join(f"{name} {count}" for name, count in outcomes.items()),
        "\n".join(f"{_name(one.sample)}: {one.outcome} {_reason(one)}" for one in scored),
    )


def _name(sample: Sample) -> str:
    return f"{sample.ask.case.id} {sample.ask.setting} {sample.ask.k}"


def _reason(scored: Scored) -> str:
    if scored.verdict is not None:
        return scored.verdict.reason
    return scored.replies[-1] if scored.replies else ""


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
            "dollars": spent.dollars(judge),
            "damaged_replies": session.store.damaged,
            "calibration": cited(self.store, judge, self.benchmark),
            "runs": runs,
        }
        self.parts[self.part] = part
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_json(self.path, {"judge": judge.to_dict(), "parts": self.parts})
