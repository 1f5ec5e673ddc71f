"""A persistent store of judge replies: each question is asked once, also across kills and reruns.

The key of a reply hashes everything that could change it: the judge (`JudgeConfig.key`), the conversation so far, the
images, the schema, the number of the draw. So a new judge, prompt or image is a new question, and a changed way of
*reading* replies is not: verdicts are read from the stored words again.

On disk: `replies/*.jsonl`, a line a reply, appended as it arrives (`eval.store.Log`). The question of a line that is
torn or altered is asked again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from uni_train.core.http_client import clean
from uni_train.eval.store import Log

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
    """Replies by key, but for blank ones; a context manager. Any number of processes may use one folder at once."""

    def __init__(self, folder: Path) -> None:
        """Read what is there. Raises UserError where the folder cannot be read."""
        self._log = Log(folder, FLUSH_SECONDS)
        self._replies: dict[str, Reply] = {}
        for key, reply in self._log.read(_parsed):
            self._replies.setdefault(key, reply)  # the first reply to a question stays the reply to it

    def __enter__(self) -> ReplyStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.close()

    def __len__(self) -> int:
        return len(self._replies)

    @property
    def damaged(self) -> list[str]:
        """Lines that could not be read back, as "file:line"."""
        return self._log.damaged

    def get(self, key: str) -> Reply | None:
        return self._replies.get(key)

    def put(self, key: str, reply: Reply) -> None:
        """Keep a reply that is not blank. Raises UserError where the disk is full or the folder cannot be written."""
        if not reply.blank:
            self._replies[key] = reply
            self._log.append({"key": key, **asdict(reply)})


def _parsed(record: dict[str, Any]) -> tuple[str, Reply]:
    key, text = record.pop("key"), clean(record.pop("text"))
    refused = tuple(map(str, record.pop("refused", ())))
    return key, Reply(text, **record, refused=refused)
