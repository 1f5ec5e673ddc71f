"""Images that rows of published files name: paths beside the file, or bytes of Parquet; read when asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from uni_train.core.errors import DataError, UserError
from uni_train.core.reading_limits import Unreadable, open_image, rgb
from uni_train.data_gen.published_rows import Place, column_of, shown
from uni_train.eval.images import Image, StoredImage, digest_of, of_file


def image_of(place: Place, key: str, value: Any, at: int | None = None) -> Image:
    """The encoded image, which is read again when it is asked for; at: which of a list.

    Raises DataError: no such file, or nothing that can be decoded.
    """
    where = f'{place}: "{key}"' + ("" if at is None else f" {at + 1}")
    path = None
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        path = place.path.parent / value.strip()
        try:
            value = path.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {path} cannot be read ({error.strerror or error})") from error
    if not isinstance(value, bytes) or not value:
        raise DataError(f"{where} is {shown(value)}; expected an image: a path, or bytes")
    try:
        with open_image(value, where) as image:
            rgb(image)
    except Unreadable as error:
        raise DataError(f"{where} is no image that can be read: {error.reason}") from error
    digest = digest_of(value)
    if path is not None:
        return of_file(path, digest)
    # JSON holds no bytes: these are of Parquet.
    assert place.batch is not None
    return StoredImage(partial(_of_parquet, place.path, place.batch, key, at, digest), digest)


def _of_parquet(path: Path, batch: tuple[int, int, int], key: str, at: int | None, digest: str) -> bytes:
    """An image of a Parquet file, read again. Raises UserError where the file is not what it was."""
    import pyarrow as pa

    try:
        value = column_of(path, *batch[:2], key)[batch[2]]
        value = value if at is None else value[at]
        data = value["bytes"] if isinstance(value, dict) else value
    except (OSError, pa.ArrowException, LookupError, StopIteration, TypeError) as error:
        raise UserError(f"{path}: an image that was there cannot be read again ({error})") from error
    if not isinstance(data, bytes) or digest_of(data) != digest:
        raise UserError(f"{path} has changed since it was opened", "Run the same command again.")
    return data
