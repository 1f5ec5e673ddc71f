"""Two ranks that differ, and two that hang: `python ranks_driver.py FOLDER`.

Ranks are forks of this process after its slow imports. Each then imports the program from FOLDER/code<rank>, so nothing
of it may be imported before. Prints a JSON line a run: exit codes, pids, what was said.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import hydra  # noqa: F401
import torch.distributed  # noqa: F401

if TYPE_CHECKING:
    from uni_train.distributed.ranks import Ranks


def compare(ranks: Ranks, folder: Path) -> None:
    """Says a line a check: "fine", or the error. The second rank, with code of its own, differs more and more."""
    from uni_train.config.compose import compose
    from uni_train.distributed import preflight as checks
    from uni_train.errors import UserError

    code = folder / f"code{ranks.rank}"
    rows = ["strategy=ddp", "sources.rows.form=text_to_image"]

    def check(overrides: list[str], run: Path) -> None:
        try:
            checks.preflight(ranks, compose("sft", [*rows, *overrides]), run)
            print("fine", file=sys.stderr)
        except UserError as error:
            print(error.message, file=sys.stderr)

    shared, path = folder / "runs", f"sources.rows.path={folder / 'rows.jsonl'}"
    check([path], shared)
    check([path, f"seed={ranks.rank}"], shared)
    os.chdir(folder / f"node{ranks.rank}")
    check(["sources.rows.path=rows.jsonl"], shared)
    checks.VISIBLE_WITHIN = 0.5
    check([path], Path("runs"))
    if ranks.rank == 1:
        edited = code / "uni_train" / "flow" / "steps.py"
        edited.write_text(edited.read_text() + "# edited on this node\n")
    check([path], shared)
    if ranks.rank == 1:
        installed = code / "safetensors-0.0.1.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: safetensors\nVersion: 0.0.1\n")
    check([path], shared)


def oversleep() -> None:
    time.sleep(60)


def work(ranks: Ranks, folder: Path, hang: Callable[[], None], who: int) -> None:
    """A few updates, then `who` hangs."""
    from uni_train.distributed.watchdog import note, watchdog

    with watchdog(ranks, folder / "logs", timedelta(seconds=2)):
        note(stage="03-finetune-math1")
        for update in range(1, 4):
            note(update=update)
            ranks.barrier()
        if ranks.rank == who:
            hang()
        ranks.barrier()


def sleeps(ranks: Ranks, folder: Path) -> None:
    work(ranks, folder, oversleep, who=0)


def stops(ranks: Ranks, folder: Path) -> None:
    work(ranks, folder, lambda: os.kill(os.getpid(), signal.SIGSTOP), who=1)


def run(folder: Path, body: Callable[[Ranks, Path], None]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os.dup2(os.open(folder / f"said{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
            sys.path.insert(0, str(folder / f"code{rank}"))
            try:
                from uni_train.distributed.ranks import Ranks, joined

                ranks = Ranks.from_environment()
                with joined(ranks):
                    body(ranks, folder)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(99)
            os._exit(0)
        pids.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1])]
    os.kill(pids[1], signal.SIGCONT)  # where it has stopped; it is not waited for yet
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pids[1], 0)[1]))
    said = [(folder / f"said{rank}").read_text() for rank in range(2)]
    print(json.dumps({"codes": codes, "pids": pids, "said": said}), flush=True)


if __name__ == "__main__":
    for body in (compare, sleeps, stops):
        run(Path(sys.argv[1]), body)
