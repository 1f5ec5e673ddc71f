"""Mazes in somebody's images: the grid is read, and how it is drawn."""

from __future__ import annotations

import numpy as np

from uni_train.data_gen.maze.grid import Grid
from uni_train.data_gen.maze.picture import LEAST_CORRIDOR, Picture

DARK, PALE, GREY = 128, 100, 70  # of 255: a wall is darker and paler, a letter more of its colour
WALL, FREE = 0.9, 0.1  # shares of dark pixels in a place of the lattice
READ = "published"  # the style of a maze that was read


def read(image: np.ndarray) -> tuple[Grid, Picture] | None:
    """Grid and geometry of a square image with dark walls, a green S and a red E."""
    wide = image.astype(int)
    light, colour = wide.mean(axis=2), wide.max(axis=2) - wide.min(axis=2)
    dark = (light < DARK) & (colour < PALE)
    rows, columns = (np.flatnonzero(dark.any(axis=axis)) for axis in (1, 0))
    if image.shape[0] != image.shape[1] or not len(rows):
        return None
    top, left, side = int(rows[0]), int(columns[0]), int(rows[-1] - rows[0] + 1)
    if columns[-1] - left + 1 != side:
        return None
    thick = int((dark[top : top + side, left : left + side].mean(axis=0) > WALL).argmin())  # of the outer wall
    for n in range(2, 25):
        pitch, rest = divmod(side - thick, n)
        if thick < 1 or rest or pitch - thick < LEAST_CORRIDOR:
            continue
        edges = np.concatenate([[0], np.cumsum([thick if i % 2 == 0 else pitch - thick for i in range(2 * n + 1)])])
        inner = dark[top : top + side, left : left + side]
        shares = np.add.reduceat(np.add.reduceat(inner.astype(float), edges[:-1], axis=0), edges[:-1], axis=1)
        shares /= np.diff(edges)[:, None] * np.diff(edges)[None]
        if ((shares > FREE) & (shares < WALL)).any() or (shares[::2, ::2] < WALL).any():
            continue
        return _described(image, shares < WALL, (top, left), (thick, pitch - thick))
    return None


def _described(
    image: np.ndarray, lattice: np.ndarray, corner: tuple[int, int], widths: tuple[int, int]
) -> tuple[Grid, Picture] | None:
    """The grid with its S and E, and how it is drawn; None where the letters are not in two rooms."""
    (top, left), (wall, corridor) = corner, widths
    red, green, blue = (image[:, :, channel].astype(int) for channel in range(3))
    ends, inks = [], []
    for mask in ((green > red + GREY) & (green > blue + GREY // 2), (red > green + GREY) & (red > blue + GREY)):
        y, x = np.nonzero(mask)
        if not len(y):
            return None
        at = [
            int((np.median(pixels) - begin - wall / 2) // (wall + corridor)) for pixels, begin in ((y, top), (x, left))
        ]
        ends.append((at[0], at[1]))
        inks.append((_colour(image[mask]), int(y.max() - y.min() + 1)))
    grid = Grid(lattice, ends[0], ends[1])
    route = grid.route()
    if len(route) < 2 or not all(lattice[2 * r + 1, 2 * c + 1] for r, c in ends):
        return None
    middle = [begin + wall + corridor // 2 + place * (wall + corridor)
              for begin, place in zip(corner, route[1] if len(route) > 2 else route[0], strict=True)]  # fmt: skip
    floor = (int(v) for v in image[middle[0], middle[1]])
    page = image[0, 0]
    return grid, Picture(
        READ, image.shape[0], wall, corridor, left, top, max(2, round(0.25 * corridor)),
        min(corridor, max(height for _, height in inks)), _rgb(floor), _rgb(image[top, left]), _rgb(page),
        inks[0][0], inks[1][0], inks[1][0],
    )  # fmt: skip


def _colour(pixels: np.ndarray) -> tuple[int, int, int]:
    return _rgb(np.median(pixels, axis=0))


def _rgb(values: object) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in values)  # type: ignore[attr-defined]
    return red, green, blue
