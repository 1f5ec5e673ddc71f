"""Judging a drawn solution from its pixels: the four checks of ViGoR's Table 21, exact where pixels allow it.

The item says where every wall is, so nothing is recognised: the picture is laid over the one it was made from
(`data_gen.maze.registration`), then every pixel is unmixed into floor, wall and stroke, which blur, JPEG and rescaling
do to it too, and the shares are read at the places of the lattice. In `nano` a place is a block of pixels and has the
colour that it is nearest to. Both give a `Reading`, and one rule turns a reading into checks and score:

- background_consistency: no wall is missing where no stroke hides it, no opening is blocked, nothing is added.
- rule_obey: there is a red path, it is nowhere on the far side of a wall, nowhere lies on walls, stays inside the maze.
- reasoning_success: the path is one unbroken line through openings from S to E. Any such line counts; in a perfect maze
  there is one. A detour that reaches another room, a second line, red everywhere are none.
- visual_quality: not noisy, not blurred beyond what the corridors can bear, no foreign colours.

Red is what is redder than the input was at that place: the letter E is no path. All lengths are shares of the pitch
(from room to room), so the size of a picture does not matter. Thresholds were fitted on one seed of
`data_gen.maze.corruptions` and are reported on another (docs/maze.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import cv2
import numpy as np
from scipy import ndimage

from data_gen.maze import picture as pictures
from data_gen.maze.grid import Grid, Room
from data_gen.maze.picture import NANO, NANO_COLOURS, Picture
from data_gen.maze.registration import register, resized, warped
from data_gen.task import Check, Verdict

CHECKS = ("background_consistency", "rule_obey", "visual_quality", "reasoning_success")

WORK_SIDE = 576  # pixels: larger pictures are judged at this size
LEAST_PITCH = 5.0  # pixels a room of the picture that is judged; with fewer nobody can tell
LEAST_CONTRAST = 0.2  # of that between wall and floor in the input
REDDER = 40  # of 255: how much redder a stroke is than the input at its place, at the least
IS_RED = 0.35  # share of the stroke's own red from which a pixel is red
BRIDGE = 0.05  # pitches: red grows by this before it is called unbroken
ROOM_CORE = 0.70  # of a room's side: where red means that the path has been there
ROOM_RED = 0.01  # of that core
CROSSED_RED, CROSSED_WALL = 0.60, 0.60  # a wall is crossed where it is at least so red and at most so much wall
ON_WALLS = 0.05  # of all red may lie in the inner half of thick walls
OUTSIDE = 0.30  # pitches: a red line so long outside the maze has left it
FADED = 0.45  # a wall is missing where less than this of it is left
MISSING = 0.30  # of the part of a wall that no stroke hides
BLOCKED = 0.60  # of an opening
ADDED = 0.04  # of a room's core: dark or foreign
FOREIGN = 60.0  # of 255: distance from everything that floor, wall and stroke can mix to
BLUR = 0.085  # pitches, standard deviation
NOISE = 24.0  # of 255, standard deviation on bare floor


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


def judge(grid: Grid, picture: Picture, image: np.ndarray) -> Verdict:
    """The verdict on `image`, uint8 [H, W, 3] of any size, for a maze that was shown as `picture`."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"an image is uint8 [H, W, 3], not {image.dtype} {list(image.shape)}")
    reading = read_places(grid, picture, image) if picture.style == NANO else read_picture(grid, picture, image)
    return verdict_of(grid, reading)


def verdict_of(grid: Grid, reading: Reading) -> Verdict:
    """The four checks of a reading, and the score: 1 for a flawless solution, else what part of the way is right.

    score = reach * purity / (1 + crossings) / (1 + changes / 2), halved if the quality fails. reach: the share of the
    solution's rooms that are covered without a gap from S and from E; purity: the share of rooms with red that are on
    the solution. A copy of the input has 0, red everywhere next to 0.
    """
    if reading.unreadable:
        return Verdict(tuple(Check(name, "unreadable", reading.unreadable) for name in CHECKS), 0.0)
    reasons = {
        "background_consistency": reading.changed[:3],
        "rule_obey": _breaches(reading),
        "visual_quality": reading.flaws,
        "reasoning_success": _unsolved(grid, reading),
    }
    checks = tuple(Check(name, "fail" if reasons[name] else "pass", ", ".join(reasons[name])) for name in CHECKS)
    return Verdict(checks, _score(grid, reading))


def _breaches(reading: Reading) -> list[str]:
    if not reading.visited and not reading.outside and not reading.crossed:
        return ["there is no red path"]
    found = [f"red goes through {wall}" for wall in reading.crossed[:3]]
    if reading.on_walls > ON_WALLS:
        found.append(f"{reading.on_walls:.0%} of the red lies on walls")
    if reading.outside:
        found.append("red leaves the maze")
    return found


def _unsolved(grid: Grid, reading: Reading) -> list[str]:
    if not reading.visited:
        return ["there is no red path"]
    missed = [letter for letter, room in (("S", grid.start), ("E", grid.end)) if room not in reading.visited]
    if missed:
        return [f"the path does not reach {' and '.join(missed)}"]
    degree = dict.fromkeys(reading.visited, 0)
    for pair in reading.openings:
        for room in pair:
            degree[room] += 1
    line = all(n == (1 if room in (grid.start, grid.end) else 2) for room, n in degree.items())
    if line and len(reading.openings) == len(reading.visited) - 1 and reading.unbroken:
        return []
    stray = reading.visited - set(grid.route())
    if stray:
        return [f"red also in {_at(min(stray))}" + (f" and {len(stray) - 1} more rooms" if len(stray) > 1 else "")]
    return ["red is no single unbroken line from S to E"]


def _score(grid: Grid, reading: Reading) -> float:
    route = grid.route()
    covered = 0
    for way in (route, route[::-1]):
        for here, there in zip([way[0], *way], way, strict=False):
            if there not in reading.visited or (here != there and _pair(here, there) not in reading.openings):
                break
            covered += 1
    purity = len(reading.visited & set(route)) / max(1, len(reading.visited))
    crossings = len(reading.crossed) + reading.outside + (reading.on_walls > ON_WALLS)
    score = min(1.0, covered / len(route)) * purity / (1 + crossings) / (1 + len(reading.changed) / 2)
    return round(score * (0.5 if reading.flaws else 1), 4)


def _pair(one: Room, other: Room) -> tuple[Room, Room]:
    return (one, other) if one < other else (other, one)


def _at(room: Room) -> str:
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
    reading.visited |= touched & set(ends)
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

    edges: where the places of rows and of columns begin, in pixels, and where the last ends; free: pixels where one can
    walk; beyond: what lies clearly outside the outer wall; rooms: the cores of rooms (all but the rim for S and E), and
    how many pixels each has; letters: pixels of S and E and around; bare: floor away from walls and letters; core: the
    middle line of walls; deep: the inside of thick walls; red: how red the input is, the reddest within a few pixels;
    channel: that in which red looks most like floor; template: the input in it. bare_at, core_at: some thousand flat
    indices into bare and core, which are enough for medians.
    """

    side: int
    pitch: float
    edges: tuple[np.ndarray, np.ndarray]
    free: np.ndarray
    beyond: np.ndarray
    rooms: np.ndarray
    room_pixels: np.ndarray
    letters: np.ndarray
    bare: np.ndarray
    core: np.ndarray
    deep: np.ndarray
    red: np.ndarray
    channel: int
    template: np.ndarray
    bare_at: np.ndarray
    core_at: np.ndarray

    def per_place(self, mask: np.ndarray) -> np.ndarray:
        """How many pixels of `mask` lie in each place of the lattice, int [2R + 1, 2C + 1]."""
        y, x = self.edges
        area = mask[y[0] : y[-1], x[0] : x[-1]].view(np.uint8)
        rows = np.add.reduceat(area, y[:-1] - y[0], axis=0, dtype=np.int32)
        return np.add.reduceat(rows, x[:-1] - x[0], axis=1)


@lru_cache(maxsize=32)
def _frame(text: tuple[str, ...], picture: Picture) -> Frame:
    grid = Grid.from_text(text)
    # Every wall keeps at least a pixel.
    scale = min(1.0, max(WORK_SIDE / picture.side, 1 / picture.wall))
    side = round(picture.side * scale)
    image = resized(pictures.draw(grid, picture), side)
    y, x = (np.rint(picture.edges(n // 2, begin) * scale).astype(int)
            for n, begin in zip(grid.lattice.shape, (picture.top, picture.left), strict=True))  # fmt: skip
    inside, free = (np.zeros((side, side), dtype=bool) for _ in range(2))
    inside[y[0] : y[-1], x[0] : x[-1]] = True
    free[inside] = grid.lattice.repeat(np.diff(y), axis=0).repeat(np.diff(x), axis=1).ravel()
    wall = inside & ~free
    pitch, thickness, corridor = (n * scale for n in (picture.pitch, picture.wall, picture.corridor))
    tolerance = max(2, round(0.03 * pitch))
    letters, rooms = (np.zeros((side, side), dtype=bool) for _ in range(2))
    rim = round(corridor * (1 - ROOM_CORE) / 2)
    for top, bottom in zip(y[1:-1:2] + rim, y[2::2] - rim, strict=True):
        for left, right in zip(x[1:-1:2] + rim, x[2::2] - rim, strict=True):
            rooms[top:bottom, left:right] = True
    reach = picture.letter * scale * 0.5 + tolerance
    for room in (grid.start, grid.end):
        middle_x, middle_y = (at * scale for at in picture.centre(room))
        for mask, about in ((letters, reach), (rooms, 0.42 * corridor)):
            mask[max(0, int(middle_y - about)) : int(middle_y + about) + 1,
                 max(0, int(middle_x - about)) : int(middle_x + about) + 1] = True  # fmt: skip
    away = cv2.erode(free.astype(np.uint8), _square(tolerance)).astype(bool)
    depth = cv2.distanceTransform(wall.astype(np.uint8), cv2.DIST_L2, 3)
    red = cv2.dilate(_redness(image), _square(tolerance))
    floor, walls, path = (np.array(rgb, dtype=float) for rgb in (picture.floor_rgb, picture.wall_rgb, picture.path_rgb))
    channel = int(np.argmin(np.abs(path - floor) / np.maximum(1, np.abs(walls - floor))))
    bare = away & ~letters
    beyond = ~cv2.dilate(inside.astype(np.uint8), _square(max(1, round(0.06 * pitch)))).astype(bool)
    core = wall & (depth >= max(1.0, 0.4 * thickness))
    frame = Frame(
        side, pitch, (y, x), free, beyond, rooms, np.ones(0), letters, bare, core,
        deep=wall & (depth >= 0.25 * thickness + 1) if thickness >= 7 else np.zeros_like(wall),
        red=red, channel=channel, template=image[:, :, channel].astype(np.float32),
        bare_at=_some(bare), core_at=_some(core),
    )  # fmt: skip
    return replace(frame, room_pixels=frame.per_place(rooms)[1::2, 1::2])


def _some(mask: np.ndarray, most: int = 6000) -> np.ndarray:
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
    image = resized(image, frame.side)
    image = warped(image, register(image[:, :, frame.channel].astype(np.float32), frame.template))
    redder = cv2.subtract(_redness(image), frame.red)
    is_red = redder >= REDDER
    colours = _colours(frame, picture, image, redder, is_red)
    if isinstance(colours, Reading):
        return colours
    floor, walls, stroke, flaws = colours

    # Shares of wall and stroke that explain a pixel best, and how far that is from the pixel.
    mixing = np.stack([walls - floor, stroke - floor], axis=1)
    normal = np.cross(mixing[:, 0], mixing[:, 1])
    normal /= np.linalg.norm(normal) + 1e-9
    offsets = image.reshape(-1, 3).astype(np.float32)
    offsets -= floor.astype(np.float32)
    wall, strange = ((offsets @ along.astype(np.float32)).reshape(image.shape[:2])
                     for along in (np.linalg.pinv(mixing)[0], normal))  # fmt: skip
    peak = max(1.0, float(stroke[0] - max(stroke[1:])))
    red = redder.astype(np.float32) / peak
    drawn = (red >= IS_RED) & is_red.any()

    reading = Reading(flaws=flaws)
    _read_path(grid, frame, drawn, reading)
    for axis in (0, 1):
        _read_walls(grid, frame, axis, wall, red, reading)
    _read_rooms(frame, wall, strange, red, reading)
    _read_quality(grid, frame, image, wall, strange, red, reading)
    return reading


def _colours(
    frame: Frame, picture: Picture, image: np.ndarray, redder: np.ndarray, is_red: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]] | Reading:
    """Floor, wall and stroke as the picture has them, float [3] each."""
    expected_floor, expected_wall = np.array(picture.floor_rgb, float), np.array(picture.wall_rgb, float)
    pixels, redness = image.reshape(-1, 3), redder.ravel()
    bare, core = (pixels[at[redness[at] < REDDER]] for at in (frame.bare_at, frame.core_at))
    if len(bare) < 0.05 * len(frame.bare_at):
        return Reading(crossed=["the whole maze"], outside=True, on_walls=1.0, changed=["the floor is all red"],
                       visited={(0, 0)})  # fmt: skip
    floor = np.median(bare, axis=0)
    walls = np.median(core, axis=0) if len(core) else floor
    expected, seen = expected_wall - expected_floor, walls - floor
    strength = float(seen @ expected / (expected @ expected))
    flaws: list[str] = []
    if strength < LEAST_CONTRAST:
        if image.std() < 12:
            return Reading(unreadable="the picture is all but empty")
        walls = floor + expected  # most walls are gone: what is left of them still looks like walls
    top = np.bincount(redness[is_red.ravel()], minlength=256)
    if top.sum() < 4:
        return floor, walls, np.array(picture.path_rgb, float), flaws
    reddest = int(np.searchsorted(np.cumsum(top), 0.99 * top.sum()))
    stroke = np.median(pixels[_some(redness >= max(REDDER, 0.7 * reddest))], axis=0)
    return floor, walls, stroke, flaws


def _read_path(grid: Grid, frame: Frame, drawn: np.ndarray, reading: Reading) -> None:
    """Rooms, openings, connection, and red outside."""
    cores = frame.per_place(drawn & frame.rooms)[1::2, 1::2]
    visited = cores >= np.maximum(3, ROOM_RED * frame.room_pixels)
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


def _read_walls(grid: Grid, frame: Frame, axis: int, wall: np.ndarray, red: np.ndarray, reading: Reading) -> None:
    """Every wall between two rooms, pixel by pixel along it: still there, hidden by red, red all through, missing.

    axis 0: the walls above and below rooms; axis 1: those to the left and right, read as axis 0 of the transpose.
    """
    y, x = frame.edges if axis == 0 else frame.edges[::-1]
    lattice = grid.lattice
    if axis == 1:
        wall, red, lattice = wall.T, red.T, lattice.T
    begin, end = y[:-1:2], y[1::2]
    thickness = int((end - begin).min())
    spare = int(0.2 * thickness)
    around = np.clip(begin[:, None] + np.arange(-1, thickness + 1), 0, frame.side - 1)
    through = np.clip(begin[:, None] + np.arange(spare, thickness - spare), 0, frame.side - 1)
    most_wall = wall[around].max(axis=1)
    least_red, most_red = red[through].min(axis=1), red[around].max(axis=1)
    seen = most_red < IS_RED
    closed = ~lattice[::2, 1::2]

    posts = (x[:-1:2] + x[1::2]) // 2
    crossing = (least_red >= CROSSED_RED) & (most_wall <= CROSSED_WALL)
    crossed = np.add.reduceat(crossing[:, : posts[-1]], posts[:-1], axis=1, dtype=np.int32)
    inner = np.zeros(frame.side, dtype=bool)
    for left, right in zip(x[1:-1:2], x[2::2], strict=True):
        rim = round(0.15 * (right - left))
        inner[left + rim : right - rim] = True
    visible, faded, blocking = (
        np.add.reduceat((mask & inner)[:, : x[-1]], x[1:-1:2], axis=1, dtype=np.int32)
        for mask in (seen, seen & (most_wall < FADED), seen & (most_wall > 0.5))
    )
    length = 0.7 * (x[2] - x[1])
    missing = closed & (visible >= 0.25 * length) & (faded > MISSING * visible)
    blocked = ~closed & (visible >= 0.3 * length) & (blocking > BLOCKED * visible)
    enough = max(2, 0.012 * frame.pitch)
    for found, what, into in (
        (closed & (crossed >= enough), "the wall", reading.crossed),
        (missing, "a missing wall", reading.changed),
        (blocked, "a new wall", reading.changed),
    ):
        for line, room in np.argwhere(found).tolist():
            place = (max(line - 1, 0), room)
            side = ("above", "below") if axis == 0 else ("left of", "right of")
            into.append(f"{what} {side[line > 0]} {_at(place if axis == 0 else (place[1], place[0]))}")


def _read_rooms(frame: Frame, wall: np.ndarray, strange: np.ndarray, red: np.ndarray, reading: Reading) -> None:
    """Whatever else has been drawn into rooms."""
    added = ((wall > 0.5) | (np.abs(strange) > FOREIGN)) & (red < 0.2) & frame.rooms & ~frame.letters
    share = frame.per_place(added)[1::2, 1::2] / frame.room_pixels
    reading.changed += [f"something in {_at((r, c))}" for r, c in np.argwhere(share > ADDED).tolist()]


def _read_quality(
    grid: Grid,
    frame: Frame,
    image: np.ndarray,
    wall: np.ndarray,
    strange: np.ndarray,
    red: np.ndarray,
    reading: Reading,
) -> None:
    bare = frame.bare_at[red.ravel()[frame.bare_at] < 0.1]
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32)
    grain = (grey - cv2.blur(grey, (5, 5))).ravel()[bare]
    noise = 1.48 * float(np.median(np.abs(grain))) if len(bare) else 0.0
    if noise > NOISE:
        reading.flaws.append(f"noise of {noise:.0f} grey levels")
    foreign = float((np.abs(strange.ravel()[bare]) > FOREIGN).mean()) if len(bare) else 0.0
    if foreign > 0.05:
        reading.flaws.append(f"foreign colours on {foreign:.0%} of the floor")
    blur = _blur(grid, frame, wall, red)
    if blur > BLUR:
        reading.flaws.append(f"blurred by {blur:.0%} of a room")


def _blur(grid: Grid, frame: Frame, wall: np.ndarray, red: np.ndarray) -> float:
    """The standard deviation of the blur in pitches, from the mean profile across inner walls.

    A wall of thickness t blurred by s has the variance t^2 / 12 + s^2 across it.
    """
    reach = max(2, round(0.24 * frame.pitch))
    profiles, weights = [], 0
    for axis in (0, 1):
        y, x = frame.edges if axis == 0 else frame.edges[::-1]
        shares, reds, lattice = (m if axis == 0 else m.T for m in (wall, red, grid.lattice))
        begin = y[2:-2:2]
        if not len(begin):
            continue
        thickness = int((y[1::2] - y[:-1:2]).min())
        window = begin[:, None] + np.arange(-reach, thickness + reach)
        use = np.zeros((len(begin), frame.side), dtype=bool)
        for j, (left, right) in enumerate(zip(x[1:-1:2], x[2::2], strict=True)):
            rim = round(0.25 * (right - left))
            use[:, left + rim : right - rim] = ~lattice[2:-2:2, 2 * j + 1 : 2 * j + 2]
        use &= reds[window].max(axis=1) < 0.1
        profiles.append((shares[window] * use[:, None]).sum(axis=(0, 2)))
        weights += int(use.sum())
    length = min(map(len, profiles), default=0)
    if weights < frame.pitch or not length:
        return 0.0
    profile = sum(p[:length] for p in profiles) / weights
    profile = np.maximum(profile - min(profile[0], profile[-1]), 0)
    if profile.max() < 0.1:
        return 0.0
    at = np.arange(length)
    middle = (profile * at).sum() / profile.sum()
    variance = (profile * (at - middle) ** 2).sum() / profile.sum() - (length - 2 * reach) ** 2 / 12
    return float(np.sqrt(max(0.0, variance)) / frame.pitch)
