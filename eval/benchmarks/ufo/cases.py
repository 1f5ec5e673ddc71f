"""The questions of UFO as cases, read from a folder of published files (Hub `yzzyu/UFO`, splits mcq and open).

    FOLDER/mcq*.jsonl or mcq*.parquet, open*.jsonl or open*.parquet      (also in FOLDER/data, as the Hub lays them out)

A row: id, category, task, question_type, input_images (a list), question, choice_a to choice_d (texts or images; null
in open questions), answer, text_cue, cue_image (or null), solution. An image is a path relative to its file, or
bytes, or {"bytes", "path"}, as in the Hub's Parquet files. Rows of our own have `facts` too. Nothing of it is ever
shipped: it is CC BY-NC 4.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.data_gen.published_rows import Place, PublishedRow, TextOrNumber, read_rows, shown
from uni_train.eval.benchmark import Case
from uni_train.eval.benchmarks.ufo.names import KINDS, PAPER_TASKS, REGIMES, TASKS, regime_of, set_of
from uni_train.eval.images import Image
from uni_train.eval.published_images import image_of

LETTERS = ("A", "B", "C", "D")
SUFFIXES = (".jsonl", ".parquet")
HUB = "yzzyu/UFO"
HOW_TO_GET = (
    f"data.ufo=hf://{HUB} downloads it (CC BY-NC 4.0); or name its folder: data.ufo=FOLDER; it needs mcq*.jsonl or "
    "mcq*.parquet, open*.jsonl or open*.parquet"
)
_IMAGE_NAME = re.compile(r"[^\n]{1,400}\.(?:png|jpe?g|webp|bmp|gif)", re.IGNORECASE)
# Other spellings of a task, without blanks, hyphens and underscores.
_ALIASES = {
    "chemical": "chemistry", "multitable": "multi_table", "multiview": "multi_view", "hybridization": "hybridisation",
    "exotoego": "exo_to_ego", "exo2ego": "exo_to_ego", "geometry": "geometric", "logic": "logical",
    "physical": "physics",
}  # fmt: skip


class Question(PublishedRow):
    """A row as it is published."""

    task: TextOrNumber
    question: TextOrNumber
    answer: TextOrNumber
    category: Any = None
    input_images: list[Any] | None = None
    choice_a: Any = None
    choice_b: Any = None
    choice_c: Any = None
    choice_d: Any = None
    cue_image: Any = None
    text_cue: str | None = None
    solution: str | None = None
    facts: dict[str, Any] | None = None


def make_case(
    kind: str, id_: str, task: str, question: str, answer: str, *, images: Sequence[Image] = (),
    choices: Mapping[str, str | Image] = {}, text_cue: str = "", cue_image: Image | None = None, solution: str = "",
    part: str = "", facts: Mapping[str, Any] = {},
) -> Case:  # fmt: skip
    """A question; choices that are images are shown behind those of the question.

    Args:
        kind: "mcq" or "open". answer: the letter of a choice, or words. choices: of "mcq". cue_image: the right visual
            cue. part: the rest of a published task's name ("inpainting_a": "a"). facts: of our own questions.
    """
    texts = {letter: choice if isinstance(choice, str) else None for letter, choice in choices.items()}
    pictures = {letter: choice for letter, choice in choices.items() if not isinstance(choice, str)}
    facts = {
        "world": "", **facts, "answer": answer, "choices": texts,
        "choice_images": {letter: len(images) + at for at, letter in enumerate(pictures)},
        "inputs": len(images), "text_cue": text_cue, "solution": solution,
        "right": texts.get(answer) or ("" if kind == "mcq" else answer), "part": part,
        # of our own: the same question with choices and open, which share their cues
        **({"drawn_as": f"own/{id_}"} if facts else {}),
    }  # fmt: skip
    name = set_of(task, kind)
    return Case(
        f"{kind}/{id_}", name, question, (*images, *pictures.values()), category=part or regime_of(name), facts=facts,
        references=() if cue_image is None else (cue_image,),
    )  # fmt: skip


def read_folder(folder: Path) -> list[Case]:
    """All questions, those with choices first.

    Raises:
        DataError: no such folder or files (how to get them), or a row that does not fit: the file, its line (of Parquet
            the row) and the key are named.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder. {HOW_TO_GET}")
    files = {kind: _files(folder, kind) for kind in KINDS}
    if not any(files.values()):
        raise DataError(f"{folder} has no files of UFO. {HOW_TO_GET}")
    return [_case(place, row, kind) for kind, paths in files.items() for place, row in read_rows(paths, Question)]


def _files(folder: Path, kind: str) -> list[Path]:
    for place in (folder, folder / "data"):
        files = sorted(path for path in place.glob(f"{kind}*") if path.suffix in SUFFIXES and path.is_file())
        if files:
            return files
    return []


def _case(place: Place, row: Question, kind: str) -> Case:
    task, part = _task(place, row.task)
    # Names that we do not know are let pass; one of another regime is a mistake.
    regimes = [regime for regime in REGIMES if regime in str(row.category).casefold()]
    if regimes and regimes != [TASKS[task]]:
        raise DataError(f'{place}: "category" is "{row.category}", but {task} is of state {TASKS[task]}')
    choices = _choices(place, row) if kind == "mcq" else {}
    answer = row.answer.strip()
    return make_case(
        kind,
        row.id.strip(),
        task,
        row.question.strip(),
        _letter(place, answer, choices) if kind == "mcq" else answer,
        images=[image_of(place, "input_images", image, at) for at, image in enumerate(row.input_images or ())],
        choices=choices,
        text_cue=(row.text_cue or "").strip(),
        cue_image=None if row.cue_image is None else image_of(place, "cue_image", row.cue_image),
        solution=(row.solution or "").strip(),
        part=part,
        facts=row.facts or {},
    )


def _task(place: Place, name: str) -> tuple[str, str]:
    """The task, and what is left of the name: "Inpainting_A" -> ("inpainting", "a")."""
    plain = re.sub(r"[\s_-]+", "", name.casefold())
    known = {task.replace("_", ""): task for task in TASKS} | _ALIASES
    for spelling in sorted(known, key=len, reverse=True):
        if plain.startswith(spelling):
            return known[spelling], plain.removeprefix(spelling)
    raise DataError(f'{place}: "task" is "{name}", which UFO does not have: {nearest_or_all(name, PAPER_TASKS)}')


def _choices(place: Place, row: Question) -> dict[str, str | Image]:
    choices: dict[str, str | Image] = {}
    for letter in LETTERS:
        key = f"choice_{letter.lower()}"
        value = getattr(row, key)
        if value is None or value == "":
            continue
        if isinstance(value, dict | bytes) or (isinstance(value, str) and _IMAGE_NAME.fullmatch(value.strip())):
            choices[letter] = image_of(place, key, value)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f'{place}: "{key}" is {shown(value)}; expected a text or an image')
        else:
            choices[letter] = str(value).strip()
    if len(choices) < 2:
        raise DataError(f'{place}: {len(choices)} of "choice_a" to "choice_d" are given; expected at least two')
    return choices


def _letter(place: Place, answer: str, choices: Mapping[str, str | Image]) -> str:
    match = re.fullmatch(r"\W*([A-Da-d])(?:\W*|[).:,]\s.*)", answer, re.DOTALL)
    if match is None or match[1].upper() not in choices:
        raise DataError(f'{place}: "answer" is "{answer[:40]}"; expected the letter of a choice: {", ".join(choices)}')
    return match[1].upper()
