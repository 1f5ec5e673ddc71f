"""The prompts of a file as items of a task, to train on other people's questions or on a folder of `data make`.

Rows in UniSandbox's published schema (maths, mapping) get the answer that `data audit` recomputes. A row without
exactly one answer that a program proves and an image can show is left out, with the reason. So is an item of an
items.jsonl whose task, level or world is not that which is trained, or whose answer the audit finds wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uni_train.core.errors import DataError
from uni_train.core.seeds import digest
from uni_train.data_gen.findings import AuditRow
from uni_train.data_gen.jsonl import MappingRow, MathsRow, read_any
from uni_train.data_gen.mapping import audit as mapping
from uni_train.data_gen.mapping.reading import follow, read_mapping
from uni_train.data_gen.maths import audit as maths
from uni_train.data_gen.maths.exact import read_count
from uni_train.data_gen.objects import Noun, plain, singular_of
from uni_train.data_gen.overlap import problem_of
from uni_train.data_gen.phrasing import conclude_meaning, state_rule
from uni_train.data_gen.sprite_task import Problem, SpriteTask
from uni_train.data_gen.task import Item, Task

_SPLIT = "file"  # of rows whose file names none
_FACTS = ("object", "plural", "count", "canonical")
_SCHEMAS = {MathsRow: "math_1.jsonl", MappingRow: "mapping1.jsonl"}  # a published file of the same schema


@dataclass
class TrainingPrompts:
    """Items with different prompts, in the order of their file.

    Attributes:
        left_out: id of a row or a pair -> why it is not asked.
        relabelled: ids of rows that are asked and whose published answer is wrong.
        repeated: number of rows whose prompt an earlier row has.
    """

    items: list[Item] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    relabelled: list[str] = field(default_factory=list)
    repeated: int = 0


def read_prompts(path: Path, task: Task, level: int) -> TrainingPrompts:
    """The prompts of a file for `task` and `level`, pairs whole.

    Raises:
        DataError: the file cannot be read, holds questions of another task, or has no row that can be asked.
    """
    prompts, units = TrainingPrompts(), defaultdict(list)
    for row in read_any(path):
        if not isinstance(row, Item) and _SCHEMAS[type(row)] not in task.published:
            raise DataError(f"{path} has questions in the schema of {_SCHEMAS[type(row)]}, which is not {task.name}'s")
        units[(row.pair if isinstance(row, Item) else None) or row.id].append(row)
    seen: set[Hashable] = set()
    for unit, rows in units.items():
        try:
            items, relabelled = _items(rows, task, level)
        except DataError as error:
            prompts.left_out[unit] = str(error)
            continue
        key = items[0].id if task.edits else frozenset(item.prompt for item in items)
        if key in seen:
            prompts.repeated += len(items)
        else:
            prompts.items += items
            prompts.relabelled += relabelled
        seen.add(key)
    if not prompts.items:
        unit, reason = next(iter(prompts.left_out.items()))
        raise DataError(f"{path} has no prompt for {task.name} of level {level}: {unit}: {reason}")
    return prompts


def _items(rows: Sequence[Item | MathsRow | MappingRow], task: Task, level: int) -> tuple[list[Item], list[str]]:
    """Of a row, or of the rows of a pair; and the ids of those with a wrong label. DataError: they cannot be asked."""
    if isinstance(rows[0], Item):
        return _own([row for row in rows if isinstance(row, Item)], task, level), []
    assert isinstance(task, SpriteTask), "tasks with a published schema of theirs are"
    if isinstance(rows[0], MathsRow):
        return _sum(rows[0], task, level)
    return _pair([row for row in rows if isinstance(row, MappingRow)], task, level)


def _own(items: list[Item], task: Task, level: int) -> list[Item]:
    world = task.world if isinstance(task, SpriteTask) else None
    for item in items:
        if (item.task, item.level) != (task.name, level):
            raise DataError(f"it is {item.task} of level {item.level}")
        if world is not None and item.facts.get("world") != world.name:
            raise DataError(f"it is of the {item.facts.get('world')} world, and data.world is {world.name}")
        if world is not None and (missing := [fact for fact in _FACTS if fact not in item.facts]):
            raise DataError(f"its facts have no {missing[0]}")
    for audit in task.audit(items) if world is not None else []:
        if audit.status == "wrong":
            raise DataError(audit.reason)
    if len(items) != task.items_per_draw:
        raise DataError("the other question of its pair is missing")
    return items


def _sum(row: MathsRow, task: SpriteTask, level: int) -> tuple[list[Item], list[str]]:
    audit = _readable(maths.audit_maths(row))
    right, reason = maths.right_count(row, audit)
    if right is None:
        raise DataError(reason)
    value, word = read_count(right)
    question = maths.read_maths(row.question)
    reading = next(reading for reading in question.readings if reading.value == value)
    noun = _noun(word, task, question.noun)
    assert value.whole is not None, "the audit has worked it out"
    problem = Problem(row.question, noun, value.whole, f"{reading.text} = {value.whole}", reading.canonical)
    return [task.item(problem, level, _SPLIT)], [row.id] * (right != row.answer)


def _pair(rows: list[MappingRow], task: SpriteTask, level: int) -> tuple[list[Item], list[str]]:
    audits = [_readable(audit) for audit in mapping.audit_pairs(rows)]
    right, reason = mapping.right_objects(list(zip(rows, audits, strict=True)))
    if reason:
        raise DataError(reason)
    relabelled = [f"{row.id}/{row.which}" for row, label in zip(rows, right, strict=True) if label != row.answer]
    nouns = [_noun(str(label), task) for label in right]
    pair = f"{task.name}{level}/{_SPLIT}/{digest(*sorted(row.question for row in rows))}"
    items = []
    for row, noun, other in zip(rows, nouns, reversed(nouns), strict=True):
        question = read_mapping(row.question)
        chain = follow(question)[0].steps[:-1]
        if len(chain) != level:
            raise DataError(f"{row.which} leads over {len(chain)} rules, and level {level} over {level}")
        facts = {
            "world": task.world.name, "object": noun.singular, "plural": noun.plural, "count": 1,
            "symbol": question.asked, "chain": [*chain, noun.singular], "other": other.singular,
            "rules": [[left, right] for left, right, _ in question.rules], "canonical": problem_of(row.question),
        }  # fmt: skip
        link = "means" if task.world.terse else "represents"
        ends: tuple[str | Noun, ...] = (*chain[1:], noun)
        rules = [state_rule(task.world, left, end, link) for left, end in zip(chain, ends, strict=True)]
        answer = noun.singular if task.world.terse else noun.plural.capitalize()
        thought, name = conclude_meaning(task.world, rules, noun), f"{pair}/{row.which}"
        items.append(Item(name, task.name, level, _SPLIT, row.question, answer, facts, thought, pair))
    return items, relabelled


def _readable(audit: AuditRow) -> AuditRow:
    if audit.status == "unparseable":
        raise DataError(audit.reason)
    return audit


def _noun(word: str, task: SpriteTask, plural: str | None = None) -> Noun:
    """The noun of an answer, of the task's world. DataError where nano has no sprite of it.

    plural: of the question, for words that no world has.
    """
    word = plain(word)
    for noun in task.world.nouns:
        if word in (noun.singular, noun.plural):
            return noun
    if task.world.terse:
        raise DataError(f"the {task.world.name} world has no {word}")
    singular = singular_of(word)
    return Noun(singular, plain(plural) if plural else word if word != singular else f"{word}s", "object")
