"""Scored samples on disk: Parquet shards, images as they were stored, the rest as JSON.

Evaluations name a shard by its content, the batches of a stage by their number (`shard_path`). A shard that is there is
complete (`eval.shards`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.task import Verdict
from eval.benchmark import Ask, Case, Sample, Scored
from eval.shards import read_footer, read_rows, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "uni_train.scored/2"
_BLOBS = ("images", "earlier", "image")
TO_TRAIN_ON = 1 << 22  # bytes of images in a row group: what training reads to take one of them
_SHARD_NAME = re.compile(r"(\d{5,})\.parquet")


def write_scored(path: Path, scored: Sequence[Scored], group_bytes: int | None = None) -> None:
    """One shard; `group_bytes` as in `eval.shards.write_rows`. Raises UserError: the disk is full, or the folder cannot
    be written."""
    write_rows(path, [_to_row(one) for one in scored], _schema(), FORMAT, _BLOBS, group_bytes)


def read_scored(path: Path, images: bool = True) -> list[Scored]:
    """The samples of one shard, in order. Raises DamagedShard.

    images=False leaves all pictures on disk (b"" stands for each that is there): enough for every number.
    """
    names = None if images else [name for name in _schema().names if name not in _BLOBS]
    return [_from_row(row) for row in read_rows(path, _schema(), FORMAT, _BLOBS, names)]


def shard_path(folder: Path, index: int) -> Path:
    """shards/00012.parquet for index 12."""
    return folder / f"{index:05d}.parquet"


def read_folder(folder: Path, images: bool = True) -> Iterator[Scored]:
    """The samples of all shards of a folder, in the order of their names, one shard in memory at a time.

    A folder that is missing or empty yields nothing. images: as in `read_scored`.
    """
    for path in sorted(folder.glob("[!.]*.parquet")):
        yield from read_scored(path, images)


def completed(folder: Path) -> set[int]:
    """The numbers of the batches that are finished.

    Looks at the footers only (fast for thousands of shards), which a truncated file does not have; `read_scored` also
    verifies the content. Raises DamagedShard for a shard without a valid footer.
    """
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    found = {int(match[1]) for match in map(_SHARD_NAME.fullmatch, names) if match}
    for index in found:
        read_footer(shard_path(folder, index), FORMAT)
    return found


def without_images(scored: Iterable[Scored]) -> Iterator[Scored]:
    """The same with b"" in the place of every picture."""
    for one in scored:
        yield _from_row({**_to_row(one), "image": None, "images": None, "earlier": None})


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    return pa.schema(
        [
            pa.field("id", text, nullable=False),
            pa.field("set", text, nullable=False),
            pa.field("case_prompt", text, nullable=False),
            pa.field("cluster", text),
            pa.field("category", text, nullable=False),
            pa.field("case_facts", text, nullable=False),
            pa.field("shown", whole, nullable=False),  # how many pictures the case shows
            pa.field("setting", text, nullable=False),
            pa.field("k", whole, nullable=False),
            pa.field("seed", whole, nullable=False),
            pa.field("status", text, nullable=False),
            pa.field("note", text, nullable=False),
            pa.field("prompt", text, nullable=False),
            pa.field("thought", text),
            pa.field("parts", text, nullable=False),  # JSON: texts, and numbers of images
            pa.field("facts", text, nullable=False),
            pa.field("verdict", text),
            pa.field("judged_by", text, nullable=False),
            pa.field("failure", text, nullable=False),
            pa.field("replies", text, nullable=False),
            pa.field("cause", text, nullable=False),
            pa.field("filter_verdict", text),
            pa.field("outcome", text, nullable=False),  # for those who read the file with other tools, as `value`
            pa.field("value", pa.float64(), nullable=False),
            pa.field("images", pa.list_(pa.binary())),
            pa.field("earlier", pa.list_(pa.binary())),  # images before the last one
            pa.field("image", pa.binary()),
        ]
    )


def _to_row(one: Scored) -> dict[str, Any]:
    sample, case = one.sample, one.sample.ask.case
    return {
        "id": case.id,
        "set": case.set,
        "case_prompt": case.prompt,
        "cluster": case.cluster,
        "category": case.category,
        "case_facts": _json(case.facts),
        "shown": len(case.images),
        "setting": sample.ask.setting,
        "k": sample.ask.k,
        "seed": sample.ask.seed,
        "status": sample.status,
        "note": sample.note,
        "prompt": sample.prompt,
        "thought": sample.thought,
        "parts": json.dumps(_numbered(sample.parts), ensure_ascii=False),
        "facts": _json(sample.facts),
        "verdict": _verdict_json(one.verdict),
        "judged_by": one.by,
        "failure": one.failure,
        "replies": json.dumps(list(one.replies), ensure_ascii=False),
        "cause": one.cause,
        "filter_verdict": _verdict_json(one.filter_verdict),
        "outcome": one.outcome,
        "value": one.value,
        "images": list(case.images),
        "earlier": list(sample.images[:-1]),
        "image": sample.image,
    }


def _from_row(row: Mapping[str, Any]) -> Scored:
    images = row.get("images")
    case = Case(
        row["id"],
        row["set"],
        row["case_prompt"],
        (b"",) * row["shown"] if images is None else tuple(images),
        row["cluster"],
        row["category"],
        json.loads(row["case_facts"]),
    )
    outputs = [*(row.get("earlier") or ()), row.get("image")]
    sample = Sample(
        Ask(case, row["setting"], row["k"], row["seed"]),
        row["status"],
        row["note"],
        row["prompt"],
        row["thought"],
        _parts(row["parts"], outputs),
        json.loads(row["facts"]),
    )
    return Scored(
        sample,
        _verdict(row["verdict"]),
        row["judged_by"],
        row["failure"],
        tuple(json.loads(row["replies"])),
        row["cause"],
        _verdict(row["filter_verdict"]),
    )


def _numbered(parts: Sequence[str | bytes]) -> list[str | int]:
    """Texts, and in the place of each image its number."""
    numbers = iter(range(len(parts)))
    return [part if isinstance(part, str) else next(numbers) for part in parts]


def _parts(text: str, images: Sequence[bytes | None]) -> tuple[str | bytes, ...]:
    """With b"" in the place of images that were left on disk."""
    stored = dict(enumerate(images))
    return tuple(part if isinstance(part, str) else stored.get(part) or b"" for part in json.loads(text))


def _verdict_json(verdict: Verdict | None) -> str | None:
    return None if verdict is None else _json(verdict.to_dict())


def _verdict(text: str | None) -> Verdict | None:
    return None if text is None else Verdict.from_dict(json.loads(text))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
