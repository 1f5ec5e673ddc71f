"""How often the 95 % intervals hold the truth, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from uni_train.eval import statistics
from uni_train.eval.statistics import Means, interval

RUNS = 2000
# The standard error of a coverage of .95 is .005: three of them beside the bounds .93 and .98.
LEAST, MOST = 0.93 - 0.015, 0.98 + 0.015

# The sizes of clusters, and of the cells (in clusters); unequal ones first.
DESIGNS = {
    "single, 5": ([1] * 5, [5]), "single, 100": ([1] * 100, [100]),
    "pairs, 5": ([2] * 5, [5]), "pairs, 100": ([2] * 100, [100]),
    "unequal, 5": ([1, 2, 2, 1, 2], [5]), "unequal, 60": ([1, 2, 3, 4] * 15, [60]),
    "ten cells of 3": ([1] * 30, [3] * 10), "a hundred cells of two": ([1] * 200, [2] * 100),
    "cells of one": ([1] * 12, [1] * 12),
    "unequal cells": ([1] * 50, [25, 15, 10]), "unequal cells of pairs": ([2] * 50, [25, 15, 10]),
    "unequal cells of unequal clusters": ([1, 2, 3] * 20, [30, 20, 10]),
    "cells of 5 and 200": ([1] * 205, [5, 200]),
    "cells of 12, 120, 3 and 110": ([1] * 245, [12, 120, 3, 110]),
    "five cells of 2, five of 100": ([1] * 510, [2, 100] * 5),
    "cells of 10 and 100 pairs": ([2] * 110, [10, 100]),
    "cells of 10 and 200 unequal clusters": ([1, 2, 3] * 70, [10, 200]),
}  # fmt: skip
SHARES = (0.01, 0.05, 0.5)  # and their complements, as the intervals of those are the same, mirrored


def _sample(sizes: list[int], share: float, kind: str, generator: np.random.Generator) -> np.ndarray:
    """Outcomes [RUNS, N]; of a cluster they are independent, all alike, alike in half of the clusters, or (of a pair)
    alike as seldom as can be."""
    if kind == "differ":
        place = generator.random((RUNS, len(sizes)))
        return np.stack([place < share, (place >= share) & (place < 2 * share)], axis=-1).reshape(RUNS, -1)
    cluster = np.repeat(range(len(sizes)), sizes)
    alone = generator.random((RUNS, len(cluster))) < share
    alike = alone[:, np.cumsum([0, *sizes[:-1]])[cluster]]
    half = (generator.random((RUNS, len(sizes))) < 0.5)[:, cluster]
    return {"alone": alone, "alike": alike, "half": np.where(half, alike, alone)}[kind]


def _covers(outcomes: np.ndarray, sizes: list[int], cells: list[int], truth: float) -> tuple[float, bool]:
    """The share of intervals that hold `truth`, and whether discreteness forces a share above .98.

    It does where "all right" or "all wrong" has more than 2.5 %: a limit cannot miss on that side. It does where the
    tails of the mean of at most 3.5 % each, by its true distribution, do not add up to 2 %. And fewer than ten clusters
    of unequal size cannot tell whether they agree: the interval must allow for it.
    """
    in_cell = np.repeat(np.arange(len(cells)), cells)
    places = np.repeat(range(len(sizes)), sizes).tolist(), np.repeat(in_cell, sizes).tolist()
    means, mirrored = Means.from_outcomes(outcomes, *places), Means.from_outcomes(1 - outcomes[:20], *places)
    assert np.allclose(1 - mirrored.low, means.high[:20]) and np.allclose(1 - mirrored.high, means.low[:20])
    covered = float(np.mean((means.low <= truth + 1e-9) & (truth - 1e-9 <= means.high)))
    values, counts = np.unique(np.round(means.values, 9), return_counts=True)
    atoms = counts / RUNS
    constant = max((float(atoms[i]) for i in (0, -1) if values[i] in (0, 1)), default=0.0)
    tails = sum(max((tail for tail in np.cumsum(side) if tail <= 0.035), default=0.0) for side in (atoms, atoms[::-1]))
    few = len(sizes) < 10 and len(set(sizes)) > 1
    return covered, constant > 0.025 or tails < 0.02 or few


def _once(mean: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`interval`, of equal cases once: RUNS draws have few different ones."""
    cases, places = np.unique(np.round([mean, size], 9).reshape(2, -1), axis=1, return_inverse=True)
    low, high = interval(*cases)
    return low[places].reshape(mean.shape), high[places].reshape(mean.shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", DESIGNS)
def test_intervals_hold_the_truth_as_often_as_they_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "interval", _once)
    sizes, cells = DESIGNS[name]
    generator = np.random.default_rng(1)
    kinds = ["alone"] + ["half", "alike"] * (max(sizes) > 1) + ["differ"] * (set(sizes) == {2})
    for share in SHARES:
        for kind in kinds:
            covered, forced = _covers(_sample(sizes, share, kind, generator).astype(float), sizes, cells, share)
            assert LEAST <= covered <= (1.0 if forced else MOST), (share, kind, covered)
