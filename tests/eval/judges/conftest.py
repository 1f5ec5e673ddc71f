from __future__ import annotations

import pytest

from uni_train.eval.judges import agreement


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals from a bootstrap are rough, and a calibration takes no second."""
    monkeypatch.setattr(agreement, "RESAMPLES", 50)
