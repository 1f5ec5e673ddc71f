"""The nano world's images: twelve vector sprites on a 3 x 3 grid, and the reader that proves what is drawn.

An image is 24 x 24 RGB. It holds one to nine copies of one sprite, one per 8 x 8 cell, filled in scan order; each
7 x 7 sprite is shifted inside its cell by 0 or 1 pixel. Scan order keeps counting learnable by a model of a million
parameters (random placement was much harder for it); the reader does not demand it.

`read` inverts `render`: it matches every cell against every sprite at every shift. It says *unreadable* where no sprite
matches a cell clearly (a blend of two sprites, noise). So a doubtful image never counts as a wrong or a right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from uni_train.core.seeds import rng
from uni_train.data_gen.task import Check, Verdict

GRID = 3
CELL = 8
SIDE = 7
SIZE = GRID * CELL
MAX_COUNT = GRID * GRID

_BACKGROUND = (244, 242, 236)
_SUPERSAMPLING = 16

# Mean squared error per channel value, in units of (255)^2, between a cell and its nearest template, above which the
# cell is unreadable; and the ratio to the nearest template of another sprite that a clear match must stay under. In a
# blend of two sprites that ratio is (share / (1 - share))^2, 0.44 at 40 %, so 0.42 makes 40 to 60 % unreadable.
# Fitted on renderings with JPEG, blur, Gaussian noise and blends: table in tests/data_gen/test_sprites.py.
_MAX_ERROR = 0.016
_MAX_RATIO = 0.42
# The same error in any window of a cell's size. A key on the corner of four cells, a quarter in each, is near to empty
# in all of them; in the window that holds it the error is 0.035, of other sprites more.
_MAX_ACROSS = 1.5 * _MAX_ERROR
# And the most in such a window of empty cells alone, where nothing thin or faint may stand; noise, which is everywhere,
# is no more than so many medians there. What nano draws right has up to 0.0034, another object at a third 0.0039.
_MAX_BARE, _MAX_NOISE = 0.0036, 1.2
# [17, 24]: row i sums the pixels of a window that begins at i.
_WINDOWS = np.stack([np.roll(np.arange(SIZE) < CELL, i) for i in range(SIZE - CELL + 1)]).astype(np.float64)

Mask = Callable[[np.ndarray, np.ndarray], np.ndarray]
Layer = tuple[tuple[int, int, int], Mask]


def _ellipse(cx: float, cy: float, rx: float, ry: float) -> Mask:
    return lambda x, y: ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 <= 1


def _box(x0: float, y0: float, x1: float, y1: float) -> Mask:
    return lambda x, y: (x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)


def _polygon(*points: tuple[float, float]) -> Mask:
    def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        odd = np.zeros(x.shape, dtype=bool)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            crosses = (y0 > y) != (y1 > y)
            slope = (x1 - x0) / (y1 - y0) if y1 != y0 else 0.0
            odd ^= crosses & (x < x0 + slope * (y - y0))
        return odd

    return inside


def _minus(a: Mask, b: Mask) -> Mask:
    return lambda x, y: a(x, y) & ~b(x, y)


def _star(cx: float, cy: float, outer: float, inner: float) -> Mask:
    angles = [-np.pi / 2 + i * np.pi / 5 for i in range(10)]
    radii = [outer, inner] * 5
    return _polygon(
        *((cx + r * float(np.cos(a)), cy + r * float(np.sin(a))) for a, r in zip(angles, radii, strict=True))
    )


# Layers are painted in order, in sprite pixels (0..7 from left to right and from top to bottom).
_SHAPES: dict[str, tuple[Layer, ...]] = {
    "apple": (
        ((206, 30, 38), _ellipse(3.5, 4.2, 3.2, 2.8)),
        ((92, 58, 28), _box(3.1, 0.0, 3.9, 2.0)),
        ((70, 160, 60), _ellipse(5.2, 1.1, 1.5, 0.8)),
    ),
    "banana": (((245, 205, 30), _minus(_ellipse(3.5, 2.2, 3.5, 4.4), _ellipse(3.5, 0.6, 3.6, 3.6))),),
    "cup": (
        ((52, 110, 200), _box(0.6, 1.2, 4.9, 6.6)),
        ((52, 110, 200), _minus(_ellipse(5.0, 3.7, 2.0, 1.9), _ellipse(5.0, 3.7, 1.0, 0.9))),
        ((180, 205, 240), _box(0.6, 1.2, 4.9, 2.2)),
    ),
    "star": (((240, 150, 20), _star(3.5, 3.8, 3.8, 1.6)),),
    "tree": (
        ((24, 120, 52), _polygon((3.5, 0.0), (6.9, 5.0), (0.1, 5.0))),
        ((110, 70, 36), _box(2.7, 5.0, 4.3, 7.0)),
    ),
    "fish": (
        ((30, 170, 190), _ellipse(2.9, 3.5, 2.9, 2.1)),
        ((30, 170, 190), _polygon((5.0, 3.5), (7.0, 1.2), (7.0, 5.8))),
        ((10, 40, 60), _ellipse(1.6, 2.9, 0.6, 0.6)),
    ),
    "key": (
        ((120, 120, 130), _minus(_ellipse(1.9, 3.5, 1.9, 1.9), _ellipse(1.9, 3.5, 0.8, 0.8))),
        ((120, 120, 130), _box(3.4, 3.0, 7.0, 4.0)),
        ((120, 120, 130), _box(5.6, 4.0, 6.6, 5.6)),
    ),
    "heart": (
        ((232, 70, 140), _ellipse(2.0, 2.3, 1.95, 1.95)),
        ((232, 70, 140), _ellipse(5.0, 2.3, 1.95, 1.95)),
        ((232, 70, 140), _polygon((0.3, 3.1), (6.7, 3.1), (3.5, 6.9))),
    ),
    "house": (
        ((150, 60, 40), _polygon((3.5, 0.0), (7.0, 3.2), (0.0, 3.2))),
        ((214, 176, 120), _box(0.8, 3.2, 6.2, 7.0)),
        ((90, 50, 30), _box(2.8, 4.6, 4.2, 7.0)),
    ),
    "moon": (((120, 90, 190), _minus(_ellipse(3.3, 3.5, 3.3, 3.4), _ellipse(5.2, 2.9, 2.8, 2.9))),),
    "leaf": (
        ((130, 200, 50), _polygon((0.2, 6.8), (0.8, 2.6), (3.4, 0.6), (6.9, 0.1), (6.4, 3.8), (4.2, 6.2))),
        ((50, 110, 30), _polygon((0.0, 6.6), (5.6, 1.0), (6.0, 1.4), (0.5, 7.0))),
    ),
    "ball": (
        ((40, 40, 48), _ellipse(3.5, 3.5, 3.4, 3.4)),
        ((235, 235, 240), _ellipse(3.5, 3.5, 1.7, 1.7)),
    ),
}

SPRITES: tuple[str, ...] = tuple(_SHAPES)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an image shows. `name` is None when nothing or more than one kind is drawn; `count` counts all objects.

    objects: the names of all objects, in scan order.
    """

    readable: bool
    name: str | None
    count: int | None
    reason: str = ""
    objects: tuple[str, ...] = field(default=(), compare=False)


@cache
def _sprite(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Colour premultiplied by coverage [7, 7, 3], and coverage [7, 7, 1], both in [0, 1]."""
    n = SIDE * _SUPERSAMPLING
    centres = (np.arange(n) + 0.5) / _SUPERSAMPLING
    x, y = np.meshgrid(centres, centres)
    colour = np.zeros((n, n, 3))
    coverage = np.zeros((n, n, 1))
    for rgb, mask in _SHAPES[name]:
        painted = mask(x, y)
        colour[painted] = np.asarray(rgb) / 255
        coverage[painted] = 1
    box = (SIDE, _SUPERSAMPLING, SIDE, _SUPERSAMPLING)
    return colour.reshape(*box, 3).mean(axis=(1, 3)), coverage.reshape(*box, 1).mean(axis=(1, 3))


@cache
def _templates() -> tuple[np.ndarray, np.ndarray]:
    """All cells that can be drawn, [n, 8*8*3] in [0, 1], and the index of their sprite (-1: empty), [n]."""
    background = np.broadcast_to(np.asarray(_BACKGROUND) / 255, (CELL, CELL, 3))
    cells, owners = [background], [-1]
    for index, name in enumerate(SPRITES):
        colour, coverage = _sprite(name)
        for dy in range(CELL - SIDE + 1):
            for dx in range(CELL - SIDE + 1):
                template = background.copy()
                window = template[dy : dy + SIDE, dx : dx + SIDE]
                window[...] = colour + (1 - coverage) * window
                cells.append(template)
                owners.append(index)
    return np.stack(cells).reshape(len(cells), -1), np.asarray(owners)


@cache
def _squares() -> np.ndarray:
    """The squared length of every template, [n]."""
    return (_templates()[0] ** 2).sum(axis=1)


def empty() -> np.ndarray:
    """An image of nothing, uint8 [24, 24, 3]."""
    return np.full((SIZE, SIZE, 3), _BACKGROUND, dtype=np.uint8)


def cell(image: np.ndarray, place: int) -> np.ndarray:
    """The view of a cell in scan order, from 0; [8, 8, 3]."""
    row, column = divmod(place, GRID)
    return image[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]


def render(name: str, count: int, seed: int) -> np.ndarray:
    """Draw `count` copies of a sprite.

    Args:
        name: one of `SPRITES`.
        count: 1 to 9.
        seed: decides the shift of every copy.

    Returns:
        uint8 [24, 24, 3].

    Raises:
        ValueError: an unknown sprite, or a count that does not fit the grid.
    """
    if name not in _SHAPES:
        raise ValueError(f"no sprite is called {name!r}: choose one of {', '.join(SPRITES)}")
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"cannot draw {count} sprites: an image holds 1 to {MAX_COUNT}")
    cells, owners = _templates()
    choices = np.flatnonzero(owners == SPRITES.index(name))
    random = rng("sprites", name, count, seed)
    image = empty()
    for place in range(count):
        drawn = cells[random.choice(choices)].reshape(CELL, CELL, 3)
        cell(image, place)[...] = np.rint(drawn * 255).astype(np.uint8)
    return image


def read(image: np.ndarray) -> Reading:
    """Say which sprite an image shows, and how many.

    Args:
        image: uint8 [24, 24, 3].

    Returns:
        A `Reading`; `readable` is False where the size is wrong or any cell is not clearly one sprite or empty.
    """
    if image.shape != (SIZE, SIZE, 3):
        return Reading(False, None, None, f"the image is {image.shape}, not ({SIZE}, {SIZE}, 3)")
    cells = image.astype(np.float64) / 255
    cells = cells.reshape(GRID, CELL, GRID, CELL, 3).swapaxes(1, 2).reshape(GRID * GRID, -1)
    templates, owners = _templates()
    squares = (cells**2).sum(axis=1)[:, None] + _squares()
    errors = (squares - 2 * cells @ templates.T) / cells.shape[1]
    likest = errors.argmin(axis=1)
    nearest = owners[likest]
    best = errors.min(axis=1)
    rival = np.where(owners == nearest[:, None], np.inf, errors).min(axis=1)
    doubtful = np.flatnonzero((best > _MAX_ERROR) | (best > _MAX_RATIO * rival))
    if len(doubtful):
        place = int(doubtful[0]) + 1
        return Reading(False, None, None, f"cell {place} of {MAX_COUNT} is not clearly one sprite or empty")
    left = ((cells - templates[likest]) ** 2).reshape(-1, 3).sum(axis=1)
    left = left.reshape(GRID, GRID, CELL, CELL).swapaxes(1, 2).reshape(SIZE, SIZE)
    if (_WINDOWS @ left @ _WINDOWS.T).max() / cells.shape[1] > _MAX_ACROSS:
        return Reading(False, None, None, "something lies across cells")
    bare = (nearest < 0).reshape(GRID, GRID).repeat(CELL, axis=0).repeat(CELL, axis=1)
    error = (_WINDOWS @ (left * bare) @ _WINDOWS.T).max() / cells.shape[1]
    if error > _MAX_BARE and error > _MAX_NOISE * np.median(left[bare]):
        return Reading(False, None, None, "something thin or faint stands in an empty cell")
    objects = tuple(SPRITES[owner] for owner in nearest.tolist() if owner >= 0)
    kinds = sorted(set(objects))
    if len(kinds) == 1:
        return Reading(True, kinds[0], len(objects), objects=objects)
    reason = f"several kinds of object: {', '.join(kinds)}" if kinds else "the image is empty"
    return Reading(True, None, len(objects), reason, objects)


def verify_sprites(image: np.ndarray, singular: str, count: int) -> Verdict:
    """The nano verifier: `image` must show exactly `count` of the sprite `singular` and nothing else."""
    reading = read(image)
    if not reading.readable:
        return Verdict((Check("readable", "unreadable", reading.reason),))
    checks = (("object", reading.name, singular), ("count", reading.count, count))
    return Verdict(
        tuple(
            Check(name, "pass") if seen == expected else Check(name, "fail", f"{seen}, not {expected}")
            for name, seen, expected in checks
        )
    )
