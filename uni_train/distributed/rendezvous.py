"""Where the processes of a run find each other, with an error that names those that never came."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import Store

WITHIN = timedelta(minutes=15)  # nodes start at different times, and load what they run from slow disks
EVERY = 0.25  # seconds between two checks
SHOWN = 8


def rendezvous(ranks: Ranks, within: timedelta = WITHIN, environment: Mapping[str, str] = os.environ) -> Store:
    """The store that a process group is made from, when all ranks have come; held by torchrun's agent or by rank 0.

    Raises:
        UserError: rank 0 cannot be reached, or some did not come `within` the time.
    """
    from torch.distributed import DistError, PrefixStore, TCPStore

    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    holds = ranks.is_main and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    until = time.monotonic() + within.total_seconds()
    try:
        store = TCPStore(address, port, is_master=holds, wait_for_workers=False, timeout=within)
        here = PrefixStore(f"uni_train/rendezvous/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        here.set(str(ranks.rank), platform.node())
        come = here.add("come", 1)
        while come < ranks.world_size and time.monotonic() < until:
            time.sleep(EVERY)
            come = here.add("come", 0)
        everyone = range(ranks.world_size) if come < ranks.world_size else ()
        missing = [rank for rank in everyone if not here.check([str(rank)])]
    except DistError as error:
        raise UserError(
            f"rank {ranks.rank} on {platform.node()} cannot reach the first one at {address}:{port}",
            "It has not started, has ended, or a firewall is between them; see its output.",
        ) from error
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        which = ", ".join(map(str, missing[:SHOWN])) + more
        raise UserError(
            f"{len(missing)} of {ranks.world_size} ranks did not come to {address}:{port} within "
            f"{within.total_seconds():.0f} s: {which}",
            "See whether their nodes have started, and with the same number of nodes and processes.",
        )
    return PrefixStore("uni_train/group", store)
