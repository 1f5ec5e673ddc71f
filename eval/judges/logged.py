"""One inspect-ai evaluation, whose log `inspect view` opens: groups of samples, each an entry.

What inspect-ai does for each of its samples costs more than a whole question, so that a sample of inspect-ai is a group
of ours.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from uni_train.errors import UserError

if TYPE_CHECKING:
    from inspect_ai.model import Model

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the log says of a group: the share that passes, outcomes counted, each verdict with its reason."""

    passed: float
    outcomes: str
    verdicts: str


@dataclass(frozen=True, slots=True)
class Form:
    """How an evaluation is logged. at_once: groups under way together. about: JSON-able, for its header."""

    name: str
    logs: Path
    at_once: int
    about: Mapping[str, Any]


def evaluate(
    model: Model,
    groups: Mapping[str, str],
    judged: Callable[[str], Awaitable[Entry]],
    form: Form,
    clean: Callable[[str], str],
) -> str:
    """Judge groups; the path of the log.

    Args:
        groups: name -> what the log shows as asked. judged: judges the group of a name. clean: takes keys out of texts.

    Raises:
        UserError: the log cannot be written, or inspect-ai stops. KeyboardInterrupt: it was interrupted.
    """
    import inspect_ai
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import Score, Target, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    entries: dict[str, Entry] = {}
    finished = 0

    @solver(name="judging")
    def judging() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal finished
            try:
                entries[str(state.sample_id)] = await judged(str(state.sample_id))
            finally:
                finished += 1
                if finished == len(groups):  # its connections belong to this loop, which ends with the last group
                    await model.api.aclose()
            return state

        return solve

    @scorer(metrics=[mean(), stderr()], name="passed")
    def passed() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            entry = entries.pop(str(state.sample_id))
            return Score(value=entry.passed, answer=entry.outcomes, explanation=entry.verdicts)

        return score

    dataset = MemoryDataset([Sample(id=name, input=text) for name, text in groups.items()])
    # Its trace, two lines a request in a file of its own, is a twentieth of the processor time and in the log too.
    logging.getLogger("inspect_ai.model").setLevel(logging.WARNING)
    with _disk_errors(), _rare_collections():
        found = inspect_ai.eval(
            Task(name=form.name, dataset=dataset, solver=judging(), scorer=passed()),
            model=model,
            log_dir=str(form.logs.resolve()),
            display="none",
            max_samples=form.at_once,
            log_level="error",
            log_level_transcript="warning",
            log_images=False,
            log_model_api=False,
            log_realtime=False,
            ctl_server=False,
            score_display=False,
            metadata=dict(form.about),
        )[0]
    if found.status == "cancelled":
        raise KeyboardInterrupt
    if found.status == "error":
        message = found.error.message if found.error else "no reason given"
        raise UserError(f"inspect-ai stopped judging: {clean(message)}", f"Its log: {found.location}")
    return str(found.location)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """What inspect-ai cannot write, as a UserError: its log, or its traces in the user's data folder."""
    try:
        yield
    except (OSError, ExceptionGroup) as error:
        found = first(error, OSError)
        if found is None:
            raise
        raise UserError(
            f"inspect-ai cannot write {found.filename or 'its log'}: {found.strerror or found}",
            "Free some space, or set XDG_DATA_HOME to a folder that can be written; replies that were stored are kept.",
        ) from error


def first(error: BaseException, kind: type[E]) -> E | None:
    """The first exception of a kind in a group of groups; None where there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := first(one, kind)) is not None), None)
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
