"""How `bench/torture.py` compares. Its kills are for the night; `tests/stages/test_resume.py` has some."""

from __future__ import annotations

import numpy as np


def test_what_differs_is_named() -> None:
    """Of the comparison itself: one that finds nothing would pass everything."""
    from bench.torture import TOLERANCE, differences

    expected = {"scores": [0.5, 1], "weights": np.ones(3), "text": "a"}
    assert list(differences(expected, expected, True)) == []
    near = {"scores": [0.5 + TOLERANCE / 4, 1], "weights": np.ones(3), "text": "a"}
    assert list(differences(near, expected, True)) == [".scores[0] is 0.50025, expected 0.5"]
    assert list(differences(near, expected, False)) == []
    far = {"scores": [0.6, 1], "weights": np.zeros(3), "more": 1}
    assert [line.split(" ")[0] for line in differences(far, expected, False)] == [
        ".more", ".scores[0]", ".text", ".weights:",
    ]  # fmt: skip
