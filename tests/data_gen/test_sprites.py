"""The reader of the nano world's pictures is exact on what is drawn, and would rather say unreadable than be wrong.

How its two thresholds were fitted (120 pictures each, right / unreadable; wrong was 0 everywhere):

    picture                            ratio < 0.60    ratio < 0.42 (chosen)
    JPEG 60 to 95, full colour           120 /   0        120 /   0
    JPEG 80, 4:2:0 (half colour)         120 /   0        118 /   2
    JPEG 60, 4:2:0                       117 /   3        106 /  14
    Gaussian noise, sigma 10 / 30        120 /   0        120 /   0
    Gaussian noise, sigma 40               1 / 119          1 / 119
    blur, radius 0.5 / 0.7 px      120/0, 112/8       120/0, 112/8
    all values + or - 20                 120 /   0        120 /   0
    60 % of one sprite, 40 % another    52 % read as clear      0 %

The error threshold (0.016: every value off by 32 of 255) is what noise of sigma 30 needs; it does not decide blends.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.sprites import CELL, MAX_COUNT, SIZE, SPRITES, Reading, empty, read, render, verify_sprites

seeds = st.integers(0, 2**62)
names = st.sampled_from(SPRITES)
counts = st.integers(1, MAX_COUNT)
pairs = st.lists(names, min_size=2, max_size=2, unique=True)


def can_pass(image: np.ndarray) -> bool:
    """Whether there is any question that this picture would be taken for a right answer to."""
    reading = read(image)
    return reading.name is not None and verify_sprites(image, reading.name, reading.count or 0).passed


def test_the_world_draws_exactly_its_nouns() -> None:
    assert set(SPRITES) == {noun.singular for noun in NANO.nouns}
    with pytest.raises(ValueError, match=r"'pear'.*apple, banana"):
        render("pear", 1, 0)
    with pytest.raises(ValueError, match=r"10 sprites.*1 to 9"):
        render("apple", 10, 0)


@pytest.mark.parametrize("name", SPRITES)
def test_reading_inverts_rendering(name: str) -> None:
    for count in range(1, MAX_COUNT + 1):
        for seed in range(4):
            image = render(name, count, seed)
            assert image.dtype == np.uint8 and np.array_equal(image, render(name, count, seed))
            assert read(image) == Reading(True, name, count)
    assert len({render(name, 6, seed).tobytes() for seed in range(50)}) > 40, "seeds move the objects"


def jpeg(image: np.ndarray, quality: int, subsampling: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, subsampling=subsampling)
    return np.asarray(Image.open(buffer).convert("RGB"))


def clipped(image: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def noisy(image: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    return clipped(image + np.random.default_rng(seed).normal(0, sigma, image.shape))


def blurred(image: np.ndarray, radius: float) -> np.ndarray:
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


Damage = Callable[[np.ndarray], np.ndarray]


def damages(
    quality: tuple[int, int], subsampling: int, noise: tuple[float, float], blur: tuple[float, float], by: int
) -> st.SearchStrategy[Damage]:
    return st.one_of(
        st.integers(*quality).map(lambda q: lambda image: jpeg(image, q, subsampling)),
        st.tuples(st.floats(*noise), seeds).map(lambda n: lambda image: noisy(image, *n)),
        st.floats(*blur).map(lambda r: lambda image: blurred(image, r)),
        st.integers(-by, by).map(lambda by: lambda image: clipped(image.astype(int) + by)),
    )


mild = damages((60, 95), 0, (0, 10), (0, 0.5), 20)
harsh = damages((10, 95), 2, (10, 90), (0.5, 1.2), 70)


@given(names, counts, seeds, mild)
def test_mild_damage_does_not_matter(name: str, count: int, seed: int, damage: Damage) -> None:
    assert read(damage(render(name, count, seed))) == Reading(True, name, count)


@settings(max_examples=300)
@given(names, counts, seeds, harsh)
def test_harsh_damage_is_unreadable_or_right_but_never_wrong(name: str, count: int, seed: int, damage: Damage) -> None:
    reading = read(damage(render(name, count, seed)))
    assert not reading.readable or (reading.name, reading.count) == (name, count)


def test_a_blend_of_two_objects_is_unreadable() -> None:
    for share, seed in product((0.4, 0.45, 0.5, 0.55, 0.6), range(3)):
        for one, other in combinations(SPRITES, 2):
            blend = share * render(one, 1, seed) + (1 - share) * render(other, 1, seed + 7)
            assert not read(np.rint(blend).astype(np.uint8)).readable, (one, other, share, seed)


@given(names, seeds, st.floats(0.4, 0.6))
def test_an_object_that_is_half_there_is_unreadable(name: str, seed: int, share: float) -> None:
    faint = share * render(name, 1, seed) + (1 - share) * empty()
    assert not read(np.rint(faint).astype(np.uint8)).readable


@pytest.mark.parametrize("name", SPRITES)
@pytest.mark.parametrize("axis", [0, 1])
def test_half_an_object_never_passes(name: str, axis: int) -> None:
    """Cut so that a third to two thirds of what can be seen of it is gone, from either side."""
    background = empty()
    for seed in range(6):
        whole = render(name, 1, seed)
        visible = ((whole.astype(float) - background) ** 2).sum()
        for depth in range(1, CELL):
            for side in (slice(0, depth), slice(depth, CELL)):
                cut = whole.copy()
                where = (side, slice(0, CELL)) if axis == 0 else (slice(0, CELL), side)
                cut[where] = background[where]
                left = ((cut.astype(float) - background) ** 2).sum() / visible
                if 1 / 3 <= left <= 2 / 3:
                    assert not can_pass(cut), (name, seed, depth, side, left)


@pytest.mark.parametrize("name", SPRITES)
def test_an_object_that_lies_across_cells_is_not_overlooked(name: str) -> None:
    for y, x in ((3, 12), (4, 12), (12, 4), (13, 12)):
        image = render(name, 1, 0)
        image[y : y + CELL, x : x + CELL] = image[:CELL, :CELL]
        assert not verify_sprites(image, name, 1).passed, (y, x)


@pytest.mark.parametrize("name", SPRITES)
def test_a_second_object_that_is_thin_or_faint_is_not_overlooked(name: str) -> None:
    """A line one pixel thin at a third of its colour, and a third of the object itself, in empty cells."""
    image = render(name, 2, 0)
    assert read(noisy(image, 30, 0)).readable, "noise is everywhere"
    line, faint = image.copy(), image.astype(float)
    line[13, :] = np.rint(line[13, :] + (np.array([225, 40, 40]) - line[13, :]) / 3)
    faint[8:16, :8] += (image[:8, :8].astype(float) - faint[8:16, :8]) / 3
    assert not can_pass(line) and not can_pass(clipped(faint))


@given(st.tuples(*[st.integers(0, 255)] * 3), seeds)
def test_one_colour_shows_nothing_and_noise_is_unreadable(colour: tuple[int, int, int], seed: int) -> None:
    reading = read(np.full((SIZE, SIZE, 3), colour, np.uint8))
    assert not reading.readable or (reading.name, reading.count) == (None, 0)
    uniform = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(uniform[:6, :6]).resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    for noise in (uniform, smooth, noisy(empty(), 90, seed)):
        assert not read(noise).readable


@given(pairs, st.integers(2, MAX_COUNT), seeds)
def test_mixed_objects_fail(kinds: list[str], count: int, seed: int) -> None:
    image = render(kinds[0], count, seed)
    image[:CELL, :CELL] = render(kinds[1], 1, seed)[:CELL, :CELL]
    assert read(image).readable and not can_pass(image)
    for name in kinds:
        verdict = verify_sprites(image, name, count)
        assert verdict.status == "fail" and ", ".join(sorted(kinds)) in read(image).reason


@given(names, st.integers(1, MAX_COUNT - 1), seeds, st.booleans())
def test_one_object_more_or_less_fails(name: str, count: int, seed: int, more: bool) -> None:
    drawn, asked = (count + 1, count) if more else (count, count + 1)
    verdict = verify_sprites(render(name, drawn, seed), name, asked)
    assert verdict.status == "fail" and verdict.reason == f"{drawn}, not {asked}"


@given(names, seeds, st.permutations(range(MAX_COUNT)))
def test_the_reader_does_not_demand_scan_order(name: str, seed: int, places: list[int]) -> None:
    image = render(name, 4, seed)
    grid = image.reshape(sprites.GRID, CELL, sprites.GRID, CELL, 3).swapaxes(1, 2).reshape(MAX_COUNT, CELL, CELL, 3)
    moved = grid[places].reshape(sprites.GRID, sprites.GRID, CELL, CELL, 3).swapaxes(1, 2).reshape(SIZE, SIZE, 3)
    assert read(moved) == Reading(True, name, 4)


@pytest.mark.parametrize("shape", [(SIZE, SIZE), (SIZE, SIZE, 4), (23, SIZE, 3), (64, 64, 3)])
def test_a_picture_of_another_size_is_unreadable_and_an_empty_one_fails(shape: tuple[int, ...]) -> None:
    assert read(empty()) == Reading(True, None, 0, "the image is empty")
    assert verify_sprites(empty(), "apple", 1).status == "fail"
    reading = read(np.zeros(shape, np.uint8))
    assert not reading.readable and str(shape) in reading.reason
