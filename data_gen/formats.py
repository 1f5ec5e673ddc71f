"""Writes samples one after the other, in bounded memory: as a folder, as Parquet or as WebDataset shards.

folder: items.jsonl, images/ID.png (the targets), inputs/ID.png
parquet: SPLIT.parquet with columns of text, `item` as JSON, and images as Hugging Face datasets store them
webdataset: SPLIT-000000.tar and so on, with KEY.json, KEY.input.png and KEY.target.png
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.data_gen.jsonl import write_rows

if TYPE_CHECKING:
    import numpy as np

PLACES = {"image": "images", "input_image": "inputs"}
ROW_GROUP = 100  # rows that a reader of Parquet loads at once
SHARD = 1000  # samples of a tar file
_TEXTS = ("id", "task", "split", "prompt", "answer", "thought", "item")
_PARTS = {"input_image": "input.png", "image": "target.png"}


@dataclass(frozen=True, slots=True)
class Sample:
    """An item as a row, and its images.

    Attributes:
        row: of items.jsonl, without names of files.
        images: PNG of "image", the target, and "input_image", as far as the item has them.
    """

    row: Mapping[str, Any]
    images: Mapping[str, bytes]


def picture_name(item_id: str) -> str:
    """The name, without suffix, of the images of an item: what follows the split in its id, "0f3a" or "0f3a-A"."""
    return "-".join(item_id.split("/")[2:])


def png(pixels: np.ndarray) -> bytes:
    """An image, uint8 [H, W, 3], as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def write_folder(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    """Write items.jsonl, and the images that it names."""
    write_rows(folder / "items.jsonl", (_with_files(folder, sample) for sample in samples))


def _with_files(folder: Path, sample: Sample) -> dict[str, Any]:
    names = {key: f"{PLACES[key]}/{picture_name(sample.row['id'])}.png" for key in sample.images}
    for key, name in names.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(sample.images[key])
    return {**sample.row, **names}


def write_parquet(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    """Write SPLIT.parquet, which `datasets.load_dataset("parquet", ...)` reads with its images."""
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [*((name, pa.string()) for name in _TEXTS), ("level", pa.int64()), *((name, image) for name in _PARTS)]
    features = {name: {"dtype": str(kind), "_type": "Value"} for name, kind in fields if kind != image}
    features |= {name: {"_type": "Image"} for name in _PARTS}
    write_table(folder / f"{split}.parquet", fields, features, map(_as_columns, samples))


def write_table(
    file: Path, fields: Sequence[Any], features: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
) -> None:
    """Write rows as Parquet. fields: of its schema; features: the same as Hugging Face datasets name them."""
    import pyarrow as pa
    from pyarrow import parquet

    metadata, rows = {"huggingface": json.dumps({"info": {"features": features}})}, iter(rows)
    with parquet.ParquetWriter(file, pa.schema(fields, metadata)) as writer:
        while some := list(islice(rows, ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(some, writer.schema))


def _as_columns(sample: Sample) -> dict[str, Any]:
    name = picture_name(sample.row["id"])
    images = {key: {"bytes": data, "path": f"{name}.{_PARTS[key]}"} for key, data in sample.images.items()}
    return {**sample.row, "item": json.dumps(sample.row, ensure_ascii=False), **images}


def write_webdataset(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    """Write SPLIT-000000.tar and so on, `SHARD` samples each; equal samples give equal bytes."""
    for shard, numbered in groupby(enumerate(samples), lambda pair: pair[0] // SHARD):
        with tarfile.open(folder / f"{split}-{shard:06d}.tar", "w") as tar:
            for _, sample in numbered:
                for name, data in _files(sample):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def _files(sample: Sample) -> Iterator[tuple[str, bytes]]:
    key = picture_name(sample.row["id"]).replace(".", "_")  # readers end a key at its first dot
    yield f"{key}.json", json.dumps(sample.row, ensure_ascii=False).encode()
    for image, data in sample.images.items():
        yield f"{key}.{_PARTS[image]}", data


WRITERS: Mapping[str, Callable[[Path, str, Iterable[Sample]], None]] = {
    "folder": write_folder, "parquet": write_parquet, "webdataset": write_webdataset
}  # fmt: skip
_WRITTEN = re.compile(r"items\.jsonl|images|inputs|\w+\.parquet|\w+-\d{6}\.tar")


def is_written(name: str) -> bool:
    """Whether a writer of this module gives files or folders this name."""
    return _WRITTEN.fullmatch(name) is not None
