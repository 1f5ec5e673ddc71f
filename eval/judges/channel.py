"""What a run and its judging processes say to each other, over a pair of connected sockets.

    run                                   process (`eval.judges.worker`)
    JudgeConfig, at once             ->   imports what it needs
    Order                            ->   begins an inspect-ai evaluation
                                     <-   Begun, a group at a time
    Question, each of the group's    ->
                                     <-   Answer
    Finished                         ->   the group's entry of the log
                                     <-   Logged or Failed, and the process ends

Messages are pickled: both ends are processes of one run, and nothing of it is ever in a file. A closed end is the end
of the other process. Keys are in no message; both have the same environment.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.judges.logged import Entry, Form
from eval.judges.replies import Reply, Turn

_LENGTH = 8  # bytes of a message's length


@dataclass(frozen=True, slots=True)
class Order:
    """The groups of one process: name -> what the log shows as asked."""

    groups: Mapping[str, str]
    form: Form


@dataclass(frozen=True, slots=True)
class Begun:
    """The process is ready for the questions of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class Question:
    """number: unique in a run."""

    group: str
    number: int
    turns: Sequence[Turn]
    schema: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, or why there is none: a person's mistake (message, hint), or (why, gone) of `NoReply`."""

    group: str
    number: int
    reply: Reply | None
    mistake: tuple[str, str | None] | None = None
    none: tuple[str, bool] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """All members of a group are judged."""

    group: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Logged:
    """The evaluation is over; its log."""

    path: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something that a person can put right ends the evaluation: a UserError."""

    message: str
    hint: str | None


def packed(message: Any) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH, "big") + data


async def received(reader: asyncio.StreamReader) -> Any:
    """The next message; None where the other end is closed, in the middle of one too."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def received_at_once(sock: socket.socket) -> Any:
    """As `received`, for who has no loop yet."""
    head = _exactly(sock, _LENGTH)
    data = None if head is None else _exactly(sock, int.from_bytes(head, "big"))
    return None if data is None else pickle.loads(data)


def _exactly(sock: socket.socket, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            return None
        data += part
    return data
