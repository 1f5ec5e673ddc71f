"""Scored samples on disk: Parquet shards of some hundreds, pictures as they were stored, the rest as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.task import Verdict
from eval.benchmark import Ask, Case, Sample, Scored
from eval.shards import read_rows, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "uni_train.scored/1"
_BLOBS = ("images", "image")


def write_scored(path: Path, scored: Sequence[Scored]) -> None:
    """One shard. Raises UserError: the disk is full, or the folder cannot be written."""
    write_rows(path, [_to_row(one) for one in scored], _schema(), FORMAT, _BLOBS)


def read_scored(path: Path, images: bool = True) -> list[Scored]:
    """The samples of one shard, in order. Raises DamagedShard.

    images=False leaves all pictures on disk (b"" stands for each that is there): enough for every number.
    """
    names = None if images else [name for name in _schema().names if name not in _BLOBS]
    return [_from_row(row) for row in read_rows(path, _schema(), FORMAT, _BLOBS, names)]


def without_images(scored: Iterable[Scored]) -> Iterator[Scored]:
    """The same with b"" in the place of every picture."""
    for one in scored:
        yield _from_row({**_to_row(one), "image": None, "images": None})


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
            pa.field("text", text),
            pa.field("has_image", pa.bool_(), nullable=False),
            pa.field("facts", text, nullable=False),
            pa.field("verdict", text),
            pa.field("judged_by", text, nullable=False),
            pa.field("failure", text, nullable=False),
            pa.field("replies", text, nullable=False),
            pa.field("cause", text, nullable=False),
            pa.field("outcome", text, nullable=False),  # for those who read the file with other tools
            pa.field("images", pa.list_(pa.binary())),
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
        "text": sample.text,
        "has_image": sample.image is not None,
        "facts": _json(sample.facts),
        "verdict": None if one.verdict is None else _json(one.verdict.to_dict()),
        "judged_by": one.by,
        "failure": one.failure,
        "replies": json.dumps(list(one.replies), ensure_ascii=False),
        "cause": one.cause,
        "outcome": one.outcome,
        "images": list(case.images),
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
    image = row.get("image")
    sample = Sample(
        Ask(case, row["setting"], row["k"], row["seed"]),
        row["status"],
        row["note"],
        row["prompt"],
        row["thought"],
        row["text"],
        b"" if image is None and row["has_image"] else image,
        json.loads(row["facts"]),
    )
    verdict = None if row["verdict"] is None else Verdict.from_dict(json.loads(row["verdict"]))
    return Scored(sample, verdict, row["judged_by"], row["failure"], tuple(json.loads(row["replies"])), row["cause"])


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
