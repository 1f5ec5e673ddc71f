"""A persistent store of judge replies: each question is asked once, also across kills and reruns.

The key of a reply hashes everything that could change it: the judge (`JudgeConfig.key`), the conversation so far, the
images, the schema, the number of the draw. So a new judge, prompt or image is a new question, and a changed way of
*reading* replies is not: verdicts are read from the stored words again.

On disk: `replies/*.jsonl`, one file a process, a line a reply, appended as it arrives. After kill -9 all lines but at
most the last are whole; a line that is torn or altered is skipped (and its question asked again), never half read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from uni_train.data_gen.reading_limits import read_bytes
from uni_train.errors import UserError
from uni_train.http_client import clean

FLUSH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation with a judge: role "user" or "assistant", words, encoded images before them."""

    role: str
    text: str
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. stop: why it ended ("stop", "max_tokens", "content_filter", "refusal"); tokens as the server
    counts them.

    refused: keys of the request that the server refused ("temperature"); it was asked again without them."""

    text: str
    stop: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    refused: tuple[str, ...] = ()

    @property
    def blank(self) -> bool:
        """Nothing came, without a reason: asked again, it may be another."""
        return self.stop == "stop" and not self.text.strip()


def reply_key(judge: str, turns: Sequence[Turn], schema: Mapping[str, Any] | None = None, draw: int = 0) -> str:
    """Content hash of a question to a judge, given by its `JudgeConfig.key`; draw: the number of the reply."""
    words: list[Any] = [judge, [[turn.role, turn.text, len(turn.images)] for turn in turns], schema]
    words += [draw] if draw else []  # the first draw has the key that replies had before there were others
    digest = hashlib.blake2b(json.dumps(words, sort_keys=True, ensure_ascii=False).encode(), digest_size=16)
    for turn in turns:
        for image in turn.images:
            digest.update(len(image).to_bytes(8, "big"))
            digest.update(image)
    return digest.hexdigest()


class ReplyStore:
    """Replies by key; a context manager. Any number of processes may use one folder at once.

    Blank replies are not kept; those that earlier versions kept are passed over.
    damaged: lines that could not be read back, as "file:line".
    """

    def __init__(self, folder: Path) -> None:
        """Read what is there. Raises UserError where the folder cannot be read."""
        self.folder = Path(folder)
        self.damaged: list[str] = []
        self._replies: dict[str, Reply] = {}
        self._file: int | None = None
        self._flushed = 0.0
        try:
            for file in sorted(self.folder.glob("*.jsonl")):
                self._read(file)
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be read ({error.strerror})") from error

    def __enter__(self) -> ReplyStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply that is not blank. Raises UserError where the disk is full or the folder cannot be written."""
        if reply.blank:
            return
        self._replies[key] = reply
        record = {"key": key, **asdict(reply)}
        if not reply.refused:  # of most servers: the line is as before there was the key
            del record["refused"]
        line = json.dumps({**record, "check": _check(record)}, ensure_ascii=False) + "\n"
        try:
            if self._file is None:
                self._file = self._open()
            data = line.encode("utf-8", errors="surrogatepass")
            while data:
                data = data[os.write(self._file, data) :]
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                os.fsync(self._file)
                self._flushed = time.monotonic()
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            problem = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
            raise UserError(
                f"{self.folder}: {problem}",
                f"{'Free some space' if full else 'Make the folder writable'} and run the same command again; "
                "replies that were stored are kept.",
            ) from error

    def close(self) -> None:
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        """A file of this process's own, whose name sorts by time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._flushed = time.monotonic()
        path = self.folder / f"{time.time_ns():020d}-{os.getpid()}.jsonl"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)

    def _read(self, file: Path) -> None:
        for number, line in enumerate(read_bytes(file).split(b"\n"), 1):
            if not line:
                continue
            try:
                record = json.loads(line.decode("utf-8", errors="surrogatepass"))
                if record.pop("check") != _check(record):
                    raise ValueError("altered")
                # The first reply to a question stays the reply to it.
                key, text = record.pop("key"), clean(record.pop("text"))
                refused = tuple(map(str, record.pop("refused", ())))
                reply = Reply(text, **record, refused=refused)
                if not reply.blank:
                    self._replies.setdefault(key, reply)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self.damaged.append(f"{file.name}:{number}")


def _check(record: Mapping[str, Any]) -> str:
    said = json.dumps(record, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
