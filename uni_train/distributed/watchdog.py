"""Turns a silent hang into an error that names the rank that did not arrive, where it is, and for how long.

Every rank has a thread that writes down, a few times within the timeout, what the rank is in: its stage and update, the
collectives that torch's flight recorder knows as begun and not finished, and the Python frames of the main thread. A
rank that has been in one collective for longer than the timeout reads what the others have written, says who is
missing, and ends; so does every other rank.

    <folder>/heartbeats/rank<k>.json    while the run goes on, and afterwards if it did not end well
    <folder>/hang.json                  after a hang: the message, and what every rank was in

Each process group numbers its collectives. Who has begun fewer than the one that others wait in has not arrived. The
flight recorder is on by default (TORCH_FR_BUFFER_SIZE=2000) and knows gloo's collectives since torch 2.8. A thread
cannot call its main thread back from a collective, so the process ends at once (os._exit): what is on the disk is
whole, and the same command continues from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError

HEARTBEATS = "heartbeats"
HANG = "hang.json"
LEAST, MOST = 0.1, 15.0  # seconds between two heartbeats: a twentieth of the timeout, within these
GRACE = 15.0  # seconds
EXIT_CODE = 1
OURS = ("uni_train", "data_gen", "eval")
NOT_A_PLACE = ("uni_train/distributed/ranks.py", "uni_train/distributed/watchdog.py")  # where every rank waits

_here: dict[str, Any] = {"stage": None, "update": None, "at": None}


def note(*, stage: str | None = None, update: int | None = None) -> None:
    """Tell the watchdog where this rank is: in another stage, or after so many updates of the one it is in.

    Any call is a sign of progress: a rank that notes something within the timeout is slow, and no hang.
    """
    if stage is not None:
        _here.update(stage=stage, update=None)
    if update is not None:
        _here["update"] = update
    _here["at"] = time.monotonic()


@contextmanager
def watchdog(
    ranks: Ranks, folder: Path, timeout: timedelta, fail: Callable[[UserError], object] | None = None
) -> Iterator[None]:
    """Within it a collective that lasts longer than `timeout` ends all ranks with one message.

    Every rank must enter it, with the process group joined and the same `folder`, which all of them see; alone it does
    nothing. `timeout` should be below the process group's own, whose error names no rank.

    Args:
        fail: called by the thread of the one rank that reports: to tell a person and the other ranks, and to end this
            process. Left out: the message goes to rank 0's stderr. A rank that still runs GRACE seconds after
            the report ends by itself.

    Raises:
        UserError: the folder cannot be written.
    """
    if ranks.world_size == 1:
        yield
        return
    watch = _Watch(ranks, Path(folder), timeout.total_seconds(), fail)
    watch.start()
    try:
        yield
    except BaseException as error:
        watch.stop((str(error) or type(error).__name__).splitlines()[0])
        raise
    watch.stop(None)


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective that a rank is in: the `number`-th of its group, begun `seconds` ago."""

    name: str
    group: str
    number: int
    seconds: float
    members: tuple[int, ...]


class _Watch(threading.Thread):
    def __init__(self, ranks: Ranks, folder: Path, timeout: float, fail: Callable[[UserError], object] | None) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.ranks, self.folder, self.timeout, self.fail = ranks, folder, timeout, fail
        self.every = min(max(timeout / 20, LEAST), MOST)
        self.watched = threading.current_thread()
        self.own = folder / HEARTBEATS / f"rank{ranks.rank}.json"
        self._ended = threading.Event()
        self._begun: tuple[dict[str, int], float] = ({}, time.monotonic())
        self._moved: tuple[tuple[str, ...], float] = ((), time.monotonic())
        self.start_id = ranks.from_main(self._prepare)
        ranks.on_all(self._first_beat)

    def _prepare(self) -> str:
        """A name for this start; what an earlier one has left is removed."""
        try:
            (self.folder / HEARTBEATS).mkdir(parents=True, exist_ok=True)
            for old in (self.folder / HANG, *(self.folder / HEARTBEATS).glob("*.json")):
                old.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot write in {self.folder}: {error.strerror}") from error
        return uuid.uuid4().hex

    def _first_beat(self) -> None:
        try:
            self._write(self._state())
        except OSError as error:
            raise UserError(f"rank {self.ranks.rank} cannot write {self.own}: {error.strerror}") from error

    def stop(self, error: str | None) -> None:
        """End the thread. `error`: why this rank leaves; the others may be waiting for it."""
        self._ended.set()
        self.join(timeout=10.0)
        with contextlib.suppress(OSError):
            if error is None:
                self.own.unlink(missing_ok=True)
            else:
                self._write(self._state() | {"ended": error})

    def run(self) -> None:
        while not self._ended.wait(self.every):
            # A full disk, of which the run itself tells; a report half written; a group that is just being made:
            # look again later.
            with contextlib.suppress(OSError, ValueError, KeyError, RuntimeError):
                state = self._state()
                self._write(state)
                if (report := self._report()) is not None:
                    if self.fail is not None:
                        time.sleep(GRACE)
                        # Still here: whoever has found it could not tell this node, so it is told here as well.
                        self.fail(UserError(report["message"], report["hint"]))
                    elif self.ranks.is_main:
                        _say(report)
                    self._end()
                longest = max(state["waits"], key=lambda wait: wait["seconds"], default=None)
                if longest is not None and longest["members"] and longest["seconds"] > self.timeout:
                    self._judge(Wait(**longest))

    # --- one's own state ----------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        frames = _frames(self.watched)
        begun = _begun()
        now = time.monotonic()
        if tuple(frames) != self._moved[0]:
            self._moved = tuple(frames), now
        if begun != self._begun[0]:
            self._begun = begun, now
        # Reading all that is recorded takes milliseconds; a rank that begins others is in none for long.
        waits = _waits() if now - self._begun[1] > self.timeout / 2 else []
        return {
            "start": self.start_id,
            "rank": self.ranks.rank,
            "host": platform.node(),
            "pid": os.getpid(),
            "stage": _here["stage"],
            "update": _here["update"],
            "frames": frames,
            "still": now - self._moved[1],
            "noted": None if _here["at"] is None else now - _here["at"],
            "begun": begun,
            "waits": [asdict(wait) for wait in waits],
        }

    def _write(self, state: Mapping[str, Any]) -> None:
        """Replace the heartbeat; not flushed to the disk, it need not outlive a crash of the machine."""
        temporary = self.own.with_suffix(".new")
        temporary.write_text(json.dumps(state), encoding="utf-8")
        os.replace(temporary, self.own)

    # --- all ranks ----------------------------------------------------------------------------------------------------

    def _judge(self, wait: Wait) -> None:
        """If this wait is a hang: report it, unless another rank has, and end."""
        states = self._states()
        missing = [rank for rank in wait.members if not _arrived(states[rank], wait)]
        silent = max(4 * self.every, self.timeout / 2)
        if any(_moves(states[rank], silent, self.timeout) for rank in missing):
            return
        message, hint = describe(wait, states, silent)
        hint = f"{hint} What each rank was in: {self.folder / HANG}"
        report = {"start": self.start_id, "message": message, "hint": hint, "ranks": list(states.values())}
        try:
            with open(self.folder / HANG, "x", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
        except FileExistsError:
            return  # the next look finds it
        if self.fail is not None:
            self.fail(UserError(message, hint))
        elif self.ranks.is_main or _gone(states[0], silent):
            _say(report)
        else:  # rank 0 will, whose output people see; torchrun stops it when this one ends
            time.sleep(4 * self.every)
        self._end()

    def _states(self) -> dict[int, dict[str, Any]]:
        """What every rank wrote last, with the seconds since, by the clock of the file system that they share."""
        self._write(self._state())
        now = self.own.stat().st_mtime
        states: dict[int, dict[str, Any]] = {}
        for rank in range(self.ranks.world_size):
            file = self.own.with_name(f"rank{rank}.json")
            try:
                state = read_json(file)
                states[rank] = state | {"silent": max(now - file.stat().st_mtime, 0.0)}
            except (OSError, ValueError):
                states[rank] = {"rank": rank, "begun": {}, "waits": []}
        return states

    def _report(self) -> dict[str, Any] | None:
        """What a rank has found in this start."""
        try:
            report = read_json(self.folder / HANG)
        except FileNotFoundError:
            return None
        return report if report["start"] == self.start_id else None

    def _end(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CODE)


def _say(report: Mapping[str, Any]) -> None:
    sys.stderr.write(f"error: {report['message']}\n  {report['hint']}\n")


# --- what torch knows -------------------------------------------------------------------------------------------------


def _groups() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Name -> process group and its ranks, of all groups of this process."""
    from torch.distributed import distributed_c10d as c10d

    world = c10d._world
    return {world.pg_names[group]: (group, tuple(world.pg_group_ranks[group])) for group in list(world.pg_map)}


def _begun() -> dict[str, int]:
    """GROUP/BACKEND -> how many collectives this rank has begun in it."""
    found = {}
    for name, (group, _) in _groups().items():
        for device in group._device_types:
            with contextlib.suppress(RuntimeError):  # a backend that has not been used yet may have no number
                backend = group._get_backend(device)
                found[f"{name}/{backend.name()}"] = int(backend._get_sequence_number_for_group())
    return found


def _waits() -> list[Wait]:
    """Collectives that this rank has begun and not finished, as torch's flight recorder has them."""
    from torch._C import _distributed_c10d as c10d

    members = {name: ranks for name, (_, ranks) in _groups().items()}
    everyone = max(members.values(), key=len, default=())
    now, found = time.time_ns(), []
    for dump in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):  # of gloo and other backends; of nccl
        if not hasattr(c10d, dump):
            continue
        for entry in json.loads(getattr(c10d, dump)(True, True)).get("entries", ()):
            if entry["retired"] or entry["is_p2p"] or entry.get("time_discovered_completed_ns"):
                continue
            name, description = entry["process_group"]
            backend, _, called = entry["profiling_name"].partition(":")
            found.append(
                Wait(
                    name=called + ("" if description == "default_pg" else f" of group {description}"),
                    group=f"{name}/{backend}",
                    number=int(entry["collective_seq_id"]),
                    seconds=(now - int(entry["time_created_ns"])) / 1e9,
                    members=members.get(name, everyone),
                )
            )
    return found


def _frames(thread: threading.Thread) -> list[str]:
    """Where a thread is, innermost first: "uni_train/stages/run.py:71 fit"; files of ours from their package on."""
    frame = sys._current_frames().get(thread.ident or 0)
    found = []
    for at, line in traceback.walk_stack(frame):
        path = Path(at.f_code.co_filename)
        package = next((i for i, part in enumerate(path.parts) if part in OURS), None)
        shown = "/".join(path.parts[package:]) if package is not None else str(path)
        found.append(f"{shown}:{line} {at.f_code.co_name}")
    return found


# --- what it means ----------------------------------------------------------------------------------------------------


def _arrived(state: Mapping[str, Any], wait: Wait) -> bool:
    """Whether a rank has begun the collective that another one waits in."""
    return int(state["begun"].get(wait.group, 0)) >= wait.number


def _gone(state: Mapping[str, Any], silent: float) -> bool:
    """Whether a rank has left, or written nothing for `silent` seconds."""
    return "pid" not in state or "ended" in state or state.get("silent", 0.0) > silent


def _moves(state: Mapping[str, Any], silent: float, timeout: float) -> bool:
    """Whether a rank that others wait for is only slow: it has noted something within the timeout."""
    return not _gone(state, silent) and state["noted"] is not None and state["noted"] < timeout


def describe(wait: Wait, states: Mapping[int, Mapping[str, Any]], silent: float) -> tuple[str, str]:
    """Message and hint for a wait that is a hang. `states` of all ranks; `silent`: seconds after which one is gone."""
    missing = [rank for rank in wait.members if not _arrived(states[rank], wait)]
    waiting = [rank for rank in wait.members if rank not in missing]
    gone = [rank for rank in waiting if _gone(states[rank], silent)]
    what = f"{wait.name} (collective {wait.number})"
    after = "The same command continues from the last checkpoint."
    if missing:
        rank = next((rank for rank in missing if _gone(states[rank], silent)), missing[0])
        others = f" (nor did {_listed([one for one in missing if one != rank])})" if len(missing) > 1 else ""
        message = (
            f"{_who(states[rank])} did not arrive at {what}{others}, where {_listed(waiting)} "
            f"waited for {wait.seconds:.0f} s at {_place(states[waiting[0]])}: it {_fate(states[rank], silent)}"
        )
        if _gone(states[rank], silent):
            return message, f"Look at that process's log and at its node. {after}"
        return message, f"If it was only slow, raise strategy.timeout. {after}"
    if gone:
        rank = gone[0]
        message = f"{_who(states[rank])} {_fate(states[rank], silent)}: {what} has not ended for {wait.seconds:.0f} s"
        return message, f"Look at that process's log and at its node. {after}"
    hosts = list(dict.fromkeys(str(states[rank]["host"]) for rank in wait.members))
    message = (
        f"all ranks are in {what} at {_place(states[wait.members[0]])}, and it has not ended for {wait.seconds:.0f} s: "
        f"nothing passes between {' and '.join(hosts) if len(hosts) > 1 else 'the processes of ' + hosts[0]}"
    )
    return message, f"Look at the network, and at GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME. {after}"


def _who(state: Mapping[str, Any]) -> str:
    known = f" ({state['host']}, pid {state['pid']})" if "pid" in state else ""
    return f"rank {state['rank']}{known}"


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _fate(state: Mapping[str, Any], silent: float) -> str:
    if "pid" not in state:
        return "has left nothing behind"
    if "ended" in state:
        return f"had ended: {state['ended']}"
    if state["silent"] > silent:
        return f"has given no sign of life for {state['silent']:.0f} s, last at {_place(state)}"
    return f"has been at {_place(state)} for {state['still']:.0f} s"


def _place(state: Mapping[str, Any]) -> str:
    """Innermost frame of ours and what it is in, with stage and update."""
    frames = [frame for frame in state["frames"] if not frame.startswith(NOT_A_PLACE)] or ["an unknown place"]
    chosen = next((frame for frame in frames if frame.startswith(OURS)), None)
    chosen = chosen or next((frame for frame in frames if "/site-packages/" not in frame), frames[0])
    inside = "" if chosen is frames[0] else f" (in {frames[0].rpartition('/site-packages/')[2]})"
    parts = [chosen + inside]
    parts += [f"stage {state['stage']}"] if state["stage"] is not None else []
    parts += [f"update {state['update']}"] if state["update"] is not None else []
    return ", ".join(parts)
