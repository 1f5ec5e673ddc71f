"""What several tests look at and one process makes, whichever of pytest-xdist's workers run those tests."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """An empty folder that `make` has filled, and what it returned (anything that JSON can hold).

    The first worker that asks makes it, the others wait. It is read-only afterwards.
    """
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, result = base / name, base / f"{name}.json"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            folder.mkdir()  # fails where an earlier worker has failed, and says so
            result.write_text(json.dumps(make(folder)))
    return folder, json.loads(result.read_text())
