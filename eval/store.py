"""What evaluations keep, each thing once, below one folder that any number of them and of processes share.

    evals/store/calls/<model>/model.json  which model it is
    evals/store/calls/<model>/*.jsonl     its finished calls: a line a batch, with the machine and the seconds it took
    evals/store/images/                   encoded images by the hash of their content (`eval.images`); calls name them
    evals/store/replies/*.jsonl           replies of judges, a line each (`eval.judges.replies`)
    evals/store/seen/*.json               what each server reported last of its weights

Rows are appended by `Log` alone. What is in the key of a call: the model's content and settings, the skill, and the
whole request. A checkpoint that was overwritten is another model and is asked anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json, disk_errors
from uni_train.core.reading_limits import open_file, read_json
from uni_train.eval.images import ImageStore, StoredImage, named_parts
from uni_train.models.identity import ModelIdentity

if TYPE_CHECKING:
    from uni_train.models.base import Request

Skill = Literal["think", "draw", "answer", "compose"]
_Parsed = TypeVar("_Parsed")


class Log:
    """JSON records that processes append below one folder: a file a process, a line a record, with a checksum.

    After kill -9 all lines but at most the last are whole. A line that is torn or altered is passed over, never half
    read.

    Args:
        flush_seconds: how often records are forced to the disk; kill -9 loses none of those before. 0: each.
    """

    def __init__(self, folder: Path, flush_seconds: float = 0.0) -> None:
        self.folder = Path(folder)
        self._damaged: dict[Path, list[str]] = {}
        self._sizes: dict[Path, int] = {}
        self._path = self.folder
        self._file: FileIO | None = None
        self._flush_seconds, self._flushed = flush_seconds, time.monotonic()

    @property
    def damaged(self) -> list[str]:
        """Lines that could not be read back, as "file:line"."""
        return [line for lines in self._damaged.values() for line in lines]

    def read(self, parse: Callable[[dict[str, Any]], _Parsed]) -> Iterator[_Parsed]:
        """The records of files that are new or have grown since the last `read`, oldest file first.

        parse: of a record; what it raises ValueError, KeyError, TypeError or AttributeError for is damaged too.

        Raises:
            UserError: the folder cannot be read.
        """
        try:
            for file in sorted(self.folder.glob("*.jsonl")):
                with open_file(file) as lines:
                    size = os.fstat(lines.fileno()).st_size
                    if self._sizes.get(file) != size:
                        self._sizes[file], self._damaged[file] = size, []
                        yield from self._parsed(file, lines, parse)
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be read ({error.strerror})") from error

    def _parsed(
        self, file: Path, lines: Iterable[bytes], parse: Callable[[dict[str, Any]], _Parsed]
    ) -> Iterator[_Parsed]:
        for number, line in enumerate(lines, 1):
            try:
                record: dict[str, Any] = json.loads(line.decode("utf-8", errors="surrogatepass"))
                if record.pop("check") != _check(record):
                    raise ValueError("altered")
                parsed = parse(record)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._damaged[file].append(f"{file.name}:{number}")
            else:
                yield parsed

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record. Raises UserError: the disk is full, or the folder cannot be written."""
        line = json.dumps({**record, "check": _check(record)}, ensure_ascii=False) + "\n"
        data = line.encode("utf-8", errors="surrogatepass")
        size = len(data)
        with disk_errors(self.folder):
            try:
                if self._file is None:
                    self._file = self._opened()
                while data:
                    data = data[os.write(self._file.fileno(), data) :]
                if time.monotonic() - self._flushed >= self._flush_seconds:
                    os.fsync(self._file.fileno())
                    self._flushed = time.monotonic()
            except OSError:
                if self._file is not None:
                    self._file.close()
                    self._file = None  # nothing is appended to half a line
                raise
        self._sizes[self._path] = self._sizes.get(self._path, 0) + size

    def close(self) -> None:
        """Force what was appended to the disk; the next record begins another file. Raises as `append`."""
        if self._file is not None:
            file, self._file = self._file, None
            with disk_errors(self.folder):
                try:
                    os.fsync(file.fileno())
                finally:
                    file.close()

    def _opened(self) -> FileIO:
        """A file of this process alone, whose name sorts by time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.jsonl"
        return open(self._path, "xb", buffering=0)  # closed with the last reference, as that of an evaluation


def _check(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call: the request's words (for people who look into the store), and what came of it.

    parts: the answer: one text, one image of the store, or both in order. error: why there is none.
    """

    key: str
    skill: Skill
    id: str
    prompt: str
    seed: int
    thought: str | None = None
    parts: tuple[str | StoredImage, ...] = ()
    error: str | None = None


def call_key(identity: ModelIdentity, skill: Skill, request: Request) -> str:
    """32 hex digits of everything that decides the answer."""
    words = [identity.key, skill, request.id, request.prompt, request.thought, request.seed, request.size]
    digest = hashlib.blake2b(json.dumps(words, ensure_ascii=False).encode(), digest_size=16)
    for image in request.images:
        digest.update(json.dumps([str(image.dtype), *image.shape]).encode())
        digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Speed:
    """Calls of one skill that were made on one machine, and the seconds that they took in their batches."""

    calls: int
    seconds: float

    @property
    def each(self) -> float:
        """Seconds of a call."""
        return self.seconds / self.calls


@cache
def machine() -> str:
    """This machine and what it computes on, as speeds name it: "node7, NVIDIA H100", "laptop, CPU"."""
    import torch

    return f"{platform.node()}, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'}"


class Store:
    """The store below `folder`.

    A process that opened it earlier does not see the others' later calls; then a call is made twice and nothing else
    happens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.images = ImageStore(self.folder / "images")

    def calls(self, identity: ModelIdentity) -> ModelCalls:
        """The calls of one model. Raises UserError: the folder cannot be written."""
        return ModelCalls(self._calls_folder(identity), identity, self.images)

    def speed_of(self, identity: ModelIdentity, machine: str) -> dict[str, Speed]:
        """Skill -> how fast this machine was at this model; of skills that were not asked of it, nothing."""
        speeds: dict[str, Speed] = {}
        for taken in Log(self._calls_folder(identity)).read(lambda batch: _speeds(batch, machine)):
            for skill, speed in taken.items():
                before = speeds.get(skill, Speed(0, 0.0))
                speeds[skill] = Speed(before.calls + speed.calls, before.seconds + speed.seconds)
        return speeds

    def measured(self) -> bool:
        """Whether any model's speed is known."""
        return any((self.folder / "calls").glob("*/*.jsonl"))

    def _calls_folder(self, identity: ModelIdentity) -> Path:
        return self.folder / "calls" / identity.key[:16]


def _speeds(batch: Mapping[str, Any], machine: str) -> dict[str, Speed]:
    """Of one batch; which part of its seconds each skill took, nobody knows."""
    if batch["machine"] != machine:
        return {}
    skills = [row["skill"] for row in batch["calls"]]
    return {skill: Speed(skills.count(skill), batch["seconds"] / len(set(skills))) for skill in set(skills)}


class ModelCalls:
    """The finished calls of one model: texts in memory, images on disk.

    Attributes:
        log: where they are appended; `log.damaged` names the batches that are made anew.
    """

    def __init__(self, folder: Path, identity: ModelIdentity, images: ImageStore) -> None:
        self.log, self.images = Log(folder), images
        self._calls: dict[str, Call] = {}
        about = folder / "model.json"
        if not about.exists():
            with disk_errors(about):
                folder.mkdir(parents=True, exist_ok=True)
                atomic_write_json(about, identity.to_dict())
        self.reread()

    def __len__(self) -> int:
        return len(self._calls)

    def reread(self) -> None:
        """Take note of what other processes have stored meanwhile. Raises UserError: the folder cannot be read."""
        for calls in self.log.read(self._parsed):
            for call in calls:
                self._know(call)

    def get(self, key: str) -> Call | None:
        """The finished call; None where it was not made, or an image of it is lost."""
        call = self._calls.get(key)
        return call if call is not None and self._whole(call) else None

    def add(self, calls: Sequence[Call], seconds: float = 0.0) -> None:
        """Store one finished batch, and the `seconds` that it took. Raises UserError: the disk is full, or the folder
        cannot be written."""
        self.log.append({"calls": [_to_row(call) for call in calls], "machine": machine(), "seconds": seconds})
        for call in calls:
            self._know(call)

    def _parsed(self, batch: Mapping[str, Any]) -> list[Call]:
        return [Call(**{**row, "parts": self.images.parts(row["parts"])}) for row in batch["calls"]]

    def _know(self, call: Call) -> None:
        """An answer replaces a failure and one whose image is lost, whichever was stored first."""
        known = self._calls.get(call.key)
        if known is None or known.error is not None or not self._whole(known):
            self._calls[call.key] = call

    def _whole(self, call: Call) -> bool:
        return all(isinstance(part, str) or part.digest in self.images for part in call.parts)


def _to_row(call: Call) -> dict[str, Any]:
    return {field.name: getattr(call, field.name) for field in fields(call)} | {"parts": named_parts(call.parts)}


class LastSeen:
    """What each server reported last, so that its stored results are found while it is down.

    A served checkpoint is known by what its server says (its content's hash). Stored results must be found while the
    server is down, and an evaluation keep its name.
    """

    def __init__(self, store: Path) -> None:
        self.folder = Path(store) / "seen"

    def keep(self, server: Mapping[str, Any], reported: Mapping[str, Any]) -> None:
        """Store what the server reports; both JSON-able. Raises UserError: the folder cannot be written."""
        file = self._file(server)
        if self.report_of(server) != reported:
            with disk_errors(file):
                self.folder.mkdir(parents=True, exist_ok=True)
                atomic_write_json(file, {"server": dict(server), "said": dict(reported)})

    def report_of(self, server: Mapping[str, Any]) -> dict[str, Any] | None:
        """What it reported last; None where it was never seen, or its file is damaged."""
        try:
            reported = read_json(self._file(server))["said"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return reported if isinstance(reported, dict) else None

    def _file(self, server: Mapping[str, Any]) -> Path:
        plain = json.dumps(server, sort_keys=True, ensure_ascii=False)
        return self.folder / f"{hashlib.blake2b(plain.encode(), digest_size=10).hexdigest()}.json"
