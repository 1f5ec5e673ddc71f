"""Answers as files for other people's scoring code: what a leaderboard asks to be sent, or scores on its own judge.

`Benchmark.submission` gives paths and contents in the layout of the benchmark's published code. Only the first draw of
each case goes in (k = 0), as published code knows no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.files import atomic_write_bytes, below, disk_errors

if TYPE_CHECKING:
    from uni_train.eval.sample import Scored


def write_submission(folder: Path, files: Iterable[tuple[str, bytes]]) -> int:
    """Write the files below `folder`, and say how many.

    Raises UserError: a name leads elsewhere, the disk is full, or the folder cannot be written.
    """
    count = 0
    with disk_errors(folder):
        for name, content in files:
            path = below(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_bytes(path, content)
            count += 1
    return count


def first_draws(scored: Iterable[Scored]) -> Iterator[Scored]:
    """The samples that go into files: k = 0, and one of those that share a drawing under two labels."""
    return (
        answer for answer in scored if answer.sample.ask.k == 0 and not answer.sample.ask.case.id.endswith("/corrected")
    )


def file_name(case_id: str) -> str:
    """A case's id as one name of a file."""
    return case_id.replace("/", "-")


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def samples_and_images(scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
    """samples.jsonl: one row a sample, with its texts and the names of its images; images/*.png."""
    rows = []
    for draw in first_draws(scored):
        sample, ask = draw.sample, draw.sample.ask
        names = []
        for number, image in enumerate(sample.images):
            names.append(f"images/{ask.setting}/{file_name(ask.case.id)}-{number}.png")
            yield names[-1], image
        rows.append({
            "id": ask.case.id, "set": ask.case.set, "setting": ask.setting, "status": sample.status,
            "prompt": sample.prompt, "thought": sample.thought, "text": sample.text, "images": names,
            "facts": dict(sample.facts),
        })  # fmt: skip
    yield "samples.jsonl", json_lines(rows)
