"""Rubrics drafted for new items: what the model is asked, and what becomes of its replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.eval.benchmarks.doubles import Model
from tests.eval.benchmarks.published import row, write
from uni_train.core.errors import DataError, UserError
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.drafting import ATTEMPTS, drafted

DRAFT = {"image_rubrics": ["It shows the crown."], "text_rubrics": ["It names the stairs.", "It names the year."]}


def author(*replies: Any) -> Any:
    """Gives the replies in turn."""
    left = iter(replies)
    return Model(answer=lambda _: next(left))


def new(folder: Path, **changes: Any) -> Path:
    item = row("ueval", id=1, image_rubrics=..., text_rubrics=..., **changes)
    return write(folder, "ueval", item, row("ueval", id=2, image_ref=[]), file="new.jsonl") / "new.jsonl"


def test_drafts_are_rows_that_the_benchmark_reads(tmp_path: Path) -> None:
    model = author("I would say: clear.", json.dumps(DRAFT))
    first, second = drafted(new(tmp_path), model)
    assert {name: first[name] for name in DRAFT} == DRAFT and first["drafted_by"] == model.name
    assert "drafted_by" not in second and second["image_rubrics"] == row("ueval")["image_rubrics"]
    (_, asked), (_, again) = model.asked
    assert asked.seed != again.seed and asked.prompt == again.prompt and len(asked.images) == 1
    parts = ("Question: Why can people stand on it?", "Reference text: By stairs.", "1, attached", '{"image_rubrics"')
    assert all(part in asked.prompt for part in parts)
    case, _ = UEval(Source(data=write(tmp_path / "data", "ueval", first, second))).cases()
    assert case.facts["text_rubrics"] == DRAFT["text_rubrics"]


def test_what_cannot_be_drafted_is_named(tmp_path: Path) -> None:
    items = new(tmp_path)
    for replies, said in ((["no"] * ATTEMPTS, "no rubrics in 3 replies"), ([RuntimeError("down")], "gave no answer")):
        with pytest.raises(UserError, match=said):
            list(drafted(items, author(*replies)))
    for changes, said in (
        ({"task": "cooking"}, "no task"), ({"prompt": ...}, 'no "prompt"'), ({"image_ref": [3]}, "names of files"),
        ({"image_ref": ["c.png"]}, "no image"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"line 1: .*{said}"):
            list(drafted(new(tmp_path, **changes), author()))
