"""What a picture shows of a maze that is known: where red is, which walls are left, how good the picture is.

The item says where every wall is, so nothing is recognised: the picture is laid over the one it was made from
(`data_gen.maze.registration`), then every pixel is unmixed into floor, wall and stroke, which blur, JPEG and rescaling
do to it too, and the shares are read at the places of the lattice. In `nano` a place is a block of pixels and has the
colour that it is nearest to.

Red is what is redder than the input was at that place: the letter E is no path. All lengths are shares of the pitch
(from room to room), so the size of a picture does not matter. Thresholds were fitted on some seeds
of `data_gen.maze.corruptions`; how often they are wrong on another is in docs/maze.md.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import cv2
import numpy as np
from scipy import ndimage
from scipy.special import erf

from data_gen.maze import picture as pictures
from data_gen.maze.grid import Grid, Room
from data_gen.maze.picture import NANO_COLOURS, Picture
from data_gen.maze.registration import Template, resized, warped

# Larger pictures are judged at a size that leaves the side, a room and a wall at least so many pixels.
WORK_SIDE, WORK_PITCH, WORK_WALL = 256, 36, 3
LEAST_PITCH = 5.0  # pixels a room of the picture that is judged; with fewer nobody can tell
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
FOREIGN = 60.0  # of 255: distance from everything that floor, wall and stroke can mix to
BLUR = 0.085  # pitches, standard deviation
NOISE = 12.0  # of 255, standard deviation on bare floor


@dataclass
class Reading:
    """What a picture shows, in rooms and walls. `unreadable` says why nothing can be told; the rest is empty then.

    visited: rooms with red; openings: pairs of visited rooms with red in the opening between them; unbroken: pixels of
    red lead from S's room to E's; crossed: walls with red through them; changed: walls and rooms that are not as in the
    input; flaws: what is wrong with the quality.
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


def pair_of(one: Room, other: Room) -> tuple[Room, Room]:
    """Two rooms in the order in which `Reading.openings` has them."""
    return (one, other) if one < other else (other, one)


def where(room: Room) -> str:
    """A room for people, counted from 1."""
    return f"row {room[0] + 1}, column {room[1] + 1}"


# ---------------------------------------------------------------------------------------------------- nano: by places


def read_places(grid: Grid, picture: Picture, image: np.ndarray) -> Reading:
    """nano: every place of 2 x 2 pixels has the colour of NANO_COLOURS that its mean is nearest to."""
    side = picture.side // 2
    blocks = resized(image, picture.side).reshape(side, 2, side, 2, 3).mean(axis=(1, 3))
    names = list(NANO_COLOURS)
    distance = np.linalg.norm(blocks[:, :, None] - np.array([NANO_COLOURS[name] for name in names]), axis=-1)
    seen = distance.argmin(axis=-1)
    unclear = np.sort(distance, axis=-1)
    rows, columns = grid.lattice.shape
    expected = np.where(grid.lattice, names.index("floor"), names.index("wall"))
    ends = {grid.start: "start", grid.end: "end"}
    for (r, c), name in ends.items():
        expected[2 * r + 1, 2 * c + 1] = names.index(name)
    path, floor = names.index("path"), names.index("floor")
    reading = Reading()
    for r, c in np.argwhere(seen[:rows, :columns] != expected).tolist():
        free = bool(grid.lattice[r, c])
        if seen[r, c] == path and not free:
            reading.crossed.append(f"the wall at {_spot(r, c)}")
        elif seen[r, c] != path or expected[r, c] != floor:
            reading.changed.append(f"{names[seen[r, c]]} instead of {names[expected[r, c]]} at {_spot(r, c)}")
    rest = np.ones((side, side), dtype=bool)
    rest[:rows, :columns] = False
    if (seen[rest] == path).any():
        reading.outside = True
    if (rest & (seen != path) & (seen != names.index("wall"))).any():
        reading.changed.append("the rim is not wall")
    red = (seen[:rows, :columns] == path) & grid.lattice
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
    for r, c in np.argwhere(grid.lattice[1:-1, 1:-1]).tolist():
        if r % 2 != c % 2:
            one = (r // 2, c // 2)
            yield (one, (one[0] + r % 2, one[1] + c % 2)), (r + 1, c + 1)


# ----------------------------------------------------------------------------------------------- pictures: by shares


@dataclass(frozen=True, eq=False)
class Frame:
    """What is known of the input before any output is seen, at the size at which outputs are judged.

    edges: where the places of rows and of columns begin, in pixels, and where the last ends.
    free: where one can walk; beyond: clearly outside the outer wall; rooms: the cores of rooms; room_pixels: how many
        each has; letters: S, E and around them; deep: the inside of thick walls.
    ends: where red has come to S, to E (rows, columns).
    red: how red the input is, the reddest within a few pixels and under any blur that is put up with.
    channel: that in which red looks most like floor; template: the input in it.
    bare_at, core_at, flat_at: flat indices of some bare floor, middles of walls, and whatever has one colour.
    """

    side: int
    pitch: float
    edges: tuple[np.ndarray, np.ndarray]
    free: np.ndarray
    beyond: np.ndarray
    rooms: np.ndarray
    room_pixels: np.ndarray
    letters: np.ndarray
    deep: np.ndarray
    red: np.ndarray
    channel: int
    template: Template
    bare_at: np.ndarray
    core_at: np.ndarray
    flat_at: np.ndarray
    ends: tuple[tuple[slice, ...], ...]

    def per_place(self, mask: np.ndarray) -> np.ndarray:
        """How many pixels of `mask` lie in each place of the lattice, int [2R + 1, 2C + 1]."""
        y, x = self.edges
        sums = cv2.integral(mask.view(np.uint8))[y[:, None], x]
        return np.diff(np.diff(sums, axis=0), axis=1)


@lru_cache(maxsize=32)
def _frame(text: tuple[str, ...], picture: Picture) -> Frame:
    grid = Grid.from_text(text)
    scale = min(1.0, max(WORK_SIDE / picture.side, WORK_PITCH / picture.pitch, WORK_WALL / picture.wall))
    side = round(picture.side * scale)
    image = resized(pictures.draw(grid, picture), side)
    y, x = (np.rint(picture.edges(n // 2, begin) * scale).astype(int)
            for n, begin in zip(grid.lattice.shape, (picture.top, picture.left), strict=True))  # fmt: skip
    inside, free, letters, rooms = (np.zeros((side, side), dtype=bool) for _ in range(4))
    inside[y[0] : y[-1], x[0] : x[-1]] = True
    free[inside] = grid.lattice.repeat(np.diff(y), axis=0).repeat(np.diff(x), axis=1).ravel()
    wall = inside & ~free
    pitch, thickness, corridor = (n * scale for n in (picture.pitch, picture.wall, picture.corridor))
    tolerance = max(2, round(0.03 * pitch))
    rim = round(corridor * (1 - ROOM_CORE) / 2)
    for top, bottom in zip(y[1:-1:2] + rim, y[2::2] - rim, strict=True):
        for left, right in zip(x[1:-1:2] + rim, x[2::2] - rim, strict=True):
            rooms[top:bottom, left:right] = True
    reach = picture.letter * scale * 0.5 + tolerance
    ends, letters_at = [], []
    for room in (grid.start, grid.end):
        middle_x, middle_y = (at * scale for at in picture.centre(room))
        around, arrived = (
            tuple(slice(max(0, round(at - about)), round(at + about)) for at in (middle_y, middle_x))
            for about in (reach, corridor / 2 + thickness - ARRIVED * pitch)
        )
        letters[around] = True
        letters_at.append(around)
        ends.append(arrived)
    away = cv2.erode(free.astype(np.uint8), _square(tolerance)).astype(bool)
    depth = cv2.distanceTransform(wall.astype(np.uint8), cv2.DIST_L2, 3)
    red = _redness(image)
    # However blurred the letter E may be, it is not redder than this.
    halo = tuple(slice(max(0, at.start - round(0.15 * pitch)), at.stop + round(0.15 * pitch)) for at in letters_at[1])
    sharp = red[halo].copy()
    for share in (0.02, 0.04, 0.05):
        red[halo] = cv2.max(red[halo], cv2.GaussianBlur(sharp, (0, 0), share * pitch))
    red = cv2.dilate(red, _square(2))
    floor, walls, path = (np.array(rgb, dtype=float) for rgb in (picture.floor_rgb, picture.wall_rgb, picture.path_rgb))
    channel = int(np.argmin(np.abs(path - floor) / np.maximum(1, np.abs(walls - floor))))
    bare = away & ~letters
    beyond = ~cv2.dilate(inside.astype(np.uint8), _square(max(1, round(0.06 * pitch)))).astype(bool)
    core = wall & (depth >= max(1.0, 0.4 * thickness))
    deep = wall & (depth >= 0.25 * thickness + 1) if thickness >= 7 else np.zeros_like(wall)
    frame = Frame(
        side=side,
        pitch=pitch,
        edges=(y, x),
        free=free,
        beyond=beyond,
        rooms=rooms,
        room_pixels=np.ones(1),
        letters=letters,
        deep=deep,
        red=red,
        channel=channel,
        template=Template(np.ascontiguousarray(image[:, :, channel])),
        bare_at=_some(bare, 1500),
        core_at=_some(core, 1500),
        flat_at=_some(bare | beyond | deep, 400),
        ends=tuple(ends),
    )
    return replace(frame, room_pixels=frame.per_place(rooms)[1::2, 1::2])


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


def read_picture(grid: Grid, picture: Picture, image: np.ndarray) -> Reading:
    """What `image` shows; see the top of this file."""
    frame = _frame(tuple(grid.to_text()), picture)
    if min(image.shape[:2]) / picture.side * picture.pitch < LEAST_PITCH:
        return Reading(unreadable=f"{image.shape[1]} x {image.shape[0]} pixels are too few for this maze")
    original, image = image, resized(image, frame.side)
    found = frame.template.register(np.ascontiguousarray(image[:, :, frame.channel]))
    image = warped(image, found)
    redder = cv2.subtract(_redness(image), frame.red)
    tint = np.median(redder.ravel()[frame.bare_at]).astype(np.uint8)
    if 0 < tint < REDDER:  # a floor that is a little pink all over is no path
        redder = np.maximum(redder, tint) - tint
    colours = _colours(frame, picture, image, redder)
    if isinstance(colours, Reading):
        return colours
    floor, walls, stroke = colours

    # Shares of wall and stroke that explain a pixel best, and how far that is from the pixel.
    mixing = np.stack([walls - floor, stroke - floor], axis=1)
    normal = np.cross(mixing[:, 0], mixing[:, 1])
    normal /= np.linalg.norm(normal) + 1e-9
    planes = [plane.astype(np.float32) - np.float32(at) for plane, at in zip(cv2.split(image), floor, strict=True)]
    wall, strange = (
        along[0] * planes[0] + along[1] * planes[1] + along[2] * planes[2]
        for along in (np.linalg.pinv(mixing)[0].astype(np.float32), normal.astype(np.float32))
    )
    peak = max(1.0, float(stroke[0] - max(stroke[1:])))
    red = redder.astype(np.float32) / peak
    if not _is_red(stroke, floor):
        red[:] = 0
    drawn = red >= IS_RED

    reading = Reading()
    views = _views(grid, frame, wall, red)
    _read_path(grid, frame, drawn, reading)
    for view in views:
        _read_walls(view, frame.pitch, reading)
    _read_rooms(frame, wall, strange, red, reading)
    contrast = np.linalg.norm(walls - floor) / np.linalg.norm(np.subtract(picture.wall_rgb, picture.floor_rgb))
    _read_quality(frame, original, found, strange, red, reading)
    blur = _blur(views, frame.pitch, float(contrast))
    if blur > BLUR:
        reading.flaws.append(f"blurred by {blur:.0%} of a room")
    return reading


def _colours(
    frame: Frame, picture: Picture, image: np.ndarray, redder: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | Reading:
    """Floor, wall and stroke as the picture has them, float [3] each."""
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
            return Reading(unreadable="the picture is all but empty")
        walls = floor + expected  # most walls are gone: what is left of them still looks like walls
    top = np.bincount(redness, minlength=256)
    top[:REDDER] = 0
    if top.sum() < 4:
        return floor, walls, np.array(picture.path_rgb, float)
    reddest = int(np.searchsorted(np.cumsum(top), 0.99 * top.sum()))
    stroke = np.median(pixels[_some(redness >= max(REDDER, 0.7 * reddest), 1500)], axis=0)
    return floor, walls, stroke


def _read_path(grid: Grid, frame: Frame, drawn: np.ndarray, reading: Reading) -> None:
    """Rooms, openings, connection, and red outside."""
    cores = frame.per_place(drawn & frame.rooms)[1::2, 1::2]
    visited = cores >= np.maximum(3, ROOM_RED * frame.room_pixels)
    for room, arrived in zip((grid.start, grid.end), frame.ends, strict=True):
        visited[room] = np.count_nonzero(drawn[arrived] & frame.free[arrived]) >= 3
    reading.visited = {(r, c) for r, c in np.argwhere(visited).tolist()}
    places = frame.per_place(drawn)
    thickness = int(frame.edges[0][1] - frame.edges[0][0])
    reading.openings = {pair for pair, place in _openings(grid)
                        if places[place] >= max(2, thickness) and set(pair) <= reading.visited}  # fmt: skip
    grown = cv2.dilate(drawn.astype(np.uint8), _square(max(1, round(BRIDGE * frame.pitch))))
    _, labels = cv2.connectedComponents(grown * frame.free, connectivity=4)
    y, x = frame.edges
    ends = [set(np.unique(labels[y[2 * r + 1] : y[2 * r + 2], x[2 * c + 1] : x[2 * c + 2]])) - {0}
            for r, c in (grid.start, grid.end)]  # fmt: skip
    reading.unbroken = bool(ends[0] & ends[1])
    reading.on_walls = float((drawn & frame.deep).sum() / max(1, drawn.sum()))
    beyond = (drawn & frame.beyond).view(np.uint8)
    if beyond.any():
        _, _, stats, _ = cv2.connectedComponentsWithStats(beyond)
        extents = stats[1:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]]
        reading.outside = bool(extents.max() > OUTSIDE * frame.pitch)


@dataclass(frozen=True, eq=False)
class View:
    """The walls that run along x: those above and below rooms, or, in the transpose, those to the left and right.

    closed: bool [R + 1, C], which of them are there; wall, red, letters: [side, side]; y, x: the edges.
    """

    transposed: bool
    closed: np.ndarray
    wall: np.ndarray
    red: np.ndarray
    letters: np.ndarray
    y: np.ndarray
    x: np.ndarray

    @property
    def thickness(self) -> int:
        return int((self.y[1::2] - self.y[:-1:2]).min())

    def between(self, rim: float) -> np.ndarray:
        """Pixels along x that are beside rooms, without this share of a room at both ends; bool [side]."""
        inner = np.zeros(len(self.wall), dtype=bool)
        for left, right in zip(self.x[1:-1:2], self.x[2::2], strict=True):
            inner[left + round(rim * (right - left)) : right - round(rim * (right - left))] = True
        return inner

    def per_segment(self, mask: np.ndarray) -> np.ndarray:
        """How many pixels of each segment are in `mask`, bool [lines, side], which is false beside posts."""
        return np.add.reduceat(mask[:, : self.x[-1]], self.x[1:-1:2], axis=1, dtype=np.int32)

    def name(self, line: int, segment: int) -> str:
        """ "above row 1, column 2" and the like."""
        room = (max(line - 1, 0), segment)
        sides = ("left of", "right of") if self.transposed else ("above", "below")
        return f"{sides[line > 0]} {where((room[1], room[0]) if self.transposed else room)}"


def _views(grid: Grid, frame: Frame, wall: np.ndarray, red: np.ndarray) -> tuple[View, View]:
    y, x = frame.edges
    across, red_across, letters = (np.ascontiguousarray(m.T) for m in (wall, red, frame.letters))
    return (
        View(False, ~grid.lattice[::2, 1::2], wall, red, frame.letters, y, x),
        View(True, ~grid.lattice.T[::2, 1::2], across, red_across, letters, x, y),
    )


def _read_walls(view: View, pitch: float, reading: Reading) -> None:
    """Every wall between two rooms, pixel by pixel along it: still there, hidden by red, red all through, missing."""
    wall, red, closed, x, thickness = view.wall, view.red, view.closed, view.x, view.thickness
    begin = view.y[:-1:2]
    # Along the middle of a wall: a slanting line is nowhere red from edge to edge of a thick one, but it is red there,
    # and a wide stroke beside the wall hides nothing of it.
    spare = int(0.35 * thickness)
    around = np.clip(begin[:, None] + np.arange(-1, thickness + 1), 0, len(wall) - 1)
    middle = np.clip(begin[:, None] + np.arange(spare, thickness - spare), 0, len(wall) - 1)
    most_wall, wall_within = wall[around].max(axis=1), wall[middle if spare else around].max(axis=1)
    red_within = red[middle]
    least_red, seen = red_within.min(axis=1), red_within.max(axis=1) < IS_RED

    crossing = (least_red >= CROSSED_RED) & (least_red - wall_within >= CROSSED_BY)
    before = np.concatenate([np.zeros((len(begin), 1), dtype=int), np.cumsum(crossing, axis=1)], axis=1)
    # With the posts at both ends, but for what a wide stroke around a wall's end may touch of them.
    spare = max(min(2, thickness // 2), round(0.25 * thickness))
    crossed = before[:, x[3::2] - spare] - before[:, x[:-3:2] + spare]

    inner = view.between(0.15)
    visible, faded, blocking = (
        view.per_segment(mask & inner) for mask in (seen, seen & (most_wall < FADED), seen & (most_wall > 0.5))
    )
    length = 0.7 * (x[2] - x[1])
    missing = closed & (visible >= 0.25 * length) & (faded > MISSING * visible)
    blocked = ~closed & (visible >= 0.3 * length) & (blocking > BLOCKED * visible)
    for found, what, into in (
        (closed & (crossed >= max(2, 0.012 * pitch)), "the wall", reading.crossed),
        (missing, "a missing wall", reading.changed),
        (blocked, "a new wall", reading.changed),
    ):
        into += [f"{what} {view.name(line, segment)}" for line, segment in np.argwhere(found).tolist()]


def _read_rooms(frame: Frame, wall: np.ndarray, strange: np.ndarray, red: np.ndarray, reading: Reading) -> None:
    """Whatever else has been drawn into rooms."""
    added = ((wall > 0.5) | (np.abs(strange) > FOREIGN)) & (red < 0.2) & frame.rooms & ~frame.letters
    share = frame.per_place(added)[1::2, 1::2] / frame.room_pixels
    reading.changed += [f"something in {where((r, c))}" for r, c in np.argwhere(share > ADDED).tolist()]


def _read_quality(
    frame: Frame,
    original: np.ndarray,
    found: np.ndarray,
    strange: np.ndarray,
    red: np.ndarray,
    reading: Reading,
) -> None:
    bare, flat = (at[red.ravel()[at] < 0.1] for at in (frame.bare_at, frame.flat_at))
    noise = _noise(original, found, flat, frame.side) if len(flat) >= 100 else 0.0
    if noise > NOISE:
        reading.flaws.append(f"noise of {noise:.0f} grey levels")
    foreign = float((np.abs(strange.ravel()[bare]) > FOREIGN).mean()) if len(bare) >= 100 else 0.0
    if foreign > 0.05:
        reading.flaws.append(f"foreign colours on {foreign:.0%} of the floor")


def _noise(original: np.ndarray, found: np.ndarray, flat: np.ndarray, side: int) -> float:
    """The standard deviation of grey among 3 x 3 neighbours in the picture as it came, the median over flat places."""
    y, x = np.divmod(flat, side)
    height, width = original.shape[:2]
    places = np.stack([x, y, np.ones_like(x)]).T @ found.T
    x, y = (
        np.clip((at + 0.5) * n / side, 1, n - 2).astype(int) for at, n in zip(places.T, (width, height), strict=True)
    )
    around = np.arange(-1, 2)
    pixels = original[y[:, None, None] + around[:, None], x[:, None, None] + around]
    return float(np.median((pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)).std(axis=(1, 2))))


def _blur(views: tuple[View, View], pitch: float, contrast: float) -> float:
    """The standard deviation of the blur in pitches: that which makes a wall look like the mean of all inner walls.

    contrast: of walls to floor, as a share of the input's: faint walls are blurred ones. Where red or letters are
    beside all inner walls (2 x 2), the outer walls are seen from outside, red or not. Some lines are enough.
    """
    thickness, side = min(view.thickness for view in views), len(views[0].wall)
    reach = max(2, round(0.24 * pitch))
    margin = min(reach, *(int(min(view.y[0], side - view.y[-1])) for view in views))
    inner, outer = np.arange(-reach, thickness + reach), np.arange(-margin, thickness // 2 + 1)
    for offsets, free_of_red in ((inner, True), (outer, True), (outer, False)):
        total, weight = np.zeros(len(offsets)), 0
        for view in views:
            rows = len(view.closed) - 1
            if offsets is inner:
                lines = np.arange(1, rows, max(1, rows // 4))
                window = view.y[2 * lines, None] + inner
            else:
                lines = np.array([0, rows])
                window = np.stack([view.y[0] + outer, view.y[-1] - 1 - outer])
            closed = np.zeros((len(lines), side), dtype=bool)
            for wall_closed, left, right in zip(view.closed[lines].T, view.x[1:-1:2], view.x[2::2], strict=True):
                closed[:, left:right] = wall_closed[:, None]
            use = closed & view.between(0.25)
            use &= ~view.letters[window].any(axis=1)
            if free_of_red:
                use &= view.red[window].max(axis=1) < 0.1
            total += np.einsum("los,ls->o", view.wall[window], use, dtype=np.float64)
            weight += int(use.sum())
        if weight >= 0.2 * pitch and len(offsets) >= 4:
            return _blur_of(contrast * total / weight, offsets, thickness) / pitch
    return 0.0


def _blur_of(profile: np.ndarray, offsets: np.ndarray, thickness: int) -> float:
    """In pixels: the blur that makes a wall of 0 <= offset < thickness look most like `profile`."""
    blurs = 0.01 * thickness + np.geomspace(0.3, 60, 36)
    at = (offsets + 0.5)[None] / (math.sqrt(2) * blurs[:, None])
    shapes = (erf(at) - erf(at - thickness / (math.sqrt(2) * blurs[:, None]))) / 2
    centred = shapes - shapes.mean(axis=1, keepdims=True)
    contrasts = centred @ profile / ((centred**2).sum(axis=1) + 1e-9)
    rest = profile - np.clip(contrasts, 0.6, 1.15)[:, None] * shapes
    return float(blurs[rest.var(axis=1).argmin()])
