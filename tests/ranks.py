"""Ranks as forks of this process, after its imports. Imports nothing of the program, as some ranks have their own."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processes import keep_threads


def on_ranks(folder: Path, count: int, body: Callable[[int], None], nodes: int = 1) -> dict[str, Any]:
    """`body(rank)` in `count` processes with torchrun's environment: their exit codes, pids and what each said.

    What a rank says is in `folder/said<rank>`, also while it runs. An exception is exit code 99.
    """
    folder.mkdir(exist_ok=True)
    gc.freeze()  # else each fork's collector walks, and copies, what this process has imported
    pids = []
    with socket.socket() as holder:  # as addresses.held_port
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        for rank in range(count):
            pids.append(os.fork())
            if pids[-1] == 0:
                each = count // nodes
                place = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank % each, "LOCAL_WORLD_SIZE": each}
                os.environ |= {name: str(value) for name, value in place.items()}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1])}
                said = os.open(folder / f"said{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
                for stream in (1, 2):
                    os.dup2(said, stream)
                os._exit(_code(body, rank))
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return {"codes": codes, "pids": pids, "said": [(folder / f"said{rank}").read_text() for rank in range(count)]}


def _code(body: Callable[[int], None], rank: int) -> int:
    try:
        keep_threads()
        body(rank)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        with contextlib.suppress(OSError):  # where a disk is full
            sys.excepthook(*sys.exc_info())
        return 99
    return 0
