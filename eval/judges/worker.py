"""A process that asks a judge for a run: `python -m eval.judges.worker FD`, started by `eval.judges.workers`.

It asks what it is told to and logs it in an inspect-ai evaluation of its own. It knows no benchmark, store or limit:
those are the run's. When the run ends, however it ends, so does this.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

from eval.judges import channel
from eval.judges.asking import Asker, NoReply
from eval.judges.config import JudgeConfig
from uni_train.errors import UserError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from eval.judges.logged import Entry


def main() -> None:
    """Serve the run at the other end of the socket whose number is the argument."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        judge = channel.received_at_once(sock)
        if judge is None:
            return
        said = _evaluated(sock, judge)
        if said is not None:
            sock.setblocking(True)
            sock.sendall(channel.packed(said))


def _evaluated(sock: socket.socket, judge: JudgeConfig) -> channel.Logged | channel.Failed | None:
    """The evaluation; None where the run ended before it began."""
    from eval.judges.logged import evaluate
    from eval.judges.model import ask, model_of, without_keys

    _import_quickly(judge)
    clean = without_keys(judge)
    try:
        model = model_of(judge, clean)
        order = channel.received_at_once(sock)
        if order is None:
            return None
        line = _Line(sock, partial(ask, model, judge, clean))
        return channel.Logged(evaluate(model, order.groups, line.group, order.form, clean))
    except UserError as error:
        return channel.Failed(error.message, error.hint)


def _import_quickly(judge: JudgeConfig) -> None:
    """inspect-ai and what it imports when an evaluation begins: until then, no question is asked.

    For a judge of our own client (`eval.judges.endpoint`) that leaves out the openai library, which inspect-ai imports
    wherever it is found, and reads its list of models by PyYAML's fast loader: a second and a half of four.
    """
    gc.disable()
    if judge.inspect_name.startswith("served/"):
        import yaml

        sys.modules["openai"] = None  # type: ignore[assignment]
        yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
    import inspect_ai  # noqa: F401

    gc.enable()


class _Line:
    """The connection to the run, opened in inspect-ai's loop by the first group that it begins."""

    def __init__(self, sock: socket.socket, asker: Asker) -> None:
        self._sock, self._asker = sock, asker
        self._inbox: dict[str, asyncio.Queue[channel.Question | channel.Finished]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._opened: asyncio.Task[asyncio.StreamWriter] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def group(self, name: str) -> Entry:
        """Ask what is asked about a group until it is finished."""
        import anyio

        self._inbox[name] = asyncio.Queue()
        self._opened = self._opened or asyncio.create_task(self._open())
        self._writer = await self._opened
        self._say(channel.Begun(name))
        async with anyio.create_task_group() as tasks:
            entry = await self._entry(name, tasks)
        return entry

    async def _entry(self, name: str, tasks: TaskGroup) -> Entry:
        while isinstance(message := await self._inbox[name].get(), channel.Question):
            tasks.start_soon(self._answer, message)
        return message.entry

    async def _open(self) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(sock=self._sock.dup())
        self._reading = asyncio.create_task(self._read(reader))
        return writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (message := await channel.received(reader)) is not None:
            self._inbox[message.group].put_nowait(message)
        os.kill(os.getpid(), signal.SIGINT)  # the run is gone: inspect-ai closes its log

    async def _answer(self, question: channel.Question) -> None:
        answer = partial(channel.Answer, question.group, question.number)
        try:
            said = answer(await self._asker(question.turns, question.schema))
        except UserError as error:
            said = answer(None, mistake=(error.message, error.hint))
        except NoReply as error:
            said = answer(None, none=(str(error), error.gone))
        self._say(said)

    def _say(self, message: channel.Begun | channel.Answer) -> None:
        assert self._writer is not None
        self._writer.write(channel.packed(message))


if __name__ == "__main__":
    main()
