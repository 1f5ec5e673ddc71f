"""Rubrics drafted for new items: what the model is asked, and what becomes of its replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.ueval.test_files import row, write
from uni_train.data_gen.errors import DataError
from uni_train.errors import UserError
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.drafting import ATTEMPTS, drafted
from uni_train.models.base import Request
from uni_train.models.pictures import encode_png

DRAFT = {"image_rubrics": ["It shows the crown."], "text_rubrics": ["It names the stairs.", "It names the year."]}


class Author:
    """Gives the replies in turn."""

    name = "author"

    def __init__(self, *replies: Any) -> None:
        self.replies, self.asked = list(replies), []  # type: ignore[var-annotated]

    def answer(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        self.asked += requests
        return [self.replies.pop(0) for _ in requests]


def new(folder: Path, **changes: Any) -> Path:
    (folder / "a.png").write_bytes(encode_png(np.full((4, 4, 3), 7, np.uint8)))
    done = row(id=2, image_ref=[])
    write(folder, row(id=1, image_rubrics=..., text_rubrics=..., **changes), done, name="new.jsonl")
    return folder / "new.jsonl"


def test_drafts_are_rows_that_the_benchmark_reads(tmp_path: Path) -> None:
    author = Author("I would say: clear.", json.dumps(DRAFT))
    first, second = drafted(new(tmp_path), author)  # type: ignore[arg-type]
    assert {name: first[name] for name in DRAFT} == DRAFT and first["drafted_by"] == "author"
    assert "drafted_by" not in second and second["image_rubrics"] == row()["image_rubrics"]
    asked, again = author.asked
    assert asked.seed != again.seed and asked.prompt == again.prompt and len(asked.images) == 1
    for words in (
        "Question: Why can people stand on it?",
        "Reference text: By stairs.",
        "1, attached",
        '{"image_rubrics"',
    ):
        assert words in asked.prompt
    case, _ = UEval(write(tmp_path / "data", first, second)).cases()
    assert case.facts["text_rubrics"] == DRAFT["text_rubrics"]


def test_what_cannot_be_drafted_is_named(tmp_path: Path) -> None:
    items = new(tmp_path)
    for replies, said in ((["no"] * ATTEMPTS, "no rubrics in 3 replies"), ([RuntimeError("down")], "gave no answer")):
        with pytest.raises(UserError, match=rf"new\.jsonl, line 1: .*{said}|{said}"):
            list(drafted(items, Author(*replies)))  # type: ignore[arg-type]
    for changes, said in (
        ({"task": "cooking"}, "no task"), ({"prompt": ...}, 'no "prompt"'), ({"image_ref": [3]}, "names of files"),
        ({"image_ref": ["b.png"]}, "no image"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"line 1: .*{said}"):
            list(drafted(new(tmp_path, **changes), Author()))  # type: ignore[arg-type]
