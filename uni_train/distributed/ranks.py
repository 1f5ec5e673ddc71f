"""The processes of one run, one a device: who this one is, and what they do together.

Started by torchrun or `uni_train launch`, which set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. Ranks share the
work and change no number but by rounding: what each of them draws follows from seeds and indices, never from its rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from uni_train.core.errors import UsageError, UserError

T = TypeVar("T")
TIMEOUT = timedelta(hours=24)  # of a collective


@dataclass(frozen=True, slots=True)
class Ranks:
    """One of `world_size` processes, `local_world_size` of them on this node."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """As torchrun tells it; alone where it does not.

        Raises:
            UserError: a variable that is missing beside the others, or is no such number.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        given = {name: environment[name] for name in names if name in environment}
        if "WORLD_SIZE" not in given or "RANK" not in given:
            return ALONE
        hint = "Start with torchrun or `uni_train launch`, which set all four, or unset them to run alone."
        for name in names:
            if not given.get(name, "").isdigit():
                raise UserError(f"{name}={given.get(name, '')!r} in the environment: must be a number", hint)
        rank, world_size, local_rank, local_world_size = (int(given[name]) for name in names)
        if not (rank < world_size and local_rank < local_world_size <= world_size):
            shown = " ".join(f"{name}={value}" for name, value in given.items())
            raise UserError(f"these do not fit together in the environment: {shown}", hint)
        return cls(rank, world_size, local_rank, local_world_size)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes what is written once, and speaks."""
        return self.rank == 0

    def shard(self, n: int) -> range:
        """The indices of this rank among `n`, which `world_size` divides: equal parts, in order."""
        each = n // self.world_size
        return range(self.rank * each, (self.rank + 1) * each)

    def gather(self, value: T) -> list[T]:
        """`value` of every rank (anything that pickles, sent between processes of one run), the same list on all."""
        if self.world_size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Return when all ranks are here."""
        self.gather(None)

    def on_all(self, work: Callable[[], T]) -> T:
        """`work()`, called on every rank; a UserError on one is raised on all, which would otherwise wait for it.

        Raises:
            UserError: a rank's own, else that of the lowest rank that has one, named.
        """
        result: T | None = None
        own: UserError | None = None
        try:
            result = work()
        except UserError as error:
            own = error
        failure = None if own is None else (isinstance(own, UsageError), own.message, own.hint)
        for rank, failed in enumerate(self.gather(failure)):
            if failed is not None:
                usage, message, hint = failed
                raise own or (UsageError if usage else UserError)(f"rank {rank}: {message}", hint)
        return result  # type: ignore[return-value]

    def from_main(self, work: Callable[[], T]) -> T:
        """What `work()` returns on rank 0, which alone calls it, broadcast to all.

        Raises:
            UserError: that of rank 0, on all.
        """
        return self.gather(self.on_all(lambda: work() if self.is_main else None))[0]  # type: ignore[return-value]


ALONE = Ranks()


@contextmanager
def joined(ranks: Ranks, *, cuda: bool = False, timeout: timedelta = TIMEOUT) -> Iterator[Ranks]:
    """Within it the processes can talk: gloo for what is on the CPU, nccl for what is on GPUs. Lightning and DeepSpeed
    use the process group that they find. A collective that lasts longer than `timeout` is an error.

    Raises:
        UserError: the processes do not meet at MASTER_ADDR:MASTER_PORT within `timeout`.
    """
    if ranks.world_size == 1:
        yield ranks
        return
    import torch
    import torch.distributed as dist

    if cuda:
        if ranks.local_world_size > torch.cuda.device_count():
            shown = f"{ranks.local_world_size} processes on a node with {torch.cuda.device_count()} visible GPUs"
            raise UserError(shown, "Start one process a GPU, and let each see all of them.")
        torch.cuda.set_device(ranks.local_rank)
        os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")  # of the flight recorder
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timeout)
    except (dist.DistError, ValueError, RuntimeError) as error:
        at = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        why = str(error).partition("\n")[0]
        hint = "See whether all nodes have started, the address and port are right, and no firewall is between them."
        raise UserError(
            f"rank {ranks.rank} of {ranks.world_size} did not meet the others at {at}: {why}", hint
        ) from error
    yield ranks
    dist.destroy_process_group()
