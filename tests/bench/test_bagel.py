"""The benchmark of BAGEL: one reading a request, whole tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import bagel


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.slow
def test_every_table_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling, measure = replace(bagel.released_sampling(), steps=2), bagel.measure
    monkeypatch.setattr(bagel, "released_sampling", lambda: sampling)
    monkeypatch.setattr(bagel, "measure", lambda repeats, runs: measure(1, runs))
    monkeypatch.setattr(bagel, "peak_rate", lambda dtype: 1e9)
    for name, value in {"SHORT_STEPS": 1, "SIDES": (32,), "WRITTEN": 2, "BATCH": 2}.items():
        monkeypatch.setattr(bagel, name, value)
    tiny = [bagel.tiny()]
    for table in (bagel.draw(tiny, bagel.SIDES), bagel.write(tiny), bagel.train(tiny)):
        head, _, *rows = [cells(line) for line in table if line.startswith("|")]
        assert [row[1] for row in rows] == ["1", str(bagel.BATCH)]
        assert all(len(row) == len(head) for row in rows)
        assert all(float(cell.strip("*")) >= 0 for row in rows for cell in row[2:])
