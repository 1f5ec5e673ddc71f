"""The benchmark of BAGEL: one reading a request, whole tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import bagel


@pytest.fixture(scope="module")
def tiny() -> bagel.Subject:
    return bagel.tiny()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = replace(bagel.released_sampling(), steps=6)
    monkeypatch.setattr(bagel, "released_sampling", lambda: sampling)
    for name, value in {"SHORT_STEPS": 1, "SIDES": (32,), "WRITTEN": 2, "BATCH": 2}.items():
        monkeypatch.setattr(bagel, name, value)


@pytest.mark.slow
def test_every_table_is_whole(tiny: bagel.Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bagel, "peak_rate", lambda dtype: 1e9)
    for table in (bagel.draw([tiny], bagel.SIDES[:1]), bagel.write([tiny]), bagel.train([tiny])):
        head, _, *rows = [cells(line) for line in table if line.startswith("|")]
        assert [row[1] for row in rows] == ["1", str(bagel.BATCH)]
        assert all(len(row) == len(head) for row in rows)
        assert all(float(cell.strip("*")) >= 0 for row in rows for cell in row[2:])
