"""Digests of data, by which a resumed run knows that it goes on with what it began with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from uni_train.core.reading_limits import Unreadable, open_file
from uni_train.training.data.rows import Joined

BYTES = 1 << 31
"""Of files of rows that are read wholly."""
ROWS = 10_000
"""Whose images are read."""
_BLOCK = 1 << 16


def digests(rows: Joined) -> dict[str, str]:
    """File -> digest of its size and content, in seconds even for terabytes.

    - Files of rows are read wholly up to `BYTES` together; of more, as many bytes in blocks that are evenly spread.
    - Files that rows name, and captions: the first and the last 64 KiB, of `ROWS` rows in a hundred stretches.
    - Parquet that holds encoded images is taken to name no files.

    What is replaced, shuffled, shortened or extended differs. A change within a large image, or in a few of more than
    `ROWS` images, may pass.
    """
    whole = [file for file in rows.files if not file.is_dir()]
    share = BYTES / max(1, sum(file.stat().st_size for file in whole))
    digests = {str(file): _digest(file, share) for file in whole}
    stretch = ROWS // 100
    for start in range(0, len(rows), max(stretch, len(rows) // 100)):
        for index in range(start, min(start + stretch, len(rows))):
            part, at = rows.place(index)
            digests |= {str(file): _digest(file, 0.0) for file in part.named(at) if str(file) not in digests}
    folders = zip(rows.files, rows.parts, strict=False)
    images = {str(file): repr(part.images) for file, part in folders if part.images}
    return digests | {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in images.items()}


def _digest(path: Path, share: float) -> str:
    """Of this share of a file's blocks, the first and the last among them."""
    digest = hashlib.blake2b(digest_size=8)
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(str(size).encode())
            last = max(0, (size - 1) // _BLOCK)
            steps = min(last, max(1, int(last * share)))
            for step in range(steps + 1):
                file.seek(_BLOCK * (step * last // max(1, steps)))
                digest.update(file.read(_BLOCK))
    except (OSError, Unreadable):
        return "unreadable"
    return digest.hexdigest()
