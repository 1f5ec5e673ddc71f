"""The UReason task: puzzles of all subcategories in turn, as items with ids, splits and both prompts.

`Item.prompt` asks for reasoning and a refined prompt (settings 2 and 3). `facts["direct"]` is the plain instruction
(setting 1), `Item.answer` the published criterion. Levels 1 to 3 are how many changes, links or lines of code lie
between the prompt and the image.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError
from uni_train.core.seeds import derive_seed, digest, rng
from uni_train.data_gen.maths import expressions
from uni_train.data_gen.objects import NANO, World
from uni_train.data_gen.registry import scoring_beside
from uni_train.data_gen.registry import task as register
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.task import Item, Question, Task, Verdict
from uni_train.data_gen.ureason import nano, words
from uni_train.data_gen.ureason.files import write_folder
from uni_train.data_gen.ureason.outcomes import Sprites, outcome_from
from uni_train.data_gen.ureason.puzzle import Puzzle
from uni_train.data_gen.ureason.taxonomy import TASKS, subcategories

if TYPE_CHECKING:
    import numpy as np

    from uni_train.data_gen.findings import AuditRow

# How a prompt asks for reasoning and for the refined prompt, in the place where the published ones do, and so that the
# published extraction finds it.
REASON = (
    "Think first: work out, one step after the other, what is left to be seen in the end. Then describe that final "
    'state and nothing else, in the form "refined prompt: {{your description}}".\n'
    "Draw {scene} from your description alone."
)
DIRECT = "Draw the final state: {scene}."
# Draws from a cell that may fall into other splits (nine in ten do), and items that may be known already, before the
# cell counts as used up.
_DRAWS = 1000
_REPEATS = 50


@register("ureason")
@dataclass(frozen=True)
class UReason(Task):
    """Draw what code, arithmetic, moves, attributes or texts end in.

    The world "everyday" has all thirty subcategories, "nano" seven. tasks: which of the five.
    """

    name = "ureason"
    title = "UReason"
    levels = (1, 2, 3)
    default_levels = (1, 2, 3)
    level_range = True
    sets, variants, chance = scoring_beside(__file__)
    published = tuple(f"{prefix}{task}.jsonl" for prefix in ("", "direct_") for task in TASKS)

    world: World = NANO
    tasks: tuple[str, ...] = ()

    @classmethod
    def in_world(cls, world: World) -> Task:
        return cls(world)

    def __post_init__(self) -> None:
        known = subcategories(self.world.name)
        unknown = [task for task in self.tasks if task not in known]
        if unknown:
            raise DataError(f"the {self.world.name} world has no {unknown[0]} in UReason: it has {', '.join(known)}")

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """(task, subcategory), in the order in which `generate` goes through them."""
        known = subcategories(self.world.name)
        return tuple((task, sub) for task in (self.tasks or tuple(known)) for sub in known[task])

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One item of a subcategory that the seed decides."""
        self.check(level, split)
        cells = list(self.cells)
        rng("ureason", "cell", seed).shuffle(cells)
        for task, subcategory in cells:
            item = self._draw(task, subcategory, level, split, seed)
            if item is not None:
                return (item,)
        raise DataError(f"no UReason item of level {level} was found for the {split} split")

    def generate(self, n: int, level: int, split: str, seed: int) -> list[Item]:
        """`n` items with different prompts, the subcategories in turn.

        A subcategory drops out of the turn when it has no more in this split: nano has few sums of one operation.
        DataError when all have.
        """
        self.check(level, split)
        items: dict[str, Item] = {}
        cells = list(self.cells)
        index = 0
        while len(items) < n and cells:
            for task, subcategory in tuple(cells):
                for attempt in range(_REPEATS):
                    item = self._draw(task, subcategory, level, split, derive_seed(seed, index, attempt))
                    if item is None or item.prompt not in items:
                        break
                if item is None or item.prompt in items:
                    cells.remove((task, subcategory))
                elif len(items) < n:
                    items[item.prompt] = item
                index += 1
        self.expect(n, len(items), level, split, "prompts")
        return list(items.values())

    def render(self, item: Item, seed: int) -> np.ndarray:
        """The target image of an item of the nano world, uint8 [24, 24, 3]."""
        return _sprites(item).render(seed)

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Object and count, for an item of the nano world; uint8 [24, 24, 3]."""
        return _sprites(item).verify(image)

    def find(self, item: Item, text: str) -> bool | None:
        """Whether a text says what the image must show; None where nobody can tell."""
        return outcome_from(item.facts["outcome"]).find(text)

    def question(self, item: Item) -> Question | None:
        """Nano's items with one kind of object are counted as maths."""
        groups: list[Any] = item.facts["outcome"].get("groups", []) if self.has_image(item) else []
        if len(groups) != 1:
            return None
        return Question("maths", item.prompt, int(groups[0][1]), item.id, str(item.facts["canonical"]))

    def audit_file(self, path: Path) -> list[AuditRow]:
        """The answers of a file that `publish` has written, worked out again."""
        from uni_train.data_gen.ureason.audit import findings

        return findings(path)

    def publish(self, folder: Path, items: Sequence[Item]) -> Path:
        """`<task>.jsonl` and `direct_<task>.jsonl` of each of its tasks; the first of them."""
        return write_folder(folder, list(items))[0]

    def _draw(self, task: str, subcategory: str, level: int, split: str, seed: int) -> Item | None:
        """An item of the cell, or None where the split has none of it."""
        random_ = rng("ureason", self.world.name, task, subcategory, level, split, seed)
        for _ in range(_DRAWS):
            puzzle = _puzzle(self.world, task, subcategory, level, random_)
            if puzzle is not None and _split_of(self.world, task, subcategory, puzzle) == split:
                return _item(self.world, task, subcategory, level, split, puzzle)
        return None


def _puzzle(world: World, task: str, subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    if world.name == "nano":
        return nano.draw(task, subcategory, level, random_)
    draw: Callable[[str, int, random.Random], Puzzle | None] = import_module(f"uni_train.data_gen.ureason.{task}").draw
    return draw(subcategory, level, random_)


def _split_of(world: World, task: str, subcategory: str, puzzle: Puzzle) -> str:
    # nano was pretrained on the train split of maths, so its arithmetic is split in the same way.
    single = world.name == "nano" and task == "arithmetic" and subcategory != "Multi-Type"
    return expressions.split(puzzle.split_key) if single else split_of(f"ureason-{task}", puzzle.split_key)


def _item(world: World, task: str, subcategory: str, level: int, split: str, puzzle: Puzzle) -> Item:
    if world.name == "nano":
        prompt = direct = puzzle.body
        thought = f"{' . '.join(puzzle.steps)} . So draw {puzzle.outcome} ."
    else:
        head = f"Task: {puzzle.title}\n{puzzle.body}\nInstructions:\n"
        prompt = head + REASON.format(scene=puzzle.scene)
        direct = head + DIRECT.format(scene=puzzle.scene)
        thought = (
            f"{' '.join(puzzle.steps)}\nrefined prompt: {words.sentence(puzzle.scene)} {puzzle.outcome.description()}"
        )
    facts: dict[str, Any] = {
        "world": world.name,
        "task": task,
        "subcategory": subcategory,
        "level": level,
        "direct": direct,
        "outcome": puzzle.outcome.to_dict(),
        "canonical": puzzle.split_key,
        **puzzle.facts,
    }
    name = subcategory.casefold().replace("#", "sharp").replace("+", "p")
    return Item(
        id=f"ureason-{task}-{name}-{level}/{split}/{digest(prompt)}",
        task="ureason",
        level=level,
        split=split,
        prompt=prompt,
        answer=puzzle.outcome.criterion(),
        facts=facts,
        thought=thought,
    )


def _sprites(item: Item) -> Sprites:
    outcome = outcome_from(item.facts["outcome"])
    if not isinstance(outcome, Sprites):
        raise DataError(f"{item.id} is from the {item.facts['world']} world: only the nano world has sprites to draw")
    return outcome
