"""Puzzles that are drawn: an input image, a target image, and a verifier that reads whatever was drawn in between.

A state is what an image shows, as whole numbers: the digits of a sudoku, the discs on pegs. A family draws a state and
reads it back. The verifier judges the state that it reads. It then draws that state itself and compares: what it would
not have drawn (text, erased lines, a second answer) is a changed background. So a family needs no checks of its own for
what does not belong into its images.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from random import Random
from typing import Any, ClassVar

import numpy as np

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.core.seeds import derive_seed, digest, rng
from uni_train.data_gen import canvas
from uni_train.data_gen.canvas import INK, Canvas, Colour, Limits
from uni_train.data_gen.objects import World
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.task import Check, Item, Question, Strategy, Task, Verdict

State = tuple[int, ...]
Facts = Mapping[str, Any]

MARK, END = "<image_start>", "That is all"
"""What a text of a step by step solution ends with that an image follows, and the last text."""
PLAIN, NANO = "plain", "nano"
STYLES = (PLAIN, NANO)
UNITS = 256  # of a plain picture's sides
SIDES = (128, 2048)  # pixels of a plain picture
CHECKS = ("background_consistency", "rule_obey", "reasoning_success")  # ViGoR, Table 21
# Small windows see strokes, large ones pale areas.
LIMITS = {
    PLAIN: Limits({5: 70, 21: 20}, mean=3, reach=7, luma=24, chroma=28, window=9, most=9),
    NANO: Limits({1: 110, 4: 24}, mean=1, reach=1, luma=35, chroma=40, window=7, most=5),
}
FILTERED = LIMITS | {NANO: LIMITS[NANO]._replace(means={1: 80, 4: 24}, most=2)}  # of what a filter makes of a target
LEAST = 0.4  # of a picture's side: a smaller image cannot be read
CLEAN = 0.32  # of these limits: an image so near lies where it should; others that fail are laid over the puzzle first
ROUGH = 4.0  # of these limits: beyond it no filter explains an image
FOREIGN = 0.5  # what a score is worth where the background has changed
_PASSED = Verdict(tuple(Check(name, "pass") for name in CHECKS), 1.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """A puzzle before it is drawn.

    given, solution: states of the input and of the target image. canonical: what must not leak into another split.
    thought: exact, it ends in the answer. facts: further ones that drawing or rules need, JSON-able.
    """

    prompt: str
    given: Sequence[int]
    solution: Sequence[int]
    canonical: str
    thought: str
    answer: str
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Puzzle(Task):
    """A family of puzzles; it needs `name`, `levels`, `problem`, `size`, `draw`, `read`, and mostly `breaches`.

    Each level is a set: "sudoku1". So a family that has `sets` needs no `levels`.

    style: "plain", or "nano" for images of 20 to 48 pixels a side. side: pixels of plain images, None for 256.
    in_order: only the states of `steps`, one after the other, lead to the solution; else numbers are set in any order.
    nano_levels: those that fit on such small images; empty: all. lazy_ways: what `lazy` has, by name.
    """

    level_range = True
    edits = True
    readable = True
    in_order: ClassVar[bool] = False
    nano_levels: ClassVar[tuple[int, ...]] = ()
    lazy_ways: ClassVar[tuple[str, ...]] = ("copy of the input", "right numbers in random order")

    style: str = PLAIN
    side: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "levels" in vars(cls):
            cls.sets = {level: f"{cls.name}{level}" for level in cls.levels}
        elif "sets" in vars(cls):
            cls.levels = tuple(cls.sets)
        cls.strategies = tuple(Strategy(name, partial(_lazy_answer, name)) for name in cls.lazy_ways)

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise DataError(f"{self.name} has no style {self.style}: {nearest_or_all(self.style, STYLES)}")
        if self.side is not None and self.style == NANO:
            raise DataError(f"{self.name} in the style nano decides the side of its images: leave the side out")
        if self.side is not None and not SIDES[0] <= self.side <= SIDES[1]:
            raise DataError(f"{self.name} is drawn on {SIDES[0]} to {SIDES[1]} pixels a side, not on {self.side}")

    @classmethod
    def in_world(cls, world: World) -> Task:
        """Of the nano world in the style "nano", else "plain"."""
        return cls(NANO if world.terse else PLAIN)

    @property
    def possible_levels(self) -> tuple[int, ...]:
        """Those that the style can draw."""
        return (self.nano_levels if self.style == NANO else ()) or self.levels

    def check(self, level: int, split: str) -> None:
        super().check(level, split)
        if level not in self.possible_levels:
            possible = ", ".join(map(str, self.possible_levels))
            raise DataError(f"{self.name} of level {level} is too large for the style nano: choose one of {possible}")

    # ------------------------------------------------------------------------------------------------ of each family

    @abstractmethod
    def problem(self, random: Random, level: int) -> Problem:
        """A puzzle of a level, whatever its split."""

    @abstractmethod
    def size(self, facts: Facts) -> tuple[int, int]:
        """Height and width in units: of nano pixels, else (UNITS, UNITS)."""

    @abstractmethod
    def draw(self, canvas: Canvas, facts: Facts, state: State) -> None:
        """Draw a state."""

    @abstractmethod
    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        """The state that is most like an image, uint8 [height, width, 3] in units."""

    def breaches(self, facts: Facts, state: State) -> list[str]:
        """How a state breaks the rules, whether it solves the puzzle or not."""
        return []

    def steps(self, facts: Facts) -> Iterator[Sequence[int]]:
        """States from the given one to the solution, both included: here one number is changed at a time."""
        state = list(facts["given"])
        yield tuple(state)
        for place, value in enumerate(facts["solution"]):
            if state[place] != value:
                state[place] = value
                yield tuple(state)

    def moves(self, facts: Facts) -> list[str]:
        """What is said before each step, which draws the next state."""
        return [f"Step {number}" for number, _ in enumerate(self.steps(facts)) if number]

    def move_phrases(self) -> tuple[str, ...]:
        """All that `moves` may say in the style nano."""
        return tuple(f"Step {number}" for number in range(1, 65))

    def leads_on(self, item: Item, frames: Sequence[np.ndarray]) -> list[bool]:
        """Whether each image brings the solution nearer, or keeps it: it shows a later state of `steps` than those
        before, or where their order is free, has a higher score."""
        if not self.in_order:
            scores = [self.verify(item, frame).score or 0.0 for frame in frames]
            return [now > max(scores[:n], default=0.0) or now == 1 for n, now in enumerate(scores)]
        aims = [replace(item, facts={**item.facts, "solution": list(state)}) for state in self.steps(item.facts)]
        reached, leads = 0, []
        for frame in frames:
            shown = max((n for n in range(1, len(aims)) if self.verify(aims[n], frame).passed), default=0)
            leads.append(shown > reached or shown == len(aims) - 1)
            reached = max(reached, shown)
        return leads

    def kept(self, facts: Facts, state: State) -> bool:
        """Whether what was given is still there: here each number that is not 0."""
        return all(now == given for now, given in zip(state, facts["given"], strict=True) if given)

    def solves(self, facts: Facts, state: State) -> bool:
        return state == tuple(facts["solution"])

    def progress(self, facts: Facts, state: State) -> float:
        """How much of the way a state has come, in [0, 1]: numbers set right less those set wrong."""
        given, solution = facts["given"], facts["solution"]
        moved = [(now, right) for now, old, right in zip(state, given, solution, strict=True) if now != old]
        right = sum(now == wanted for now, wanted in moved)
        needed = sum(old != wanted for old, wanted in zip(given, solution, strict=True))
        return max(0, 2 * right - len(moved)) / needed

    def away(self, facts: Facts, state: State, seen: np.ndarray) -> tuple[float, int, int]:
        """How far an image is from what is drawn of its state, beyond 1 is too far; and the row and column of that."""
        return canvas.difference(seen, self.picture(facts, state), LIMITS[facts["style"]])

    def landmarks(self, facts: Facts, state: State) -> Sequence[int]:
        """The state whose picture an image is laid over, if it is shifted: here what was read in it."""
        return state

    def lazy(self, facts: Facts, random: Random) -> dict[str, Sequence[int]]:
        """States that are drawn without solving the puzzle: what a score has to beat. Not each way has one."""
        given, solution = facts["given"], facts["solution"]
        open_ = [place for place in range(len(given)) if given[place] != solution[place]]
        values = [solution[place] for place in open_]
        random.shuffle(values)
        guess = list(given)
        for place, value in zip(open_, values, strict=True):
            guess[place] = value
        return {"copy of the input": given, "right numbers in random order": guess}

    # ------------------------------------------------------------------------------------------------- for all alike

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One puzzle. DataError for a level that the task or its style has not."""
        self.check(level, split)
        random = rng(self.name, level, split, seed)
        while True:  # each draw falls into the split with a chance of at least one in ten
            problem = self.problem(random, level)
            if split_of(self.name, problem.canonical) == split:
                break
        facts = {
            "style": self.style, "given": list(problem.given), "solution": list(problem.solution), **problem.facts,
            "canonical": problem.canonical,
        }  # fmt: skip
        if self.style == PLAIN:
            facts["side"] = self.side or UNITS
        name = digest(problem.prompt, *map(str, facts.values()))
        return (
            Item(f"{self.name}{level}/{split}/{name}", self.name, level, split, problem.prompt, problem.answer, facts,
                 problem.thought),
        )  # fmt: skip

    def has_image(self, item: Item) -> bool:
        return True

    def prompts(self) -> tuple[str, ...]:
        """The prompts of all levels of the style, or what they consist of between signs of punctuation. DataError where
        puzzles of one level have different prompts."""
        drawn = [{self.sample(seed, level)[0].prompt for seed in range(3)} for level in self.possible_levels]
        if any(len(prompts) > 1 for prompts in drawn):
            raise DataError(f"the prompts of {self.name} differ from puzzle to puzzle")
        return tuple(dict.fromkeys(prompt for prompts in drawn for prompt in prompts))

    def input_image(self, item: Item) -> np.ndarray:
        """The puzzle as it is given, uint8 [H, W, 3]."""
        return self.picture(item.facts, item.facts["given"], _scale(item.facts))

    def render(self, item: Item, seed: int = 0) -> np.ndarray:
        """The solution, uint8 [H, W, 3]. It belongs to the input image, so `seed` changes nothing."""
        return self.picture(item.facts, item.facts["solution"], _scale(item.facts))

    def question(self, item: Item) -> Question:
        """A strategy sees what the lazy ways would draw; states are compared by their digests."""
        states = self.lazy(item.facts, rng("lazy", item.id))
        seen = json.dumps({name: _number(state) for name, state in states.items()})
        return Question(self.name, seen, _number(item.facts["solution"]), item.id, item.facts["canonical"])

    def frames(self, item: Item) -> list[np.ndarray]:
        return [self.picture(item.facts, state, _scale(item.facts)) for state in self.steps(item.facts)]

    def picture(self, facts: Facts, state: Sequence[int], scale: float = 1.0) -> np.ndarray:
        """A state as it is drawn, uint8 [height * scale, width * scale, 3]."""
        drawn = Canvas(*self.size(facts), scale, crisp=facts["style"] == NANO)
        self.draw(drawn, facts, tuple(state))
        return drawn.pixels

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Three checks of an image, uint8 [H, W, 3] of any size, and a score in [0, 1].

        background_consistency: what is given is there, and nothing that does not belong. rule_obey: no rule is broken.
        reasoning_success: it is the solution. The score is 1 for a pass, 0 for a copy of the input.
        """
        facts = item.facts
        seen = canvas.fitted(image, self.size(facts), LEAST)
        if seen is None:
            reason = f"an image of {image.shape[1]} x {image.shape[0]} pixels cannot be read"
            return Verdict(tuple(Check(name, "unreadable", reason) for name in CHECKS), 0.0)
        state = self._read(facts, seen)
        verdict, worst = self._judge(facts, state, seen)
        if verdict.passed or worst < CLEAN:
            return verdict
        if facts["style"] == PLAIN:
            seen = canvas.registered(seen, self.picture(facts, self.landmarks(facts, state)))
            again, worst = self._judge(facts, self._read(facts, seen), seen)
            if again.checks[0].status == "pass":
                return again
        return _PASSED if 1 < worst < ROUGH and self._is_filtered_target(facts, seen) else verdict

    def _is_filtered_target(self, facts: Facts, seen: np.ndarray) -> bool:
        """Whether a mild filter of the target is seen. JPEG blends colours of thin lines, so that they are misread."""
        drawn = self.picture(facts, facts["solution"])
        return canvas.difference(seen, canvas.filtered(drawn, seen), FILTERED[facts["style"]])[0] <= 1

    def _read(self, facts: Facts, seen: np.ndarray) -> State:
        return tuple(int(number) for number in self.read(facts, seen))

    def _judge(self, facts: Facts, state: State, seen: np.ndarray) -> tuple[Verdict, float]:
        """A verdict, and the largest difference from what is drawn of the state.

        seen: uint8 [height, width, 3] in units, in which `state` was read.
        """
        worst, y, x = self.away(facts, state, seen)
        changed = [] if self.kept(facts, state) else ["what was given has changed"]
        if worst > 1:
            changed.append(f"something else stands {y / len(seen):.0%} down and {x / seen.shape[1]:.0%} across")
        reasons = (changed, self.breaches(facts, state), [] if self.solves(facts, state) else ["it is not solved"])
        checks = tuple(
            Check(name, "fail" if why else "pass", ", ".join(why[:3]))
            for name, why in zip(CHECKS, reasons, strict=True)
        )
        if not any(reasons):
            return _PASSED, worst
        progress = 0.0 if state == tuple(facts["given"]) else self.progress(facts, state)
        return Verdict(checks, round(min(progress, 0.99) * (FOREIGN if changed else 1), 4)), worst


def _number(state: Sequence[int]) -> int:
    return derive_seed("state", *map(int, state))


def _lazy_answer(name: str, text: str) -> int | None:
    answer: int | None = json.loads(text).get(name)
    return answer


def side_of(cells: Sequence[object]) -> int:
    """Cells a side of a square."""
    return math.isqrt(len(cells))


def least_view(cells: Sequence[int]) -> list[tuple[int, ...]]:
    """The rows of a square in that of its eight views that comes first: equal for squares turned or mirrored."""
    n = side_of(cells)
    rows = [tuple(cells[n * r : n * r + n]) for r in range(n)]
    views = []
    for _ in range(4):
        rows = [tuple(row) for row in zip(*rows[::-1], strict=True)]  # turned
        views += [rows, rows[::-1]]
    return min(views)


def _scale(facts: Facts) -> float:
    """Pixels a unit."""
    return float(facts.get("side", UNITS) / UNITS)


# --------------------------------------------------------------------------------------------------- cells of a lattice


@dataclass(frozen=True)
class Lattice:
    """Rows x columns of square cells, `line` units between them and around; top, left: where the outer line begins."""

    rows: int
    columns: int
    cell: int
    line: int = 0
    top: int = 0
    left: int = 0

    @classmethod
    def centred(cls, rows: int, columns: int, line: int = 2, margin: int = 12) -> Lattice:
        """As large as fits into the middle of a plain picture."""
        cell = min((UNITS - 2 * margin - line * (n + 1)) // n for n in (rows, columns))
        height, width = (n * (cell + line) + line for n in (rows, columns))
        return cls(rows, columns, cell, line, (UNITS - height) // 2, (UNITS - width) // 2)

    @cached_property
    def boxes(self) -> np.ndarray:
        """The cells in reading order, int [rows * columns, 4]: top, left, bottom, right."""
        pitch = self.cell + self.line
        y, x = np.divmod(np.arange(self.rows * self.columns), self.columns)
        top, left = self.top + self.line + y * pitch, self.left + self.line + x * pitch
        return np.stack([top, left, top + self.cell, left + self.cell], axis=1)

    @property
    def edges(self) -> tuple[int, int, int, int]:
        """Top, left, bottom and right of the outer line."""
        pitch = self.cell + self.line
        return (self.top, self.left, self.top + self.rows * pitch + self.line,
                self.left + self.columns * pitch + self.line)  # fmt: skip

    def centres(self) -> list[tuple[float, float]]:
        """Middles of the cells, in reading order."""
        return [((top + bottom) / 2, (left + right) / 2) for top, left, bottom, right in self.boxes.tolist()]

    def draw(self, canvas: Canvas, colour: Colour = INK, bold: tuple[int, int] | None = None) -> None:
        """All lines; every bold[0]-th between rows and bold[1]-th between columns is two units wider."""
        top, left, bottom, right = self.edges
        pitch = self.cell + self.line
        for r in range(self.rows + 1):
            more = 1 if bold is not None and r % bold[0] == 0 else 0
            canvas.rect((top + r * pitch - more, left, top + r * pitch + self.line + more, right), colour)
        for c in range(self.columns + 1):
            more = 1 if bold is not None and c % bold[1] == 0 else 0
            canvas.rect((top, left + c * pitch - more, bottom, left + c * pitch + self.line + more), colour)


class CellPuzzle(Puzzle):
    """A puzzle whose state is one symbol, 0 to `symbols` - 1, in each cell; cells have one size."""

    _templates: ClassVar[dict[tuple[object, ...], np.ndarray]] = {}

    @abstractmethod
    def cells(self, facts: Facts) -> np.ndarray:
        """Where the cells are, int [n, 4] of top, left, bottom, right in units."""

    @abstractmethod
    def symbols(self, facts: Facts) -> int:
        """How many symbols there are; the empty cell is 0."""

    def read(self, facts: Facts, image: np.ndarray) -> Sequence[int]:
        cells, symbols = self.cells(facts), self.symbols(facts)
        window, every = (1, 1) if facts["style"] == NANO else (3, 2)
        key = (self.name, facts["style"], cells.tobytes(), symbols)
        if key not in self._templates:
            drawn = [self.picture(facts, [symbol] * len(cells)) for symbol in range(symbols)]
            each = [canvas.patches(canvas.blurred(picture, window), cells, every) for picture in drawn]
            self._templates[key] = np.stack(each, axis=1)
        seen = canvas.patches(canvas.blurred(image, window), cells, every)
        return canvas.nearest(seen, self._templates[key]).tolist()


class LatticePuzzle(CellPuzzle):
    """A puzzle whose cells are those of a lattice."""

    @abstractmethod
    def lattice(self, facts: Facts) -> Lattice: ...

    def cells(self, facts: Facts) -> np.ndarray:
        return self.lattice(facts).boxes

    def size(self, facts: Facts) -> tuple[int, int]:
        return self.lattice(facts).edges[2:] if facts["style"] == NANO else (UNITS, UNITS)
