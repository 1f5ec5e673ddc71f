"""Trivial strategies: what a model reaches without doing the task. On a good set all of them stay at chance.

A task brings its strategies (`Task.strategies`). Each is a pure function from the text of a prompt to an answer, or
None where it has none; the most frequent answer alone knows the labels of the set. Shortcut learning, and its audit by
baselines that see part of the input: Geirhos et al. 2020 (arXiv 2004.07780), Gururangan et al. 2018 (arXiv 1803.02324).

Chance is the task's too. UReason's prompts of the nano world that ask for one kind of object are counted as maths. A
maze names no answers to choose from, and has no strategy. Those of puzzles draw a state, compared by its digest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uni_train.data_gen.objects import same_noun
from uni_train.data_gen.registry import TASKS, scoring, task_of
from uni_train.data_gen.task import Item, Question, Task

MARGIN = 0.05  # a strategy that beats chance by more, with its interval clear of chance, is a shortcut
LOOK_UP = "at one link this is the look-up itself"


@dataclass(frozen=True, slots=True)
class Tally:
    """How a strategy did: right[i] of unit i, which belongs to clusters[i].

    note: why the strategy is no shortcut here although it may be right; "" for every other.
    """

    name: str
    kind: str
    right: tuple[bool, ...]
    clusters: tuple[str, ...]
    note: str = ""

    @property
    def share(self) -> float:
        """Right units of all, in [0, 1]."""
        return sum(self.right) / len(self.right)


def chances() -> dict[str, float]:
    """Reasoning task -> how often guessing is right, of what counts once: a prompt, or a pair."""
    tasks = {name: scoring(name) for name in TASKS.names()}
    return {name: scored.chance for name, scored in tasks.items() if scored.sets}


def questions_of(items: Iterable[Item]) -> list[Question]:
    """The items as strategies see them; those on which no strategy has anything to say are left out."""
    questions = (task_of(item).question(item) for item in items)
    return [question for question in questions if question is not None]


def known_shortcuts(task: Task, level: int) -> dict[str, str]:
    """Strategy -> why it works on this level, as the task states it."""
    ending = f" (level {level})"
    return {
        name.removesuffix(ending): why
        for name, why in task.known_shortcuts.items()
        if name.endswith(ending) or "(level " not in name
    }


def tally(questions: Sequence[Question], known: Mapping[str, str] | None = None) -> list[Tally]:
    """How every strategy does on one set, the best first; [] for no questions.

    questions: all of one kind, and of one level. known: strategy -> why it works here, for the notes. Where two
    questions make a unit (mapping), one without its partner is never right.
    """
    if not questions:
        return []
    kind = questions[0].kind
    task = TASKS.get(kind)
    answers_of: dict[str, list[int | str | None]] = {strategy.name: [] for strategy in task.strategies}
    for question in questions:  # the prompts in the outer loop, so that each is read once
        for strategy in task.strategies:
            answers_of[strategy.name].append(strategy.answer(question.text))
    frequent = Counter(_plain(q.answer) for q in questions if q.answer is not None).most_common(1)
    answers_of[task.most_frequent] = [frequent[0][0] if frequent else None] * len(questions)
    notes = dict(known or {})
    for strategy in task.strategies:
        if strategy.links is not None and _most_frequent(map(strategy.links, (q.text for q in questions))) == 1:
            notes[strategy.name] = LOOK_UP
    tallies = []
    for name, answers in answers_of.items():
        marks: dict[str, list[bool]] = defaultdict(list)
        clusters: dict[str, str] = {}
        for question, answer in zip(questions, answers, strict=True):
            marks[question.unit].append(_right(answer, question.answer))
            clusters[question.unit] = question.cluster
        right = tuple(len(marks[unit]) == task.items_per_draw and all(marks[unit]) for unit in clusters)
        tallies.append(Tally(name, kind, right, tuple(clusters.values()), notes.get(name, "")))
    return sorted(tallies, key=lambda result: -result.share)


def _most_frequent(links: Iterable[int | None]) -> int | None:
    counted = Counter(link for link in links if link is not None).most_common(1)
    return counted[0][0] if counted else None


def _plain(answer: int | str) -> int | str:
    return answer if isinstance(answer, int) else answer.strip().rstrip(".!").lower()


def _right(answer: int | str | None, label: int | str | None) -> bool:
    if answer is None or label is None:
        return False
    if isinstance(answer, int) or isinstance(label, int):
        return answer == label
    return bool(same_noun(answer, label))
