"""The registry of tasks, and the sets in which their items are scored."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from uni_train.core.errors import DataError
from uni_train.core.reading_limits import read_yaml
from uni_train.core.registry import Registry
from uni_train.data_gen.objects import NANO, World, get_world
from uni_train.data_gen.task import Item, Task, Variant

TASKS = Registry[type[Task]](
    "task",
    "uni_train.data_gen.*.task",
    required=("levels", "sample", "render", "verify"),
    named=("name", "title", "short"),
)
task = TASKS.register


def get_task(name: str, world: World | str = NANO) -> Task:
    """The task called `name` in `world` (a World or its name); errors name the nearest."""
    return TASKS.get(name).in_world(get_world(world) if isinstance(world, str) else world)


def task_of(item: Item) -> Task:
    """The task that the item is from: renders and verifies it. DataError for an item of an unknown task."""
    return get_task(item.task, item.facts.get("world", NANO))


class Source(NamedTuple):
    """What the items of a set are drawn from.

    split: None for the one that is evaluated. options: of the task, replacing its own.
    """

    task: str
    level: int
    variant: str = ""
    split: str | None = None
    options: Mapping[str, Any] = {}


class Scoring(NamedTuple):
    """What of a task is scored: `sets`, `variants` and `chance` of `Task`."""

    sets: Mapping[int, str]
    variants: Mapping[str, Variant]
    chance: float


@cache
def scoring_beside(module: str) -> Scoring:
    """The `Scoring` of a task of ours, which stands in sets.yaml beside its module."""
    data = read_yaml(Path(module).with_name("sets.yaml"))
    variants = {name: Variant(**values) for name, values in data.get("variants", {}).items()}
    return Scoring(data["sets"], variants, float(Fraction(str(data.get("chance", 0)))))


@cache
def _stored(name: str) -> Scoring | None:
    module = Path(__file__).parent / name / "task.py"
    return scoring_beside(str(module)) if module.with_name("sets.yaml").is_file() else None


def scoring(name: str) -> Scoring:
    """What of a task is scored. A task of ours is not imported for it."""
    if name in TASKS._homes and (stored := _stored(name)) is not None:
        return stored
    task = TASKS.get(name)
    return Scoring(task.sets, task.variants, task.chance)


def sources() -> dict[str, Source]:
    """Every set in which items of a task are scored, those of variants last: "math1" -> Source("maths", 1)."""
    tasks = {name: scoring(name) for name in TASKS.names()}
    plain = {scored_set: Source(name, level) for name, task in tasks.items() for level, scored_set in task.sets.items()}
    return plain | {
        f"{scored_set}_{variant_name}": Source(name, level, variant_name, variant.split, variant.options)
        for name, task in tasks.items()
        for variant_name, variant in task.variants.items()
        for level, scored_set in task.sets.items()
    }


def set_name(task: str, level: int, variant: str = "") -> str:
    """("maths", 2) -> "math2"; ("maths", 2, "seen") -> "math2_seen". DataError where the task has no such set."""
    sets = scoring(task).sets
    if level not in sets:
        levels = ", ".join(map(str, sets)) or "none"
        raise DataError(f"{task} has no set of level {level}: it has sets of levels {levels}")
    return sets[level] + (f"_{variant}" if variant else "")
