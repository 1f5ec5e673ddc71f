"""Finished batches of samples on disk: one Parquet shard a batch, written once and renamed into place.

A shard that exists under its final name is complete: killing the process at any moment leaves whole shards and at most
one `.partial` file, which nobody reads. The footer holds digests of the rows and of the images (Parquet's own checksums
leave the page headers out), so a damaged file is an error with its name, never a silently different number. Images are
stored as their PNG bytes, facts and verdicts as JSON.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.task import Item, Verdict
from eval.sample import ScoredSample
from uni_train.errors import UserError
from uni_train.files import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "uni_train.samples/1"
_SHARD_NAME = re.compile(r"(\d{5,})\.parquet")


class DamagedShard(UserError):
    """A shard cannot be read back as it was written; the message names the file."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}", "Delete this file and run the same command again: only its batch is made anew."
        )
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[DamagedShard], tuple[Path, str]]:  # type: ignore[override]
        return type(self), (self.path, self.problem)


def shard_path(folder: Path, index: int) -> Path:
    """shards/00012.parquet for index 12."""
    return Path(folder) / f"{index:05d}.parquet"


def write_shard(path: Path, samples: Sequence[ScoredSample]) -> Path:
    """Write one finished batch under `path`, atomically: a temporary neighbour, flushed to disk, then renamed.

    Raises FileExistsError when the shard is already there (a finished batch is never written twice) and UserError
    when the disk is full or the folder cannot be written; nothing half-written stays behind then.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} is already complete")
    rows = [_to_row(sample) for sample in samples]
    digests = {"format": FORMAT, "rows": _digest_rows(rows), "images": _digest_images(rows)}
    table = pa.Table.from_pylist(rows, schema=_schema().with_metadata(digests))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            pq.write_table(table, file, compression="zstd")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        hint = "Free some space" if full else "Make the folder writable"
        raise UserError(
            f"{path}: {problem}", f"{hint} and run the same command again; finished batches are kept."
        ) from error
    return path


def read_shard(path: Path, images: bool = True) -> list[ScoredSample]:
    """All samples of one shard, in the order in which they were written. Raises DamagedShard.

    images=False leaves the pixels on disk (b"" stands for an image that is there): enough for scoring, and the memory
    of a million samples stays small.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    footer = _read_footer(path)
    try:
        columns = [name for name in _schema().names if images or name != "image"]
        rows = pq.read_table(path, columns=columns, partitioning=None).to_pylist()
        intact = _digest_rows(rows) == footer.get("rows") and (
            not images or _digest_images(rows) == footer.get("images")
        )
        if not intact:
            raise DamagedShard(path, "damaged shard (its content is not what was written)")
        return [_from_row(row) for row in rows]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedShard(path, f"damaged shard ({_first_line(error)})") from error


def read_shards(folder: Path, images: bool = True) -> Iterator[ScoredSample]:
    """The samples of all shards of a folder, in shard order, one shard in memory at a time.

    A folder that is missing or empty yields nothing. images: as in `read_shard`.
    """
    for index in sorted(_shards(folder)):
        yield from read_shard(shard_path(folder, index), images)


def completed(folder: Path) -> set[int]:
    """The indexes of the shards that are finished.

    Looks at the footers only (fast for thousands of shards), which a truncated file does not have; `read_shard` also
    verifies the content. Raises DamagedShard for a shard without a valid footer.
    """
    found = _shards(folder)
    for index in found:
        _read_footer(shard_path(folder, index))
    return found


def _shards(folder: Path) -> set[int]:
    folder = Path(folder)
    if not folder.is_dir():
        return set()
    matches = (_SHARD_NAME.fullmatch(entry.name) for entry in folder.iterdir())
    return {int(match[1]) for match in matches if match}


def _read_footer(path: Path) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedShard(path, f"truncated or damaged shard ({_first_line(error)})") from error
    found = {
        key.decode(errors="replace"): value.decode(errors="replace") for key, value in (schema.metadata or {}).items()
    }
    if found.get("format") != FORMAT:
        raise DamagedShard(path, f"not a shard of samples (format {found.get('format', 'unknown')}, expected {FORMAT})")
    return found


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    fields = [
        pa.field("id", text, nullable=False),
        pa.field("task", text, nullable=False),
        pa.field("level", whole, nullable=False),
        pa.field("split", text, nullable=False),
        pa.field("pair", text),
        pa.field("prompt", text, nullable=False),
        pa.field("answer", text, nullable=False),
        pa.field("reference", text, nullable=False),  # the item's exact thought; `thought` below is the model's
        pa.field("facts", text, nullable=False),
        pa.field("setting", text, nullable=False),
        pa.field("k", whole, nullable=False),
        pa.field("seed", whole, nullable=False),
        pa.field("thought", text),
        pa.field("image", pa.binary()),
        pa.field("has_image", pa.bool_(), nullable=False),
        pa.field("verdict", text),
        pa.field("self_verdict", text),
    ]
    return pa.schema(fields)


def _digest_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of everything but the images, so that it can be checked without reading them."""
    plain = [[value for name, value in sorted(row.items()) if name != "image"] for row in rows]
    return hashlib.blake2b(json.dumps(plain).encode(), digest_size=16).hexdigest()


def _digest_images(rows: Sequence[Mapping[str, Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in rows:
        image = row["image"]
        digest.update(b"-" if image is None else len(image).to_bytes(8, "big") + image)
    return digest.hexdigest()


def _to_row(sample: ScoredSample) -> dict[str, Any]:
    item = sample.item
    return {
        "id": item.id,
        "task": item.task,
        "level": item.level,
        "split": item.split,
        "pair": item.pair,
        "prompt": item.prompt,
        "answer": item.answer,
        "reference": item.thought,
        "facts": json.dumps(dict(item.facts), ensure_ascii=False, sort_keys=True),
        "setting": sample.setting,
        "k": sample.k,
        "seed": sample.seed,
        "thought": sample.thought,
        "image": sample.image,
        "has_image": sample.image is not None,
        "verdict": _verdict_json(sample.verdict),
        "self_verdict": _verdict_json(sample.self_verdict),
    }


def _from_row(row: Mapping[str, Any]) -> ScoredSample:
    item = Item(
        id=row["id"],
        task=row["task"],
        level=row["level"],
        split=row["split"],
        prompt=row["prompt"],
        answer=row["answer"],
        facts=json.loads(row["facts"]),
        thought=row["reference"],
        pair=row["pair"],
    )
    return ScoredSample(
        item=item,
        setting=row["setting"],
        seed=row["seed"],
        k=row["k"],
        thought=row["thought"],
        image=row.get("image", b"" if row["has_image"] else None),
        verdict=_verdict(row["verdict"]),
        self_verdict=_verdict(row["self_verdict"]),
    )


def _verdict_json(verdict: Verdict | None) -> str | None:
    return None if verdict is None else json.dumps(verdict.to_dict(), ensure_ascii=False, sort_keys=True)


def _verdict(text: str | None) -> Verdict | None:
    return None if text is None else Verdict.from_dict(json.loads(text))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
