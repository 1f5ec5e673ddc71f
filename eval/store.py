"""Finished batches of samples on disk: one Parquet shard a batch, written once and renamed into place.

How a shard is written and checked is in `eval.shards`. Images are stored as PNG bytes, facts and verdicts as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.task import Item, Verdict
from eval.sample import ScoredSample
from eval.shards import DamagedShard, first_line, read_footer, read_rows, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "uni_train.samples/1"
_BLOBS = ("image",)
_GROUP_BYTES = 1 << 22  # of images: what training reads to take one of them
_SHARD_NAME = re.compile(r"(\d{5,})\.parquet")


def shard_path(folder: Path, index: int) -> Path:
    """shards/00012.parquet for index 12."""
    return Path(folder) / f"{index:05d}.parquet"


def write_shard(path: Path, samples: Sequence[ScoredSample]) -> Path:
    """Write one finished batch under `path`, atomically: a temporary neighbour, flushed to disk, then renamed.

    Raises FileExistsError when the shard is already there (a finished batch is never written twice) and UserError
    when the disk is full or the folder cannot be written; nothing half-written stays behind then.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} is already complete")
    write_rows(path, [_to_row(sample) for sample in samples], _schema(), FORMAT, _BLOBS, _GROUP_BYTES)
    return path


def read_shard(path: Path, images: bool = True) -> list[ScoredSample]:
    """All samples of one shard, in the order in which they were written. Raises DamagedShard.

    images=False leaves the pixels on disk (b"" stands for an image that is there): enough for scoring, and the memory
    of a million samples stays small.
    """
    path = Path(path)
    columns = None if images else [name for name in _schema().names if name not in _BLOBS]
    rows = read_rows(path, _schema(), FORMAT, _BLOBS, columns)
    try:
        return [_from_row(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedShard(path, f"damaged shard ({first_line(error)})") from error


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
        read_footer(shard_path(folder, index), FORMAT)
    return found


def _shards(folder: Path) -> set[int]:
    folder = Path(folder)
    if not folder.is_dir():
        return set()
    matches = (_SHARD_NAME.fullmatch(entry.name) for entry in folder.iterdir())
    return {int(match[1]) for match in matches if match}


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
