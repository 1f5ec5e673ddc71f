"""WebDataset: tar files without compression, in which the members of one name up to its first dot are a sample.

Members are listed once, and those of a sample are read from the tar when it is drawn.
"""

from __future__ import annotations

import tarfile
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import IMAGE_BYTES, MIB, decoded, image_suffixes, open_file, parse_json, reason
from uni_train.training.data.rows import FILES, BadRow, Row, RowFile

_TEXTS = ("txt", "caption", "text")
_KEYS = {"input": "input_image", "target": "image"}  # as `data make --format webdataset` names them


@FILES.register("tar")
class TarFile(RowFile):
    """KEY.jpg is `image`, KEY.txt is `caption`, KEY.NAME.jpg and KEY.NAME.txt are `NAME`; KEY.json has further keys."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        samples: dict[str, int] = {}
        kinds: dict[str, str] = {"": "json"}  # key of the row -> what it is read as
        parts, unread = array("q"), Counter[str]()  # sample, key, place, size; suffix -> members
        for sample, ending, place, size in self._members():
            name, _, suffix = ending.lower().rpartition(".")
            kind = "image" if f".{suffix}" in image_suffixes() else "text" if suffix in _TEXTS else suffix
            if kind not in ("image", "text", "json") or size < 0:
                unread[f".{suffix}" if size >= 0 else "links"] += 1
                continue
            key = "" if kind == "json" else _KEYS.get(name, name) or ("image" if kind == "image" else "caption")
            kinds.setdefault(key, kind)
            parts.extend((samples.setdefault(sample, len(samples)), [*kinds].index(key), place, size))
        table = np.array(parts, np.int64).reshape(-1, 4)
        self._parts = table[np.lexsort((table[:, 1], table[:, 0]))]
        self._firsts = np.searchsorted(self._parts[:, 0], np.arange(len(samples) + 1))
        self._names, self._kinds = [*samples], [*kinds.items()]
        self.remarks = [f"{path}: not read: {number} {suffix}" for suffix, number in unread.items()]
        if (twice := (np.diff(self._parts[:, :2], axis=0) == 0).all(1)).any():
            sample, key = self._parts[twice.argmax(), :2]
            name = self._kinds[key][0] or "JSON"
            raise UserError(
                f"{path}: two members of sample {self._names[sample]} are its {name}", "Rename one of them."
            )
        if len(samples) and all(self._kinds[key][1] == "image" for key in np.unique(self._parts[:, 1])):
            message = f"{path} has {len(samples)} samples without captions; the first is {self._names[0]}"
            raise UserError(message, f"Add {self._names[0]}.txt or {self._names[0]}.json, and so on.")

    def _members(self) -> Iterator[tuple[str, str, int, int]]:
        """(sample, ending, place, size) of every member, -1 as the size of a link. Raises UserError: it is damaged."""
        sample = ""
        try:
            with open_file(self.path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # or it would keep them all
                    folder, _, name = member.name.removeprefix("./").rpartition("/")
                    stem, _, ending = name.partition(".")
                    if stem and not member.isdir():
                        sample = f"{folder}/{stem}".removeprefix("/")
                        stored = member.isreg() and member.sparse is None
                        yield sample, ending, member.offset_data, member.size if stored else -1
                file.seek(tar.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError("it has no end mark")
                if file.read(MIB).strip(b"\0"):
                    raise tarfile.ReadError("another archive follows")
        except tarfile.TarError as error:
            where = f"ends badly after sample {sample}" if sample else "is no tar file without compression"
            raise UserError(f"{self.path} {where} ({error})", "Copy it again, or pack it again with tar.") from None

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Row:
        values: dict[str, Any] = {}
        first, last = self._firsts[index : index + 2]
        with open_file(self.path) as file:
            for _, number, place, size in self._parts[first:last].tolist():
                key, kind = self._kinds[number]
                file.seek(place)
                data = file.read(min(size, IMAGE_BYTES + 1))  # more is refused as an image
                try:
                    if kind == "json":
                        values |= {**parse_json(data, "JSON")}
                    else:
                        values[key] = data if kind == "image" else decoded(data, key).strip()
                except (ValueError, TypeError) as error:
                    what = reason(error) if isinstance(error, ValueError) else "not a JSON object"
                    raise BadRow(f"{key or 'JSON'}: {what}") from None
        return Row(values, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, sample {self._names[index]}"

    def named(self, index: int) -> Iterator[Path]:
        return iter(())
