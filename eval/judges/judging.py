"""Judging samples: what is stored is read again, the rest is one inspect-ai evaluation, whose log `inspect view` opens.

    scored = run(samples, benchmark, JudgeConfig("openai/gpt-4o"), folder)

`folder`/judge then holds logs/*.eval and record.json (what was asked, what it cost), and replies/ unless those lie in a
`store` of several evaluations. Run again, it asks for nothing that was answered. A sample without a reply is
"judge_failed" and is asked again by the next run; one whose replies never answer is "unparseable"; neither is dropped.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from eval.benchmark import Benchmark, Sample, Scored, Unparseable
from eval.judges.asking import NoReply, NotStored, Questioner, Session, Spent
from eval.judges.config import JudgeConfig
from eval.judges.failures import cleaned, hide_secrets
from eval.judges.replies import ReplyStore
from uni_train.errors import UserError
from uni_train.files import atomic_write_json

if TYPE_CHECKING:
    from inspect_ai.model import Model

E = TypeVar("E", bound=BaseException)
SINGLY, GROUP = 300, 50  # up to so many samples are logged one by one; of more, so many together
_LOCAL_KEY = "local"  # what a server of one's own is sent where no key is set


class Bar(Protocol):
    def advance(self, by: int = 1, **figures: float) -> None: ...


class Progress(Protocol):
    """What is told while judging (`uni_train.cli.progress.ConsoleProgress`)."""

    def say(self, text: str) -> None: ...

    def bar(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Bar]: ...


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
        UserError: a wrong or missing key, no such model, a disk that is full: what was judged so far is kept.
    """
    import anyio

    folder = Path(folder) / "judge"
    store = folder if store is None else Path(store)
    record = _Record(folder / "record.json", samples, benchmark, store)
    scored: dict[int, Scored] = {i: Scored(sample) for i, sample in enumerate(samples) if sample.status != "ok"}
    todo = [i for i in range(len(samples)) if i not in scored]
    with ReplyStore(store / "replies") as replies:
        session = Session(judge, replies, record.spent_elsewhere(), _secrets(judge))

        async def from_store() -> None:
            for i in todo:
                found = await _judge(samples[i], benchmark, session)
                if found is not None:
                    scored[i] = found

        anyio.run(from_store)
        _raise(session)
        left = [i for i in todo if i not in scored]
        started, log = time.monotonic(), None
        if left:
            title, done = f"judge {benchmark.name}", len(samples) - len(left)
            with progress.bar(title, len(samples), done) if progress else nullcontext() as bar:

                async def judged(place: int) -> Scored:
                    found = await _judge(samples[left[place]], benchmark, session)
                    assert found is not None  # a session with a model leaves no question to the store alone
                    scored[left[place]] = found
                    if bar is not None:
                        bar.advance()
                    return found

                session.model = _model(judge, session.without_secrets)
                with _rare_collections():
                    log = _evaluate([samples[i] for i in left], benchmark, session, folder / "logs", judged)
        in_order = [scored[i] for i in range(len(samples)) if i in scored]
        record.write(judge, session, in_order, len(left), time.monotonic() - started, log)
    _raise(session)
    if session.stopped and progress is not None:
        without = sum(one.failure == "judge_failed" for one in in_order)
        progress.say(
            f"  {session.stopped}: {without} of {len(samples)} samples have no verdict; the same command continues"
        )
    return in_order


async def _judge(sample: Sample, benchmark: Benchmark, session: Session) -> Scored | None:
    """One sample; None where a reply is not in the store and the session has no model."""
    name, ask = session.config.model, Questioner(session)
    try:
        return Scored(sample, await benchmark.judge(sample, ask), name, "", tuple(ask.replies))
    except Exception as error:
        # A benchmark that asks several things at once wraps in a group what one of them raised.
        problem = ask.raised if isinstance(error, ExceptionGroup) and ask.raised else error
    if isinstance(problem, NotStored):
        return None
    if isinstance(problem, Unparseable):
        return Scored(sample, None, name, "unparseable", tuple(ask.replies))
    if not isinstance(problem, NoReply):  # a mistake of ours or of the configuration: every sample would meet it
        session.stop(str(problem), problem)
    return Scored(sample, None, name, "judge_failed", (*ask.replies, f"[no reply: {problem}]"))


def _evaluate(
    samples: Sequence[Sample],
    benchmark: Benchmark,
    session: Session,
    logs: Path,
    judged: Callable[[int], Awaitable[Scored]],
) -> str:
    """Judge samples in one inspect-ai evaluation, as many at once as the judge allows; the path of its log.

    A sample of inspect-ai is a group of ours, of one set and one setting: what it does for each of its samples costs
    more than a whole question. Few are groups of one, for reading; the score is the share that passes, and each verdict
    is in its metadata.
    """
    import anyio
    import inspect_ai
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset
    from inspect_ai.dataset import Sample as Question
    from inspect_ai.scorer import Score, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    config, model = session.config, session.model
    assert model is not None
    groups = _grouped(samples, 1 if len(samples) <= SINGLY else GROUP)
    results: dict[int, Scored] = {}
    finished = 0

    @solver(name="judging")
    def judging() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal finished

            async def one(place: int) -> None:
                results[place] = await judged(place)

            try:
                async with anyio.create_task_group() as tasks:
                    for place in groups[str(state.sample_id)]:
                        tasks.start_soon(one, place)
            finally:
                finished += 1
                if finished == len(groups):  # its connections belong to this loop, which ends with the last group
                    await model.api.aclose()
            return state

        return solve

    @scorer(metrics=[mean(), stderr()], name="passed")
    def passed() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            found = [results.pop(place) for place in groups[str(state.sample_id)]]
            outcomes = Counter(one.outcome for one in found)
            return Score(
                value=outcomes["pass"] / len(found),
                answer=", ".join(f"{name} {count}" for name, count in outcomes.items()),
                explanation="\n".join(f"{_name(one.sample)}: {one.outcome} {_reason(one)}" for one in found),
            )

        return score

    questions = [
        Question(id=name, input="\n\n".join(f"{_name(samples[i])}: {samples[i].ask.case.prompt}" for i in places))
        for name, places in groups.items()
    ]
    per_group = len(samples) / len(groups)
    # Its trace, two lines a request in a file of its own, is a twentieth of the processor time and in the log too.
    logging.getLogger("inspect_ai.model").setLevel(logging.WARNING)
    with _disk_errors():
        found = inspect_ai.eval(
            Task(name=f"judge_{benchmark.name}", dataset=MemoryDataset(questions), solver=judging(), scorer=passed()),
            model=model,
            log_dir=str(logs.resolve()),
            display="none",
            max_samples=1
            + round(2 * config.max_connections / per_group),  # each connection finds its next question waiting
            log_level="error",
            log_level_transcript="warning",
            log_images=False,
            log_model_api=False,
            log_realtime=False,
            ctl_server=False,
            score_display=False,
            metadata={"benchmark": benchmark.name, "benchmark_revision": benchmark.revision, "judge": config.to_dict()},
        )[0]
    if found.status == "cancelled":
        raise KeyboardInterrupt
    if found.status == "error" and session.fatal is None:
        message = found.error.message if found.error else "no reason given"
        raise UserError(f"inspect-ai stopped judging: {session.without_secrets(message)}", f"Its log: {found.location}")
    return str(found.location)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """What inspect-ai cannot write, as a UserError: its log, or its traces in the user's data folder."""
    try:
        yield
    except (OSError, ExceptionGroup) as error:
        found = _first(error, OSError)
        if found is None:
            raise
        raise UserError(
            f"inspect-ai cannot write {found.filename or 'its log'}: {found.strerror or found}",
            "Free some space, or set XDG_DATA_HOME to a folder that can be written; replies that were stored are kept.",
        ) from error


def _first(error: BaseException, kind: type[E]) -> E | None:
    """The first exception of a kind in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _first(one, kind)) is not None), None)
    return error if isinstance(error, kind) else None


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage seldom, and only what is new: events that are kept for the log, and all of torch, are no garbage.

    Searching them takes a seventh of the processor time of judging.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _grouped(samples: Sequence[Sample], size: int) -> dict[str, list[int]]:
    """Places of samples by the name of their group; a group is of one set and setting, with at most `size` members."""
    alike: dict[tuple[str, str], list[int]] = {}
    for place, sample in enumerate(samples):
        alike.setdefault((sample.ask.case.set, sample.ask.setting), []).append(place)
    parts = [(kind, places[at : at + size]) for kind, places in alike.items() for at in range(0, len(places), size)]
    if size == 1:
        return {f"{place:06d} {_name(samples[place])}": [place] for _, (place,) in parts}
    return {f"{' '.join(kind)} {number:05d}": places for number, (kind, places) in enumerate(parts)}


def _name(sample: Sample) -> str:
    return f"{sample.ask.case.id} {sample.ask.setting} {sample.ask.k}"


def _reason(scored: Scored) -> str:
    if scored.verdict is not None:
        return scored.verdict.reason
    return scored.replies[-1] if scored.replies else ""


def _model(judge: JudgeConfig, clean: Callable[[str], str]) -> Model:
    """The judge as inspect-ai's Model; `clean` takes keys out of what it raises.

    Raises UserError: no key, no such provider, a library that is missing.
    """
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.model import GenerateConfig, get_model

    if judge.inspect_name.startswith("served/"):
        from eval.judges import endpoint  # noqa: F401  # makes itself known to inspect-ai

    config = GenerateConfig(
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        seed=judge.seed,
        max_connections=judge.max_connections,
        attempt_timeout=max(1, round(judge.timeout)),
        timeout=max(1, round(judge.patience)),
        max_retries=judge.retries,
    )
    try:
        model = get_model(
            judge.inspect_name,
            config=config,
            base_url=judge.base_url,
            api_key=key_of(judge),
            memoize=False,
            **judge.provider_args,
        )
        _hide_secrets(model, clean)
        return model
    except PrerequisiteError as error:
        said = str(error.message)
    except (ValueError, ImportError, TypeError) as error:
        said = str(error)
    raise UserError(
        f"the judge {judge.model} cannot be asked: {_plain(said)}", "See docs/judges.md for providers and keys."
    )


def _hide_secrets(model: Model, clean: Callable[[str], str]) -> None:
    """Have the provider raise and log no key, even where the server sends back the one it was given."""
    ask = model.api.generate

    async def generate(*args: Any, **kwargs: Any) -> Any:
        try:
            found = await ask(*args, **kwargs)
        except Exception as error:
            hide_secrets(error, clean)
            raise
        if isinstance(found, tuple) and isinstance(found[0], Exception):
            hide_secrets(found[0], clean)
            found[1].response = cleaned(found[1].response, clean)
        return found

    model.api.generate = generate  # type: ignore[method-assign]


def key_of(judge: JudgeConfig) -> str | None:
    """The key to send; None leaves it to the provider. Raises UserError where the named variable holds none."""
    if judge.key_env is not None:
        found = os.environ.get(judge.key_env, "").strip()
        if not found:
            raise UserError(
                f"the environment variable {judge.key_env} holds no key for the judge {judge.model}",
                f"export {judge.key_env}=... and run the same command again.",
            )
        return found
    if judge.base_url is not None:
        return os.environ.get("JUDGE_API_KEY", "").strip() or _LOCAL_KEY
    return None


def _secrets(judge: JudgeConfig) -> list[str]:
    """Values that must never reach a file: every key in the environment, for a server may send back the one it got."""
    named = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))]
    own = os.environ.get(judge.key_env or "", "")
    return [value for value in {*named, own.strip()} if len(value) >= 8 or (value and value == own.strip())]


def _raise(session: Session) -> None:
    if session.fatal is not None:
        raise session.fatal


def _plain(text: str) -> str:
    """inspect-ai's message without its markup, on one line."""
    from rich.text import Text

    return " ".join(Text.from_markup(text).plain.split())


class _Record:
    """record.json: a part a set of samples, each with what its judging took; written when a call ends."""

    def __init__(self, path: Path, samples: Sequence[Sample], benchmark: Benchmark, store: Path) -> None:
        self.path, self.benchmark, self.store = path, benchmark, store
        keys = json.dumps([benchmark.name, [sample.key for sample in samples]])
        self.part = hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()
        try:
            self.parts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["parts"]
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
        log: str | None,
    ) -> None:
        from eval.judges.calibration import cited

        spent, before = session.spent, self.parts.get(self.part, {})
        runs = list(before.get("runs", []))
        if asked:
            runs.append({"samples": asked, "seconds": round(seconds, 3), "stopped": session.stopped, "log": log})
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
