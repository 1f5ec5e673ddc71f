"""`make test`: every test, and once more those that failed, alone and in one process.

    python -m tests.suite [OPTION ...]      # pytest's, for the first time

More than `MOST` failures, or one that fails twice, are red. What passed only when repeated is named in the last lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 5
FAILED = 1  # pytest's exit code for tests that failed; another one is no matter of tests


def run(options: Sequence[str]) -> int:
    """Run pytest in the current folder, once or twice; its exit code."""
    code = pytest(*options)
    if code != FAILED:
        return code
    failed = list(json.loads(Path(".pytest_cache/v/cache/lastfailed").read_text()))
    if len(failed) > MOST:
        print(f"{len(failed)} tests failed, more than {MOST}: none is repeated")
        return code
    print(f"\nrepeated, alone and in one process: {', '.join(failed)}", flush=True)
    code = pytest("--last-failed", "--last-failed-no-failures", "none")
    if code == 0:
        print("passed only when repeated:", *failed, sep="\n  ")
    return code


def pytest(*options: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *options]).returncode


if __name__ == "__main__":
    sys.exit(run(["--cache-clear", *sys.argv[1:]]))
