"""The tasks of ViGoR, the published layout of its files, and questions of our own.

    Symbolic_Reasoning/Sudoku/records.json, Symbolic_Reasoning/Sudoku/*.png, Physical_Reasoning/Object_Assembly/..., ...

A folder a task has images and `records.json`, an array of records. It may lie in that of its domain, whatever this is
called (`Embodied_Tasks` before), or beside it. Which fields a record has could not be confirmed. Each role has names
that serve it, and what was read is reported. A field without a role is an error, until `fields` gives it one.

The abstract counts 20 tasks; section 3.1 names 7 physical, 7 knowledge and 7 symbolic ones, which are 21. The published
files have Sorting and Categorization in one folder, which makes 20.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from uni_train.core.errors import DataError, UsageError, did_you_mean
from uni_train.core.reading_limits import VIDEOS, open_image, reason
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.published_rows import Place, PublishedRow, Text, read_rows
from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Case, Source
from uni_train.eval.images import Image, bytes_of, of_file
from uni_train.models.pictures import encode_png

DOMAINS = {
    "physical": (
        "sorting_and_categorization", "spatial_reasoning", "attribute_recognition", "object_assembly",
        "measurement_verification", "situational_decision_making",
    ),
    "knowledge": ("biology", "physics", "chemistry", "geography", "history", "sports", "common_sense"),
    "symbolic": (
        "block_building", "klotski_puzzle", "algebraic_calculation", "function_plotting", "jigsaw_puzzle",
        "maze_navigation", "sudoku",
    ),
}  # fmt: skip
TASKS = tuple(task for tasks in DOMAINS.values() for task in tasks)
MAZE, ALGEBRA = "maze_navigation", "algebraic_calculation"
JIGSAW, SUDOKU, PLOT = "jigsaw_puzzle", "sudoku", "function_plotting"
# What a folder may be called besides, without its case and signs.
_ALIASES = {
    "maze": MAZE, "algebra": ALGEBRA, "algebraiccalculations": ALGEBRA, "jigsaw": JIGSAW, "klotski": "klotski_puzzle",
    "function": PLOT, "functionplot": PLOT, "lego": "block_building", "blocks": "block_building",
    "commonsense": "common_sense", "sport": "sports",
    "sorting": "sorting_and_categorization", "categorization": "sorting_and_categorization",
    "measurement": "measurement_verification", "measurementandverification": "measurement_verification",
    "decisionmaking": "situational_decision_making", "assembly": "object_assembly",
    "attribute": "attribute_recognition", "spatial": "spatial_reasoning",
}  # fmt: skip
RECORDS = "records.json"
HUB = "VincentHancoder/ViGoR-Bench"
SHAPE = '{"image": "a.png", "instruction": "...", "gt_image": "b.png"}, or other names of these roles'
IGNORE = "ignore"
ROLES: dict[str, tuple[str, ...]] = {
    "image": ("input_image", "image", "input", "image_path", "input_path", "source_image", "original_image", "img"),
    "instruction": ("instruction", "edit_instruction", "editing_instruction", "prompt", "question", "task_instruction"),
    "answer": ("gt_prompt", "gt_text", "text_gt", "ground_truth_text", "answer", "gt_caption", "reference_text"),
    "answer_image": ("gt_image", "image_gt", "ground_truth_image", "gt_path", "target_image", "output_image", "gt",
                     "ground_truth", "reference_image"),
    "id": ("id", "index", "idx", "sample_id", "uid"),
    "size": ("size", "grid_size", "grid", "dimension", "level"),
    "item": ("item",),
    IGNORE: ("task", "task_name", "task_type", "category", "subcategory", "domain", "type", "source"),
}  # fmt: skip
"""What a field is for (a key of `PublishedRecord`) -> how it may be called."""
KLOTSKI = "klotski_puzzle"
_KINDS = {ALGEBRA: "maths"}
_PUZZLES = {SUDOKU: "sudoku", JIGSAW: "jigsaw", PLOT: "function_plot", KLOTSKI: "sliding_puzzle"}
"""Task -> the task of data_gen that makes questions of our own."""
LEVELS = (1, 2, 3)  # of the equations
MAZE_LEVELS = (2, 3, 4, 5, 6, 7)  # rooms a side
_SIZE = re.compile(r"(\d+)\s*[x×X*]\s*(\d+)")

Fields = Mapping[str, Mapping[str, Sequence[str]]]
"""Task -> role -> the names of the fields that served it."""


def task_named(folder: str) -> str | None:
    """The task whose folder is called so: "Maze_Navigation", "maze navigation", "Maze"."""
    plain = re.sub(r"[^a-z]", "", folder.lower())
    return {task.replace("_", ""): task for task in TASKS}.get(plain) or _ALIASES.get(plain)


def title(task: str) -> str:
    return task.replace("_", " ").capitalize()


# --- a record --------------------------------------------------------------------------------------------------------


def _file_name(value: Any) -> Any:
    (name,) = value if isinstance(value, list) and len(value) == 1 else (value,)
    if not isinstance(name, str) or not name:
        raise ValueError("expected one file name")
    if name.lower().endswith((*VIDEOS, ".gif")):
        raise ValueError("a video: take its frames, and name one image")
    return name


def _grid_size(value: Any) -> str:
    """ "4x4" of 4, "4", "4x4", [4, 4]."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(side, int) for side in value):
        return f"{value[0]}x{value[1]}"
    if isinstance(value, int | str) and not isinstance(value, bool):
        if str(value).isdigit():
            return f"{value}x{value}"
        if match := _SIZE.search(str(value)):
            return f"{match[1]}x{match[2]}"
    raise ValueError("expected a size like 4 or 4x4")


def _item(value: Any) -> Item:
    try:
        return Item.from_dict(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected an item of data_gen ({type(error).__name__}: {error})") from error


FileName = Annotated[str, BeforeValidator(_file_name)]


class PublishedRecord(PublishedRow):
    """A record of records.json by the roles of its fields.

    answer, answer_image: the ground truth in words, and as an image. size: of the grid. item: what data_gen knows of
    a question of ours, which may do without an image.
    """

    instruction: Text
    image: FileName | None = None
    answer: str = ""
    answer_image: FileName | None = None
    size: Annotated[str, BeforeValidator(_grid_size)] = ""
    item: Annotated[Item | None, BeforeValidator(_item)] = None


def make_case(
    task: str, name: str, instruction: str, image: Image | None = None, answer: str = "",
    answer_image: Image | None = None, size: str = "", item: Item | None = None,
) -> Case:  # fmt: skip
    """A question. name: unique in its task. size: such as "4x4", "" where nothing says it. item: of data_gen."""
    facts = {
        "answer": answer,
        "answer_image": None if answer_image is None else digest(answer_image),
        "item": None if item is None else item.to_dict(),
    }
    images, references = ((() if picture is None else (picture,)) for picture in (image, answer_image))
    return Case(f"{task}/{name}", task, instruction, images, category=size, facts=facts, references=references)


def digest(image: Image) -> str:
    return hashlib.blake2b(bytes_of(image), digest_size=8).hexdigest()


# --- folders ---------------------------------------------------------------------------------------------------------


def read_folder(
    folder: Path, sets: Sequence[str] | None = None, fields: Iterable[str] = ()
) -> tuple[list[Case], Fields]:
    """All questions below `folder`, in the order of TASKS, and the fields that were read.

    Args:
        sets: tasks; None: all that are there. fields: "NAME=ROLE", what a field of another name is for.

    Raises:
        DataError: no such files, or files that cannot be used; names file, record and role. UsageError: an unknown
            role.
    """
    roles = _roles(fields)
    folders = _folders(Path(folder))
    cases: list[Case] = []
    used: dict[str, dict[str, list[str]]] = {}
    for task in sets or folders:
        if task not in folders:
            raise DataError(f"{folder} has no folder of {task} with a {RECORDS}; it has: {', '.join(folders)}")
    for task in (task for task in folders if task in (sets or folders)):
        by_role: dict[str, list[str]] = {}
        cases += _read_task(folders[task], Path(folder), task, roles, by_role)
        used[task] = {role: by_role[role] for role in ROLES if role in by_role}
    return cases, used


def _roles(fields: Iterable[str]) -> dict[str, str]:
    """Name of a field without its case and signs -> its role."""
    roles = {_plain(name): role for role, names in ROLES.items() for name in names}
    for field in fields:
        name, equals, role = field.partition("=")
        if not equals or role not in ROLES:
            raise UsageError(f"fields={field}: no NAME=ROLE", did_you_mean(role, ROLES, "roles"))
        roles[_plain(name)] = role
    return roles


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _folders(folder: Path) -> dict[str, Path]:
    """Task -> its folder, in the order of TASKS."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder. ViGoR-Bench is not shipped (CC BY-NC 4.0): data.vigor=hf://{HUB} downloads it"
        )
    folders: dict[str, Path] = {}
    for records in sorted([*folder.glob(f"*/{RECORDS}"), *folder.glob(f"*/*/{RECORDS}")]):
        task = task_named(records.parent.name)
        if task is None:
            known = did_you_mean(records.parent.name, TASKS, "tasks")
            raise DataError(f"{records}: no such task. {known} Rename the folder, or move it away.")
        if task in folders:
            raise DataError(f"{folders[task]} and {records.parent} are both {task}: keep one of them")
        folders[task] = records.parent
    if not folders:
        raise DataError(
            f"{folder} has no */{RECORDS} and no */*/{RECORDS}: give the folder that holds one folder a task"
        )
    return {task: folders[task] for task in TASKS if task in folders}


def _read_task(folder: Path, root: Path, task: str, roles: Mapping[str, str], used: dict[str, list[str]]) -> list[Case]:
    """The questions of a task. root: of all that was downloaded; no image is read outside it."""
    cases: list[Case] = []

    def by_role(place: Place, raw: dict[str, Any]) -> dict[str, Any]:
        record = _by_role(raw, roles, place, used)
        return record if "id" in record else {**record, "id": place.line.removeprefix("record ")}

    for place, record in read_rows([folder / RECORDS], PublishedRecord, SHAPE, renamed=by_role):
        if record.image is None and record.item is None:
            raise DataError(f'{place}: no "image", which is a file named {", ".join(ROLES["image"])}')
        image, answer_image = (
            None if name is None else of_file(_image_file(folder, root, name, f'{place}: its "{role}"'))
            for role, name in (("image", record.image), ("answer_image", record.answer_image))
        )
        in_name = _SIZE.search(f"{record.id} {record.image or ''}")  # "maze_4x4_01.png"
        size = record.size or (f"{in_name[1]}x{in_name[2]}" if in_name else "")
        case = make_case(task, record.id, record.instruction, image, record.answer, answer_image, size, record.item)
        cases.append(case)
    return cases


def _by_role(
    row: Mapping[str, Any], roles: Mapping[str, str], place: Place, used: dict[str, list[str]]
) -> dict[str, Any]:
    """Role -> value. Raises DataError: a field without a role, or two that serve one role and differ."""
    keys: dict[str, str] = {}
    for key, value in row.items():
        role = roles.get(_plain(key))
        if role is None:
            raise DataError(
                f"{place}: unknown field {key!r}. Say what it is for: "
                f"options.vigor.fields={key}=ROLE, with a role of {', '.join(ROLES)}"
            )
        if key not in used.setdefault(role, []):
            used[role].append(key)
        if role == IGNORE or value is None:
            continue
        if row[keys.setdefault(role, key)] != value:
            raise DataError(f"{place}: {keys[role]!r} and {key!r} both give its {role}, and differ")
    return {role: row[key] for role, key in keys.items()}


def _image_file(folder: Path, root: Path, name: str, what: str) -> Path:
    """An image that can be opened; named from the task's folder, from its domain's or from the root of all."""
    file = next((at for at in (folder / name, folder.parent / name, root / name) if at.is_file()), None)
    if file is None or root.resolve() not in file.resolve().parents:
        raise DataError(f"{what} is not there: {folder / name}. Download the images with the records")
    try:
        with open_image(file, file) as image:
            image.verify()
    except (OSError, ValueError) as error:
        raise DataError(f"{what} is no image that can be read: {file} ({reason(error)})") from error
    return file


# --- questions of our own --------------------------------------------------------------------------------------------


def generated(source: Source, seed: int = 0) -> list[Case]:
    """`n` questions a task, by default mazes; in nano's world equations that are drawn as sprites.

    nano's mazes and puzzles are asked where they are named: nano edits nothing, and nano_edit reads nothing else.

    Raises DataError for another task.
    """
    world, n, split = source.world, source.n, source.split
    kinds = {**(_KINDS if world == NANO.name else {}), MAZE: "maze", **_PUZZLES}
    cases = []
    for name in source.sets or [*kinds][:1]:
        if name not in kinds:
            raise DataError(
                f"the {world} world has no {name} of our own, only {', '.join(kinds)}: set data.vigor=FOLDER"
            )
        task = get_task(kinds[name], world)
        levels = {ALGEBRA: LEVELS, MAZE: MAZE_LEVELS}.get(name) or task.possible_levels  # type: ignore[attr-defined]
        if name == MAZE and (split != "test" or n > 6 * len(levels)):  # of 2 x 2 rooms there are few, all of them test
            levels = [level for level in levels if level > 2]
        shares = [n // len(levels) + (index < n % len(levels)) for index in range(len(levels))]
        for level, share in zip(levels, shares, strict=True):
            cases += [_of_item(name, item) for item in (task.generate(share, level, split, seed) if share else ())]
    return cases


def _of_item(task: str, item: Item) -> Case:
    name, shown = item.id.replace("/", "-"), task_of(item).input_image(item)
    if task == ALGEBRA:
        return make_case(task, name, item.prompt, answer=item.answer, item=item)
    assert shown is not None, "what is edited is shown"
    size = f"{item.level}x{item.level}" if task == MAZE else str(item.level)
    return make_case(task, name, item.prompt, encode_png(shown), size=size, item=item)
