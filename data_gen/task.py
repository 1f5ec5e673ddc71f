"""Base types of data: a Task draws Items, renders their target images and gives a Verdict on any image.

Types alone: which tasks there are is known to uni_train.data_gen.registry.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Interval

from uni_train.core.errors import DataError, line_at, nearest_or_all, place_in
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.objects import NANO, World

if TYPE_CHECKING:
    from random import Random

    import numpy as np
    from pydantic import TypeAdapter

    from uni_train.data_gen.findings import AuditRow

Status = Literal["pass", "fail", "unreadable"]
Share = Annotated[float, Interval(ge=0, le=1)]
SPLITS = ("train", "validation", "test")  # that every task has
PATIENCE = 60.0  # seconds that a first draw may take


@dataclass(frozen=True, slots=True)
class Check:
    """One question about an image ("object", "count") and its answer; `reason` says why it did not pass.

    value: in [0, 1], where the answer is graded; None: 1 for a pass, else 0.
    """

    name: str
    status: Status
    reason: str = ""
    value: Share | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one image. Unreadable (nobody can tell) is neither a pass nor a fail and is counted apart.

    score: how nearly right the image is, in [0, 1], from verifiers that can say so (mazes); for shaping rewards.
    """

    checks: tuple[Check, ...]
    score: Share | None = None

    @property
    def status(self) -> Status:
        """unreadable if any check is, else fail if any fails, else pass. No checks at all is unreadable."""
        statuses = {check.status for check in self.checks}
        if "unreadable" in statuses or not statuses:
            return "unreadable"
        return "fail" if "fail" in statuses else "pass"

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def value(self) -> float:
        """In [0, 1]: the mean of the checks if one of them is graded; else 1 for a pass, 0 otherwise."""
        if all(check.value is None for check in self.checks):
            return float(self.passed)
        each = [float(check.status == "pass") if check.value is None else check.value for check in self.checks]
        return sum(each) / len(each)

    @property
    def reason(self) -> str:
        """The reasons of the checks that did not pass, joined; empty for a pass."""
        return "; ".join(check.reason or check.name for check in self.checks if check.status != "pass")

    def to_dict(self) -> dict[str, Any]:
        scored = {} if self.score is None else {"score": self.score}
        checks = [
            {"name": check.name, "status": check.status, "reason": check.reason}
            | ({} if check.value is None else {"value": check.value})
            for check in self.checks
        ]
        return {"status": self.status, **scored, "checks": checks}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Raises ValueError for what is no verdict."""
        return _verdicts().validate_python(data)


@cache
def _verdicts() -> TypeAdapter[Verdict]:
    from pydantic import TypeAdapter

    return TypeAdapter(Verdict)


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt with everything that is known about it.

    id: stable and made from the content, "maths2/train/0f3a9c..." or ".../A" for a question of a pair.
    prompt: what the model is asked; answer: the published form ("4 chairs", "Apples"), for a maze its steps ("RRD").
    facts: JSON-able, always with "canonical", the text whose hash decides the split. Maths and mapping have "world",
        "object" (singular), "plural" and "count" (1 to 6); maths adds "expression", mapping "rules", "chain" and
        "symbol". Mazes have "maze" (the grid as lines of text), "algorithm" and "image" (its style in pixels).
        UReason has "world", "task", "subcategory", "direct" (the prompt without reasoning) and "outcome".
    thought: an exact reference chain of thought that ends in the conclusion ("3 + 2 = 5. So draw 5 apples.").
    pair: the id that the two questions of a mapping share, else None.
    """

    id: str
    task: str
    level: int
    split: str
    prompt: str
    answer: str
    facts: Mapping[str, Any]
    thought: str
    pair: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id, "task": self.task, "level": self.level, "split": self.split, "prompt": self.prompt,
            "answer": self.answer, "facts": dict(self.facts), "thought": self.thought, "pair": self.pair,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Item:
        """Raises KeyError for a key that is missing, TypeError for a value of another type; both name it."""
        texts = {name: data[name] for name in ("id", "task", "split", "prompt", "answer", "thought")}
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        wrong += [] if isinstance(data["facts"], Mapping) else ["facts"]
        wrong += [] if isinstance(data["level"], int) and not isinstance(data["level"], bool) else ["level"]
        wrong += [] if isinstance(data.get("pair"), str | None) else ["pair"]
        if wrong:
            raise TypeError(f"{wrong[0]} is {json.dumps(data[wrong[0]], default=str)[:60]}")
        return cls(**texts, level=data["level"], facts=dict(data["facts"]), pair=data.get("pair"))


class Variant(NamedTuple):
    """A set that is asked beside a task's own if a recipe names it: "math1_seen", "mapping1_chain".

    said: how it differs. split: where its items are from, None for the split that is evaluated. options: of the task
    (fields of its dataclass), in place of its own.
    """

    said: str
    split: str | None = None
    options: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Question:
    """What a trivial strategy is given (`text`), and what would be right.

    kind: the task whose strategies apply. answer: a count or a noun; None where the label cannot be read: then no
    strategy is right. unit: what counts once, a pair or the question itself. cluster: the expression or the set of
    rules; questions that share it are not independent.
    """

    kind: str
    text: str
    answer: int | str | None
    unit: str
    cluster: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to answer from the text of a prompt without doing the task: a shortcut, if it pays.

    links: of a prompt's chain, for a strategy that is the task itself where there is one.
    """

    name: str
    answer: Callable[[str], int | str | None]
    links: Callable[[str], int | None] | None = None


class Task(ABC):
    """What every task offers. All methods are pure: the same arguments give the same result in every process.

    A task is a frozen dataclass in a file of its own (data_gen/<name>/task.py, or a plug-in), made known by
    `data_gen.registry.task`. Needed are `levels`, `sample`, `render` and `verify`; the rest has a default.
    Facts of its items have "canonical", and "world" where there are several worlds.

    Attributes:
        name: what the task is registered under.
        title: heads its tables ("Symbolic mapping"); its name where there is none.
        levels: that can be asked for.
        default_levels: what `data make` draws where nobody says; empty: the first level.
        level_range: whether one folder may hold several levels.
        splits: that the task has. seen: known expressions with new objects (maths).
        items_per_draw: 1, or 2 for a pair, which is right if both of its items are.
        sets: level -> the set in which its items are scored ("math1"), also the name of a STARS round. Without sets a
            task is no reasoning task: rounds and `evaluation.sets` cannot name it.
        short: of a set in the head of a column, before its level ("M"); its name where there is none.
        variants: name -> further sets.
        chance: that guessing is right, of what counts once; guess: what guessing is ("picking one of the two"). A task
            of ours has `sets`, `variants` and `chance` from `registry.scoring_beside`.
        filter_question: what a model is asked in order to filter its own samples, with {question} in it; empty: the
            question that suits any task (uni_train.eval.prompts.rewards).
        strategies: trivial ones; known_shortcuts: strategy -> why it works all the same. The name may end in
            " (level N)" where the reason holds on that level alone. most_frequent: what answering by the most frequent
            answer of the set is called.
        published: files of its published schema that `data make` may write.
        edits: its prompts come with an image, which the answer continues (`input_image`).
        readable: programs judge its images in every world.
    """

    name: ClassVar[str]
    levels: ClassVar[tuple[int, ...]]
    title: ClassVar[str] = ""
    default_levels: ClassVar[tuple[int, ...]] = ()
    level_range: ClassVar[bool] = False
    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    items_per_draw: ClassVar[int] = 1
    sets: ClassVar[Mapping[int, str]] = {}
    short: ClassVar[str] = ""
    variants: ClassVar[Mapping[str, Variant]] = {}
    chance: ClassVar[float] = 0.0
    guess: ClassVar[str] = "guessing"
    filter_question: ClassVar[str] = ""
    strategies: ClassVar[tuple[Strategy, ...]] = ()
    known_shortcuts: ClassVar[Mapping[str, str]] = {}
    most_frequent: ClassVar[str] = "most frequent answer"
    published: ClassVar[tuple[str, ...]] = ()
    edits: ClassVar[bool] = False
    readable: ClassVar[bool] = False

    @classmethod
    def in_world(cls, world: World) -> Task:
        """The task in a world; tasks that know no worlds are the same in each."""
        return cls()

    def configured(self, data: Mapping[str, Any]) -> Task:
        """The task as the section `data` of a recipe wants it."""
        return self

    @abstractmethod
    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One draw: a single item, or the two of a pair."""

    def generate(self, n: int, level: int, split: str, seed: int) -> list[Item]:
        """`n` distinct draws (2n items for pairs); DataError when the world has too few of them in this split."""
        self.validate(level, split)
        draws = collect(lambda index: self.sample(derive_seed(seed, index), level, split), n, self.distinct)
        self.expect(n, len(draws), level, split, "pairs" if self.items_per_draw == 2 else "prompts")
        return [item for items in draws for item in items]

    def distinct(self, item: Item) -> str:
        """What differs between two draws of a set."""
        return item.id

    def expect(self, n: int, drawn: int, level: int, split: str, unit: str) -> None:
        """DataError where fewer than `n` different draws were found."""
        if drawn < n:
            raise DataError(
                f"found only {drawn} different {self.name}{level} {unit} for the {split} split, {n} were asked for: "
                f"ask for at most {drawn}, for another level or for a larger world"
            )

    def input_image(self, item: Item) -> np.ndarray | None:
        """The image that belongs to the prompt, uint8 [H, W, 3]; None where the prompt is all that is given."""
        return None

    @abstractmethod
    def render(self, item: Item, seed: int) -> np.ndarray:
        """The target image, uint8 [H, W, 3]; DataError for a world without sprites."""

    @abstractmethod
    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Checks of an image, uint8 [H, W, 3]: object and count, or the four of a maze."""

    def frames(self, item: Item) -> list[np.ndarray]:
        """Images of a solution step by step, the last is the target; uint8 [H, W, 3] each."""
        return [self.render(item, 0)]

    def symmetric(self, item: Item, random: Random) -> Item:
        """The item turned, mirrored or renamed, with the answer and the thought that follow; each view alike likely.

        DataError for a task that has no symmetries.
        """
        raise DataError(f"{self.name} has no symmetries")

    def has_image(self, item: Item) -> bool:
        """Whether programs can draw and judge the item's image: those of the nano world."""
        return item.facts.get("world") == NANO.name

    def question(self, item: Item) -> Question | None:
        """The item as a trivial strategy sees it; None where no strategy has anything to say."""
        return None

    @classmethod
    def published_question(cls, unit: str, text: str, answer: str) -> Question:
        """A question of a published file as a trivial strategy sees it, with its label as published."""
        return Question(cls.name, text, answer, unit, unit)

    def audit(self, items: Sequence[Item]) -> list[AuditRow]:
        """The answers worked out again by a program that shares no code with the generator; [] where there is none."""
        return []

    def publish(self, folder: Path, items: Sequence[Item]) -> Path | None:
        """Write items to `folder` in their published schema; the (first) file, None for a task that has no schema."""
        return None

    def validate(self, level: int, split: str = "train") -> None:
        """Draw an item, render it and verify its image, as everything later does.

        Raises:
            DataError: there is no such level or split; `sample` gives no items within PATIENCE seconds; `render` gives
                no image uint8 [H, W, 3], `verify` no Verdict, or none that passes the image that `render` gives.
        """
        import numpy as np

        self.check(level, split)
        items = self._first(level, split)
        drawn = isinstance(items, tuple) and items and all(isinstance(item, Item) for item in items)
        self._expect(drawn, "sample", items or repr(items), "a tuple of one Item or more")
        item = items[0]
        if not self.has_image(item):
            return
        image = self.render(item, 0)
        is_image = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] == (3,)
        self._expect(is_image, "render", image, "an image, uint8 [H, W, 3]")
        verdict = self.verify(item, image)
        for returned in (verdict, self.verify(item, np.zeros_like(image))):
            self._expect(isinstance(returned, Verdict), "verify", returned, "a Verdict")
        if not verdict.passed:
            raise DataError(
                f"the task {self.name}: verify rejects the image that render draws of {item.id} ({verdict.reason}): "
                "both must be right before anything is trained or scored by them"
            )

    def _first(self, level: int, split: str) -> tuple[Item, ...]:
        """A draw, by a thread: a sampler that never finds an item is told by its line."""
        draw: Future[tuple[Item, ...]] = Future()

        def work() -> None:
            try:
                draw.set_result(self.sample(0, level, split))
            except BaseException as error:
                draw.set_exception(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            return draw.result(PATIENCE)
        except TimeoutError:
            frames = [] if thread.ident is None else traceback.walk_stack(sys._current_frames().get(thread.ident))
            raise DataError(
                f"the task {self.name}: sample(seed=0, level={level}, split={split!r}) gave no item in {PATIENCE:g} s"
                f"{place_in(reversed(list(frames)))}"
            ) from None

    def _expect(self, right: object, method: str, returned: object, expected: str) -> None:
        if not right:
            code = getattr(type(self), method).__code__
            shown = returned if isinstance(returned, str) else type(returned).__name__
            where = line_at(code.co_filename, code.co_firstlineno)
            raise DataError(f"the task {self.name}: {method} returned {shown:.60}, not {expected}{where}")

    def check(self, level: int, split: str) -> None:
        """DataError unless `level` and `split` are the task's."""
        if level not in self.levels:
            raise DataError(f"{self.name} has no level {level}: choose one of {', '.join(map(str, self.levels))}")
        if split not in self.splits:
            raise DataError(f"{self.name} has no split {split}: {nearest_or_all(split, self.splits)}")


def collect(draw: Callable[[int], tuple[Item, ...]], n: int, key: Callable[[Item], str]) -> list[tuple[Item, ...]]:
    """draw(0), draw(1), ... without repetitions of `key`, until there are `n`; fewer if new ones stop coming."""
    draws: dict[str, tuple[Item, ...]] = {}
    index = misses = 0
    while len(draws) < n and misses <= 500 + len(draws):
        items = draw(index)
        form = key(items[0])
        misses = misses + 1 if form in draws else 0
        draws.setdefault(form, items)
        index += 1
    return list(draws.values())
