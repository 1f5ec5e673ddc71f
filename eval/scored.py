"""Scored samples on disk: Parquet shards of one form, whose images lie in a store or in the rows.

An evaluation's shards name images by the hash of their content. They name the store (`eval.images`) by its path from
the shard. Shards that are trained on hold the bytes: training reads one file, a row group at a time, and such a folder
can be moved without a store.

Evaluations name a shard by its content, the batches of a stage by their number (`shard_path`). A shard is written once
and renamed into place. Killing the process leaves whole shards, and at most one `.partial` file that nobody reads. The
footer holds digests of the rows and of their images; Parquet's own checksums leave the page headers out. A damaged file
is an error with its name, never a silently different number.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError, first_line
from uni_train.core.files import atomic_path, disk_errors
from uni_train.core.reading_limits import Unreadable, parquet_footer, read_group, rows_of
from uni_train.data_gen.task import Verdict
from uni_train.eval.images import Image, ImageStore, bytes_of, digest_of, named_parts
from uni_train.eval.sample import GENERATED, Ask, Case, Sample, Scored

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
FORMAT = "uni_train.scored/4"
_IMAGES = "images_in"  # of the footer: where the store is
_BLOBS = ("images", "earlier", "image")
TO_TRAIN_ON = 1 << 22  # bytes of images in a row group: what training reads to take one of them
_DICTIONARY_BYTES = 1 << 27  # equal images of a shard (a case asked in several settings) are stored once
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


def write_scored(path: Path, scored: Sequence[Scored], store: ImageStore | None = None) -> None:
    """One shard, atomically.

    Args:
        store: has the images already (`stored`), and rows name them; None: rows hold them, to be trained on, in row
            groups of about `TO_TRAIN_ON` bytes.

    Raises:
        UserError: the disk is full, or the folder cannot be written; nothing half-written stays behind then.
    """
    facts = {} if store is None else {_IMAGES: os.path.relpath(store.folder, path.parent)}
    _write_rows(path, [_to_row(answer, store is None) for answer in scored], facts)


def stored(sample: Sample, store: ImageStore) -> Sample:
    """The same sample, its images and those of its case in the store."""
    case = sample.ask.case
    if case.images or case.references:
        images, references = (tuple(map(store.put, some)) for some in (case.images, case.references))
        sample = replace(sample, ask=replace(sample.ask, case=replace(case, images=images, references=references)))
    return replace(sample, parts=tuple(part if isinstance(part, str) else store.put(part) for part in sample.parts))


def read_scored(path: Path, images: bool = True) -> list[Scored]:
    """The samples of one shard, in order. Raises DamagedShard.

    Images of a store are read when they are asked for. Of other shards images=False leaves them on disk (b"" stands for
    each that is there): enough for every number.
    """
    where = _read_footer(path).get(_IMAGES)
    store = None if where is None else ImageStore(path.parent / where)
    rows = _read_rows(path, images and store is None)
    scored: list[Scored] = []
    try:
        for row in rows:
            scored.append(_from_row(row, store))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedShard(path, f"damaged shard (row {len(scored) + 1}: {first_line(error)})") from error
    return scored


def shard_path(folder: Path, index: int) -> Path:
    """shards/00012.parquet for index 12."""
    return folder / f"{index:05d}.parquet"


def read_folder(folder: Path, images: bool = True) -> Iterator[Scored]:
    """The samples of all shards of a folder, in the order of their names. One shard is in memory at a time.

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
    numbers = {int(match[1]) for match in map(_SHARD_NAME.fullmatch, names) if match}
    for number in numbers:
        _read_footer(shard_path(folder, number))
    return numbers


def without_images(scored: Iterable[Scored]) -> Iterator[Scored]:
    """The same with b"" in the place of every image."""
    for answer in scored:
        sample, case = answer.sample, answer.sample.ask.case
        case = replace(case, images=(b"",) * len(case.images), references=())
        parts = tuple(part if isinstance(part, str) else b"" for part in sample.parts)
        yield replace(answer, sample=replace(sample, ask=replace(sample.ask, case=case), parts=parts))


# --- one sample as a row ---------------------------------------------------------------------------------------------

_TEXTS = (
    "id", "set", "case_prompt", "cluster", "category", "case_facts", "shown", "setting", "status", "note", "prompt",
    "thought", "parts", "facts", "verdict", "judged_by", "failure", "replies", "cause", "filter_verdict", "outcome",
)  # fmt: skip
"""parts: JSON, texts and images; shown: JSON, the case's images. An image is {"image": hash} or the number of one in
the row. outcome, value: for those who read the file with other tools."""
_OPTIONAL = ("cluster", "thought", "verdict", "filter_verdict")


def _schema() -> pa.Schema:
    import pyarrow as pa

    columns = [pa.field(name, pa.string(), nullable=name in _OPTIONAL) for name in _TEXTS]
    columns += [pa.field(name, pa.int64(), nullable=False) for name in ("k", "seed")]
    columns += [pa.field("value", pa.float64(), nullable=False)]
    images = [pa.field(name, pa.list_(pa.binary())) for name in ("images", "earlier")]  # shown; before the last one
    return pa.schema([*columns, *images, pa.field("image", pa.binary())])


def _to_row(answer: Scored, inline: bool) -> dict[str, Any]:
    """inline: the row holds its images, as training reads them."""
    sample, case = answer.sample, answer.sample.ask.case
    images: Sequence[bytes] = sample.images if inline else ()
    numbers = iter(range(len(images)))
    return {
        "id": case.id,
        "set": case.set,
        "case_prompt": case.prompt,
        "cluster": case.cluster,
        "category": case.category,
        "case_facts": _json(case.facts),
        "shown": json.dumps(len(case.images) if inline else _named_images(case)),
        "setting": sample.ask.setting,
        "k": sample.ask.k,
        "seed": sample.ask.seed,
        "status": sample.status,
        "note": sample.note,
        "prompt": sample.prompt,
        "thought": sample.thought,
        "parts": json.dumps(
            [part if isinstance(part, str) else next(numbers) for part in sample.parts]
            if inline
            else named_parts(sample.parts),
            ensure_ascii=False,
        ),
        "facts": _json(sample.facts),
        "verdict": _verdict_json(answer.verdict),
        "judged_by": answer.by,
        "failure": answer.failure,
        "replies": json.dumps(list(answer.replies), ensure_ascii=False),
        "cause": answer.cause,
        "filter_verdict": _verdict_json(answer.filter_verdict),
        "outcome": answer.outcome,
        "value": answer.value,
        "images": [bytes_of(image) for image in case.images] if inline else None,
        "earlier": list(images[:-1]) if inline else None,
        "image": images[-1] if images else None,
    }


def _named_images(case: Case) -> Any:
    images, references = ([digest_of(image) for image in some] for some in (case.images, case.references))
    return {"images": images, "references": references} if references else images


def _from_row(row: Row, store: ImageStore | None) -> Scored:
    """Of a row that was read without its images: with b"" in their place."""
    facts, case_facts, replies, parts = (json.loads(row[name]) for name in ("facts", "case_facts", "replies", "parts"))
    if row["status"] not in GENERATED:
        raise ValueError(f"no status of a sample: {row['status']!r}")
    if not isinstance(facts, dict) or not isinstance(case_facts, dict):
        raise ValueError("facts are no object")
    if not isinstance(parts, list) or not isinstance(replies, list) or {*map(type, replies)} - {str}:
        raise ValueError("parts or replies are no list")
    if row["k"] < 0 or not 0 <= row["value"] <= 1:
        raise ValueError(f"draw {row['k']} with the value {row['value']}")
    shown, references, parts = _images_of(row, parts, store)
    case = Case(
        row["id"], row["set"], row["case_prompt"], shown, row["cluster"], row["category"], case_facts, references
    )
    ask = Ask(case, row["setting"], row["k"], row["seed"])
    sample = Sample(ask, row["status"], row["note"], row["prompt"], row["thought"], parts, facts)
    return Scored(
        sample,
        _verdict(row["verdict"]),
        row["judged_by"],
        row["failure"],
        tuple(replies),
        row["cause"],
        _verdict(row["filter_verdict"]),
    )


def _images_of(
    row: Row, parts: Sequence[Any], store: ImageStore | None
) -> tuple[tuple[Image, ...], tuple[Image, ...], tuple[str | Image, ...]]:
    """What the case shows, its references, and the sample's parts."""
    shown = json.loads(row["shown"])
    if store is not None:
        named = shown if isinstance(shown, dict) else {"images": shown, "references": []}
        images, references = (tuple(map(store.get, named[kind])) for kind in ("images", "references"))
        return images, references, store.parts(parts)
    drawn = dict(enumerate([*(row.get("earlier") or ()), row.get("image")]))
    given = row.get("images")
    return (
        (b"",) * shown if given is None else tuple(given),
        (),
        tuple(part if isinstance(part, str) else drawn.get(part) or b"" for part in parts),
    )


def _verdict_json(verdict: Verdict | None) -> str | None:
    return None if verdict is None else _json(verdict.to_dict())


def _verdict(text: str | None) -> Verdict | None:
    return None if text is None else Verdict.from_dict(json.loads(text))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)


# --- rows as a file --------------------------------------------------------------------------------------------------


def _write_rows(path: Path, rows: Sequence[Row], facts: Mapping[str, str]) -> None:
    """Rows of samples with their digests, and further `facts` for the footer. Raises as `write_scored`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    digests = {**facts, "format": FORMAT, "rows": _digest_rows(rows), "images": _digest_blobs(rows)}
    table = pa.Table.from_pylist(list(rows), schema=_schema().with_metadata(digests))
    group = max(1, TO_TRAIN_ON * len(rows) // max(sum(table.column(name).nbytes for name in _BLOBS), 1))
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            pq.write_table(
                table, file, row_group_size=group, compression="zstd", dictionary_pagesize_limit=_DICTIONARY_BYTES
            )


def _read_rows(path: Path, images: bool) -> list[dict[str, Any]]:
    """The rows of one shard, in order, without the columns `_BLOBS` if images=False. Raises DamagedShard."""
    import pyarrow as pa

    footer = _read_footer(path)
    try:
        stored = parquet_footer(path)
        names = [name for name in stored.schema.to_arrow_schema().names if images or name not in _BLOBS]
        rows = rows_of(path, (read_group(path, number, names) for number in range(stored.num_row_groups)))
        intact = _digest_rows(rows) == footer.get("rows")
        if images:
            intact = intact and _digest_blobs(rows) == footer.get("images")
    except Unreadable as error:
        raise DamagedShard(path, error.reason) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedShard(path, f"damaged shard ({first_line(error)})") from error
    if not intact:
        raise DamagedShard(path, "damaged shard (its content is not what was written)")
    return rows


def _read_footer(path: Path) -> dict[str, str]:
    """The footer's words; quick, and enough to tell a truncated file. Raises DamagedShard, FileNotFoundError."""
    import pyarrow as pa

    try:
        metadata = parquet_footer(path).schema.to_arrow_schema().metadata or {}
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedShard(path, f"truncated or damaged shard ({first_line(error)})") from error
    words = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}
    form = words.get("format", "unknown")
    if form != FORMAT:
        raise DamagedShard(path, f"not a shard of scored samples (format {form}, expected {FORMAT})")
    return words


def _digest_rows(rows: Sequence[Row]) -> str:
    """Of every column but `_BLOBS`, so that it can be checked without reading them."""
    plain = [[value for name, value in sorted(row.items()) if name not in _BLOBS] for row in rows]
    return hashlib.blake2b(json.dumps(plain).encode(), digest_size=16).hexdigest()


def _digest_blobs(rows: Sequence[Row]) -> str:
    """Of the binary columns `_BLOBS`, each of bytes, None, or a list of bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for row in rows:
        for name in sorted(_BLOBS):
            value = row.get(name)
            for part in value if isinstance(value, list) else [value]:
                digest.update(b"-" if part is None else len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
