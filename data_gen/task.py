"""The nouns of data: a Task draws Items, renders their target pictures and gives a Verdict on any picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from data_gen.errors import DataError, nearest
from data_gen.objects import NANO, World, get_world

if TYPE_CHECKING:
    import numpy as np

Status = Literal["pass", "fail", "unreadable"]
SPLITS = ("train", "validation", "test", "seen")  # seen: maths alone, see data_gen.maths
TASKS = ("maths", "mapping", "maze", "ureason")


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a picture ("object", "count") and its answer; `reason` says why it did not pass."""

    name: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one picture. Unreadable (nobody can tell) is neither a pass nor a fail and is counted apart.

    score: how nearly right the picture is, in [0, 1], from verifiers that can say so (mazes); for shaping rewards.
    """

    checks: tuple[Check, ...]
    score: float | None = None

    @property
    def status(self) -> Status:
        """unreadable if any check is, else fail if any fails, else pass. No checks at all is unreadable."""
        found = {check.status for check in self.checks}
        if "unreadable" in found or not found:
            return "unreadable"
        return "fail" if "fail" in found else "pass"

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def reason(self) -> str:
        """The reasons of the checks that did not pass, joined; empty for a pass."""
        return "; ".join(check.reason or check.name for check in self.checks if check.status != "pass")

    def to_dict(self) -> dict[str, Any]:
        scored = {} if self.score is None else {"score": self.score}
        return {"status": self.status, **scored, "checks": [asdict(check) for check in self.checks]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        checks = tuple(Check(c["name"], c["status"], c.get("reason", "")) for c in data["checks"])
        return cls(checks, data.get("score"))


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt with everything that is known about it.

    id: stable and made from the content, "maths2/train/0f3a9c..." or ".../A" for a question of a pair.
    prompt: what the model is asked; answer: the published form ("4 chairs", "Apples"), for a maze its steps ("RRD").
    facts: JSON-able, always with "canonical", the text whose hash decides the split. Maths and mapping have "world",
        "object" (singular), "plural" and "count" (1 to 6); maths adds "expression", mapping "rules", "chain" and
        "symbol". Mazes have "maze" (the grid as lines of text), "algorithm" and "picture" (its style in pixels).
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


class Task(Protocol):
    """What every task offers. All methods are pure: the same arguments give the same result in every process."""

    @property
    def name(self) -> str: ...

    @property
    def levels(self) -> tuple[int, ...]: ...

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One draw: a single item, or the two of a pair."""
        ...

    def generate(self, n: int, level: int, split: str, seed: int) -> list[Item]:
        """`n` distinct draws (2n items for pairs); DataError when the world has too few of them in this split."""
        ...

    def input_image(self, item: Item) -> np.ndarray | None:
        """The picture that belongs to the prompt, uint8 [H, W, 3]; None where the prompt is all that is given."""
        ...

    def render(self, item: Item, seed: int) -> np.ndarray:
        """The target picture, uint8 [H, W, 3]; DataError for a world without sprites."""
        ...

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Checks of a picture, uint8 [H, W, 3]: object and count, or the four of a maze."""
        ...


def check_request(task: Task, level: int, split: str) -> None:
    """DataError unless `level` is one of the task's and `split` one of SPLITS."""
    if level not in task.levels:
        raise DataError(f"{task.name} has no level {level}: choose one of {', '.join(map(str, task.levels))}")
    if split not in SPLITS:
        raise DataError(f'there is no split "{split}": {nearest(split, SPLITS)}')
    if split == "seen" and task.name != "maths":
        raise DataError(f"{task.name} has no split seen: only maths tells new objects from new expressions")


def collect(
    draw: Callable[[int], tuple[Item, ...]], n: int, key: Callable[[Item], str] = lambda item: item.id
) -> list[tuple[Item, ...]]:
    """draw(0), draw(1), ... without repetitions of `key`, until there are `n`; fewer if new ones stop coming."""
    found: dict[str, tuple[Item, ...]] = {}
    index = misses = 0
    while len(found) < n and misses <= 500 + len(found):
        items = draw(index)
        known = key(items[0])
        misses = misses + 1 if known in found else 0
        found.setdefault(known, items)
        index += 1
    return list(found.values())


def verify_sprites(image: np.ndarray, singular: str, count: int) -> Verdict:
    """The nano verifier: `image` must show exactly `count` of the sprite `singular` and nothing else."""
    from data_gen import sprites

    reading = sprites.read(image)
    if not reading.readable:
        return Verdict((Check("readable", "unreadable", reading.reason),))
    right = reading.name == singular
    exact = reading.count == count
    return Verdict((
        Check("object", "pass" if right else "fail", "" if right else f"{reading.name}, not {singular}"),
        Check("count", "pass" if exact else "fail", "" if exact else f"{reading.count}, not {count}"),
    ))  # fmt: skip


def render_sprites(item: Item, seed: int) -> np.ndarray:
    """The nano renderer: `count` sprites of the item's object."""
    if item.facts.get("world") != "nano":
        world = item.facts.get("world")
        raise DataError(f"{item.id} is from the {world} world: only the nano world has sprites to draw")
    from data_gen import sprites

    return sprites.render(item.facts["object"], item.facts["count"], seed)


def has_picture(item: Item) -> bool:
    """Whether `render` can draw the item's target: mazes always, sprites in the nano world."""
    return item.task == "maze" or item.facts.get("world") == "nano"


def task_of(item: Item) -> Task:
    """The task that the item is from: renders and verifies it. DataError for an item of an unknown task."""
    return get_task(item.task, item.facts.get("world", NANO))


def get_task(name: str, world: World | str = NANO) -> Task:
    """The task called `name` (one of TASKS) in `world` (a World or its name); errors name the nearest.

    Mazes of the nano world have the style "nano", others "varied"; construct a `Maze` for another one.
    """
    from data_gen.mapping.task import Mapping as MappingTask
    from data_gen.maths.task import Maths
    from data_gen.maze.task import Maze
    from data_gen.ureason.task import UReason

    where = get_world(world) if isinstance(world, str) else world
    if name == "maths":
        return Maths(where)
    if name == "mapping":
        return MappingTask(where)
    if name == "maze":
        return Maze("nano") if where.name == "nano" else Maze()
    if name == "ureason":
        return UReason(where)
    raise DataError(f'there is no task "{name}": {nearest(name, TASKS)}')
