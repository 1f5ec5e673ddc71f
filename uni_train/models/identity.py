"""Which model gave an answer: a hash of a checkpoint's content, not its name, and the settings it was asked with.

A checkpoint that is overwritten under the same name is another model; one that is copied or moved is the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.folders import files_below
from uni_train.core.hub import id_of
from uni_train.core.reading_limits import read_json
from uni_train.models.checkpoint import on_disk, source_of
from uni_train.models.family import family_of
from uni_train.models.saved_step import is_step

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig

CACHE = ".content_hashes.json"
"""Hashes of large files, kept in their folder by name, size and time of the last change."""
_CONTENT = (".safetensors", ".json", ".txt", ".model", ".jinja", ".tiktoken")  # weights, sizes, tokenizers
_SHARD = 1 << 26  # bytes that one thread hashes at a time
_WORTH_KEEPING = 1 << 26  # bytes from which a hash is cached


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A model as results name it.

    Attributes:
        name: for people and folder names ("nano", "seed0-05-finetune").
        source: where it came from: a path, or the address of a remote one. Not part of `key`.
        content: what decides its answers: a hash of the checkpoint's files, or endpoint, model and revision.
        settings: how it is asked: sampling settings and dtype, JSON-able.
    """

    name: str
    source: str
    content: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """32 hex digits of content and settings: equal for models whose answers are interchangeable."""
        return digest([self.content, dict(self.settings)])

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source, "content": self.content, "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelIdentity:
        return cls(str(raw["name"]), str(raw["source"]), str(raw["content"]), dict(raw["settings"]))


def digest(values: list[Any]) -> str:
    """32 hex digits of JSON-able values."""
    plain = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()


def identify(config: ModelConfig, dtype: str = "stored") -> ModelIdentity:
    """The identity of the model that `build_model(config, seed=0)` makes, without loading it.

    Args:
        dtype: of the weights when asked ("stored", "bfloat16"); it moves images by rounding.

    Raises:
        UserError: no such checkpoint, or a file that cannot be read.
    """
    # Without null: answers that were stored before there was such a key are found.
    sampling = {key: value for key, value in asdict(config.sampling).items() if value is not None}
    settings: dict[str, Any] = {"family": config.family, "sampling": sampling, "dtype": dtype}
    if config.weights is not None:
        settings["weights"] = config.weights
    if config.compile:
        settings["compile"] = True
    if config.editing is not None:
        settings["editing"] = asdict(config.editing)
    settings = json.loads(json.dumps(settings))  # as it will be read back: tuples are lists
    if config.checkpoint is None:
        return ModelIdentity(f"{config.name}-untrained", "random weights", f"{config.name} seed 0", settings)
    source = source_of(config.checkpoint)
    shipped = source.base == "shipped"
    path = family_of(config.family).shipped_folder if shipped else Path(source.base)
    names, contents = [config.name if shipped else _name(path)], [content_hash(path)]
    if source.kind == "step":
        contents.append(identify(on_disk(config)).content)
    if source.adapters:
        from uni_train.models.adapters import FILES, open_adapter

        for file in (open_adapter(Path(adapter)).file for adapter in source.adapters):
            names.append(_name(file.parent) if file.name in FILES else file.stem)
            contents.append(hash_file(file))
    content = contents[0] if len(contents) == 1 else digest(contents)
    return ModelIdentity("+".join(names), config.checkpoint, content, settings)


def content_hash(path: Path) -> str:
    """32 hex digits of what a checkpoint holds: its weights, sizes and tokenizer, by relative name and content.

    Args:
        path: a folder (all such files below it count), or one weight file (with the small files beside it).

    Raises:
        UserError: nothing lies there, or nothing that is a checkpoint's.
    """
    files = sorted(_files(path), key=lambda file: file.as_posix())
    root = path if path.is_dir() else path.parent
    if not files:
        raise UserError(f"there is no checkpoint at {path}", "Give a folder with safetensors files, or a run's folder.")
    cache = _Cache(root)
    whole = hashlib.blake2b(digest_size=16)
    for file in files:
        whole.update(json.dumps([file.relative_to(root).as_posix(), cache.hash_of(file)]).encode())
    cache.save()
    return whole.hexdigest()


def hash_file(file: Path) -> str:
    """32 hex digits of a file: shards of 64 MiB are hashed side by side, then their hashes.

    A 29 GB checkpoint on one core would take as long as loading it.
    """
    size = file.stat().st_size
    starts = range(0, max(size, 1), _SHARD)
    if len(starts) == 1:
        return _hash_shard(file, 0)
    with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1)) as pool:
        parts = list(pool.map(lambda start: _hash_shard(file, start), starts))
    return hashlib.blake2b("".join(parts).encode(), digest_size=16).hexdigest()


def _hash_shard(file: Path, start: int) -> str:
    digest = hashlib.sha256()  # which processors have instructions for: three times as fast as blake2b
    with open(file, "rb", buffering=0) as stream:
        stream.seek(start)
        left = _SHARD
        while left > 0 and (piece := stream.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()[:32]


class _Cache:
    """Hashes of a folder's large files from the last time, valid as long as size and time of change are the same."""

    def __init__(self, root: Path) -> None:
        self.file = root / CACHE
        self.root = root
        self.changed = False
        self.entries: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError):
            loaded = read_json(self.file)
            self.entries = loaded if isinstance(loaded, dict) else {}

    def hash_of(self, file: Path) -> str:
        try:
            stat = file.stat()
            name, now = file.relative_to(self.root).as_posix(), [stat.st_size, stat.st_mtime_ns]
            known = self.entries.get(name)
            if isinstance(known, list) and known[:2] == now and len(known) == 3:
                return str(known[2])
            digest = hash_file(file)
        except OSError as error:
            raise UserError(f"{file} cannot be read ({error.strerror})", "Copy the checkpoint again.") from error
        if stat.st_size >= _WORTH_KEEPING:
            self.entries[name] = [*now, digest]
            self.changed = True
        return digest

    def save(self) -> None:
        if self.changed:
            with suppress(OSError):  # a folder of someone else's: it takes longer next time
                atomic_write_json(self.file, self.entries)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        yield from (file for file in path.parent.iterdir() if _counts(file) and file.suffix != ".safetensors")
        ae = path.parent / "ae.safetensors"
        if ae.is_file() and ae != path:
            yield ae
    elif path.is_dir():
        yield from filter(_counts, files_below(path))


def _counts(file: Path) -> bool:
    return file.suffix in _CONTENT and not file.name.startswith(".") and file.is_file()


def _name(path: Path) -> str:
    """What people call a checkpoint: run, stage and step of a run's, a Hub id's name, else the folder's or file's."""
    parts: Sequence[str] = path.resolve().parts
    if is_step(path):
        return f"{parts[-5]}-{parts[-3]}-step{int(parts[-1].partition('=')[2])}"
    if len(parts) >= 4 and parts[-1] == "model" and parts[-3] == "stages":
        return f"{parts[-4]}-{parts[-2]}"
    if (hub := id_of(path)) is not None:
        return hub.partition("@")[0].rpartition("/")[2]
    return path.stem if path.is_file() else parts[-1]
