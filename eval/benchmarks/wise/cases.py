"""The published files of WISE's two editions, and questions of our own.

    data_verified/cultural_common_sense_verified.json, ...     WISE_Verified (April 2026)
    data/cultural_common_sense.json, ...                       the original edition (March 2025), now in WISE_legacy

Ours are maths and mapping, whose prompts do not name what is to be drawn either.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.published_rows import Place, PublishedRow, Text, TextOrNumber, read_rows
from uni_train.eval.benchmark import Case, Source, expect_known
from uni_train.eval.benchmarks.wise.editions import ORIGINAL, SETS, VERIFIED, Edition
from uni_train.eval.task_benchmark import cases_of_task

CATEGORIES = dict(zip(("cultural knowledge", *SETS[1:4], "physical knowledge", SETS[5]), SETS, strict=True))
GENERATED = ("maths", "mapping")
LEVELS = (1, 2, 3)  # of maths and mapping
FILES = ("cultural_common_sense", "spatio-temporal_reasoning", "natural_science")
SHAPE = '{"prompt_id": 1, "Prompt": "...", "Explanation": "...", "Category": "time", "Subcategory": "..."}'
_GET = "Get the files with `git clone https://github.com/PKU-YuanGroup/WISE`, and name the clone: data.wise=WISE"


class Question(PublishedRow):
    """A published row."""

    id: TextOrNumber = Field(validation_alias="prompt_id")
    prompt: Text = Field(validation_alias="Prompt")
    explanation: Text = Field(validation_alias="Explanation")
    category: Text = Field(validation_alias="Category")
    subcategory: str = Field(default="", validation_alias="Subcategory")


def questions(source: Source) -> tuple[Edition, list[Case]]:
    """The edition whose files are in `source.data`, and its questions in the order of files and rows.

    The data are a clone, or a folder with some of the files. None: `generated`, with the judge of WISE_Verified.

    Raises UsageError for a set of the other kind; DataError where there are no files, or a row does not fit.
    """
    expect_known("WISE", "set", source.sets or (), GENERATED if source.data is None else SETS)
    if source.data is None:
        return VERIFIED, generated(source)
    for edition in (VERIFIED, ORIGINAL):
        for place in (source.data, source.data / f"data{edition.suffix}"):
            files = [path for name in FILES if (path := place / f"{name}{edition.suffix}.json").is_file()]
            if files:
                return edition, [_case(at, row) for at, row in read_rows(files, Question, SHAPE)]
    raise DataError(f"{source.data} has no {FILES[0]}{VERIFIED.suffix}.json. {_GET}")


def _case(place: Place, row: Question) -> Case:
    name = CATEGORIES.get(row.category.strip().casefold())
    if name is None:
        raise DataError(f'{place}: there is no category "{row.category}"; {nearest_or_all(row.category, CATEGORIES)}')
    return Case(row.id, name, row.prompt, category=row.subcategory, facts={"answer": row.explanation})


def has_program(case: Case) -> bool:
    """Whether a program can check images: of our own questions in nano's world."""
    return case.facts.get("world") == NANO.name


def generated(source: Source) -> list[Case]:
    """`source.n` draws of each set, its levels alike; of mapping both questions of a pair.

    Raises DataError where the world has too few.
    """
    cases: list[Case] = []
    for task in source.sets or GENERATED:
        for level in LEVELS:
            n = source.n // len(LEVELS) + (level <= source.n % len(LEVELS))
            drawn = cases_of_task(task, (level,), n, world=source.world, split=source.split) if n else []
            cases += [replace(case, set=task) for case in drawn]
    return cases
