"""Every call of a model is made once: asked, stored under a hash of all that decides its answer, and read from then on.

The unit of storage is the call and not the sample, so that protocols of several steps (think, extract, draw; a prompt
that another model writes) resume with no code of their own. What is in the key: the model's content and settings, the
skill, and the whole request. A checkpoint that was overwritten is another model and is asked anew.

    evals/store/calls/<model>/model.json      which model it is
    evals/store/calls/<model>/<hash>.parquet  one finished batch
    evals/store/calls/<model>/speed.json      machine -> skill -> calls made there, and what they took
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uni_train.data_gen.reading_limits import read_json
from uni_train.errors import UserError
from uni_train.eval.images import StoredImage
from uni_train.eval.sample import Respondent, think_then_draw
from uni_train.eval.shards import disk_errors, first_line, read_rows, write_rows
from uni_train.files import atomic_write_json
from uni_train.models.identity import ModelIdentity
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    import pyarrow as pa

    from uni_train.models.base import OnStep, Request

Skill = Literal["think", "draw", "answer", "compose"]
FORMAT = "uni_train.calls/1"
_BLOBS = ("image",)
SPEED = "speed.json"
_SHARDS_IN_MEMORY = 4  # the images of so many; calls are asked for in the order in which they were stored


class CallFailed(Exception):
    """A call that brought no answer, now or in an earlier run; the message says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call: the request's words (for people who look into the store), and what came of it.

    One of `text`, `image` (PNG bytes; b"" where it was left on disk) and `error` is given. Of an answer in parts `text`
    is the JSON list of them, a text or the length of a PNG file each, and `image` these files one after the other.
    """

    key: str
    skill: Skill
    id: str
    prompt: str
    seed: int
    thought: str | None = None
    text: str | None = None
    image: bytes | None = None
    error: str | None = None


def call_key(identity: ModelIdentity, skill: Skill, request: Request) -> str:
    """32 hex digits of everything that decides the answer."""
    words = [identity.key, skill, request.id, request.prompt, request.thought, request.seed, request.size]
    digest = hashlib.blake2b(json.dumps(words, ensure_ascii=False).encode(), digest_size=16)
    for image in request.images:
        digest.update(json.dumps([str(image.dtype), *image.shape]).encode())
        digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


class CallStore:
    """The finished calls of any number of models, evaluations and processes, below one folder.

    Processes may write at the same time: a shard is named by its content. One that opened the folder earlier does not
    see the others' later shards; then a call is made twice and nothing else happens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def of(self, identity: ModelIdentity) -> ModelCalls:
        """The calls of one model. Raises DamagedShard, UserError (not writable)."""
        return ModelCalls(self._folder_of(identity), identity)

    def speed_of(self, identity: ModelIdentity, machine: str) -> dict[str, Speed]:
        """Skill -> how fast this machine was at this model; of skills that were not asked of it, nothing."""
        return _speeds(self._folder_of(identity) / SPEED).get(machine, {})

    def measured(self) -> bool:
        """Whether any model's speed is known."""
        return any((self.folder / "calls").glob(f"*/{SPEED}"))

    def _folder_of(self, identity: ModelIdentity) -> Path:
        return self.folder / "calls" / identity.key[:16]


@dataclass(frozen=True, slots=True)
class Speed:
    """Calls of one skill that were made on one machine, and the seconds that they took, in batches as they came."""

    calls: int
    seconds: float

    @property
    def each(self) -> float:
        """Seconds of a call."""
        return self.seconds / self.calls


def machine() -> str:
    """This machine and what it computes on, as speeds name it: "node7, NVIDIA H100", "laptop, CPU"."""
    import torch

    return f"{platform.node()}, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'}"


def _speeds(file: Path) -> dict[str, dict[str, Speed]]:
    """machine -> skill -> speed; a file that is missing or damaged knows none."""
    try:
        loaded = read_json(file)
        return {
            where: {skill: Speed(int(one["calls"]), float(one["seconds"])) for skill, one in skills.items()}
            for where, skills in loaded.items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


class ModelCalls:
    """The finished calls of one model: texts in memory, images on disk."""

    def __init__(self, folder: Path, identity: ModelIdentity) -> None:
        self.folder = folder
        self._calls: dict[str, Call] = {}
        self._shard_of: dict[str, Path] = {}
        self._pictures: OrderedDict[Path, dict[str, bytes]] = OrderedDict()
        self._read: set[Path] = set()
        self.reread()
        about = folder / "model.json"
        if not about.exists():
            with disk_errors(about):
                folder.mkdir(parents=True, exist_ok=True)
                atomic_write_json(about, identity.to_dict())

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    def reread(self) -> None:
        """Take note of what other processes have stored meanwhile. Raises DamagedShard."""
        names = [name for name in _schema().names if name not in _BLOBS]
        for path in sorted(self.folder.glob("[!.]*.parquet")):
            if path not in self._read:
                for row in read_rows(path, _schema(), FORMAT, _BLOBS, names):
                    self._know(path, _from_row(row))

    def get(self, key: str) -> Call | None:
        """The finished call, its image left on disk."""
        return self._calls.get(key)

    def image(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """What a call drew, or a part of that, read from disk. Raises DamagedShard."""
        path = self._shard_of[key]
        if path not in self._pictures:
            rows = read_rows(path, _schema(), FORMAT, _BLOBS, ["key", "image"])
            self._pictures[path] = {row["key"]: row["image"] for row in rows if row["image"] is not None}
            while len(self._pictures) > _SHARDS_IN_MEMORY:
                self._pictures.popitem(last=False)
        self._pictures.move_to_end(path)
        return self._pictures[path][key][start:end]

    def failed(self, key: str) -> bool:
        """Whether the call was made and brought no answer."""
        call = self._calls.get(key)
        return call is not None and call.error is not None

    def add(self, calls: Sequence[Call]) -> None:
        """Store one finished batch. Raises UserError: the disk is full, or the folder cannot be written."""
        rows = [_to_row(call) for call in calls]
        name = hashlib.blake2b(digest_size=10)
        for call in calls:
            name.update(json.dumps([call.key, call.text, call.error]).encode() + (call.image or b""))
        path = self.folder / f"{name.hexdigest()}.parquet"
        write_rows(path, rows, _schema(), FORMAT, _BLOBS)
        for call in calls:
            self._know(path, replace(call, image=None if call.image is None else b""))

    def took(self, skill: Skill, calls: int, seconds: float) -> None:
        """Add what a batch has taken on this machine to what is known. Raises UserError: the disk is full."""
        from filelock import FileLock

        file, here = self.folder / SPEED, machine()
        with disk_errors(file), FileLock(self.folder / f".{SPEED}.lock"):  # ranks add at the same time
            known = _speeds(file)
            before = known.get(here, {}).get(skill, Speed(0, 0.0))
            known.setdefault(here, {})[skill] = Speed(before.calls + calls, before.seconds + seconds)
            plain = {where: {name: asdict(one) for name, one in skills.items()} for where, skills in known.items()}
            atomic_write_json(file, plain)

    def _know(self, path: Path, call: Call) -> None:
        """An answer replaces a failure, whichever was stored first."""
        self._read.add(path)
        known = self._calls.get(call.key)
        if known is None or known.error is not None:
            self._calls[call.key] = call
            self._shard_of[call.key] = path


@dataclass
class Counts:
    """Calls of one skill since the start: made now, read from the store, and those without an answer."""

    made: int = 0
    stored: int = 0
    failed: int = 0


class StoredModel:
    """A respondent whose finished calls come from the store; only the missing ones reach the model, in batches.

    Batches are cut from all requests, not only from the missing ones, so a resumed run has the same batches and
    bit-identical images. Each batch is stored as soon as it is finished.

    Args:
        identity: of the model, without which no call is found.
        load: makes the model; called when the first call is missing, so that scoring again needs no GPU.
        think_batch, draw_batch: requests a batch (answers count as thoughts).
        retry_failed: make calls again that brought no answer in an earlier run.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        store: CallStore,
        load: Callable[[], Respondent],
        *,
        think_batch: int = 128,
        draw_batch: int = 256,
        retry_failed: bool = False,
    ) -> None:
        self.name = identity.name
        self.identity = identity
        self.think_batch, self.draw_batch = think_batch, draw_batch
        self.counts: dict[Skill, Counts] = {"think": Counts(), "draw": Counts(), "answer": Counts()}
        self._load = load
        self._model: Respondent | None = None
        self._calls = store.of(identity)
        self._retry = retry_failed
        self._tried: set[str] = set()
        self._lacking: dict[str, UserError] = {}  # calls for which the model said that it lacks the skill
        self._made_ahead: set[str] = set()  # and not asked for yet

    @property
    def finished(self) -> int:
        """Calls in the store."""
        return len(self._calls)

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [_text(call) for call in self._ask("think", requests, on_step)]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[StoredImage | Exception]:
        """Images of the store, which nobody has read yet."""
        return [
            CallFailed(call.error) if call.image is None else StoredImage(partial(self._calls.image, call.key))
            for call in self._ask("draw", requests, on_step)
        ]

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [_text(call) for call in self._ask("answer", requests, on_step)]

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> list[list[str | StoredImage] | Exception]:
        """Texts and images in order, images as by `draw`."""
        return [self._parts(call) for call in self._ask("compose", requests, on_step)]

    def _parts(self, call: Call) -> list[str | StoredImage] | Exception:
        if call.text is None or call.image is None:
            return CallFailed(call.error)
        parts: list[str | StoredImage] = []
        start = 0
        for part in json.loads(call.text):
            if isinstance(part, str):
                parts.append(part)
            else:
                parts.append(StoredImage(partial(self._calls.image, call.key, start, start + part)))
                start += part
        return parts

    def think_and_draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> tuple[list[str | Exception], list[np.ndarray | StoredImage | Exception]]:
        """As `think` and then `draw`, two calls a request. Where no thought is stored yet, the model does both at once
        if it can, and both calls are stored together: a run that was killed never draws by a thought that it reads
        again."""
        size = min(self.think_batch, self.draw_batch)
        for start in range(0, len(requests), size):
            batch = requests[start : start + size]
            self._ahead({call_key(self.identity, "think", request): request for request in batch}, on_step)
        return think_then_draw(self, requests, on_step)

    def _ahead(self, asked: Mapping[str, Request], on_step: OnStep | None) -> None:
        """Make the missing calls of a batch, a thought and an image each; skip a batch that the model refuses."""
        requests = [one for key, one in asked.items() if not self._finished(key)]
        if not requests:
            return
        if self._model is None:
            self._model = self._load()
        both = getattr(self._model, "think_and_draw", None)
        if both is None:
            return
        began = time.perf_counter()
        try:
            thoughts, images = both(requests, on_step=on_step)
        except UserError:
            return
        fresh = []
        for request, thought, image in zip(requests, thoughts, images, strict=True):
            drawn = replace(request, thought=thought)
            fresh.append(_finished_call(call_key(self.identity, "think", request), "think", request, thought))
            fresh.append(_finished_call(call_key(self.identity, "draw", drawn), "draw", drawn, image))
        self._calls.add(fresh)
        keys = {call.key for call in fresh}
        self._tried |= keys
        self._made_ahead |= keys
        seconds = (time.perf_counter() - began) / 2  # which part each skill took of it, nobody knows
        self._calls.took("think", len(requests), seconds)
        self._calls.took("draw", len(requests), seconds)

    def reread(self) -> None:
        """Take note of what other processes have stored meanwhile."""
        self._calls.reread()

    def release(self) -> None:
        """Let go of the model and its memory; a later missing call loads it again."""
        self._model = None

    def _finished(self, key: str) -> bool:
        if key not in self._calls:
            return False
        return key in self._tried or not (self._retry and self._calls.failed(key))

    def _ask(self, skill: Skill, requests: Sequence[Request], on_step: OnStep | None) -> Iterator[Call]:
        size = self.draw_batch if skill == "draw" else self.think_batch
        counts = self.counts.setdefault(skill, Counts())
        for start in range(0, len(requests), size):
            batch = requests[start : start + size]
            keys = [call_key(self.identity, skill, request) for request in batch]
            # A request that is asked twice in a batch is one call.
            missing = {key: one for key, one in zip(keys, batch, strict=True) if not self._finished(key)}
            fresh: dict[str, Call] = {}
            if missing:
                answers = self._forward(skill, missing, on_step)
                fresh = {
                    key: _finished_call(key, skill, request, answer)
                    for (key, request), answer in zip(missing.items(), answers, strict=True)
                }
                self._calls.add(list(fresh.values()))
                self._tried.update(fresh)
            ahead = self._made_ahead.intersection(keys)
            self._made_ahead -= ahead
            counts.made += len(fresh) + len(ahead)
            counts.stored += len(set(keys)) - len(fresh) - len(ahead)
            counts.failed += sum(call.error is not None for call in fresh.values())
            for key in keys:
                call = self._calls.get(key)
                assert call is not None
                yield call

    def _forward(self, skill: Skill, asked: Mapping[str, Request], on_step: OnStep | None) -> list[Any]:
        """The answers, an exception in the place of each that failed. A missing skill is no answer and not stored; it
        is remembered, so that scoring does not load the model to hear it again."""
        from uni_train.models.base import SkillMissing
        from uni_train.models.batches import each_answered

        requests = list(asked.values())
        if error := next((self._lacking[key] for key in asked if key in self._lacking), None):
            raise error
        if self._model is None:
            self._model = self._load()
        began = time.perf_counter()
        try:
            answers = each_answered(partial(getattr(self._model, skill), on_step=on_step), requests)
        except SkillMissing as error:
            if len(asked) == 1:
                self._lacking |= dict.fromkeys(asked, error)
            raise
        self._calls.took(skill, len(requests), time.perf_counter() - began)
        return answers


def _finished_call(
    key: str, skill: Skill, request: Request, answer: str | np.ndarray | Sequence[str | np.ndarray] | Exception
) -> Call:
    call = Call(key, skill, request.id, request.prompt, request.seed, request.thought)
    if isinstance(answer, Exception):
        return replace(call, error=getattr(answer, "message", "") or first_line(answer))
    if isinstance(answer, str):
        return replace(call, text=answer)
    if not isinstance(answer, np.ndarray):
        parts = [part if isinstance(part, str) else encode_png(part) for part in answer]
        told = [part if isinstance(part, str) else len(part) for part in parts]
        images = b"".join(part for part in parts if isinstance(part, bytes))
        return replace(call, text=json.dumps(told, ensure_ascii=False), image=images)
    return replace(call, image=encode_png(answer))


def _text(call: Call) -> str | Exception:
    return CallFailed(call.error) if call.text is None else call.text


def _schema() -> pa.Schema:
    import pyarrow as pa

    needed = [pa.field(name, pa.string(), nullable=False) for name in ("key", "skill", "id", "prompt")]
    answer = [pa.field(name, pa.string()) for name in ("thought", "text", "error")]
    return pa.schema([*needed, pa.field("seed", pa.int64(), nullable=False), *answer, pa.field("image", pa.binary())])


def _to_row(call: Call) -> dict[str, Any]:
    return {name: getattr(call, name) for name in _schema().names}


def _from_row(row: Mapping[str, Any]) -> Call:
    drawn = row["error"] is None and (row["text"] is None or row["skill"] == "compose")
    image = b"" if drawn else None
    return Call(**{**row, "image": image})
