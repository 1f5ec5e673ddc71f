"""Rubrics for new items, drafted by a model from question and reference (section 2.2): people refine them.

    python -m uni_train.eval.benchmarks.ueval.drafting new.jsonl --model URL#MODEL --out drafted.jsonl

A row of new.jsonl is a published one without rubrics; `image_ref` holds files beside it. The paper prints no prompt for
drafting: this one is ours, and asks for what section 2.2 says of good rubrics. Drafts are rows that `data` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.core.errors import DataError, UserError
from uni_train.data_gen.jsonl import read_objects
from uni_train.eval.benchmark import Respondent
from uni_train.eval.benchmarks.ueval.cases import read_question
from uni_train.eval.prompts import filled
from uni_train.eval.reading import JsonReader

if TYPE_CHECKING:
    import numpy as np

    from uni_train.models.base import Request

ATTEMPTS = 3
PROMPT = """\
You write rubrics by which answers to a question are graded. An answer consists of images and a text. Another model will decide for each criterion by itself whether an answer meets it, so each must be clear without the others.

Question: {question}
Reference text: {text}
Reference images: {images}

Write two lists of criteria, one for the images and one for the text.
- A correct answer, such as the reference, meets all of them. A wrong or incomplete one fails some.
- Each criterion is about this question, one sentence, unambiguous, and can be decided from the answer alone.
- No criterion repeats another. Do not demand the reference's wording or style.
- Where images hold words, one criterion demands that these are spelled correctly and can be read.

Reply with a JSON object and nothing else: {"image_rubrics": ["..."], "text_rubrics": ["..."]}"""  # noqa: E501
_LIST = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True}
REPLY = {
    "type": "object",
    "properties": {"image_rubrics": _LIST, "text_rubrics": _LIST},
    "required": ["image_rubrics", "text_rubrics"],
    "additionalProperties": False,
}


def drafted(items: Path, model: Respondent) -> Iterator[dict[str, Any]]:
    """Each row of `items` with its rubrics and who drafted them. Rows that have rubrics stay as they are.

    Raises:
        DataError: names file and line: no JSON, a key that is missing, an image that cannot be read. UserError: the
            model failed, or gave no rubrics in ATTEMPTS replies.
    """
    from uni_train.models.base import Request

    reader = JsonReader(REPLY)
    for line, row in read_objects(items):
        place = f"{items}, line {line}"
        if row.get("image_rubrics") or row.get("text_rubrics"):
            yield row
            continue
        case = read_question(place, {**row, "image_rubrics": ["to be drafted"], "text_rubrics": []})
        images = tuple(_image(place, items.parent, name) for name in row.get("image_ref") or ())
        prompt = filled(
            PROMPT, question=case.prompt, text=case.facts["text_ref"] or "(none)",
            images=f"{len(images)}, attached" if images else "(none)",
        )  # fmt: skip
        yield {**row, **_draft(place, model, Request(case.id, prompt, images), reader), "drafted_by": model.name}


def _draft(place: str, model: Respondent, request: Request, reader: JsonReader) -> dict[str, list[str]]:
    problem = ""
    for seed in range(ATTEMPTS):  # another seed is another stored call
        (reply,) = model.answer([replace(request, seed=seed)])
        if isinstance(reply, Exception):
            raise UserError(f"{place}: {model.name} gave no answer ({reply})", "Run the same command again.")
        try:
            return reader(reply)  # type: ignore[no-any-return]
        except ValueError as error:
            problem = str(error)
    raise UserError(f"{place}: no rubrics in {ATTEMPTS} replies of {model.name}; {problem}", "Use another model.")


def _image(place: str, folder: Path, name: Any) -> np.ndarray:
    from uni_train.models.pictures import decode_picture

    if not isinstance(name, str):
        raise DataError(f'{place}: "image_ref" must hold names of files beside it')
    try:
        return decode_picture((folder / name).read_bytes(), name)
    except (OSError, ValueError) as error:
        raise DataError(f"{place}: {folder / name} is no image that can be read ({error})") from error


@click.command()
@click.argument("items", type=click.Path(path_type=Path))
@click.option("--model", required=True, metavar="URL#MODEL", help="Who drafts: an endpoint that sees images.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The drafts, JSON lines.")
@click.option("--store", type=click.Path(path_type=Path), default=Path("evals/store"), help="Where replies are kept.")
def main(items: Path, model: str, out: Path, store: Path) -> None:
    """Draft rubrics for the questions in ITEMS, which people then refine."""
    from uni_train.core.files import atomic_write_text
    from uni_train.eval.respondent import open_model
    from uni_train.eval.store import Store

    try:
        rows = list(drafted(items, open_model(model, Store(store))))
        atomic_write_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except (UserError, DataError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{out}: {len(rows)} questions. Read every criterion before it is used.")


if __name__ == "__main__":
    main()
