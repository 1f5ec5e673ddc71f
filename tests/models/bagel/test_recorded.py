"""Text by a CUDA graph (recorded.py), with a graph of this file: it records operators on a CPU, and replays them.

As in CUDA's, only tensors come back to life: what Python decided while the step was recorded stays as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.cuda.paths import PROMPTS, small_nano
from uni_train.models.bagel import recorded
from uni_train.models.base import Request

REQUESTS = [Request(str(i), prompt, seed=i) for i, prompt in enumerate(PROMPTS)]


class Graph:
    """Operators in order, with their arguments and results."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, results in self.calls:
            with torch.no_grad():
                again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(results), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Recording(TorchDispatchMode):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = [arg for arg, about in zip(args, function._schema.arguments, strict=False) if about.is_write]
        before = [tensor.clone() for tensor in written]
        results = function(*args, **(kwargs or {}))
        for tensor, earlier in zip(written, before, strict=True):
            tensor.copy_(earlier)  # nothing happens while CUDA records
        self.graph.calls.append((function, args, kwargs or {}, results))
        return results


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Those that were made; every text of a model is written by one."""
    made: list[Graph] = []

    def graph() -> Graph:
        made.append(Graph())
        return made[-1]

    @contextmanager
    def record(graph: Graph, **_: Any) -> Iterator[None]:
        with Recording(graph):
            yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(recorded, "_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(recorded, "static_text", recorded.RecordedText)
    return made


def texts_of(model: Any, recorded: bool) -> list[str]:
    """Drawn by chance and greedily; the last context is read once more."""
    model.sampling = replace(model.sampling, steps=2, max_think_tokens=28)
    model.bagel.static = SimpleNamespace(compiled=lambda function: function) if recorded else None  # as on a GPU
    greedy, _ = model.think_and_draw(REQUESTS, 0.0)
    return [*model.think(REQUESTS, 0.7), *greedy, *model.answer(REQUESTS)]


def test_a_recorded_step_writes_what_an_eager_one_writes(graphs: list[Graph]) -> None:
    model = small_nano("cpu")
    expected = texts_of(model, recorded=False)
    assert not graphs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert texts_of(model, recorded=True) == expected
    assert len(graphs) >= 2  # one a text of more than a few tokens
    assert min(graph.replays for graph in graphs) >= 1 and max(graph.replays for graph in graphs) >= 16


@pytest.mark.parametrize("fault", ["cannot record", "records nothing"])
def test_without_a_graph_that_works_the_text_is_written_eagerly_and_said_once(
    graphs: list[Graph], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_nano("cpu")
    expected = texts_of(model, recorded=False)

    def record(graph: Graph, **_: Any) -> Any:
        if fault == "records nothing":
            return nullcontext()
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors might")

    monkeypatch.setattr(torch.cuda, "graph", record)
    with pytest.warns(UserWarning, match="without a CUDA graph") as said:
        assert texts_of(model, recorded=True) == expected
    assert len(said) == 1 and "might" not in str(said[0].message)
    assert not model.bagel.records_text
