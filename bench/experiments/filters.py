"""How well filters choose among thoughts of think-distillation on nano.

    python bench/experiment.py filters --seeds 0 -o temperature=1 -o n=64

This draws nothing and trains nothing: it samples thoughts of train prompts once, and asks every filter about them.
Precision and recall are against the exact conclusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.experiment import SETS, Lab
from bench.markdown import interval, row, table
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import get_task
from uni_train.eval.summary import filter_reliability

FILTERS = ("none", "agreement", "self", "verifier")
CANDIDATES = 4


def filters(lab: Lab, n: int = 64, temperature: float = 1.0, sets: Sequence[tuple[str, int]] = SETS) -> Iterator[str]:
    """Precision and recall of every filter on the same thoughts, CANDIDATES of each of n prompts."""
    seed = lab.seeds[0]
    from uni_train.config.compose import compose
    from uni_train.eval.task_benchmark import TaskBenchmark
    from uni_train.models.load import build_model
    from uni_train.recipes.distil import thinking

    sampled = [f"candidates={CANDIDATES}", f"temperature={temperature}", "model.threads=1"]
    model = build_model(compose("distil_math", ["level=1", *sampled]).model)
    beside = [f"{x} of {y}" for y in FILTERS[1:3] for x in ("precision", "recall")]
    yield from table("set", "spread", *(f"{name}: kept" for name in FILTERS), *beside)
    for name, level in sets:
        task = get_task(name, "nano")
        items = task.generate(n // task.items_per_draw, level, "train", derive_seed("filters", seed))
        asks = TaskBenchmark.from_items(items, "cot").asks(seed, CANDIDATES)
        thoughts = thinking.thoughts(model, asks, temperature)
        prompts = [ask.case.cluster_id for ask in asks]
        found = {}
        for one in FILTERS:
            config: Any = compose("distil_math", ["level=1", *sampled, f"filter={one}"])
            judged = [s.filter_verdict for s in thinking.decided(config, model, thoughts)]
            kept, right = [v is not None and v.passed for v in judged], [t.passed for t in thoughts]
            found[one] = filter_reliability(kept, right, prompts)
        shares = [f"{one.kept / one.n:.2f}" for one in found.values()]
        cells = [interval(part) for y in FILTERS[1:3] for part in (found[y].precision, found[y].recall)]
        yield row(f"{name}{level}", f"{thinking.spread(thoughts):.2f}", *shares, *cells)
    yield ""
    yield f"{n} prompts a set, {CANDIDATES} thoughts each at temperature {temperature:g}."
    yield "95 % intervals, clustered by expression or set of rules."
    yield "The verifier keeps what is right: precision 1, recall 1. With none precision is what the verifier keeps."
