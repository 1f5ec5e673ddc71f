"""`model.compile`: the same texts and images, compiled once whatever is written and drawn; never while training.

Graphs are traced and run as they are: what inductor makes of them takes a minute, and is measured by bench/gpu.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from tests.cuda.paths import PROMPTS, small_nano
from tests.models.diffusers import tiny
from tests.models.diffusers.conftest import build
from uni_train.core.errors import UsageError
from uni_train.models.bagel import compiled
from uni_train.models.base import Request
from uni_train.models.checkpoint import model_config
from uni_train.models.load import build_model, compile_steps

REQUESTS = [Request(str(i), prompt, seed=i) for i, prompt in enumerate(PROMPTS)]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    compiled.CompiledSteps.compiled.cache_clear()
    monkeypatch.setattr(compiled, "LEAST_COLUMNS", 8)
    make = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, mode=None, **options: make(function, backend="eager", **options)
    )
    yield
    compiled.CompiledSteps.compiled.cache_clear()
    torch._dynamo.reset()


def furthest(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> int:
    return max(int(np.abs(a.astype(int) - b).max()) for a, b in zip(some, others, strict=True))


def everything(model: Any, requests: Sequence[Request]) -> tuple[list[str], list[np.ndarray]]:
    """Drawn by chance and greedily, with and without a thought."""
    sampled = model.think(requests, 0.7)
    thoughts, pictures = model.think_and_draw(requests, 0.0)
    return [*sampled, *thoughts], [*model.draw(requests), *pictures]


@pytest.mark.slow
def test_nano_writes_the_same_texts_and_images_and_compiles_nothing_again() -> None:
    model = small_nano("cpu")
    model.sampling = replace(model.sampling, steps=2, max_think_tokens=28)
    texts, images = everything(model, REQUESTS)
    assert max(len(text.split()) for text in texts) > 20  # room is doubled again
    compile_steps(model, True)
    compiled_texts, compiled_images = everything(model, REQUESTS)
    assert compiled_texts == texts and furthest(compiled_images, images) == 0
    assert not counters["graph_break"]
    graphs = counters["stats"]["unique_graphs"]
    everything(model, REQUESTS[::-1])
    model.draw([replace(request, prompt=f"{request.prompt} Draw") for request in REQUESTS])  # longer contexts
    assert counters["stats"]["unique_graphs"] == graphs
    compile_steps(model, False)
    again = everything(model, REQUESTS)
    assert again[0] == texts and furthest(again[1], images) == 0


@pytest.mark.slow
def test_blocks_of_a_pipeline_are_compiled_and_set_free_again(tmp_path: Path) -> None:
    tiny.pipeline("flux").save_pretrained(tmp_path)
    model, requests = build(tmp_path), [replace(request, size=(32, 48)) for request in REQUESTS]
    plain = model.draw(requests)
    compile_steps(model, True)
    assert furthest(model.draw(requests), plain) == 0
    assert counters["stats"]["unique_graphs"] >= 2  # the two kinds of blocks
    compile_steps(model, False)
    assert furthest(model.draw(requests), plain) == 0


def test_a_model_without_such_steps_says_so() -> None:
    with pytest.raises(UsageError, match="compile has no meaning for model=janus_pro_1b"):
        build_model(replace(model_config("janus_pro_1b"), checkpoint=None, compile=True))
