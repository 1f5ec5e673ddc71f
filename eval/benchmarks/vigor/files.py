"""The published layout of ViGoR-Bench: a folder a task with images and `records.json`, an array of records.

    Symbolic_Reasoning/Sudoku/records.json, Symbolic_Reasoning/Sudoku/*.png, Physical_Reasoning/Object_Assembly/..., ...

A task's folder may lie in that of its domain, whatever this is called (`Embodied_Tasks` before), or beside it. Which
fields a record has could not be confirmed, so they are probed: each role below has names that serve it.
What was found is reported (`Found`). A field that has no role is an error, until `fields` gives it one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.reading_limits import open_image, read_json, reason
from uni_train.data_gen.task import Item
from uni_train.errors import UsageError, did_you_mean
from uni_train.eval.benchmarks.vigor.tasks import TASKS, task_named
from uni_train.eval.images import Image, bytes_of, of_file

RECORDS = "records.json"
HUB = "VincentHancoder/ViGoR-Bench"
IMAGE, INSTRUCTION, ANSWER, ANSWER_IMAGE, ID, SIZE, ITEM, IGNORE = (
    "image", "instruction", "answer", "answer_image", "id", "size", "item", "ignore",
)  # fmt: skip
ROLES: dict[str, tuple[str, ...]] = {
    IMAGE: ("input_image", "image", "input", "image_path", "input_path", "source_image", "original_image", "img"),
    INSTRUCTION: ("instruction", "edit_instruction", "editing_instruction", "prompt", "question", "task_instruction"),
    ANSWER: ("gt_prompt", "gt_text", "text_gt", "ground_truth_text", "answer", "gt_caption", "reference_text"),
    ANSWER_IMAGE: ("gt_image", "image_gt", "ground_truth_image", "gt_path", "target_image", "output_image", "gt",
                   "ground_truth", "reference_image"),
    ID: ("id", "index", "idx", "sample_id", "uid"),
    SIZE: ("size", "grid_size", "grid", "dimension", "level"),
    ITEM: ("item",),
    IGNORE: ("task", "task_name", "task_type", "category", "subcategory", "domain", "type", "source"),
}  # fmt: skip
"""What a field is for -> how it may be called. `item` is ours: what data_gen knows of the question."""
VIDEOS = (".mp4", ".mov", ".avi", ".webm", ".mkv", ".gif")
_SIZE = re.compile(r"(\d+)\s*[x×X*]\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Record:
    """One published question.

    image: the input, read when it is asked for, None where there is none (ours alone). answer: text ground truth, ""
    for none. answer_image: file of the image ground truth. size: "4x4", "" where nothing says it. item: of
    data_gen, ours alone.
    """

    id: str
    task: str
    instruction: str
    image: Image | None = None
    answer: str = ""
    answer_image: Path | None = None
    size: str = ""
    item: Item | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What was read: the records, and task -> role -> names of the fields that served it."""

    records: tuple[Record, ...]
    fields: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def read_folder(folder: Path, sets: Sequence[str] | None = None, fields: Iterable[str] = ()) -> Found:
    """All records below `folder`, in the order of TASKS.

    Args:
        sets: tasks; None: all that are there. fields: "NAME=ROLE", what a field of another name is for.

    Raises:
        DataError: no such files, or files that cannot be used; names file and record. UsageError: an unknown role.
    """
    roles = _roles(fields)
    there = _folders(Path(folder))
    wanted = [task for task in TASKS if task in (sets or there)]
    for task in wanted:
        if task not in there:
            raise DataError(f"{folder} has no folder of {task} with a {RECORDS}; it has: {', '.join(there)}")
    records: list[Record] = []
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for task in wanted:
        used: dict[str, dict[str, None]] = {}
        records += _read_task(there[task], Path(folder), task, roles, used)
        found[task] = {role: tuple(used[role]) for role in ROLES if role in used}
    return Found(tuple(records), found)


def _roles(fields: Iterable[str]) -> dict[str, str]:
    roles = {_plain(name): role for role, names in ROLES.items() for name in names}
    for one in fields:
        name, equals, role = one.partition("=")
        if not equals or role not in ROLES:
            raise UsageError(f"fields={one}: no NAME=ROLE", did_you_mean(role, ROLES, "roles"))
        roles[_plain(name)] = role
    return roles


def _folders(folder: Path) -> dict[str, Path]:
    """Task -> its folder, in the order of TASKS."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder. ViGoR-Bench is not shipped (CC BY-NC 4.0): data.vigor=hf://{HUB} downloads it"
        )
    found: dict[str, Path] = {}
    for records in sorted([*folder.glob(f"*/{RECORDS}"), *folder.glob(f"*/*/{RECORDS}")]):
        task = task_named(records.parent.name)
        if task is None:
            known = did_you_mean(records.parent.name, TASKS, "tasks")
            raise DataError(f"{records}: no such task. {known} Rename the folder, or move it away.")
        if task in found:
            raise DataError(f"{found[task]} and {records.parent} are both {task}: keep one of them")
        found[task] = records.parent
    if not found:
        raise DataError(
            f"{folder} has no */{RECORDS} and no */*/{RECORDS}: give the folder that holds one folder a task"
        )
    return {task: found[task] for task in TASKS if task in found}


def _read_task(
    folder: Path, root: Path, task: str, roles: Mapping[str, str], used: dict[str, dict[str, None]]
) -> list[Record]:
    """The records of a task. root: of all that was downloaded; no image is read outside it."""
    file = folder / RECORDS
    try:
        rows = read_json(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    except RecursionError:
        raise DataError(f"{file} cannot be read: it is nested too deeply") from None
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{file} must be an array of records, and not an empty one")
    records: list[Record] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        where = f"{file}, record {number}"
        if not isinstance(row, dict):
            raise DataError(f"{where} must be an object, not {type(row).__name__}")
        record = _record(folder, root, task, number, _by_role(row, roles, where, used), where)
        if record.id in seen:
            raise DataError(f"{where} has the id {record.id!r} of record {seen[record.id]}")
        seen[record.id] = number
        records.append(record)
    return records


def _by_role(
    row: Mapping[str, Any], roles: Mapping[str, str], where: str, used: dict[str, dict[str, None]]
) -> dict[str, Any]:
    """Role -> value. DataError: a field without a role, or two that serve one role and differ."""
    given: dict[str, tuple[str, Any]] = {}
    for key, value in row.items():
        role = roles.get(_plain(key))
        if role is None:
            raise DataError(
                f"{where}: unknown field {key!r}. Say what it is for: "
                f"options.vigor.fields={key}=ROLE, with a role of {', '.join(ROLES)}"
            )
        used.setdefault(role, {})[key] = None
        if role == IGNORE or value is None:
            continue
        if role in given and given[role][1] != value:
            raise DataError(f"{where}: {given[role][0]!r} and {key!r} both give its {role}, and differ")
        given[role] = (key, value)
    return {role: value for role, (_, value) in given.items()}


def _record(folder: Path, root: Path, task: str, number: int, row: Mapping[str, Any], where: str) -> Record:
    instruction, answer = row.get(INSTRUCTION), row.get(ANSWER, "")
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError(f"{where}: no instruction, which is a text named {', '.join(ROLES[INSTRUCTION])}")
    if not isinstance(answer, str):
        raise DataError(f"{where}: its answer must be a text, not {type(answer).__name__}")
    try:
        item = Item.from_dict(row[ITEM]) if ITEM in row else None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: its item is none of data_gen ({type(error).__name__}: {error})") from error
    if IMAGE not in row and item is None:
        raise DataError(f"{where}: no input image, which is a file named {', '.join(ROLES[IMAGE])}")
    image, answer_image = (
        _image(folder, root, row[role], f"{where}: its {noun}") if role in row else None
        for role, noun in ((IMAGE, "input image"), (ANSWER_IMAGE, "answer image"))
    )
    name = str(row.get(ID, number))
    return Record(
        id=f"{task}/{name}",
        task=task,
        instruction=instruction,
        image=None if image is None else of_file(image),
        answer=answer,
        answer_image=answer_image,
        size=_size(row.get(SIZE), f"{name} {row.get(IMAGE, '')}", where),
        item=item,
    )


def _image(folder: Path, root: Path, value: Any, where: str) -> Path:
    """The file, which is an image that can be opened."""
    names = value if isinstance(value, list) else [value]
    if len(names) != 1 or not isinstance(names[0], str) or not names[0]:
        raise DataError(f"{where} must be one file name, not {json.dumps(value)[:80]}")
    if names[0].lower().endswith(VIDEOS):
        raise DataError(f"{where} is the video {names[0]}: take its frames, and name one image")
    # Names may be given from the task's folder, from its domain's or from the root of the repository.
    places = (folder / names[0], folder.parent / names[0], root / names[0])
    file = next((at for at in places if at.is_file()), None)
    if file is None or root.resolve() not in file.resolve().parents:
        raise DataError(f"{where} is not there: {folder / names[0]}. Download the images with the records")
    try:
        with open_image(file, file) as image:
            image.verify()
    except (OSError, ValueError) as error:
        raise DataError(f"{where} is no image that can be read: {file} ({reason(error)})") from error
    return file


def _size(value: Any, hint: str, where: str) -> str:
    """ "4x4" of 4, "4", "4x4", [4, 4]; else what the id or the image's name says ("maze_4x4_01.png")."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, int) for one in value):
        return f"{value[0]}x{value[1]}"
    if isinstance(value, int | str) and not isinstance(value, bool):
        if str(value).isdigit():
            return f"{value}x{value}"
        found = _SIZE.search(str(value))
        if found:
            return f"{found[1]}x{found[2]}"
    if value is not None:
        raise DataError(f"{where}: its size must read like 4 or 4x4, not {json.dumps(value)[:40]}")
    found = _SIZE.search(hint)
    return f"{found[1]}x{found[2]}" if found else ""


def write_folder(folder: Path, records: Iterable[tuple[Record, Image | None]]) -> None:
    """Records of our own in the same layout, each with its answer image (PNG) or None."""
    from uni_train.files import atomic_write_bytes, atomic_write_json

    by_task: dict[str, list[dict[str, Any]]] = {}
    for record, answer in records:
        rows = by_task.setdefault(record.task, [])
        at = Path(folder) / record.task
        at.mkdir(parents=True, exist_ok=True)
        row: dict[str, Any] = {"id": record.id.partition("/")[2], "instruction": record.instruction}
        for key, data in (("input_image", record.image), ("gt_image", answer)):
            if data is not None:
                row[key] = f"{len(rows):04d}_{key}.png"
                atomic_write_bytes(at / row[key], bytes_of(data))
        rows.append({
            **row, **({"gt_prompt": record.answer} if record.answer else {}),
            **({"size": record.size} if record.size else {}),
            **({"item": record.item.to_dict()} if record.item else {}),
        })  # fmt: skip
    for task, rows in by_task.items():
        atomic_write_json(Path(folder) / task / RECORDS, rows)


def digest(data: Image) -> str:
    return hashlib.blake2b(bytes_of(data), digest_size=8).hexdigest()


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
