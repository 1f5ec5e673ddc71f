"""Frames of a video in the place of images, where an answer is one."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from uni_train.core.reading_limits import PIXELS, VIDEOS, Unreadable, open_file, open_image, reason, rgb
from uni_train.models.pictures import taken_frames

MOST_FRAMES = 20_000  # about 11 minutes at 30 a second
_STARTS = ((4, b"ftyp"), (4, b"moov"), (4, b"mdat"), (4, b"wide"), (4, b"free"), (0, b"RIFF"), (0, b"\x1aE\xdf\xa3"))
"""Place and bytes of the containers that are read; FFmpeg would also follow playlists to other files."""


def is_video(path: Path) -> bool:
    """Whether a file is a video by its name, or a GIF with several frames."""
    if path.suffix.lower() != ".gif":
        return path.suffix.lower() in VIDEOS
    with open_image(path, path.name) as image:
        return getattr(image, "n_frames", 1) > 1


@lru_cache(maxsize=2)
def frames(path: Path) -> tuple[np.ndarray, ...]:
    """Those that stand for the video (`taken_frames`), uint8 [H, W, 3] each.

    Raises:
        Unreadable: no video, a damaged one, one frame, more than `MOST_FRAMES`, or too many pixels.
        OSError: as `open` raises it.
    """
    return _of_gif(path) if path.suffix.lower() == ".gif" else _of_video(path)


def clip_frames(clip: bytes) -> tuple[np.ndarray, ...]:
    """Those of a video in memory, as `frames`. Raises Unreadable."""
    with TemporaryDirectory() as folder:  # OpenCV reads files alone
        path = Path(folder, "clip")
        path.write_bytes(clip)
        return _of_video(path)


def _chosen(path: Path, count: int) -> list[int]:
    if count < 2:
        raise Unreadable(path.name, "a video of one frame, which is an image and shows no change")
    return taken_frames(count)


def _expect(path: Path, count: int, width: int, height: int) -> None:
    if count > MOST_FRAMES:
        raise Unreadable(path.name, f"a video of {count:,} frames; {MOST_FRAMES:,} at most")
    if width * height > PIXELS:
        raise Unreadable(path.name, f"too large ({width} x {height}; {PIXELS:,} pixels at most)")


def _of_gif(path: Path) -> tuple[np.ndarray, ...]:
    with open_image(path, path.name) as image:
        count = getattr(image, "n_frames", 1)
        _expect(path, count, *image.size)
        taken = []
        for number in _chosen(path, count):
            image.seek(number)
            taken.append(rgb(image.copy()))
    return tuple(taken)


def _of_video(path: Path) -> tuple[np.ndarray, ...]:
    with open_file(path) as file:
        start = file.read(8)
    if not any(start[place:].startswith(letters) for place, letters in _STARTS):
        raise Unreadable(path.name, "no video that can be read; MP4, MOV, AVI, WebM and MKV can")
    import cv2

    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # a file that is no video is named here
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        said, width, height = (
            int(video.get(name))
            for name in (cv2.CAP_PROP_FRAME_COUNT, cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT)
        )
        _expect(path, said, width, height)
        count = 0  # of those that are there: what a container says may be wrong
        while count <= MOST_FRAMES and video.grab():
            count += 1
        _expect(path, count, width, height)
        if not count:
            raise Unreadable(path.name, "a video without a frame that can be read")
        video.release()
        video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        wanted, taken = set(_chosen(path, count)), []
        for number in range(count):
            if video.grab() and number in wanted:
                taken.append(cv2.cvtColor(video.retrieve()[1], cv2.COLOR_BGR2RGB))
    except cv2.error as error:
        raise Unreadable(path.name, f"it cannot be read as a video ({reason(error)})") from None
    finally:
        video.release()
    return tuple(taken)
