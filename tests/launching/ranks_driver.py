"""What the tests of this folder start as two processes: `python -m tests.launching.ranks_driver FOLDER`.

They compare themselves once for each way in which they may differ, and write down what they are told; then they hang.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import uni_train
from uni_train.config.compose import compose
from uni_train.errors import UserError
from uni_train.launching import preflight as checks
from uni_train.launching.watchdog import note, watchdog
from uni_train.ranks import Ranks, joined


def compare(ranks: Ranks, folder: Path) -> None:
    """A line a check: "fine", or the error. The second rank's node differs more and more."""
    told: list[str] = []
    rows = ["strategy=ddp", "sources.rows.form=text_to_image"]

    def check(overrides: list[str], run: Path) -> None:
        try:
            checks.preflight(ranks, compose("sft", [*rows, *overrides]), run)
            told.append("fine")
        except UserError as error:
            told.append(error.message)

    shared, path = folder / "runs", f"sources.rows.path={folder / 'rows.jsonl'}"
    check([path], shared)
    check([path, f"seed={ranks.rank}"], shared)
    os.chdir(folder / f"node{ranks.rank}")
    check(["sources.rows.path=rows.jsonl"], shared)
    checks.VISIBLE_WITHIN = 0.5
    check([path], Path("runs"))
    if ranks.rank == 1:
        code = Path(uni_train.__file__).parent / "flow" / "steps.py"
        code.write_text(code.read_text() + "# edited on this node\n")
    check([path], shared)
    if ranks.rank == 1:
        installed = Path(uni_train.__file__).parents[1] / "safetensors-0.0.1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.0.1\n")
    check([path], shared)
    (folder / f"told{ranks.rank}").write_text("\n".join(told))


def oversleep() -> None:
    time.sleep(60)


def main() -> None:
    ranks, folder = Ranks.from_environment(), Path(sys.argv[1])
    how = sys.argv[2]
    with joined(ranks):
        if how == "compare":
            compare(ranks, folder)
        with watchdog(ranks, folder / "logs", timedelta(seconds=2)):
            note(stage="03-finetune-math1")
            for update in range(1, 4):
                note(update=update)
                ranks.wait()
            if ranks.first and how == "compare":
                oversleep()
            if ranks.rank == 1 and how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            ranks.wait()


if __name__ == "__main__":
    main()
