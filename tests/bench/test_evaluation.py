from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_killing_an_evaluation_costs_at_most_one_batch_and_changes_no_number() -> None:
    """In a process of its own: the bench forks, and pytest has threads."""
    command = [sys.executable, "bench/evaluation.py", "--only", "kills", "--kills", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = re.search(r"kills: (\d+) .*, (\d+) a batch; .* at most (\d+) after a kill; (.*)", done.stdout)
    assert found is not None, done.stdout
    assert found[1] == "1" and int(found[3]) <= int(found[2])
    assert found[4] == "every number and image as in an unbroken run"
