"""The two image transforms against the official sizes, and what happens to unusable pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uni_train.core.errors import UserError
from uni_train.models.bagel.images import ImageTransform
from uni_train.models.pictures import read_image

VAE_TRANSFORM, VIT_TRANSFORM = ImageTransform(1024, 512, 16), ImageTransform(980, 224, 14)  # the released ones


@pytest.mark.golden
def test_bagel_resize_sizes(golden_folder: Path) -> None:
    cases = json.loads((golden_folder / "resize_sizes.json").read_text())["transforms"]
    assert cases
    for case in cases:
        transform = ImageTransform(
            case["max_image_size"], case["min_image_size"], case["image_stride"], case["max_pixels"]
        )
        for width, height, images, new_width, new_height in case["rows"]:
            assert transform.target_size(height, width, images) == (new_height, new_width), (width, height)


def test_an_image_of_one_pixel_is_enlarged_and_a_right_one_left_alone() -> None:
    dot = np.full((1, 1, 3), 7, np.uint8)
    assert (VAE_TRANSFORM.resize(dot) == np.full((512, 512, 3), 7)).all()
    assert VIT_TRANSFORM.resize(dot).shape == (224, 224, 3)
    right = np.zeros((512, 1024, 3), np.uint8)
    assert VAE_TRANSFORM.resize(right) is right
    assert VAE_TRANSFORM.target_size(1, 20_000) == (16, 1024)


def test_resizing_is_bicubic_with_antialiasing() -> None:
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    transform = ImageTransform(max_size=64, min_size=16, stride=16)
    expected = Image.fromarray(image).resize((64, 48), Image.Resampling.BICUBIC)
    assert (transform.resize(image) == np.asarray(expected)).all()


def test_reading_pictures(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 2), (10, 20, 30, 0)).save(tmp_path / "clear.png")
    assert (read_image(tmp_path / "clear.png") == np.full((2, 4, 3), 255)).all()
    Image.new("L", (4, 2), 9).save(tmp_path / "grey.png")
    assert (read_image(tmp_path / "grey.png") == np.full((2, 4, 3), 9)).all()

    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:4000])
    (tmp_path / "text.png").write_text("no picture")
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    Image.new("1", (10_000, 9_000)).save(tmp_path / "large.png")
    for name, says in (
        ("missing.png", "no such file"),
        ("half.png", "cannot be read"),
        ("text.png", "no image that can be read"),
        ("huge.png", r"too large \(67,108,864 pixels at most"),
        ("large.png", "10000 x 9000"),
        (".", "cannot be read"),
    ):
        with pytest.raises(UserError, match=says) as error:
            read_image(tmp_path / name)
        assert str(tmp_path / name) in error.value.message and error.value.hint
