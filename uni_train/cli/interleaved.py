"""Interleaved answers of `generate` as files: a Markdown page a request, with its images beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uni_train.core.files import atomic_write_bytes, atomic_write_text
from uni_train.models.base import InterleavedGenerator, UnifiedModel, expect_skill
from uni_train.models.batches import fitting
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request

_TITLES = ("writing", "drawing")


def write_answers(
    model: UnifiedModel,
    requests: Sequence[Request],
    batch: int,
    out: Path,
    steps: Callable[..., AbstractContextManager[OnStep]],
) -> Iterator[Path]:
    """Answer the requests, and write each as FILE.md with FILE-1.png, FILE-2.png ...; yields what was written.

    Args:
        batch: requests at once.
        out: names the files, by its stem; of several requests the seed follows it.
        steps: makes a progress bar for each of its titles in turn.
    """
    composer = expect_skill(model, InterleavedGenerator)
    for start in range(0, len(requests), batch):
        part = requests[start : start + batch]
        with steps(*_TITLES * 1_000) as steps_done:
            answers = fitting(partial(composer.compose, on_step=steps_done), part)
        for request, answer in zip(part, answers, strict=True):
            yield from _written(out.stem if len(requests) == 1 else f"{out.stem}-{request.seed}", out.parent, answer)


def _written(stem: str, folder: Path, answer: Sequence[str | np.ndarray]) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    lines, images = [], 0
    for part in answer:
        if isinstance(part, str):
            lines.append(part)
            continue
        images += 1
        path = folder / f"{stem}-{images}.png"
        atomic_write_bytes(path, encode_png(part))
        lines.append(f"![image {images}]({path.name})")
        yield path
    page = folder / f"{stem}.md"
    atomic_write_text(page, "\n\n".join(lines) + "\n")
    yield page
