from __future__ import annotations

import pytest

from uni_train.eval.judges import agreement


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test looks at the width of an interval from a bootstrap, which takes a second a calibration."""
    monkeypatch.setattr(agreement, "RESAMPLES", 50)
