"""Content-addressed images: a hash stands for the bytes, which are read on access.

    evals/store/images/3f/3fa9...   one encoded image, as it came

A file is named by the hash of its content. Equal images are stored once, and reading finds out a damaged one. A
call whose image is lost here is made again. So nobody waits for the disk at each image: of the last seconds before a
power failure some are empty, and lost.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_bytes, disk_errors
from uni_train.models.pictures import decode_png, encode_png

if TYPE_CHECKING:
    import numpy as np

_PIXEL_BYTES = 1 << 26  # of decoded images that are kept for who asks for one again


class StoredImage:
    """An encoded image that lies elsewhere; equal to its bytes, and to every other image with the same.

    read: gives the bytes. digest: 32 hex digits of them; "": worked out when it is first asked for.
    """

    __slots__ = ("_digest", "read")

    def __init__(self, read: Callable[[], bytes], digest: str = "") -> None:
        self.read, self._digest = read, digest

    @property
    def digest(self) -> str:
        if not self._digest:
            self._digest = digest_of(self.read())
        return self._digest

    def __eq__(self, other: object) -> bool:
        if isinstance(other, bytes):
            return self.digest == digest_of(other)
        return isinstance(other, StoredImage) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"StoredImage({self.digest})"


def of_file(path: Path, digest: str = "") -> StoredImage:
    """An image file of a benchmark. Reading it raises UserError where it has gone since it was found."""
    return StoredImage(partial(_of_file, path), digest)


def _of_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: an image that was there cannot be read ({error.strerror or error})") from error


_DIGEST = re.compile("[0-9a-f]{32}")

Image = bytes | StoredImage
"""An encoded image, here or elsewhere."""


class ImageStore:
    """Images below one folder, shared by evaluations and processes: equal files are written with equal content."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._there: set[str] = set()

    def __contains__(self, digest: str) -> bool:
        """Whether its file is there, or was a moment ago."""
        if digest not in self._there:
            path = self._path(digest)
            if os.path.exists(path) and os.path.getsize(path):
                self._there.add(digest)
        return digest in self._there

    def put(self, image: Image) -> StoredImage:
        """The same image, stored. Raises UserError: the disk is full, or the folder cannot be written."""
        digest = digest_of(image)
        if digest not in self:
            path = Path(self._path(digest))
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_write_bytes(path, bytes_of(image), flushed=False)
            self._there.add(digest)
        return self.get(digest)

    def parts(self, named: Iterable[Any]) -> tuple[str | StoredImage, ...]:
        """Texts and images of this store, from their `named_parts`. Raises ValueError, KeyError, TypeError: of none."""
        return tuple(part if isinstance(part, str) else self.get(part["image"]) for part in named)

    def get(self, digest: str) -> StoredImage:
        """The image with this hash; reading it raises UserError where it is lost or damaged.

        Raises ValueError: it is no hash.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is no hash of an image")
        return StoredImage(partial(_read, self._path(digest), digest), digest)

    def _path(self, digest: str) -> str:
        return f"{self.folder}/{digest[:2]}/{digest}"


def _read(path: str, digest: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UserError(
            f"{path}: an image of the evaluation cannot be read ({error.strerror or error})",
            "Keep the store beside its evaluations, or run the evaluation's command again: images are written anew.",
        ) from error
    if digest_of(data) != digest:
        raise UserError(
            f"{path}: a damaged image (its content is not what was written)",
            "Delete this file and run the evaluation's command again: it is written anew.",
        )
    return data


def digest_of(image: Image) -> str:
    """32 hex digits of the encoded bytes."""
    return image.digest if isinstance(image, StoredImage) else hashlib.blake2b(image, digest_size=16).hexdigest()


def named_parts(parts: Iterable[str | Image]) -> list[Any]:
    """JSON-able: texts as they are, images as {"image": hash}."""
    return [part if isinstance(part, str) else {"image": digest_of(part)} for part in parts]


def bytes_of(image: Image) -> bytes:
    return image.read() if isinstance(image, StoredImage) else image


def encoded(image: np.ndarray | StoredImage) -> Image:
    """What a model drew, as a part of a sample: PNG, or the image of the store as it is."""
    return image if isinstance(image, StoredImage) else encode_png(image)


def pixels(image: np.ndarray | Image) -> np.ndarray:
    """uint8 [H, W, 3], not to be written to, of a PNG file of ours; what was decoded last is not decoded again."""
    if not isinstance(image, bytes | StoredImage):
        return image
    return _DECODED.pixels(image)


class _Decoded:
    """The images that were decoded last."""

    def __init__(self, most: int) -> None:
        self._found: OrderedDict[str, np.ndarray] = OrderedDict()
        self._bytes, self._most = 0, most

    def pixels(self, image: Image) -> np.ndarray:
        digest = digest_of(image)
        cached = self._found.get(digest)
        if cached is None:
            cached = _rgb(bytes_of(image))
            cached.flags.writeable = False
            self._found[digest] = cached
            self._bytes += cached.nbytes
            while self._bytes > self._most and len(self._found) > 1:
                self._bytes -= self._found.popitem(last=False)[1].nbytes
        return cached


def _rgb(data: bytes) -> np.ndarray:
    """As `decode_png`; small files a good deal faster, for OpenCV asks less about them."""
    import cv2
    import numpy as np

    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return decode_png(data) if decoded is None else cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


_DECODED = _Decoded(_PIXEL_BYTES)
