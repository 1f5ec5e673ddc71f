"""Scored samples on disk: Parquet shards, images by content or as they are, the rest as JSON.

An evaluation's shards name images by the hash of their content, and the store by its path from the shard
(`eval.images`); nothing copies bytes into rows. Shards that are trained on hold the bytes: training reads one file.

Evaluations name a shard by its content, the batches of a stage by their number (`shard_path`). A shard that is there is
complete (`uni_train.eval.shards`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import GENERATED, Ask, Case, Sample, Scored
from uni_train.eval.images import Image, ImageStore, bytes_of, digest_of
from uni_train.eval.shards import DamagedShard, first_line, form_of, read_footer, read_rows, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "uni_train.scored/2"  # the bytes are in the rows
BY_CONTENT = "uni_train.scored/3"
_IMAGES = "images_in"  # of the footer: where the store is
_BLOBS = ("images", "earlier", "image")
TO_TRAIN_ON = 1 << 22  # bytes of images in a row group: what training reads to take one of them
_SHARD_NAME = re.compile(r"(\d{5,})\.parquet")


def write_scored(path: Path, scored: Sequence[Scored], group_bytes: int | None = None) -> None:
    """One shard with the bytes of its images; `group_bytes` as in `eval.shards.write_rows`. Raises UserError: the disk
    is full, or the folder cannot be written."""
    write_rows(path, [_to_row(one) for one in scored], _schema(), FORMAT, _BLOBS, group_bytes)


def write_by_content(path: Path, scored: Sequence[Scored], store: ImageStore) -> None:
    """One shard whose images are in `store` already (`stored`). Raises UserError as `write_scored`."""
    rows = [
        _plain_row(one)
        | {
            "shown": _shown(one.sample.ask.case),
            "parts": json.dumps(
                [part if isinstance(part, str) else {"image": digest_of(part)} for part in one.sample.parts],
                ensure_ascii=False,
            ),
        }
        for one in scored
    ]
    write_rows(
        path, rows, _content_schema(), BY_CONTENT, (), facts={_IMAGES: os.path.relpath(store.folder, path.parent)}
    )


def _shown(case: Case) -> str:
    images, references = ([digest_of(image) for image in some] for some in (case.images, case.references))
    return json.dumps({"images": images, "references": references} if references else images)


def stored(sample: Sample, store: ImageStore) -> Sample:
    """The same sample, its images and those of its case in the store."""
    case = sample.ask.case
    if case.images or case.references:
        images, references = (tuple(map(store.put, some)) for some in (case.images, case.references))
        sample = replace(sample, ask=replace(sample.ask, case=replace(case, images=images, references=references)))
    return replace(sample, parts=tuple(part if isinstance(part, str) else store.put(part) for part in sample.parts))


def read_scored(path: Path, images: bool = True) -> list[Scored]:
    """The samples of one shard, in order. Raises DamagedShard.

    Images by content are read when they are asked for. Of other shards images=False leaves them on disk (b"" stands for
    each that is there): enough for every number.
    """
    if by_content := form_of(path) == BY_CONTENT:
        store = ImageStore(path.parent / read_footer(path, BY_CONTENT).get(_IMAGES, ""))
        rows = read_rows(path, _content_schema(), BY_CONTENT, ())
    else:
        names = None if images else [name for name in _schema().names if name not in _BLOBS]
        rows = read_rows(path, _schema(), FORMAT, _BLOBS, names)
    scored: list[Scored] = []
    try:
        for row in rows:
            scored.append(_by_content(row, store) if by_content else _from_row(row))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedShard(path, f"damaged shard (row {len(scored) + 1}: {first_line(error)})") from error
    return scored


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
    """The same with b"" in the place of every image."""
    for one in scored:
        yield _from_row({**_to_row(one), "image": None, "images": None, "earlier": None})


_COLUMNS = (
    "id", "set", "case_prompt", "cluster", "category", "case_facts", "shown", "setting", "k", "seed", "status", "note",
    "prompt", "thought", "parts", "facts", "verdict", "judged_by", "failure", "replies", "cause", "filter_verdict",
    "outcome", "value",
)  # fmt: skip
"""shown: how many images the case shows. parts: JSON, texts and numbers of images. outcome, value: for those who read
the file with other tools."""
_OPTIONAL = ("cluster", "thought", "verdict", "filter_verdict")


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = dict.fromkeys(("shown", "k", "seed"), pa.int64()) | {"value": pa.float64()}
    columns = [pa.field(name, kinds.get(name, pa.string()), nullable=name in _OPTIONAL) for name in _COLUMNS]
    images = [pa.field("images", pa.list_(pa.binary())), pa.field("earlier", pa.list_(pa.binary()))]
    return pa.schema([*columns, *images, pa.field("image", pa.binary())])  # earlier: images before the last one


def _content_schema() -> pa.Schema:
    import pyarrow as pa

    fields = [field for field in _schema() if field.name not in (*_BLOBS, "shown")]
    return pa.schema(
        [*fields, pa.field("shown", pa.string(), nullable=False)]
    )  # JSON: digests of images, and of references


def _to_row(one: Scored) -> dict[str, Any]:
    images = list(one.sample.images)
    return _plain_row(one) | {
        "shown": len(one.sample.ask.case.images),
        "parts": json.dumps(_numbered(one.sample.parts), ensure_ascii=False),
        "images": [bytes_of(image) for image in one.sample.ask.case.images],
        "earlier": images[:-1],
        "image": images[-1] if images else None,
    }


def _plain_row(one: Scored) -> dict[str, Any]:
    """All columns but those about images."""
    sample, case = one.sample, one.sample.ask.case
    return {
        "id": case.id,
        "set": case.set,
        "case_prompt": case.prompt,
        "cluster": case.cluster,
        "category": case.category,
        "case_facts": _json(case.facts),
        "setting": sample.ask.setting,
        "k": sample.ask.k,
        "seed": sample.ask.seed,
        "status": sample.status,
        "note": sample.note,
        "prompt": sample.prompt,
        "thought": sample.thought,
        "facts": _json(sample.facts),
        "verdict": _verdict_json(one.verdict),
        "judged_by": one.by,
        "failure": one.failure,
        "replies": json.dumps(list(one.replies), ensure_ascii=False),
        "cause": one.cause,
        "filter_verdict": _verdict_json(one.filter_verdict),
        "outcome": one.outcome,
        "value": one.value,
    }


def _by_content(row: Mapping[str, Any], store: ImageStore) -> Scored:
    shown = json.loads(row["shown"])
    shown = shown if isinstance(shown, dict) else {"images": shown, "references": []}
    images, references = (tuple(map(store.get, shown[kind])) for kind in ("images", "references"))
    parts = [part if isinstance(part, str) else store.get(part["image"]) for part in _list(row["parts"])]
    return _scored(row, images, tuple(parts), references)


def _from_row(row: Mapping[str, Any]) -> Scored:
    images = row.get("images")
    shown = (b"",) * row["shown"] if images is None else tuple(images)
    return _scored(row, shown, _parts(row["parts"], [*(row.get("earlier") or ()), row.get("image")]))


def _scored(
    row: Mapping[str, Any], shown: tuple[Image, ...], parts: tuple[str | Image, ...], references: tuple[Image, ...] = ()
) -> Scored:
    facts, case_facts = (json.loads(row[name]) for name in ("facts", "case_facts"))
    replies = _list(row["replies"])
    if row["status"] not in GENERATED:
        raise ValueError(f"no status of a sample: {row['status']!r}")
    if not isinstance(facts, dict) or not isinstance(case_facts, dict):
        raise ValueError("facts are no object")
    if not all(isinstance(reply, str) for reply in replies):
        raise ValueError("replies are no texts")
    if row["k"] < 0 or not 0 <= row["value"] <= 1:
        raise ValueError(f"draw {row['k']} with the value {row['value']}")
    case = Case(
        row["id"],
        row["set"],
        row["case_prompt"],
        shown,
        row["cluster"],
        row["category"],
        case_facts,
        references,
    )
    sample = Sample(
        Ask(case, row["setting"], row["k"], row["seed"]),
        row["status"],
        row["note"],
        row["prompt"],
        row["thought"],
        parts,
        facts,
    )
    return Scored(
        sample,
        _verdict(row["verdict"]),
        row["judged_by"],
        row["failure"],
        tuple(replies),
        row["cause"],
        _verdict(row["filter_verdict"]),
    )


def _list(text: str) -> list[Any]:
    if not isinstance(found := json.loads(text), list):
        raise ValueError(f"{text[:40]} is no list")
    return found


def _numbered(parts: Sequence[str | Image]) -> list[str | int]:
    """Texts, and in the place of each image its number."""
    numbers = iter(range(len(parts)))
    return [part if isinstance(part, str) else next(numbers) for part in parts]


def _parts(text: str, images: Sequence[bytes | None]) -> tuple[str | bytes, ...]:
    """With b"" in the place of images that were left on disk."""
    stored = dict(enumerate(images))
    return tuple(part if isinstance(part, str) else stored.get(part) or b"" for part in _list(text))


def _verdict_json(verdict: Verdict | None) -> str | None:
    return None if verdict is None else _json(verdict.to_dict())


def _verdict(text: str | None) -> Verdict | None:
    return None if text is None else Verdict.from_dict(json.loads(text))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
