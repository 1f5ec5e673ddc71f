"""Two ranks that differ, and two of which one hangs or is killed. One that fails: tests/multinode.

    python -m tests.distributed.ranks_driver FOLDER

Ranks are forks of this process after its slow imports. Each then imports the program from FOLDER/code<rank>, so nothing
of it may be imported before. Prints a JSON line a run: what `tests.ranks.on_ranks` reports.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra  # noqa: F401
from torch.distributed.distributed_c10d import _set_pg_timeout

from tests.ranks import on_ranks

if TYPE_CHECKING:
    from uni_train.distributed.ranks import Ranks


HANGS_AFTER = 4.0  # seconds without an answer, of a rank that answers never


def compare(ranks: Ranks, folder: Path) -> None:
    """Says a line a check: "fine", or the error. The second rank, with code of its own, differs more and more."""
    from uni_train.config.compose import compose
    from uni_train.core.errors import UserError
    from uni_train.distributed import preflight as checks

    code = folder / f"code{ranks.rank}"

    def say(check: Callable[[], None]) -> None:
        try:
            check()
            print("fine", file=sys.stderr)
        except UserError as error:
            print(error.message, file=sys.stderr)

    def equal(*overrides: str) -> None:
        say(lambda: checks.preflight(ranks, compose("stars_math", overrides)))

    equal()
    equal(f"seed={ranks.rank}")
    if ranks.rank == 1:
        edited = code / "uni_train" / "flow" / "steps.py"
        edited.write_text(edited.read_text() + "# edited on this node\n")
    equal()
    if ranks.rank == 1:
        installed = code / "safetensors-0.0.1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.0.1\n")
    equal()
    checks.card_name = lambda *_: ("NVIDIA A100-SXM4-80GB", "Tesla T4")[ranks.rank]
    equal()
    checks.VISIBLE_WITHIN = 0.5
    own = folder / f"run{ranks.rank}.json"
    own.write_text(own.name)
    for file in (folder / "run0.json", own):
        say(lambda file=file: checks.expect_shared(ranks, file))


def oversleep(folder: Path) -> None:
    """Until the other rank has said something of it, and this one's log where it was."""
    from uni_train.distributed.watchdog import note

    note()
    said, log = folder / "said0", folder / "logs/rank1.log"
    while "error:" not in said.read_text() or "in oversleep" not in log.read_text():
        time.sleep(0.1)


def work(ranks: Ranks, folder: Path, fails: Callable[[], None], who: int, hangs: bool = False) -> None:
    """A few updates, then `who` fails."""
    from uni_train.console import ranks as console
    from uni_train.distributed.watchdog import note

    console.GRACE = 0.3  # there are no others to hear of
    with console.one_message(ranks):
        console.open_log(ranks, folder, HANGS_AFTER)
        for _ in range(3):
            note()
            ranks.barrier()
        if hangs:  # not before: ranks of a busy machine meet late
            _set_pg_timeout(timedelta(seconds=HANGS_AFTER))
        if ranks.rank == who:
            fails()
        ranks.barrier()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


BODIES: tuple[Callable[[Any, Path], None], ...] = (
    compare,
    lambda ranks, folder: work(ranks, folder, lambda: oversleep(folder), who=1, hangs=True),
    lambda ranks, folder: work(ranks, folder, die, who=1),
    lambda ranks, folder: work(ranks, folder, die, who=0),
)


def run(folder: Path, body: Callable[[Ranks, Path], None]) -> None:
    def start(rank: int) -> None:
        sys.path.insert(0, str(folder / f"code{rank}"))
        from uni_train.distributed.ranks import Ranks, joined

        ranks = Ranks.from_environment()
        with joined(ranks, timeout=timedelta(minutes=20)):
            body(ranks, folder)

    print(json.dumps(on_ranks(folder, 2, start, nodes=2)), flush=True)


if __name__ == "__main__":
    for body in BODIES:
        run(Path(sys.argv[1]), body)
