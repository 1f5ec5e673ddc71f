"""What comes from outside is seen as a viewer shows it, by everything that reads an image, or refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from uni_train.data_gen.verifying import read_image as read_to_verify
from uni_train.eval.judges.ways import _changed
from uni_train.eval.passage import _png
from uni_train.models.pictures import decode_picture, read_image
from uni_train.training.data.rows import Row

CORNER = np.zeros((32, 48, 3), np.uint8)
CORNER[:16, :16] = 200  # bright at the top on the left, and wider than high
DEEP = (np.arange(12).reshape(3, 4) * 5461).astype(np.uint16)


def saved(image: Image.Image, form: str, **more: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **more)
    return buffer.getvalue()


READERS: dict[str, Callable[[Path], np.ndarray]] = {
    "a file": read_image,
    "bytes": lambda path: decode_picture(path.read_bytes(), "it"),
    "verify": read_to_verify,
    "a row's path": lambda path: Row({}, path.parent).image(path.name, "image"),
    "a row's bytes": lambda path: Row({}, path.parent).image(path.read_bytes(), "image"),
    "answers": lambda path: np.asarray(Image.open(io.BytesIO(_png(path, path.name)))),
}


@pytest.mark.parametrize("reader", READERS)
def test_images_are_turned_and_scaled(tmp_path: Path, reader: str) -> None:
    cases = {}
    for orientation in range(10):  # 0 and 9 are none of EXIF's
        exif = Image.Exif()
        exif[0x0112] = orientation
        # A viewer shows what is stored as the corner turned by the inverse.
        stored = Image.fromarray(CORNER)
        back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(orientation)
        stored = stored if back is None else stored.transpose(Image.Transpose(back))
        for form in ("JPEG", "PNG", "WEBP", *(["TIFF"] if 0 < orientation < 9 else [])):
            cases[f"{orientation}.{form}"] = (saved(stored, form, exif=exif), CORNER)
    grey = np.repeat((DEEP >> 8).astype(np.uint8)[..., None], 3, axis=2)
    for form in ("PNG", "TIFF", "PPM"):
        cases[f"deep.{form}"] = (saved(Image.fromarray(DEEP), form), grey)
    cases["big endian.TIFF"] = (saved(Image.frombytes("I;16B", (4, 3), DEEP.astype(">u2").tobytes()), "TIFF"), grey)
    cases["no EXIF.JPEG"] = (saved(Image.fromarray(CORNER), "JPEG", exif=b"Exif\0\0broken"), CORNER)
    for name, (data, seen) in cases.items():
        (tmp_path / name).write_bytes(data)
        found = READERS[reader](tmp_path / name)
        assert found.shape == seen.shape, name
        assert np.abs(found.astype(int) - seen).max() <= (12 if name.endswith(("JPEG", "WEBP")) else 0), name
    turned = Image.open(io.BytesIO(_changed(cases["6.JPEG"][0], "jpeg")))
    assert turned.size == (48, 32)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_images_without_a_known_white_are_refused(tmp_path: Path, reader: str, kind: type) -> None:
    path = tmp_path / "x.tiff"
    path.write_bytes(saved(Image.fromarray(DEEP.astype(kind)), "TIFF"))
    with pytest.raises(Exception, match="32 bits a channel") as error:
        READERS[reader](path)
    assert "save it with 8 or 16 bits" in str(error.value)
