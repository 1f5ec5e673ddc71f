"""Training questions that another file asks too: with the same prompt, or with the same expression or rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from uni_train.core.errors import DataError, UnreadableError
from uni_train.data_gen.jsonl import MappingRow, MathsRow, first_schema, read_any
from uni_train.data_gen.mapping.reading import read_mapping
from uni_train.data_gen.maths.audit import read_maths
from uni_train.data_gen.objects import plain, singular_of
from uni_train.data_gen.task import Item


class Prompt(NamedTuple):
    """A question of a file. problem: what it works out, whatever its words and its object."""

    id: str
    text: str
    problem: str


@dataclass(frozen=True)
class Overlap:
    """Questions of `file` that training asks.

    Attributes:
        questions: number of questions in the file.
        same_prompt: ids of its questions whose prompt is a training prompt, word for word.
        same_problem: ids of those whose expression or set of rules is that of a training prompt.
        training: number of training prompts with a problem of the file.
    """

    file: str
    questions: int
    same_prompt: tuple[str, ...]
    same_problem: tuple[str, ...]
    training: int

    def describe(self) -> str:
        """One line: how many there are, and which."""
        few = ", ".join(self.same_problem[:8]) + (", ..." if len(self.same_problem) > 8 else "")
        return (
            f"{self.file}: training asks {len(self.same_problem)} of {self.questions} questions, "
            f"{len(self.same_prompt)} of them word for word ({self.training} training prompts): {few}"
        )


def problem_of(prompt: str) -> str:
    """The expression of a maths question ("2 + 3"), or the sorted rules of a mapping; "" where it is neither."""
    try:
        return read_maths(prompt).readings[0].canonical
    except DataError:  # no maths, or an expression without a value
        pass
    try:
        rules = read_mapping(prompt).rules
    except UnreadableError:
        return ""
    meanings = (f"{left}>{right if linked else singular_of(plain(right))}" for left, right, linked in rules)
    return "; ".join(sorted(meanings))


def read_questions(path: Path) -> list[Prompt]:
    """The questions of a published file or an items.jsonl. Raises DataError for any other file."""
    return [_prompt(row) for row in read_any(path)]


def questions_below(path: Path) -> tuple[dict[str, list[Prompt]], list[str]]:
    """The questions of a file, or of each .jsonl below a folder, by its name; and the files that hold none.

    Raises:
        DataError: no file has questions, or a file of questions is damaged.
    """
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    asking = [file for file in files if not path.is_dir() or first_schema(file)]
    if not asking:
        raise DataError(f"{path} has no .jsonl file with questions of maths, mapping or ours")
    names = {file: str(file.relative_to(path)) if path.is_dir() else file.name for file in files}
    return {names[file]: read_questions(file) for file in asking}, [names[file] for file in files if file not in asking]


def prompts_of(items: Iterable[Item]) -> list[Prompt]:
    """Items as questions; what a program cannot read is compared by its canonical form."""
    return [_prompt(item) for item in items]


def _prompt(row: Item | MathsRow | MappingRow) -> Prompt:
    text = row.prompt if isinstance(row, Item) else row.question
    name = f"{row.id}/{row.which}" if isinstance(row, MappingRow) else row.id
    words, problem = " ".join(text.split()).casefold(), problem_of(text)
    if not problem and isinstance(row, Item):  # all mazes have the same words
        words = problem = str(row.facts.get("canonical", words))
    return Prompt(name, words, problem or words)


def overlap(file: str, questions: Sequence[Prompt], training: Sequence[Prompt]) -> Overlap:
    """Which of the questions of a file training asks."""
    texts, problems = {prompt.text for prompt in training}, {prompt.problem for prompt in training}
    known = {question.problem for question in questions}
    return Overlap(
        file,
        len(questions),
        tuple(question.id for question in questions if question.text in texts),
        tuple(question.id for question in questions if question.problem in problems),
        sum(prompt.problem in known for prompt in training),
    )
