from __future__ import annotations

import pytest

from bench import insight


@pytest.mark.slow
def test_watching_is_measured_on_nano() -> None:
    """What it may cost is the bench's own limit: here other processes share the caches."""
    taken = insight.seconds(*insight.nano(2, 2), rounds=1)
    assert list(taken) == ["off", "on", "again"] and all(value > 0 for value in taken.values())
