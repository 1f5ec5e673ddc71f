"""What an image shows of a maze that is known: where red is, which walls are left, how good the image is.

The item gives every wall, so nothing is recognised. The image is registered to the input image
(`data_gen.registration`). Every pixel is then unmixed into floor, wall and stroke, because blur, JPEG and
rescaling mix them. The shares are read at the places of the lattice. In `nano` a place is a block of pixels and has the
colour that it is nearest to.

Red is what is redder than the input was at that place: the letter E is no path. All lengths are shares of the pitch
(from room to room), so the size of an image does not matter. Thresholds were fitted on some seeds
of bench/maze_corruptions.py; docs/maze.md gives the error rates on other seeds.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import cv2
import numpy as np
from scipy import ndimage
from scipy.special import erf

from uni_train.data_gen.maze import picture as pictures
from uni_train.data_gen.maze.grid import Grid, Room
from uni_train.data_gen.maze.picture import NANO_COLOURS, Picture
from uni_train.data_gen.registration import Template, resized, warped

# Larger images are judged at a size that leaves the side, a room and a wall at least so many pixels.
WORK_SIDE, WORK_PITCH, WORK_WALL = 256, 36, 3
LEAST_PITCH = 5.0  # pixels a room of the image that is judged; with fewer nobody can tell
LEAST_CONTRAST = 0.2  # of that between wall and floor in the input
RED_HUE = 0.075  # of the circle of hues, to either side: 27 degrees
REDDER = 40  # of 255: how much redder a stroke is than the input at its place, at the least
IS_RED = 0.35  # share of the stroke's own red from which a pixel is red
BRIDGE = 0.05  # pitches: red grows by this before it is called unbroken
ROOM_CORE = 0.70  # of a room's side: where red means that the path has been there
ROOM_RED = 0.01  # of that core
ARRIVED = 0.10  # pitches: so far beyond the room before red must come to have reached S or E
CROSSED_RED, CROSSED_BY = 0.45, 0.20  # a wall is crossed where it is so red, and by so much more red than wall
OUTSIDE = 0.30  # pitches: a red line so long outside the maze has left it
FADED = 0.45  # a wall is missing where less than this of it is left
MISSING = 0.30  # of the part of a wall that no stroke hides
BLOCKED = 0.60  # of an opening
ADDED = 0.04  # of a room's core: dark or foreign
FAINT = 0.20  # of the stroke's own red, from which red that keeps away from the path is no shade of the floor
BESIDE = 0.12  # pitches: so far from the path it does
STRAY = 0.02  # of a room's core may be such red
FOREIGN = 60  # of 255: distance from everything that floor, wall and stroke can mix to
BLUR = 0.085  # pitches, standard deviation
NOISE = 12.0  # of 255, standard deviation on bare floor


@dataclass
class Reading:
    """What an image shows, in rooms and walls. `unreadable` says why nothing can be told; the rest is empty then.

    visited: rooms with red; openings: pairs of visited rooms with red in the opening between them; unbroken: pixels of
    red lead from S's room to E's; crossed: walls with red through them; changed: walls and rooms that are not as in the
    input; flaws: what is wrong with the quality; places: those of nano, as they were read, uint8 [side, side, 3].
    """

    unreadable: str = ""
    visited: set[Room] = field(default_factory=set)
    openings: set[tuple[Room, Room]] = field(default_factory=set)
    unbroken: bool = False
    crossed: list[str] = field(default_factory=list)
    on_walls: float = 0.0
    outside: bool = False
    changed: list[str] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    places: np.ndarray | None = None


def pair_of(room: Room, other: Room) -> tuple[Room, Room]:
    """Two rooms in the order in which `Reading.openings` has them."""
    return (room, other) if room < other else (other, room)


def where(room: Room) -> str:
    """A room for people, counted from 1."""
    return f"row {room[0] + 1}, column {room[1] + 1}"


# ---------------------------------------------------------------------------------------------------- nano: by places


def read_places(grid: Grid, picture: Picture, image: np.ndarray) -> Reading:
    """nano: every place of 2 x 2 pixels has the colour of NANO_COLOURS that its mean is nearest to."""
    side = picture.side // 2
    blocks = resized(image, picture.side).reshape(side, 2, side, 2, 3).mean(axis=(1, 3))
    names, colours = list(NANO_COLOURS), np.array(list(NANO_COLOURS.values()), dtype=np.uint8)
    distance = np.linalg.norm(blocks[:, :, None] - colours, axis=-1)
    seen = distance.argmin(axis=-1)
    unclear = np.sort(distance, axis=-1)
    rows, columns = grid.lattice.shape
    y, x = picture.top // 2, picture.left // 2
    inside = slice(y, y + rows), slice(x, x + columns)
    expected = np.where(grid.lattice, names.index("floor"), names.index("wall"))
    ends = {grid.start: "start", grid.end: "end"}
    for (r, c), name in ends.items():
        expected[2 * r + 1, 2 * c + 1] = names.index(name)
    path, floor = names.index("path"), names.index("floor")
    reading = Reading(places=colours[seen].repeat(2, axis=0).repeat(2, axis=1))
    for r, c in np.argwhere(seen[inside] != expected).tolist():
        free, colour = bool(grid.lattice[r, c]), seen[inside][r, c]
        if colour == path and not free:
            reading.crossed.append(f"the wall at {_spot(r, c)}")
        elif colour != path or expected[r, c] != floor:
            reading.changed.append(f"{names[colour]} instead of {names[expected[r, c]]} at {_spot(r, c)}")
    rest = np.ones((side, side), dtype=bool)
    rest[inside] = False
    if (seen[rest] == path).any():
        reading.outside = True
    if (rest & (seen != path) & (seen != names.index("wall"))).any():
        reading.changed.append("the rim is not wall")
    red = (seen[inside] == path) & grid.lattice
    doubtful = int((unclear[..., 0] > 0.6 * unclear[..., 1]).sum())
    if doubtful:
        reading.flaws.append(f"{doubtful} places have no clear colour")
    if not red.any():
        return reading
    # S and E keep their colours; they belong to the path where it comes to them.
    reached = red.copy()
    for r, c in ends:
        reached[2 * r + 1, 2 * c + 1] = True
    reading.visited = {(r, c) for r, c in np.argwhere(reached[1::2, 1::2]).tolist()}
    reading.openings = {pair for pair, (r, c) in _openings(grid) if red[r, c]}
    touched = {room for pair in reading.openings for room in pair}
    reading.visited -= {room for room in ends if room not in touched}
    reading.openings = {pair for pair in reading.openings if set(pair) <= reading.visited}
    stray = [place for pair, place in _openings(grid) if red[place] and pair not in reading.openings]
    labels, _ = ndimage.label(reached)
    start, end = (labels[2 * r + 1, 2 * c + 1] for r, c in (grid.start, grid.end))
    reading.unbroken = bool(start == end) and not stray
    return reading


def _spot(r: int, c: int) -> str:
    return f"place {r + 1}, {c + 1}"


def _openings(grid: Grid) -> Iterator[tuple[tuple[Room, Room], tuple[int, int]]]:
    """Every opening: the two rooms, and its place in the lattice."""
    for down, right in ((0, 1), (1, 0)):
        between = grid.lattice[1 + down : -1 : 2, 1 + right : -1 : 2]
        for r, c in np.argwhere(between).tolist():
            yield ((r, c), (r + down, c + right)), (2 * r + 1 + down, 2 * c + 1 + right)


# ----------------------------------------------------------------------------------------------- images: by shares


@dataclass(frozen=True, eq=False)
class Side:
    """The walls that run along x: those above and below rooms, or, in the transpose, those to the left and right.

    closed: bool [R + 1, C], which of them are there; thickness: of the thinnest, in pixels; x: the edges along them.
    around: [R + 1, n], the rows of each wall and one more on both sides; middle: those well inside it.
    along: bool [side], pixels beside rooms but for the corners.
    """

    transposed: bool
    closed: np.ndarray
    thickness: int
    x: np.ndarray
    around: np.ndarray
    middle: np.ndarray
    along: np.ndarray

    @classmethod
    def from_walls(cls, transposed: bool, closed: np.ndarray, y: np.ndarray, x: np.ndarray, side: int) -> Side:
        begin = y[:-1:2]
        thickness = int((y[1::2] - begin).min())
        # Along the middle of a wall: a slanting line is nowhere red from edge to edge of a thick one, but it is red
        # there, and a wide stroke beside the wall hides nothing of it.
        spare = int(0.35 * thickness)
        around, middle = (
            np.clip(begin[:, None] + np.arange(low, high), 0, side - 1)
            for low, high in ((-1, thickness + 1), (spare, thickness - spare))
        )
        return cls(transposed, closed, thickness, x, around, middle, _beside_rooms(x, side, 0.15))

    def per_segment(self, mask: np.ndarray) -> np.ndarray:
        """How many pixels of each segment are in `mask`, bool [lines, side], which is false beside posts."""
        return np.add.reduceat(mask[:, : self.x[-1]], self.x[1:-1:2], axis=1, dtype=np.int32)

    def name(self, line: int, segment: int) -> str:
        """ "above row 1, column 2" and the like."""
        room = (max(line - 1, 0), segment)
        sides = ("left of", "right of") if self.transposed else ("above", "below")
        return f"{sides[line > 0]} {where((room[1], room[0]) if self.transposed else room)}"


def _beside_rooms(x: np.ndarray, side: int, rim: float) -> np.ndarray:
    """Pixels along x that are beside rooms, without this share of a room at both ends; bool [side]."""
    inner = np.zeros(side, dtype=bool)
    for left, right in zip(x[1:-1:2].tolist(), x[2::2].tolist(), strict=True):
        inner[left + round(rim * (right - left)) : right - round(rim * (right - left))] = True
    return inner


@dataclass(frozen=True, eq=False)
class Profile:
    """Where walls are looked at across, to see how blurred they are: one of `Frame.profiles`.

    windows: for each side [lines, offsets], rows across some walls; use: bool [lines, side], where they are walls
    without letters beside them. shapes: [blurs, offsets], what a wall looks like under each of `blurs` (pixels).
    """

    windows: tuple[np.ndarray, ...]
    use: tuple[np.ndarray, ...]
    blurs: np.ndarray
    shapes: np.ndarray


class Frame:
    """What is known of the input before any output is seen, at the size at which outputs are judged.

    side, pitch: in pixels. edges: where the places of rows and of columns begin, and where the last ends.
    free: where one can walk; beyond: clearly outside the outer wall; rooms: the cores of rooms; empty, clear: those,
        and the whole maze, without the letters S and E and their surroundings; room_pixels: how many pixels each core
        has; deep: the inside of thick walls, None where walls are thin.
    openings: pairs of rooms; openings_at: the row and column of each in the lattice.
    sides, profiles: walls along x and along y; across them.
    ends: where red has come to S, to E (rows, columns).
    red: how red the input is, the reddest within a few pixels and under any blur that is put up with.
    channel: that in which red looks most like floor; template: the input in it.
    bare_at, core_at, flat_at: flat indices of some bare floor, middles of walls, and whatever has one colour.
    """

    def __init__(self, grid: Grid, picture: Picture) -> None:
        scale = min(1.0, max(WORK_SIDE / picture.side, WORK_PITCH / picture.pitch, WORK_WALL / picture.wall))
        self.side = side = round(picture.side * scale)
        image = resized(pictures.draw(grid, picture), side)
        y, x = (np.rint(picture.edges(n // 2, begin) * scale).astype(int)
                for n, begin in zip(grid.lattice.shape, (picture.top, picture.left), strict=True))  # fmt: skip
        self.edges = (y, x)
        inside, free, letters = (np.zeros((side, side), dtype=bool) for _ in range(3))
        inside[y[0] : y[-1], x[0] : x[-1]] = True
        free[y[0] : y[-1], x[0] : x[-1]] = grid.lattice.repeat(np.diff(y), axis=0).repeat(np.diff(x), axis=1)
        self.free = free
        wall = inside & ~free
        pitch, thickness, corridor = (n * scale for n in (picture.pitch, picture.wall, picture.corridor))
        self.pitch = pitch
        tolerance = max(2, round(0.03 * pitch))
        rim = round(corridor * (1 - ROOM_CORE) / 2)
        in_core = []
        for edges in (y, x):
            in_core.append(np.zeros(side, dtype=bool))
            for low, high in zip((edges[1:-1:2] + rim).tolist(), (edges[2::2] - rim).tolist(), strict=True):
                in_core[-1][low:high] = True
        self.rooms = in_core[0][:, None] & in_core[1]
        self.room_pixels = self.per_place(self.rooms)[1::2, 1::2]
        reach = picture.letter * scale * 0.5 + tolerance
        self.ends: list[tuple[slice, ...]] = []
        letters_at = []
        for room in (grid.start, grid.end):
            middle_x, middle_y = (at * scale for at in picture.centre(room))
            around, arrived = (
                tuple(slice(max(0, round(at - about)), round(at + about)) for at in (middle_y, middle_x))
                for about in (reach, corridor / 2 + thickness - ARRIVED * pitch)
            )
            letters[around] = True
            letters_at.append(around)
            self.ends.append(arrived)
        self.empty, self.clear = self.rooms & ~letters, inside & ~letters
        red = _redness(image)
        # However blurred the letter E may be, it is not redder than this.
        halo = tuple(
            slice(max(0, at.start - round(0.15 * pitch)), at.stop + round(0.15 * pitch)) for at in letters_at[1]
        )
        sharp = red[halo].copy()
        for share in (0.02, 0.04, 0.05):
            red[halo] = cv2.max(red[halo], cv2.GaussianBlur(sharp, (0, 0), share * pitch))
        self.red = cv2.dilate(red, _square(2))
        floor, walls, path = (
            np.array(rgb, dtype=float) for rgb in (picture.floor_rgb, picture.wall_rgb, picture.path_rgb)
        )
        self.channel = int(np.argmin(np.abs(path - floor) / np.maximum(1, np.abs(walls - floor))))
        self.template = Template(np.ascontiguousarray(image[:, :, self.channel]))
        bare = cv2.erode(free.view(np.uint8), _square(tolerance)).view(bool) & ~letters
        self.beyond = np.ones((side, side), dtype=bool)
        margin = max(1, round(0.06 * pitch))
        self.beyond[max(0, y[0] - margin) : y[-1] + margin, max(0, x[0] - margin) : x[-1] + margin] = False
        depth = cv2.distanceTransform(wall.view(np.uint8), cv2.DIST_L2, 3)
        self.deep = wall & (depth >= 0.25 * thickness + 1) if thickness >= 7 else None
        self.bare_at = _some(bare, 1500)
        self.core_at = _some(wall & (depth >= max(1.0, 0.4 * thickness)), 1500)
        self.flat_at = _some(bare | self.beyond | (False if self.deep is None else self.deep), 400)
        pairs = dict(_openings(grid))
        self.openings = list(pairs)
        self.openings_at = tuple(np.array(list(pairs.values())).T)
        self.sides = (
            Side.from_walls(False, ~grid.lattice[::2, 1::2], y, x, side),
            Side.from_walls(True, ~grid.lattice.T[::2, 1::2], x, y, side),
        )
        self.profiles = _profiles(self.sides, self.edges, letters, pitch)

    def per_place(self, mask: np.ndarray) -> np.ndarray:
        """How many pixels of `mask` lie in each place of the lattice, int [2R + 1, 2C + 1]."""
        y, x = self.edges
        sums = cv2.integral(mask.view(np.uint8))[y[:, None], x]
        return np.diff(np.diff(sums, axis=0), axis=1)


@lru_cache(maxsize=32)
def _frame(lattice: bytes, shape: tuple[int, ...], start: Room, end: Room, picture: Picture) -> Frame:
    return Frame(Grid(np.frombuffer(lattice, dtype=bool).reshape(shape), start, end), picture)


def _profiles(
    sides: tuple[Side, Side], edges: tuple[np.ndarray, np.ndarray], letters: np.ndarray, pitch: float
) -> list[Profile]:
    """Across the inner walls, and across the outer ones from outside. Some lines are enough."""
    thickness, side = min(walls.thickness for walls in sides), len(letters)
    reach = max(2, round(0.24 * pitch))
    margin = min(reach, *(int(min(y[0], side - y[-1])) for y in edges))
    profiles = []
    for inner, offsets in (
        (True, np.arange(-reach, thickness + reach)),
        (False, np.arange(-margin, thickness // 2 + 1)),
    ):
        windows, use = [], []
        for walls, y, near in zip(sides, edges, (letters, letters.T), strict=True):
            rows = len(walls.closed) - 1
            if inner:
                lines = np.arange(1, rows, max(1, rows // 4))
                window = y[2 * lines, None] + offsets
            else:
                lines = np.array([0, rows])
                window = np.stack([y[0] + offsets, y[-1] - 1 - offsets])
            closed = np.zeros((len(lines), side), dtype=bool)
            for wall_closed, left, right in zip(walls.closed[lines].T, walls.x[1:-1:2], walls.x[2::2], strict=True):
                closed[:, left:right] = wall_closed[:, None]
            windows.append(window)
            use.append(closed & _beside_rooms(walls.x, side, 0.25) & ~near[window].any(axis=1))
        profiles.append(Profile(tuple(windows), tuple(use), *_blurred(thickness, int(offsets[0]), int(offsets[-1]))))
    return profiles


@lru_cache(maxsize=256)
def _blurred(thickness: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Blurs in pixels [n], and what each makes of a wall of 0 <= offset < thickness: [n, offsets from first to last]"""
    blurs = 0.01 * thickness + np.geomspace(0.3, 60, 36)
    at = (np.arange(first, last + 1) + 0.5)[None] / (math.sqrt(2) * blurs[:, None])
    return blurs, (erf(at) - erf(at - thickness / (math.sqrt(2) * blurs[:, None]))) / 2


def _is_red(stroke: np.ndarray, floor: np.ndarray) -> bool:
    """Whether a stroke that may be diluted with floor is red at full strength: not orange, not purple, not grey."""
    away = stroke - floor
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(away > 0, (255 - floor) / away, np.where(away < 0, floor / -away, np.inf))
    r, g, b = np.clip(floor + max(1.0, float(room.min())) * away, 0, 255) / 255
    hue, saturation, _ = colorsys.rgb_to_hsv(r, g, b)
    return saturation >= 0.5 and abs((hue + 0.5) % 1 - 0.5) <= RED_HUE


def _some(mask: np.ndarray, most: int) -> np.ndarray:
    """At most so many flat indices of `mask`, evenly spread."""
    at = np.flatnonzero(mask)
    return at[np.linspace(0, len(at) - 1, min(most, len(at))).astype(int)]


def _square(reach: int) -> np.ndarray:
    return np.ones((2 * reach + 1, 2 * reach + 1), dtype=np.uint8)


def _redness(image: np.ndarray) -> np.ndarray:
    """How much more red than green or blue, uint8 [H, W]."""
    r, g, b = cv2.split(image)
    return cv2.subtract(r, cv2.max(g, b))


@dataclass(frozen=True, eq=False)
class Shares:
    """What the pixels of an image are made of. All uint8 [side, side]: bytes are a quarter of the memory of floats.

    wall: the share of wall, from `NO_WALL` to `ALL_WALL` (and beyond, where edges ring). strange: the distance from
    what floor, wall and stroke can mix to, of 255, from 128 up or down. red: redness; that of a pure stroke is `peak`.
    """

    wall: np.ndarray
    strange: np.ndarray
    red: np.ndarray
    peak: float

    @property
    def transposed(self) -> Shares:
        return Shares(cv2.transpose(self.wall), self.strange, cv2.transpose(self.red), self.peak)

    def from_red(self, share: float) -> int:
        """The least redness of pixels of which the stroke has at least this share."""
        return min(255, math.ceil(share * self.peak))


NO_WALL, ALL_WALL = 64, 192


def _wall_byte(share: float) -> int:
    return round(NO_WALL + share * (ALL_WALL - NO_WALL))


def read_picture(grid: Grid, picture: Picture, image: np.ndarray) -> Reading:
    """What `image` shows; see the top of this file."""
    frame = _frame(grid.lattice.tobytes(), grid.lattice.shape, grid.start, grid.end, picture)
    if min(image.shape[:2]) / picture.side * picture.pitch < LEAST_PITCH:
        return Reading(unreadable=f"{image.shape[1]} x {image.shape[0]} pixels are too few for this maze")
    original, image = image, resized(image, frame.side)
    affine = frame.template.register(cv2.extractChannel(image, frame.channel))
    image = warped(image, affine)
    redder = cv2.subtract(_redness(image), frame.red)
    tint = np.median(redder.ravel()[frame.bare_at]).astype(np.uint8)
    if 0 < tint < REDDER:  # a floor that is a little pink all over is no path
        redder = np.maximum(redder, tint) - tint
    colours = _colours(frame, picture, image, redder)
    if isinstance(colours, Reading):
        return colours
    floor, walls, stroke = colours

    if not _is_red(stroke, floor):
        redder = np.zeros_like(redder)
    shares = _shares(image, floor, walls, stroke, redder)
    drawn = redder >= shares.from_red(IS_RED)
    reading = Reading()
    views = [(side, shares.transposed if side.transposed else shares) for side in frame.sides]
    path = _read_path(grid, frame, drawn, reading)
    for view in views:
        _read_walls(*view, frame.pitch, reading)
    _read_rooms(frame, shares, path, reading)
    contrast = np.linalg.norm(walls - floor) / np.linalg.norm(np.subtract(picture.wall_rgb, picture.floor_rgb))
    _read_quality(frame, original, affine, shares, reading)
    blur = _blur(frame, views, float(contrast))
    if blur > BLUR:
        reading.flaws.append(f"blurred by {blur:.0%} of a room")
    return reading


def _shares(image: np.ndarray, floor: np.ndarray, walls: np.ndarray, stroke: np.ndarray, redness: np.ndarray) -> Shares:
    """Shares of wall and stroke that explain a pixel best, and how far that is from the pixel."""
    mixing = np.stack([walls - floor, stroke - floor], axis=1)
    normal = np.cross(mixing[:, 0], mixing[:, 1])
    normal /= np.linalg.norm(normal) + 1e-9
    along = np.linalg.pinv(mixing)[0] * (ALL_WALL - NO_WALL)
    # OpenCV is quick where three planes become three, so there is an empty third.
    to = np.zeros((3, 4))
    to[0], to[1] = np.append(along, NO_WALL - along @ floor), np.append(normal, 128 - normal @ floor)
    wall, strange, _ = cv2.split(cv2.transform(image, to))
    return Shares(wall, strange, redness, max(1.0, float(stroke[0] - max(stroke[1:]))))


def _colours(
    frame: Frame, picture: Picture, image: np.ndarray, redder: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | Reading:
    """Floor, wall and stroke as the image has them, float [3] each."""
    expected_floor, expected_wall = np.array(picture.floor_rgb, float), np.array(picture.wall_rgb, float)
    pixels, redness = image.reshape(-1, 3), redder.ravel()
    bare, core = (pixels[at[redness[at] < REDDER]] for at in (frame.bare_at, frame.core_at))
    # Where red covers nearly all, the floor is taken from the input.
    floor = np.median(bare, axis=0) if len(bare) > 0.02 * len(frame.bare_at) else expected_floor
    walls = np.median(core, axis=0) if len(core) else floor + expected_wall - expected_floor
    expected, seen = expected_wall - expected_floor, walls - floor
    strength = float(seen @ expected / (expected @ expected))
    if strength < LEAST_CONTRAST:
        if image.std() < 12:
            return Reading(unreadable="the image is all but empty")
        walls = floor + expected  # most walls are gone: what is left of them still looks like walls
    drawn_at = np.flatnonzero(redness >= REDDER)
    if len(drawn_at) < 4:
        return floor, walls, np.array(picture.path_rgb, float)
    drawn = redness[drawn_at]
    reddest = int(np.searchsorted(np.bincount(drawn).cumsum(), 0.99 * len(drawn)))
    stroke = np.median(pixels[drawn_at[_some(drawn >= math.ceil(0.7 * reddest), 1500)]], axis=0)
    return floor, walls, stroke


def _read_path(grid: Grid, frame: Frame, drawn: np.ndarray, reading: Reading) -> np.ndarray:
    """Rooms, openings, connection, and red outside. Returns where the line from S to E is, or all red, bool [H, W]."""
    cores = frame.per_place(drawn & frame.rooms)[1::2, 1::2]
    visited = cores >= np.maximum(3, ROOM_RED * frame.room_pixels)
    for room, arrived in zip((grid.start, grid.end), frame.ends, strict=True):
        visited[room] = np.count_nonzero(drawn[arrived] & frame.free[arrived]) >= 3
    reading.visited = {(r, c) for r, c in np.argwhere(visited).tolist()}
    thickness = int(frame.edges[0][1] - frame.edges[0][0])
    reddened = frame.per_place(drawn)[frame.openings_at] >= max(2, thickness)
    reading.openings = {pair for pair, there in zip(frame.openings, reddened.tolist(), strict=True)
                        if there and set(pair) <= reading.visited}  # fmt: skip
    grown = cv2.dilate(drawn.view(np.uint8), _square(max(1, round(BRIDGE * frame.pitch))))
    _, labels = cv2.connectedComponents(cv2.bitwise_and(grown, frame.free.view(np.uint8)), connectivity=4)
    y, x = frame.edges
    ends = [set(np.unique(labels[y[2 * r + 1] : y[2 * r + 2], x[2 * c + 1] : x[2 * c + 2]])) - {0}
            for r, c in (grid.start, grid.end)]  # fmt: skip
    reading.unbroken = bool(ends[0] & ends[1])
    if frame.deep is not None:
        reading.on_walls = np.count_nonzero(drawn & frame.deep) / max(1, int(np.count_nonzero(drawn)))
    beyond = (drawn & frame.beyond).view(np.uint8)
    if beyond.any():
        _, _, stats, _ = cv2.connectedComponentsWithStats(beyond)
        extents = stats[1:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]]
        reading.outside = bool(extents.max() > OUTSIDE * frame.pitch)
    return drawn & np.isin(labels, list(ends[0] & ends[1])) if reading.unbroken else drawn


def _read_walls(side: Side, shares: Shares, pitch: float, reading: Reading) -> None:
    """Every wall between two rooms, pixel by pixel along it: still there, hidden by red, red all through, missing."""
    closed, x, thickness = side.closed, side.x, side.thickness
    most_wall, red_within = shares.wall[side.around].max(axis=1), shares.red[side.middle]
    spared = side.middle.shape[1] < thickness
    wall_within = shares.wall[side.middle].max(axis=1) if spared else most_wall
    least_red, seen = red_within.min(axis=1), red_within.max(axis=1) < shares.from_red(IS_RED)

    beyond_wall = least_red / np.float32(shares.peak) - (wall_within - np.float32(NO_WALL)) / (ALL_WALL - NO_WALL)
    crossing = (least_red >= shares.from_red(CROSSED_RED)) & (beyond_wall >= CROSSED_BY)
    before = np.zeros((len(closed), crossing.shape[1] + 1), dtype=np.int32)
    np.cumsum(crossing, axis=1, out=before[:, 1:])
    # With the posts at both ends, but for what a wide stroke around a wall's end may touch of them.
    spare = max(min(2, thickness // 2), round(0.25 * thickness))
    crossed = before[:, x[3::2] - spare] - before[:, x[:-3:2] + spare]

    seen &= side.along
    visible, faded, blocking = (
        side.per_segment(mask)
        for mask in (seen, seen & (most_wall < _wall_byte(FADED)), seen & (most_wall > _wall_byte(0.5)))
    )
    length = 0.7 * (x[2] - x[1])
    missing = closed & (visible >= 0.25 * length) & (faded > MISSING * visible)
    blocked = ~closed & (visible >= 0.3 * length) & (blocking > BLOCKED * visible)
    for mask, what, into in (
        (closed & (crossed >= max(2, 0.012 * pitch)), "the wall", reading.crossed),
        (missing, "a missing wall", reading.changed),
        (blocked, "a new wall", reading.changed),
    ):
        into += [f"{what} {side.name(line, segment)}" for line, segment in np.argwhere(mask).tolist()]


def _read_rooms(frame: Frame, shares: Shares, path: np.ndarray, reading: Reading) -> None:
    """Whatever else has been drawn into rooms, and red beside the path, bool [H, W], thin or faint as it may be."""
    red = shares.red >= shares.from_red(FAINT)
    other = ((shares.wall > _wall_byte(0.5)) | _foreign(shares.strange)) & ~red & frame.empty
    if other.any():
        share = frame.per_place(other)[1::2, 1::2] / frame.room_pixels
        reading.changed += [f"something in {where((r, c))}" for r, c in np.argwhere(share > ADDED).tolist()]
    beside = cv2.dilate((path | ~frame.clear).view(np.uint8), _square(max(2, round(BESIDE * frame.pitch)))).view(bool)
    red = (red & frame.empty | (shares.red >= shares.from_red(IS_RED)) & frame.clear) & ~beside
    stray = frame.per_place(red) > STRAY * frame.room_pixels.min()
    reading.changed += [f"more red at {_spot(r, c)}" for r, c in np.argwhere(stray).tolist()]


def _foreign(strange: np.ndarray) -> np.ndarray:
    return (strange > 128 + FOREIGN) | (strange < 128 - FOREIGN)


def _read_quality(frame: Frame, original: np.ndarray, affine: np.ndarray, shares: Shares, reading: Reading) -> None:
    red = shares.red.ravel()
    bare, flat = (at[red[at] < shares.from_red(0.1)] for at in (frame.bare_at, frame.flat_at))
    noise = _noise(original, affine, flat, frame.side) if len(flat) >= 100 else 0.0
    if noise > NOISE:
        reading.flaws.append(f"noise of {noise:.0f} grey levels")
    foreign = float(_foreign(shares.strange.ravel()[bare]).mean()) if len(bare) >= 100 else 0.0
    if foreign > 0.05:
        reading.flaws.append(f"foreign colours on {foreign:.0%} of the floor")


def _noise(original: np.ndarray, affine: np.ndarray, flat: np.ndarray, side: int) -> float:
    """The standard deviation of grey among 3 x 3 neighbours in the image as it came, the median over flat places."""
    y, x = np.divmod(flat, side)
    height, width = original.shape[:2]
    places = np.stack([x, y, np.ones_like(x)]).T @ affine.T
    x, y = (
        np.clip((at + 0.5) * n / side, 1, n - 2).astype(int) for at, n in zip(places.T, (width, height), strict=True)
    )
    around = np.arange(-1, 2)
    pixels = original.reshape(-1, 3)[(y[:, None, None] + around[:, None]) * width + x[:, None, None] + around]
    grey = pixels.reshape(-1, 3) @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return float(np.median(grey.reshape(-1, 9).std(axis=1)))


def _blur(frame: Frame, views: Sequence[tuple[Side, Shares]], contrast: float) -> float:
    """The standard deviation of the blur in pitches: that which makes a wall look like the mean of all inner walls.

    contrast: of walls to floor, as a share of the input's: faint walls are blurred ones. Where red or letters are
    beside all inner walls (2 x 2), the outer walls are seen from outside, red or not.
    """
    inner, outer = frame.profiles
    for profile, free_of_red in ((inner, True), (outer, True), (outer, False)):
        offsets = profile.shapes.shape[1]
        total, weight = np.zeros(offsets), 0
        for (_, shares), window, use in zip(views, profile.windows, profile.use, strict=True):
            seen = use & (shares.red[window].max(axis=1) < shares.from_red(0.1)) if free_of_red else use
            total += np.einsum("los,ls->o", shares.wall[window], seen, dtype=np.float64)
            weight += int(seen.sum())
        if weight >= 0.2 * frame.pitch and offsets >= 4:
            share = (total / weight - NO_WALL) / (ALL_WALL - NO_WALL)
            return _blur_of(contrast * share, profile) / frame.pitch
    return 0.0


def _blur_of(seen: np.ndarray, profile: Profile) -> float:
    """In pixels: the blur that makes a wall look most like `seen`, [offsets]."""
    shapes = profile.shapes
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    contrasts = centred @ seen / ((centred**2).sum(axis=1) + 1e-9)
    rest = seen - np.clip(contrasts, 0.6, 1.15)[:, None] * shapes
    return float(profile.blurs[rest.var(axis=1).argmin()])
