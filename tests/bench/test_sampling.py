"""The bench compares what it says: exact sampling differs in nothing from itself, and each option from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers")

from bench import sampling


def test_errors_are_those_of_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "OPTIONS", {"exact": {}, "again": {}, "half the steps": {"steps": 0.5}})
    subject = sampling.nano(tmp_path)
    rows = [line.split("|")[1:-1] for line in sampling.compared(replace(subject, requests=subject.requests[:2]), 1)]
    errors = {name.strip(): [float(cell) for cell in cells[1:]] for name, *cells in rows[2:]}
    assert errors["exact"] == errors["again"] == [0, 0]
    assert all(error > 0 for error in errors["half the steps"])
    assert subject.built(steps=0.5).sampling.steps == subject.config.sampling.steps // 2
