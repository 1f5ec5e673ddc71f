"""Asking a judge by several processes at once (`eval.judges.worker`), where one core does not keep up with it.

The run keeps what is one: the session with its limits, the store of replies, the reading of replies. A process does
what costs: inspect-ai's bookkeeping of a question and the request. One that dies is replaced, and only what it had
under way is asked again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import count
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from eval.judges import channel
from eval.judges.asking import Asker, NoReply
from eval.judges.config import JudgeConfig
from eval.judges.logged import Entry, Form, first
from eval.judges.replies import Reply, Turn
from uni_train.errors import UserError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

QUESTIONS, CONNECTIONS = 500, 16  # a process for so many of each, for a process takes two seconds to start
DEATHS = 3  # of one process and its successors without a reply between them
_PATIENCE = 10.0  # seconds for processes that are told to end
_SHOWN = 300  # letters of what a process has said last


def processes_for(judge: JudgeConfig, questions: int) -> int:
    """How many processes are worth their start; 1: this one asks.

    Only a server with an address is worth it: a service answers later, and a model that inspect-ai loads itself would
    be loaded by each.
    """
    if judge.base_url is None:
        return 1
    if judge.processes is not None:
        return min(judge.processes, judge.max_connections)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, judge.max_connections // CONNECTIONS, questions // QUESTIONS))


class Workers:
    """Processes that ask one judge, none at first; a context manager, at whose end none is left.

    len: how many were started.
    """

    def __init__(self, judge: JudgeConfig, clean: Callable[[str], str]) -> None:
        """clean: takes keys out of what they say."""
        self._judge, self._clean = judge, clean
        self._numbers = count()
        self._replies = 0
        self._logs: list[str] = []
        self._all: list[_Process] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        until = time.monotonic() + _PATIENCE
        for process in self._all:
            process.end()
        for process in self._all:
            process.ended(until)

    def __len__(self) -> int:
        return len(self._all)

    def start(self, processes: int) -> None:
        """Have so many, where that is more than one: they import what they need while the run goes on."""
        while 1 < processes > len(self._all):
            self._all.append(_Process(self._judge))

    def run(self, groups: Mapping[str, str], judged: Callable[[str, Asker], Awaitable[Entry]], form: Form) -> list[str]:
        """Judge the groups, each by `judged` and the process that it is given; the paths of the logs.

        Raises:
            UserError: that of a process (its log cannot be written), or one that dies each time it is started.
        """
        import anyio

        async def all_of_them() -> None:
            names = list(groups)
            started = self._all[: len(names)]
            async with anyio.create_task_group() as tasks:
                for i, process in enumerate(started):
                    lines = {name: _Line(name, groups[name], self._numbers) for name in names[i :: len(started)]}
                    tasks.start_soon(self._tend, process, lines, partial(_judge, judged), form, tasks)

        try:
            anyio.run(all_of_them)
        except ExceptionGroup as group:
            mistake = first(group, UserError)
            raise mistake or group from None
        return self._logs

    async def _tend(
        self,
        process: _Process,
        lines: Mapping[str, _Line],
        judge: Callable[[_Line], Coroutine[Any, Any, None]],
        form: Form,
        tasks: TaskGroup,
    ) -> None:
        """Have one process, or its successors, do its groups."""
        deaths = 0
        while todo := {name: line for name, line in lines.items() if line.entry is None}:
            before = self._replies
            log = await self._talk(process, todo, judge, form, tasks)
            if log is not None:
                self._logs.append(log)
                return
            deaths = deaths + 1 if self._replies == before else 1
            if deaths >= DEATHS:
                raise UserError(
                    f"a process that asks the judge ended {deaths} times: {self._clean(process.last_words())}",
                    "Replies that were stored are kept. Run the same command again, or judge in one process "
                    "(--judge-processes 1).",
                )
            process = _Process(self._judge)
            self._all.append(process)

    async def _talk(
        self,
        process: _Process,
        lines: Mapping[str, _Line],
        judge: Callable[[_Line], Coroutine[Any, Any, None]],
        form: Form,
        tasks: TaskGroup,
    ) -> str | None:
        """Until the process has logged its groups, or dies: then None. Raises UserError."""
        reader, writer = await asyncio.open_connection(sock=process.sock)
        try:
            order = channel.Order({name: line.text for name, line in lines.items()}, form)
            writer.write(channel.packed(order))
            while (message := await channel.received(reader)) is not None:
                match message:
                    case channel.Begun(group):
                        if lines[group].connect(writer):
                            tasks.start_soon(judge, lines[group])
                    case channel.Answer(group):
                        self._replies += message.reply is not None
                        lines[group].answered(message)
                    case channel.Logged(path):
                        process.kill()  # it would only take itself apart
                        return path
                    case channel.Failed(said, hint):
                        raise UserError(said, hint)
            return None
        finally:
            for line in lines.values():
                line.disconnect()
            writer.close()


async def _judge(judged: Callable[[str, Asker], Awaitable[Entry]], line: _Line) -> None:
    line.finish(await judged(line.group, line.ask))


class _Line:
    """One group's questions to the process that it is given, and to its successor if that dies."""

    def __init__(self, group: str, text: str, numbers: count[int]) -> None:
        self.group, self.text = group, text
        self.entry: Entry | None = None
        self._numbers = numbers
        self._writer: asyncio.StreamWriter | None = None
        self._begun = False
        self._open: dict[int, tuple[channel.Question, asyncio.Future[Reply]]] = {}

    def connect(self, writer: asyncio.StreamWriter) -> bool:
        """The process has begun the group: it is told what is open. Whether nobody has begun it before."""
        self._writer = writer
        for question, _ in self._open.values():
            self._say(question)
        if self.entry is not None:
            self._say(channel.Finished(self.group, self.entry))
        fresh, self._begun = not self._begun, True
        return fresh

    def disconnect(self) -> None:
        self._writer = None

    async def ask(self, turns: Sequence[Turn], schema: Mapping[str, Any] | None) -> Reply:
        """As `Asker`."""
        question = channel.Question(self.group, next(self._numbers), list(turns), schema)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[question.number] = question, answer
        self._say(question)
        try:
            return await answer
        finally:
            del self._open[question.number]

    def answered(self, answer: channel.Answer) -> None:
        """Hand the answer to whoever waits for it."""
        _, waiting = self._open.get(answer.number, (None, None))
        if waiting is None or waiting.done():
            return
        if answer.reply is not None:
            waiting.set_result(answer.reply)
        elif answer.mistake is not None:
            waiting.set_exception(UserError(*answer.mistake))
        elif answer.none is not None:
            waiting.set_exception(NoReply(*answer.none))

    def finish(self, entry: Entry) -> None:
        self.entry = entry
        self._say(channel.Finished(self.group, entry))

    def _say(self, message: channel.Question | channel.Finished) -> None:
        if self._writer is not None:
            self._writer.write(channel.packed(message))


class _Process:
    """A started `eval.judges.worker` and our end of its socket."""

    def __init__(self, judge: JudgeConfig) -> None:
        self.sock, theirs = socket.socketpair()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `ended`
        # What this process imports from, and not the current folder, in which anything may lie.
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "eval.judges.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,  # Ctrl-C is for the run, which tells it
            )
        self.sock.sendall(channel.packed(judge))

    def last_words(self) -> str:
        """How it ended, and the last line that it has printed."""
        code = self._process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how} ({last[:_SHOWN]})" if last else how

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Tell it to end: it closes its log."""
        self.sock.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def ended(self, until: float) -> None:
        """Wait for that, and end it otherwise from a moment of `time.monotonic`."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()
