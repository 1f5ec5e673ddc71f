"""What UniSandbox asks: the published files, read and audited, or questions of our own.

A published question may carry a wrong label (math_3 has 22 of 100). It then becomes two cases that share one drawing:
the published label ("official") and the recomputed one ("corrected"). A question without exactly one answer that can be
drawn has no corrected case; it is counted and named in `Questions.excluded`.

A maths case's category is the number of objects asked for. A mapping case's is which question of its pair it is, a
knowledge case's what is to be drawn. Facts of a case: task ("maths", "mapping", "knowledge"); world; answer, the label
it is scored by; labels, in which of "official" and "corrected" it counts; drawn_as, the id that its drawing goes by;
kind (knowledge); item, everything that is known of a question of our own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import LEVELS
from uni_train.core.errors import DataError, UnreadableError, UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.findings import AuditRow
from uni_train.data_gen.jsonl import MappingRow, MathsRow, read_items, read_published
from uni_train.data_gen.mapping import audit as mapping
from uni_train.data_gen.maths import audit as maths
from uni_train.data_gen.maths.exact import read_count
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.phrasing import counted
from uni_train.data_gen.registry import get_task, scoring, set_name, sources
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Case, are_published
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SETS
from uni_train.eval.sets.thoughts import READERS, Conclusion, last_named
from uni_train.eval.task_benchmark import LABELS, count_of_objects, item_case

if TYPE_CHECKING:
    from uni_train.data_gen.knowledge.people import KnowledgeQuestion

ALL_SETS = SETS + KNOWLEDGE_SETS
PUBLISHED_CASES = 3 * 100 + 3 * 200 + 10 * 3 + 5 * 4  # prompts, questions of pairs, of characters and of their pairs

# Ids in a published file: of a reasoning set, of one character (portrait, fruit and flower), of two.
_IDS = ([range(1, 101)], [range(k, k + 21, 10) for k in range(1, 11)], [range(k, k + 4) for k in range(31, 51, 4)])
_REASONING_FOLDERS = ("", "test_reasoning", "benchmark/test_reasoning", "reasoning")
_KNOWLEDGE_FOLDERS = ("test_knowledge", "benchmark/test_knowledge")
_FILES = {
    **{f"math{level}": (f"math_{level}.jsonl", f"math{level}.jsonl") for level in LEVELS},
    **{f"mapping{level}": (f"mapping{level}.jsonl", f"mapping_{level}.jsonl") for level in LEVELS},
}


@dataclass(frozen=True, slots=True)
class Questions:
    """Cases in a fixed order; excluded: set -> id -> why the question has no corrected label. files: they are
    somebody's, not ours."""

    cases: tuple[Case, ...]
    excluded: Mapping[str, Mapping[str, str]]
    files: bool = False

    @property
    def relabelled(self) -> bool:
        """Whether the two labels differ anywhere."""
        return bool(self.excluded) or any(len(case.facts["labels"]) == 1 for case in self.cases)

    @property
    def as_published(self) -> bool:
        """Whether ids and names are the paper's.

        Each reasoning set has 100 rows or pairs. Knowledge is of Table 12's characters alone: three questions of each,
        four of a pair.
        """
        units: dict[str, set[str]] = defaultdict(set)
        for case in self.cases:
            name, *_, number = str(case.facts["drawn_as"]).removesuffix("/A").removesuffix("/B").split("/")
            units[", ".join(case.facts.get("characters", ())) or name].add(number)
        from uni_train.data_gen.knowledge.people import PAPER_CHARACTERS

        known = {character.name for character in PAPER_CHARACTERS}
        for name, numbers in units.items():
            people = name.split(", ") if known.issuperset(name.split(", ")) else []
            if not are_published(numbers, *(_IDS[0] if name in SETS else _IDS[len(people)] if people else ())):
                return False
        return True


def generated(world: str, n: int, characters: int, split: str, seed: int, sets: Sequence[str] = SETS) -> Questions:
    """Questions of our own: `n` prompts for each maths set, `n` pairs for each mapping set, `characters` invented ones.

    The reasoning sets are those of training runs with the same seed. Raises DataError when the world has not that many
    in the split.
    """
    cases: list[Case] = []
    for name in sets:
        if name in SETS:
            source = sources()[name]
            items = get_task(source.task, world).generate(n, source.level, split, derive_seed("evaluation", seed))
            cases += [item_case(item) for item in items]
    asked = [name for name in KNOWLEDGE_SETS if name in sets]
    if asked:
        from uni_train.data_gen.knowledge.injection import subjects

        people = subjects(world, characters, seed, split, asked)
        cases += [knowledge_case(question, world) for person in people for question in person.pictures]
    return Questions(tuple(cases), {})


def published(folder: Path, sets: Sequence[str] | None = None, characters: Sequence[str] = ()) -> Questions:
    """The files of the published benchmark, or a folder that `uni_train data make` has written.

    folder: the repository, its `benchmark` folder, or the files themselves. sets: which to read; None for all that are
    there. characters: whose knowledge to ask for; empty for everybody's. Raises UserError when nothing is found, and
    DataError, which names file and line, for a row that cannot be used.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder",
            "Name the folder that holds UniSandbox's JSONL files. The published ones: git clone "
            "https://github.com/PKU-YuanGroup/UniSandBox, then data.unisandbox=UniSandBox/benchmark.",
        )
    if (folder / "items.jsonl").is_file():
        return _own_folder(folder, sets)
    reasoning = {name: path for name in SETS if (path := _find(folder, name)) is not None}
    people = _people_files(folder)
    present = (*reasoning, *dict.fromkeys(direction for direction, _ in people))
    _check_found(folder, present, sets)
    cases: list[Case] = []
    excluded: dict[str, dict[str, str]] = {}
    for name, path in reasoning.items():
        if sets is None or name in sets:
            more, without = _audited(name, path)
            cases += more
            if without:
                excluded[name] = without
    wanted = set(characters)
    for direction, path in people:
        if (sets is None or direction in sets) and (not wanted or wanted & set(path.stem.split("_"))):
            from uni_train.data_gen.knowledge.people import read_test

            cases += [knowledge_case(question) for question in read_test(path)]
    unknown = wanted - {name for _, path in people for name in path.stem.split("_")}
    if unknown:
        known = sorted({name for _, path in people for name in path.stem.split("_")})
        raise UserError(
            f"{folder} asks nothing about {', '.join(sorted(unknown))}", f"It knows {', '.join(known) or 'nobody'}."
        )
    if not cases:
        raise UserError(f"{folder} holds no question of the sets and characters asked for", "Ask for others.")
    return Questions(tuple(cases), excluded, files=not (folder / "characters.jsonl").is_file())


def _own_folder(folder: Path, sets: Sequence[str] | None) -> Questions:
    items = read_items(folder / "items.jsonl")
    for task, level in sorted({(item.task, item.level) for item in items}):
        if level not in (known := scoring(task).sets):
            others = f"Levels with a set: {', '.join(map(str, known))}." if known else "It has no sets at all."
            raise UserError(
                f"{folder / 'items.jsonl'} holds {task} of level {level}, which has no set in which images are scored",
                f"Ask them with -b ureason data.ureason={folder}." if task == "ureason" else others,
            )
    present = tuple(dict.fromkeys(set_name(item.task, item.level) for item in items))
    _check_found(folder, present, sets)
    kept = [item for item in items if sets is None or set_name(item.task, item.level) in sets]
    return Questions(tuple(item_case(item) for item in kept), {})


def _check_found(folder: Path, present: Sequence[str], sets: Sequence[str] | None) -> None:
    if not present:
        there = sorted(path.name for path in folder.iterdir())[:8]
        raise UserError(
            f"{folder} holds no file of UniSandbox: neither math_1.jsonl .. math_3.jsonl, mapping1.jsonl .. "
            "mapping3.jsonl nor test_knowledge/*.jsonl",
            f"It holds {', '.join(there) or 'nothing'}. Name the repository's benchmark folder.",
        )
    missing = [name for name in sets or () if name not in present]
    if missing:
        raise UserError(f"{folder} has no {', '.join(missing)}", f"It has {', '.join(present)}.")


def _find(folder: Path, name: str) -> Path | None:
    for place in _REASONING_FOLDERS:
        for file in _FILES[name]:
            if (folder / place / file).is_file():
                return folder / place / file
    return None


def _people_files(folder: Path) -> list[tuple[str, Path]]:
    """(direction, file): Name.jsonl asks forward, Name_Name.jsonl inversely."""
    places = [folder / place for place in _KNOWLEDGE_FOLDERS] + ([folder] if folder.name == "test_knowledge" else [])
    files = next((sorted(place.glob("*.jsonl")) for place in places if place.is_dir()), [])
    return sorted(("inverse" if "_" in path.stem else "forward", path) for path in files)


def knowledge_case(question: KnowledgeQuestion, world: str = "everyday") -> Case:
    """A knowledge question of either world; in the nano world its image can be checked by program."""
    facts: dict[str, Any] = {
        "task": "knowledge",
        "world": world,
        "kind": question.kind,
        "answer": question.answer,
        "labels": list(LABELS),
        "drawn_as": question.id,
        "characters": list(question.characters),
    }
    if world == "nano":
        ((count, noun),) = counted(question.answer)
        shown = {"world": world, "object": noun, "plural": NANO.noun(noun).plural, "count": count}
        facts["item"] = Item(question.id, "knowledge", 1, "", question.question, question.answer, shown, "").to_dict()
    return Case(question.id, question.direction, question.question, category=question.kind, facts=facts)


def _conclusion(thought: str, case: Case) -> Conclusion:
    """Of a thought about a character. In nano's words it recalls a lesson ("G K means 3 apples ."); elsewhere it
    describes a portrait, or names a fruit or flower."""
    from uni_train.data_gen.knowledge.people import VALUES

    facts = case.facts
    if facts["world"] == "nano":
        item = facts["item"]["facts"]
        return _recalled(thought, (int(item["count"]), str(item["object"])))
    if facts["kind"] == "portrait":
        return _described(thought, str(facts["answer"]))
    return last_named(thought, str(facts["answer"]), VALUES[facts["kind"]])


def _recalled(thought: str, expected: tuple[int, str]) -> Conclusion:
    """What was taught is recalled in the words of the lessons: the last sentence that counts something counts."""
    for sentence in reversed(thought.split(" .")):
        counts = counted(sentence)
        if counts:
            return "unclear" if len(counts) > 1 else "right" if counts == {expected} else "wrong"
    return "unclear"


def _described(thought: str, answer: str) -> Conclusion:
    """Each visible attribute of the answer must be said; another value in its place is wrong, both are unclear."""
    from uni_train.data_gen.knowledge.people import VISIBLE, stated

    pairs = [(stated(answer, attribute), stated(thought, attribute)) for attribute in VISIBLE]
    if any(expected and drawn and not expected & drawn for expected, drawn in pairs):
        return "wrong"
    return "right" if all(expected == drawn for expected, drawn in pairs if expected) else "unclear"


READERS["knowledge"] = _conclusion


# ---------------------------------------------------------------------------------------------- labels, recomputed


def _audited(name: str, path: Path) -> tuple[list[Case], dict[str, str]]:
    rows = read_published(path)
    sums = [row for row in rows if isinstance(row, MathsRow)]
    expected = sources()[name].task
    if (expected == "maths") != bool(sums):
        raise DataError(f"{path} holds rows of {'maths' if sums else 'mapping'}; a file of this name holds {expected}")
    if sums:
        return _maths_cases(name, [(row, maths.audit_maths(row)) for row in sums])
    pairs = [row for row in rows if isinstance(row, MappingRow)]
    return _mapping_cases(name, list(zip(pairs, mapping.audit_pairs(pairs), strict=True)))


def _maths_cases(name: str, rows: Sequence[tuple[MathsRow, AuditRow]]) -> tuple[list[Case], dict[str, str]]:
    cases: list[Case] = []
    excluded: dict[str, str] = {}
    for row, audit in rows:
        base = f"{name}/{row.id}"
        right, reason = maths.right_count(row, audit)
        if right is None:
            excluded[base] = reason
        cases += _both_labels(
            Case(
                base, name, row.question, cluster=base if right not in (None, row.answer) else None,
                category=_category(row.answer),
                facts={"task": "maths", "world": "everyday", "drawn_as": base},
            ),
            row.answer,
            right,
        )  # fmt: skip
    return cases, excluded


def _mapping_cases(name: str, rows: Sequence[tuple[MappingRow, AuditRow]]) -> tuple[list[Case], dict[str, str]]:
    """A pair in which one question has no right answer, or both have the same, has no corrected label at all."""
    members: dict[str, list[tuple[MappingRow, AuditRow]]] = defaultdict(list)
    for row, audit in rows:
        members[row.id].append((row, audit))
    cases: list[Case] = []
    excluded: dict[str, str] = {}
    for pair_id, pair in members.items():
        cluster = f"{name}/{pair_id}"
        right, reason = mapping.right_objects(pair)
        if reason:
            excluded[cluster] = reason
        for (row, _), audited in zip(pair, right, strict=True):
            cases += _both_labels(
                Case(
                    base := f"{cluster}/{row.which}", name, row.question, cluster=cluster,
                    category=f"question {row.which}",
                    facts={"task": "mapping", "world": "everyday", "drawn_as": base},
                ),
                row.answer,
                audited,
            )  # fmt: skip
    return cases, excluded


def _both_labels(asked: Case, label: str, right: str | None) -> list[Case]:
    """One case where both labels agree, two (that share one drawing) where they differ, the official one where no
    right answer exists. Only the first has a category, so that breakdowns count a drawing once."""
    facts = dict(asked.facts)
    if right == label:
        return [replace(asked, facts={**facts, "answer": label, "labels": list(LABELS)})]
    cases = [replace(asked, facts={**facts, "answer": label, "labels": ["official"]})]
    if right is not None:
        corrected = {**facts, "answer": right, "labels": ["corrected"]}
        cases.append(replace(asked, id=f"{asked.id}/corrected", category="", facts=corrected))
    return cases


def _category(answer: str) -> str:
    """How many objects a published answer has, "" where that cannot be read."""
    try:
        count = read_count(answer)[0].whole
    except UnreadableError:
        return ""
    return "" if count is None else count_of_objects(count)
