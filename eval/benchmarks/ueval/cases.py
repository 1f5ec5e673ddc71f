"""UEval's published questions, as a folder of JSON lines or Parquet, and questions of our own in their schema.

Rows are {"id", "task", "prompt", "image_rubrics": ["..."], "text_rubrics": ["..."], "image_ref": [], "text_ref"}. The
older schema has "task_type" and "question_type", and rubrics that are objects with one text.

Ours are "draw and say", with rubrics that a program decides in nano's world. maths and mapping are those of UniSandbox:
so many of one thing, or the thing that a symbol stands for. any_number asks for some things and leaves open how many:
the text must then count what the image shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.phrasing import counted
from uni_train.data_gen.published_rows import Place, PublishedRow, Text, read_row, read_rows
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check
from uni_train.eval.benchmark import Case, Source
from uni_train.eval.images import Image, pixels
from uni_train.eval.published_images import image_of

CLOSED = ("space", "textbook", "diagram", "paper")
OPEN = ("art", "life", "tech", "exercise")
TASKS = (*CLOSED, *OPEN)  # in the order of the paper
GENERATED = ("maths", "mapping", "any_number")
SETS = (*TASKS, *GENERATED)
KINDS = {"closed-ended": (*CLOSED, "maths", "mapping"), "open-ended": (*OPEN, "any_number")}
PARTS = ("image", "text")
LEVELS = (1, 2, 3)  # of maths and mapping
HUB = "zlab-princeton/UEval"
QUESTIONS = (range(1000), range(1, 1001))  # ids of the 1,000 in the paper and on the Hub, in either numbering
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
        DataError: names file and line (or row). Nothing is there; there is no such task; a key is missing; a rubric is
            no text; an id occurs twice.
    """
    # Images are large, and not asked about.
    rows = read_rows(_files(Path(folder)), Question, SHAPE, without=("image_ref",))
    cases = [_of_row(place, question) for place, question in rows]
    kept = [case for case in cases if sets is None or case.set in sets]
    if not kept:
        there = ", ".join(dict.fromkeys(case.set for case in cases)) or "no rows"
        raise DataError(f"{folder} has no questions of {', '.join(sets or TASKS)}: it has {there}")
    return kept


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: {_GET}")
    files = [path for place in (folder, folder / "data") for path in sorted(place.glob("[!.]*"))
             if path.suffix in (".jsonl", ".parquet")]  # fmt: skip
    files = [path for path in files if path.name.startswith("test")] or files
    if not files:
        raise DataError(f"{folder} has no *.jsonl and no *.parquet: {_GET}")
    return files


def read_references(folder: Path) -> dict[str, Callable[[], list[Image]]]:
    """Id of a question -> what reads its reference images: DataError for one that is not there, or no image."""

    def images(place: Place, values: Sequence[Any]) -> list[Image]:
        return [image_of(place, "image_ref", value, at) for at, value in enumerate(values)]

    rows = read_rows(_files(folder), _References)
    return {row.id: partial(images, place, row.image_ref or ()) for place, row in rows}


class _References(PublishedRow):
    image_ref: list[Any] | None = None


class _Trace(PublishedRow):
    trace: Text


def read_traces(file: Path) -> dict[str, str]:
    """Id of a question -> another model's reasoning trace. Raises DataError: names file and line that do not fit."""
    return {row.id: row.trace for _, row in read_rows([file], _Trace, '{"id": 1, "trace": "..."}')}


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
    image_rubrics: list[Rubric]
    text_rubrics: list[Rubric]
    prompt: Text
    text_ref: Any = None


def read_question(place: str, row: Mapping[str, Any]) -> Case:
    """A question from one row; place: for errors, which are DataErrors."""
    return _of_row(place, read_row(Question, place, row, SHAPE))


def _of_row(place: Place | str, question: Question) -> Case:
    task = question.task.strip().casefold()
    if task not in TASKS:
        raise DataError(f'{place}: there is no task "{task}"; {nearest_or_all(task, TASKS)}')
    if not question.image_rubrics and not question.text_rubrics:
        raise DataError(f"{place}: no rubrics at all; expected {SHAPE}")
    reference = question.text_ref if isinstance(question.text_ref, str) else ""
    return _case(question.id, task, question.prompt, question.image_rubrics, question.text_rubrics, reference)


def _case(
    id_: str, task: str, prompt: str, image_rubrics: list[str], text_rubrics: list[str], text_ref: str,
    pair: str | None = None, **facts: Any,
) -> Case:  # fmt: skip
    """pair: of questions with the same rules."""
    category = next(kind for kind, tasks in KINDS.items() if task in tasks)
    facts = {"image_rubrics": image_rubrics, "text_rubrics": text_rubrics, "text_ref": text_ref, **facts}
    return Case(id_, task, prompt, cluster=pair, category=category, facts=facts)


def rubrics_of(case: Case) -> list[tuple[str, int, str]]:
    """(part, number from 0, text), images first."""
    return [(part, number, text) for part in PARTS for number, text in enumerate(case.facts[f"{part}_rubrics"])]


# --- questions of our own --------------------------------------------------------------------------------------------


def generated(source: Source, seed: int = 0) -> list[Case]:
    """`n` questions a set (of pairs, both; of any_number at most one for each thing there is), all levels alike.

    Raises DataError where the world has not that many.
    """
    world, n, split = source.world, source.n, source.split
    cases: list[Case] = []
    for task in source.sets or GENERATED:
        if task == "any_number":
            nouns = get_world(world).nouns
            for noun in rng("any_number", split, seed).sample(nouns, min(n, len(nouns))):
                id_, prompt = f"any_number/{split}/{noun.singular}", f"Draw some {noun.plural} ."
                cases.append(_generated_case(world, task, id_, prompt, noun.singular, noun.plural))
            continue
        for level in LEVELS:
            share = n // len(LEVELS) + (level - 1 < n % len(LEVELS))
            draws = derive_seed("evaluation", seed)
            for item in get_task(task, world).generate(share, level, split, draws) if share else ():
                names = str(item.facts["object"]), str(item.facts["plural"])
                count = int(item.facts["count"])
                cases.append(_generated_case(world, task, item.id, item.prompt, *names, count, item.pair))
    return cases


def _generated_case(
    world: str, task: str, id_: str, prompt: str, singular: str, plural: str, count: int = 0, pair: str | None = None
) -> Case:
    """count: 0 where it is open. nano is asked in its own words, others are told that text is wanted too."""
    terse = world == NANO.name
    if not terse:
        asked = prompt.removesuffix(" .") + "." if task == "any_number" else prompt
        prompt = f"{asked} Answer with an image, and say in one sentence what it shows and how many."
    noun = singular if count == 1 else plural
    image = {"object": f"The image shows {noun} and nothing else."}
    text = {"object": f"The text names {noun} as what is shown."}
    if count:
        image["count"] = f"The image shows exactly {count} {noun}."
        text["count"] = f"The text gives the number {count}."
    else:
        text["agreement"] = f"The text gives the number of {plural} that the image shows."
    program = {"image": list(image), "text": list(text), "object": singular, "count": count}
    reference, known = f"{count} {noun}" if count else "", {"program": program} if terse else {}
    return _case(id_, task, prompt, [*image.values()], [*text.values()], reference, pair, **known)


def rubric_check(case: Case, part: str, number: int, text: str, image: Image | None) -> Check | None:
    """What a program says of one rubric; None where none can. `text` and `image` are the answer's.

    A text is read as nano speaks: its last sentence that counts something says what is shown.
    """
    program = case.facts.get("program")
    if program is None:
        return None
    kind, name = program[part][number], f"{part} {number + 1}"
    seen = None if image is None else sprites.read(pixels(image))
    things = next((things for sentence in reversed(text.split(" .")) if (things := counted(sentence))), frozenset())
    if part == "image" or kind == "agreement":
        if seen is None:
            return Check(name, "fail", "there is no image", 0.0)
        if not seen.readable:
            return Check(name, "unreadable", seen.reason, 0.0)
    if part == "text" and len(things) != 1:
        return Check(name, "fail", f"the text counts {len(things)} different things", 0.0)
    count, object_ = (seen.count, seen.name) if part == "image" and seen is not None else next(iter(things))
    wanted = {"object": program["object"], "count": program["count"], "agreement": seen.count if seen else None}[kind]
    shown = object_ if kind == "object" else count
    right = shown == wanted
    return Check(name, "pass" if right else "fail", "" if right else f"{shown}, not {wanted}", float(right))
