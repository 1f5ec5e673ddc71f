"""Pictures of mazes: styles, exact pixel geometry, drawing.

A `Picture` says everything about how a maze is drawn, in whole pixels and RGB. An item therefore keeps its look when
the styles change. Drawing is a lattice of colours enlarged with numpy, red rectangles for the path, and two letters on
top. `nano` has no letters and no thin walls: walls are places of 2 x 2 pixels like rooms. One more row and column of
wall, at the bottom and the right, make the side 4 (n + 1) pixels. Patches of 4 x 4 then hold one room and its walls.
On a larger side a `nano` maze lies at a multiple of 4 pixels, and all around it is wall.
"""

from __future__ import annotations

import colorsys
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from uni_train.core.errors import DataError
from uni_train.data_gen.maze.grid import Grid, Room

Colour = tuple[int, int, int]
DEFAULT_SIDE = 512
LEAST_CORRIDOR = 6  # pixels: what a letter needs to be one


@dataclass(frozen=True, slots=True)
class Picture:
    """How a maze is drawn.

    side: pixels of the square image; wall, corridor: pixels of a wall and between two walls; left, top: where the
    outer wall begins; stroke: pixels of the path; letter: pixels of S and E, 0 for filled places instead of letters;
    page: the colour around the maze.
    """

    style: str
    side: int
    wall: int
    corridor: int
    left: int
    top: int
    stroke: int
    letter: int
    floor_rgb: Colour
    wall_rgb: Colour
    page_rgb: Colour
    start_rgb: Colour
    end_rgb: Colour
    path_rgb: Colour

    @property
    def pitch(self) -> int:
        """Pixels from one room to the next."""
        return self.wall + self.corridor

    def edges(self, rooms: int, begin: int) -> np.ndarray:
        """Where the 2 * rooms + 1 places of one axis begin, and where the last ends: int [2 * rooms + 2]."""
        widths = np.full(2 * rooms + 1, self.corridor)
        widths[::2] = self.wall
        return begin + np.concatenate([[0], np.cumsum(widths)])

    def centre(self, room: Room) -> tuple[float, float]:
        """(x, y) of a room's middle, in pixels."""
        y, x = (begin + self.wall + self.corridor / 2 + k * self.pitch
                for begin, k in ((self.top, room[0]), (self.left, room[1])))  # fmt: skip
        return x, y

    def to_dict(self) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Picture:
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)


# ------------------------------------------------------------------------------------------------------------ styles

_BLACK, _WHITE, _RED, _GREEN = (0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 150, 0)

# wall as a share of the pitch, margin in pitches, stroke as a share of the corridor; floor, wall, page, S, E, path
_STYLES: dict[str, tuple[float, float, float, Colour, Colour, Colour, Colour, Colour, Colour]] = {
    "classic": (0.08, 0.5, 0.25, _WHITE, _BLACK, _WHITE, _GREEN, _RED, _RED),
    "bold": (0.30, 0.5, 0.35, _WHITE, (20, 20, 20), _WHITE, _GREEN, _RED, _RED),
    "blocks": (0.50, 0.3, 0.45, (248, 248, 248), (40, 44, 52), (248, 248, 248),
               (0, 140, 40), (220, 0, 0), (230, 20, 20)),
    "navy": (0.12, 0.4, 0.20, (245, 248, 255), (20, 35, 110), (255, 255, 255),
             (0, 140, 60), (220, 20, 20), (235, 20, 20)),
    "sand": (0.20, 0.6, 0.30, (252, 244, 224), (92, 64, 40), (240, 228, 200),
             (20, 130, 30), (215, 20, 20), (225, 20, 20)),
    "slate": (0.16, 0.5, 0.30, (228, 232, 236), (70, 80, 92), (205, 210, 216),
              (0, 130, 40), (210, 10, 10), (225, 10, 10)),
    "night": (0.12, 0.5, 0.25, (24, 26, 34), (214, 218, 228), (24, 26, 34),
              (40, 210, 80), (255, 60, 60), (255, 40, 40)),
}  # fmt: skip
NANO = "nano"
VARIED = "varied"
STYLES = (*_STYLES, VARIED, NANO)
NANO_COLOURS: dict[str, Colour] = {
    "floor": (245, 245, 245), "wall": (25, 25, 35), "start": (0, 160, 60), "end": (140, 0, 40), "path": (255, 70, 70),
}  # fmt: skip


def choose_picture(style: str, rooms: int, side: int | None, random_: random.Random) -> Picture:
    """The picture of a maze of `rooms` x `rooms` in `style`; only `varied` and `nano` ask `random_`.

    side: None: 512, in `nano` 4 (rooms + 1). On more pixels a `nano` maze lies anywhere, in steps of a room.

    Raises:
        DataError: an unknown style, or so few pixels that a corridor has less than LEAST_CORRIDOR; for `nano` too few
            pixels, or no multiple of 4.
    """
    if style == NANO:
        least = 4 * (rooms + 1)
        side = side or least
        if side < least or side % 4:
            raise DataError(
                f"nano draws a {rooms} x {rooms} maze on {least} pixels a side, or a larger multiple of 4, not {side}: "
                "leave the side out"
            )
        ink = NANO_COLOURS
        left, top = (4 * random_.randrange((side - least) // 4 + 1) for _ in "xy")
        return Picture(NANO, side, 2, 2, left, top, 2, 0, ink["floor"], ink["wall"], ink["wall"], ink["start"],
                       ink["end"], ink["path"])  # fmt: skip
    side = DEFAULT_SIDE if side is None else side
    if style == VARIED:
        wall, margin, stroke, *colours = _vary(random_)
        letter_share = random_.uniform(0.5, 0.8)
    elif style in _STYLES:
        wall, margin, stroke, *colours = _STYLES[style]
        letter_share = 0.65
    else:
        from uni_train.core.errors import nearest_or_all

        raise DataError(f'there is no maze style "{style}": {nearest_or_all(style, STYLES)}')
    pitch = int(side / (rooms + wall + 2 * margin))
    wall_px = max(1, round(wall * pitch))
    corridor = pitch - wall_px
    if corridor < LEAST_CORRIDOR:
        raise DataError(
            f"a {rooms} x {rooms} maze in {side} x {side} pixels leaves {max(corridor, 0)} pixels for a corridor, "
            f"{LEAST_CORRIDOR} are needed: take a larger image"
        )
    rest = side - rooms * pitch - wall_px
    left, top = (int(rest * random_.uniform(0.3, 0.7)) for _ in "xy") if style == VARIED else (rest // 2, rest // 2)
    return Picture(style, side, wall_px, corridor, left, top, max(2, round(stroke * corridor)),
                   max(5, round(letter_share * corridor)), *colours)  # fmt: skip


def _vary(random_: random.Random) -> tuple[Any, ...]:
    """Light floors, dark walls that are not red, S some green, E and the path some red."""

    def rgb(hue: float, saturation: float, value: float) -> Colour:
        r, g, b = (round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, saturation, value))
        return r, g, b

    u = random_.uniform
    floor = rgb(u(0, 1), u(0, 0.06), u(0.9, 1))
    walls = rgb(u(0.2, 0.85), u(0, 0.8), u(0, 0.4))
    page = floor if random_.random() < 0.6 else rgb(u(0, 1), u(0, 0.06), u(0.85, 1))
    red = rgb(u(-0.02, 0.02), u(0.88, 1), u(0.82, 1))
    return (u(0.06, 0.4), u(0.15, 0.9), u(0.15, 0.5), floor, walls, page, rgb(u(0.33, 0.4), u(0.8, 1), u(0.5, 0.65)),
            rgb(u(-0.02, 0.02), u(0.9, 1), u(0.8, 1)), red)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- drawing


def draw(grid: Grid, picture: Picture, route: Sequence[Room] = ()) -> np.ndarray:
    """The maze, with `route` as a red line from the middle of room to room under the letters; uint8 [side, side, 3]."""
    image = walls_and_floor(grid.lattice, picture)
    paint_route(image, picture, route)
    for room, letter, colour in ((grid.start, "S", picture.start_rgb), (grid.end, "E", picture.end_rgb)):
        paint_letter(image, picture, room, letter, colour)
    return image


def walls_and_floor(lattice: np.ndarray, picture: Picture) -> np.ndarray:
    """A lattice enlarged to pixels, without letters; uint8 [side, side, 3]."""
    colours = np.full((lattice.shape[0] + 2, lattice.shape[1] + 2, 3), picture.page_rgb, dtype=np.uint8)
    inner = colours[1:-1, 1:-1]
    inner[:] = picture.wall_rgb
    inner[lattice] = picture.floor_rgb
    y, x = (np.diff(picture.edges(n // 2, begin), prepend=0, append=picture.side)
            for n, begin in zip(lattice.shape, (picture.top, picture.left), strict=True))  # fmt: skip
    return colours.repeat(x, axis=1).repeat(y, axis=0)


def paint_route(image: np.ndarray, picture: Picture, route: Sequence[Room]) -> None:
    """Red rectangles from room to room, in place."""
    into = picture.wall + (picture.corridor - picture.stroke) // 2
    for (r, c), (other_r, other_c) in pairwise(route):
        top, left = (begin + into + min(a, b) * picture.pitch
                     for begin, a, b in ((picture.top, r, other_r), (picture.left, c, other_c)))  # fmt: skip
        bottom, right = (begin + into + max(a, b) * picture.pitch + picture.stroke
                         for begin, a, b in ((picture.top, r, other_r), (picture.left, c, other_c)))  # fmt: skip
        image[top:bottom, left:right] = picture.path_rgb


def paint_letter(image: np.ndarray, picture: Picture, room: Room, letter: str, colour: Colour) -> None:
    """A letter in the middle of its room (nano: the room filled), in place."""
    top, left = (begin + picture.wall + k * picture.pitch
                 for begin, k in zip((picture.top, picture.left), room, strict=True))  # fmt: skip
    if not picture.letter:
        image[top : top + picture.corridor, left : left + picture.corridor] = colour
        return
    ink = _glyph(letter, picture.letter)
    top, left = (max(0, at + (picture.corridor - n) // 2) for at, n in zip((top, left), ink.shape, strict=True))
    area = image[top : top + ink.shape[0], left : left + ink.shape[1]]
    share = ink[: area.shape[0], : area.shape[1], None]
    area[:] = np.rint(area * (1 - share) + np.asarray(colour) * share).astype(np.uint8)


@cache
def _glyph(letter: str, height: int) -> np.ndarray:
    """The ink of a bold letter `height` pixels high, float [height, about 0.7 * height] in [0, 1]."""
    from PIL import Image, ImageDraw, ImageFont

    scale = 4
    font = ImageFont.load_default(size=2 * height * scale)
    left, top, right, bottom = font.getbbox(letter, stroke_width=height * scale // 20)
    mask = Image.new("L", (int(right - left), int(bottom - top)))
    at = (-left, -top)
    ImageDraw.Draw(mask).text(at, letter, fill=255, font=font, stroke_width=height * scale // 20)
    width = max(1, round(height * mask.width / mask.height))
    return np.asarray(mask.resize((width, height), Image.Resampling.BOX), dtype=np.float64) / 255
