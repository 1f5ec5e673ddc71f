"""Audits a scoring function with images that it must refuse or accept (`uni_train.data_gen.attacks`).

A child process calls the function, so that one that hangs or ends its process is a finding too. Functions are those
of `find_reward`, with trl's contract (contract.py) or plain: `f(image, item)` gives a number. The signature decides:
trl's has the parameters `prompts` and `completions`.
"""

from __future__ import annotations

import inspect
import math
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.core.errors import UsageError, UserError, described
from uni_train.data_gen.attacks import Attack, Case, Expected
from uni_train.eval.statistics import Estimate, proportion
from uni_train.rewards.contract import Judged
from uni_train.rewards.registry import find_reward

OWN = ("verifier", "verifier_dense")
"""Rewards that are the task's own verifier, which then cannot say which images are wrong."""
RESTARTS = 3  # ends of the child process, after which the audit ends
KEPT = 200  # images with a wrong score or a problem


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The score of an image in [0, 1], or None and the problem: what was raised or returned in its place.

    Attributes:
        item: its id. wrong: a false accept or a false reject.
        image: uint8 [H, W, 3] of the first KEPT with a wrong score or a problem, else None.
    """

    item: str
    attack: Attack
    score: float | None
    problem: str
    wrong: bool
    image: np.ndarray | None


@dataclass(frozen=True, slots=True)
class AttackTally:
    """Outcomes of one attack.

    Attributes:
        n, wrong: images, and those scored wrongly; share: of the wrong ones among those with a score.
        problems: problem -> images. items: ids of those with a wrong score or a problem.
    """

    attack: str
    expected: Expected
    n: int
    wrong: int
    share: Estimate
    problems: Mapping[str, int]
    items: tuple[str, ...]


def score_cases(name: str, cases: Iterable[Case], threshold: float, patience: float) -> Iterator[Outcome]:
    """Outcomes in the order of the cases; the last is that of the child's third end.

    Args:
        name: of the function, as in a recipe. threshold: an image is accepted above it.
        patience: seconds for an image, after which the child is ended.

    Raises:
        UsageError: no such function, or a reward that needs a model. UserError: it cannot be imported.
    """
    child = _Child(name)
    try:
        ended = kept = 0
        for case in cases:
            if child.closed:
                child = _Child(name)
            answer = child.score(case, patience)
            ended += child.closed
            score, problem, wrong = (answer, "", False) if isinstance(answer, float) else (None, answer, False)
            if score is not None and case.attack.expected != "survive":
                wrong = (score > threshold) != (case.attack.expected == "accept")
            if ended == RESTARTS:
                problem += f": {RESTARTS} times, so the audit ends"
            keep = (wrong or problem != "") and kept < KEPT
            kept += keep
            yield Outcome(case.item.id, case.attack, score, problem, wrong, case.image if keep else None)
            if ended == RESTARTS:
                return
    finally:
        child.close()


def tally_outcomes(outcomes: Sequence[Outcome]) -> list[AttackTally]:
    """One a kind of attack, in their order."""
    tallies = []
    for attack in dict.fromkeys(outcome.attack for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.attack == attack]
        wrong, scored = sum(trial.wrong for trial in some), sum(trial.score is not None for trial in some)
        problems = dict(Counter(trial.problem for trial in some if trial.problem))
        items = tuple(trial.item for trial in some if trial.wrong or trial.problem)
        share = proportion(wrong, scored)
        tallies.append(AttackTally(attack.name, attack.expected, len(some), wrong, share, problems, items))
    return tallies


def write_report(folder: Path, title: str, outcomes: Iterable[Outcome]) -> Path:
    """Write the kept images as PNG files, and a page of them. Returns the page."""
    from PIL import Image

    from uni_train.core.files import atomic_path
    from uni_train.eval.report.gallery import data_url
    from uni_train.eval.report.page import Page, Section, write_page

    folder.mkdir(parents=True, exist_ok=True)
    images: dict[str, list[tuple[str, str]]] = {}
    kept = [(outcome, outcome.image) for outcome in outcomes if outcome.image is not None]
    for number, (trial, image) in enumerate(kept):
        file = folder / f"{number:04}-{re.sub(r'[^a-z0-9]+', '-', trial.attack.name.lower())}.png"
        with atomic_path(file) as temporary:
            Image.fromarray(image).save(temporary, "PNG")
        kind = "False accepts" if trial.attack.expected == "refuse" else "False rejects"
        item = trial.item.replace("/", " / ")  # so that lines may break
        caption = f"{trial.attack.name}: {trial.problem or f'{trial.score:z.2f}'} ({item})"
        images.setdefault("Findings" if trial.problem else kind, []).append((data_url(file.read_bytes()), caption))
    sections = [Section(kind, images=images[kind]) for kind in sorted(images)]
    return write_page(folder / "audit.html", Page(title=title, sections=sections))


class _Child:
    """The process that calls the function."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share a device that the function uses
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(name, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.closed = False
        error = self._receive()
        if error is not None:
            self.close()
            raise error if isinstance(error, Exception) else UserError(f"the reward {name} {error}", "See its import.")

    def score(self, case: Case, patience: float) -> float | str:
        """A score in [0, 1], or what came in its place; then the child may be closed."""
        self._connection.send((case.item, case.image, case.input_image, case.target))
        if self._connection.poll(patience):
            return self._receive()
        self.close()
        return f"gave no score within {patience:g} s"

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()
        self.closed = True

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self.close()
            return f"ended its process (exit code {code})"


def _answer(name: str, connection: Connection) -> None:
    """Score what comes until the parent ends. What the function prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        try:
            function = find_reward(name)
            if isinstance(function, type):
                raise UsageError(f"{name} is a class, which needs a recipe and a model", "Name a function.")
        except (UserError, ModuleNotFoundError) as error:  # the other: a reward of ours that is not installed
            connection.send(error)
            return
        connection.send(None)
        while True:
            connection.send(_score(function, *connection.recv()))


def _score(function: Callable[..., Any], item: Any, image: Any, given: Any, target: Any) -> float | str:
    """A score in [0, 1], or what is wrong with it."""
    try:
        if {"prompts", "completions"} <= inspect.signature(function).parameters.keys():
            columns = {"id": item.id, "item": item, "input_image": given, "target_image": target}
            values = function(
                prompts=[item.prompt], completions=[image], **{name: [value] for name, value in columns.items()}
            )
            if isinstance(values, str | bytes | Mapping) or len(values) != 1:
                return f"returned {values!r:.60} for one image, not a list of one number"
            value = values[0]
        else:
            value = function(image, item)
        value = value.value if isinstance(value, Judged) else value
        if value is None or isinstance(value, str | bytes):
            return f"returned {value!r:.60}, not a number"
        number = float(value)
    except (Exception, SystemExit) as error:
        return f"raised {described(error)}"
    return number if math.isfinite(number) and 0 <= number <= 1 else f"returned {number:g}, not in [0, 1]"
