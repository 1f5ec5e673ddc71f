"""Small files in the schema of each benchmark, that a test may spoil."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.eval.benchmark import BENCHMARKS, Benchmark, Case, Source
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import encode_png

PNG = encode_png(np.full((8, 8, 3), 200, np.uint8))
# Benchmark -> where its rows stand, and one of them.
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "unisandbox": ("math_1.jsonl", {"Question": "Draw as many chairs as 2 + 2.", "Answer": "4 chairs", "id": "1"}),
    "ureason": ("spatial.jsonl", {"id": 1, "prompt": "Why?", "expect_en": "A pen.", "category": "spatial"}),
    "ueval": ("test.jsonl", {
        "id": 7, "task": "Space", "prompt": "Why can people stand on it?", "image_rubrics": ["It shows the crown."],
        "text_rubrics": ["It names the stairs.", "It names the year."], "image_ref": ["a.png"],
        "text_ref": "By stairs.",
    }),
    "ufo": ("mcq.jsonl", {
        "id": "1", "category": "State Reconstruction", "task": "Jigsaw", "question_type": "mcq",
        "input_images": ["a.png"], "question": "Which fits?", "choice_a": "a.png", "choice_b": "b.png",
        "choice_c": None, "choice_d": None, "answer": "B", "text_cue": "A horn.", "cue_image": "a.png", "solution": "",
    }),
    "wise": ("spatio-temporal_reasoning_verified.json", {
        "prompt_id": 401, "Prompt": "The Sydney Opera House at midnight in London", "Explanation": "It is daytime.",
        "Category": "time", "Subcategory": "Horizontal time",
    }),
    "vigor": ("Sudoku/records.json", {"image": "a.png", "instruction": "Fill."}),
}  # fmt: skip


def row(name: str, **changes: Any) -> dict[str, Any]:
    """A row of a benchmark; ... leaves a key out."""
    return {key: value for key, value in {**ROWS[name][1], **changes}.items() if value is not ...}


def write(folder: Path, name: str, *rows: Any, file: str = "") -> Path:
    """A folder with these rows (a text is written as it is), in `file` or where its rows stand."""
    path = folder / (file or ROWS[name][0])
    path.parent.mkdir(parents=True, exist_ok=True)
    for image in ("a.png", "b.png"):
        (path.parent / image).write_bytes(PNG)
    if path.suffix == ".json":
        path.write_text(json.dumps(rows))
        return folder
    text = "".join((one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n" for one in rows)
    path.write_text(text, encoding="utf-8")
    if name == "ureason":
        path.with_name(f"direct_{path.name}").write_text(text)
    return folder


def write_vigor(folder: Path, *cases: Case) -> Path:
    """Cases in ViGoR's layout, their references as the image ground truth."""
    by_task: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        rows = by_task.setdefault(case.set, [])
        given = {"id": case.id.partition("/")[2], "instruction": case.prompt, "gt_prompt": case.facts["answer"] or None,
                 "size": case.category or None, "item": case.facts["item"]}  # fmt: skip
        (folder / case.set).mkdir(parents=True, exist_ok=True)
        for key, images in (("input_image", case.images), ("gt_image", case.references)):
            for image in images:
                given[key] = f"{len(rows):04d}_{key}.png"
                (folder / case.set / given[key]).write_bytes(bytes_of(image))
        rows.append(given)
    for task, rows in by_task.items():
        (folder / task / "records.json").write_text(json.dumps(rows))
    return folder


def opened(name: str, source: Source, **options: Any) -> Benchmark:
    """As `uni_train eval` opens it."""
    kind = BENCHMARKS.get(name)
    return kind.open(source, **{one.key: one.default for one in kind.options} | options)
