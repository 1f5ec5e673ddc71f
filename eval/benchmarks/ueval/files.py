"""UEval's published questions, as a folder of JSON lines or Parquet.

Rows are {"id", "task", "prompt", "image_rubrics": ["..."], "text_rubrics": ["..."], "image_ref": [], "text_ref"}. The
older schema has "task_type" and "question_type", and rubrics that are objects with one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from uni_train.data_gen.errors import DataError, nearest
from uni_train.data_gen.jsonl import read_objects
from uni_train.eval.benchmark import Case
from uni_train.eval.published_rows import PublishedRow, Text, TextOrNumber, read_row

CLOSED = ("space", "textbook", "diagram", "paper")
OPEN = ("art", "life", "tech", "exercise")
TASKS = (*CLOSED, *OPEN)  # in the order of the paper
HUB = "zlab-princeton/UEval"
QUESTIONS = 1000  # in the paper and on the Hub
SHAPE = (
    '{"id": 1, "task": "space", "prompt": "...", "image_rubrics": ["..."], "text_rubrics": ["..."], '
    '"image_ref": [], "text_ref": "..."}'
)
_RUBRIC_KEYS = ("rubric", "criterion", "criteria", "description", "text", "content", "item")
_GET = f"data.ueval=hf://{HUB} downloads the questions; or name their folder: data.ueval=FOLDER"


def read_folder(folder: Path, sets: Sequence[str] | None = None) -> list[Case]:
    """All questions, in the order of files and rows.

    Args:
        folder: what was downloaded, with *.jsonl or *.parquet in it or in its folder `data`; where files are named
            after splits, those of `test` are read.
        sets: which tasks; None: all that are there.

    Raises:
        DataError: names file and line (or row): nothing is there, no such task, a key that is missing, a rubric that is
            no text, an id that occurs twice.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: {_GET}")
    files = [path for place in (folder, folder / "data") for path in sorted(place.glob("[!.]*"))
             if path.suffix in (".jsonl", ".parquet")]  # fmt: skip
    files = [path for path in files if path.name.startswith("test")] or files
    if not files:
        raise DataError(f"{folder} has no *.jsonl and no *.parquet: {_GET}")
    seen: dict[str, str] = {}
    cases: list[Case] = []
    for path in files:
        for place, row in _rows(path):
            case = read_question(place, row)
            if case.id in seen:
                raise DataError(f"{place}: the id {case.id} was used in {seen[case.id]}; ids must be unique")
            seen[case.id] = place
            cases.append(case)
    kept = [case for case in cases if sets is None or case.set in sets]
    if not kept:
        there = ", ".join(dict.fromkeys(case.set for case in cases)) or "no rows"
        raise DataError(f"{folder} has no questions of {', '.join(sets or TASKS)}: it has {there}")
    return kept


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, row); of Parquet without reference images, which are large and not asked about."""
    if path.suffix == ".jsonl":
        for line, row in read_objects(path):
            yield f"{path}, line {line}", row
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = [name for name in pq.read_schema(path).names if name != "image_ref"]
        table = pq.read_table(path, columns=names)
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{path} is no Parquet file ({first}); if it is a pointer of Git LFS, {_GET}") from error
    for number, row in enumerate(table.to_pylist(), 1):
        yield f"{path}, row {number}", row


def _rubric(value: Any) -> Any:
    """The text of a rubric, which the older schema has in an object."""
    if isinstance(value, Mapping):
        named = [value[name] for name in _RUBRIC_KEYS if isinstance(value.get(name), str)]
        value = named[0] if len(named) == 1 else None
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, or an object with one of {', '.join(_RUBRIC_KEYS)}")
    return value


Rubric = Annotated[str, BeforeValidator(_rubric)]


class Question(PublishedRow):
    """A published row, of either schema."""

    task: Text = Field(validation_alias=AliasChoices("task", "task_type"))
    id: TextOrNumber
    image_rubrics: list[Rubric]
    text_rubrics: list[Rubric]
    prompt: Text
    text_ref: Any = None


def read_question(place: str, row: Mapping[str, Any]) -> Case:
    """A question from one row; place: for errors, which are DataErrors."""
    question = read_row(Question, place, row, SHAPE)
    task = question.task.strip().casefold()
    if task not in TASKS:
        raise DataError(f'{place}: there is no task "{task}"; {nearest(task, TASKS)}')
    if not question.image_rubrics and not question.text_rubrics:
        raise DataError(f"{place}: no rubrics at all; expected {SHAPE}")
    facts = {
        "image_rubrics": question.image_rubrics,
        "text_rubrics": question.text_rubrics,
        "text_ref": question.text_ref if isinstance(question.text_ref, str) else "",
    }
    category = "closed-ended" if task in CLOSED else "open-ended"
    return Case(question.id, task, question.prompt, category=category, facts=facts)
