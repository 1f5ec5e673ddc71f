"""Two ranks that differ, and two of which one hangs, is killed or fails: `python ranks_driver.py FOLDER`.

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
from torch.distributed.distributed_c10d import _set_pg_timeout

if TYPE_CHECKING:
    from uni_train.distributed.ranks import Ranks


HANGS_AFTER = 4.0  # seconds without an answer, of a rank that answers never


def compare(ranks: Ranks, folder: Path) -> None:
    """Says a line a check: "fine", or the error. The second rank, with code of its own, differs more and more."""
    from uni_train.config.compose import compose
    from uni_train.distributed import preflight as checks
    from uni_train.errors import UserError

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
    checks.VISIBLE_WITHIN = 0.5
    for own in (folder / "run.json", folder / f"run{ranks.rank}.json"):
        own.write_text(own.name)
        say(lambda own=own: checks.expect_shared(ranks, own))


def oversleep(folder: Path) -> None:
    """Until the other rank has said something of it, and this one's log where it was."""
    from uni_train.distributed.watchdog import note

    note()
    while (
        "error:" not in (folder / "said0").read_text() or "in oversleep" not in (folder / "logs/rank1.log").read_text()
    ):
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


def sleeps(ranks: Ranks, folder: Path) -> None:
    work(ranks, folder, lambda: oversleep(folder), who=1, hangs=True)


def killed(ranks: Ranks, folder: Path) -> None:
    work(ranks, folder, lambda: os.kill(os.getpid(), signal.SIGKILL), who=1)


def first_killed(ranks: Ranks, folder: Path) -> None:
    work(ranks, folder, lambda: os.kill(os.getpid(), signal.SIGKILL), who=0)


def refuses(ranks: Ranks, folder: Path) -> None:
    from uni_train.errors import UserError

    def refuse() -> None:
        raise UserError("rows.jsonl, line 3: no text", "Mend it.")

    work(ranks, folder, refuse, who=1)


def run(folder: Path, body: Callable[[Ranks, Path], None]) -> None:
    holder = socket.socket()  # as addresses.held_port, of which nothing may be imported here
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = holder.getsockname()[1]
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
                with joined(ranks, timeout=timedelta(minutes=20)):
                    body(ranks, folder)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(99)
            os._exit(0)
        pids.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1])]
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pids[1], 0)[1]))
    said = [(folder / f"said{rank}").read_text() for rank in range(2)]
    print(json.dumps({"codes": codes, "pids": pids, "said": said}), flush=True)


if __name__ == "__main__":
    for body in (compare, sleeps, killed, first_killed, refuses):
        run(Path(sys.argv[1]), body)
