"""Pictures whose verdict is known, to fit and to test the verifier: `suite` draws them, bench/maze.py counts errors.

- *worn*: right solutions, drawn by another hand (thin to as wide as the corridor, wavering, some other red) and then
  worn: JPEG 30 to 95, shifted, zoomed, another size, blurred, noisy, another tone, through something like a VAE. All
  must pass all four checks.
- *faulty*: drawings with one known fault (stops short, has a gap, a detour, a shortcut through one wall, a wall erased
  or added, ...), most of them worn too. The check that the fault is about must not pass.
- *traps*: what a policy could learn in order to fool a reward. None may pass.

Lengths are in pitches (from room to room), so that large and small mazes are treated alike. What lies between "must
survive" and "must fail" (a stroke that ends at the door of E's room, a blur of 0.06 pitches) is not in the suite.
"""

from __future__ import annotations

import colorsys
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import cv2
import numpy as np

from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen.maze import picture as pictures
from uni_train.data_gen.maze.grid import ALGORITHMS, Grid, Room, carve
from uni_train.data_gen.maze.picture import STYLES, Colour, Picture
from uni_train.data_gen.maze.task import Maze, read_facts
from uni_train.data_gen.task import Item, Verdict

Kind = Literal["worn", "faulty", "trap"]
WIDTHS = (0.06, 0.12, 0.25, 0.5, 0.75, 1.0)
LEVELS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
BACKGROUND, RULE, QUALITY, REASONING = (
    "background_consistency", "rule_obey", "visual_quality", "reasoning_success",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """image: uint8 [H, W, 3]; must_fail: the checks that must not pass (none for worn ones: all must pass)."""

    kind: Kind
    name: str
    item: Item
    image: np.ndarray
    must_fail: tuple[str, ...] = ()

    def is_wrong(self, verdict: Verdict) -> bool:
        """A worn solution that does not pass; a fault or a trap whose check passes."""
        if self.kind == "worn":
            return not verdict.passed
        return any(check.status == "pass" for check in verdict.checks if check.name in self.must_fail)


@dataclass(frozen=True, eq=False)
class Scene:
    """What a case is made from: a maze, how it is shown, and a generator for all that is left to chance.

    width: of the stroke, as a share of the corridor; red: its colour. One hand has one pen.
    """

    item: Item
    grid: Grid
    picture: Picture
    random_: random.Random
    width: float
    red: Colour

    @property
    def noise(self) -> np.random.Generator:
        return np.random.default_rng(self.random_.getrandbits(63))

    @property
    def route(self) -> list[Room]:
        return self.grid.route()

    @property
    def ends(self) -> list[Room]:
        return [self.grid.start, self.grid.end]

    @property
    def rooms(self) -> list[Room]:
        return [(r, c) for r in range(self.grid.rows) for c in range(self.grid.columns)]

    def drawn(self) -> np.ndarray:
        return pictures.draw(self.grid, self.picture)


def suite(seed: int, mazes: int) -> Iterator[Case]:
    """All cases of `mazes` mazes, of all styles but nano and all LEVELS in turn."""
    styles = [style for style in STYLES if style != pictures.NANO]
    for i in range(mazes):
        style = styles[i % len(styles)] if i % 2 else pictures.VARIED
        level = LEVELS[i % len(LEVELS)]
        side = (512, 512, 768, 512, 1024)[i % 5] if level > 8 else (512, 384, 512, 640, 512)[i % 5]
        (item,) = Maze(style, side).sample(derive_seed("suite", seed, i), level, "test")
        grid, picture = read_facts(item)

        def scene(name: str, of: tuple[Item, Grid, Picture] = (item, grid, picture), i: int = i) -> Scene:
            random_ = rng("suite", seed, i, name)
            return Scene(*of, random_, random_.choice(WIDTHS), some_red(random_))

        for name, wear in WEAR.items():
            here = scene(name)
            yield Case("worn", name, item, wear(here, by_hand(here)))
        kinds: tuple[tuple[Kind, Faults], ...] = (("faulty", FAULTS), ("trap", TRAPS))
        for kind, faults in kinds:
            for name, (fault, *must_fail) in faults.items():
                here = scene(name)
                image = fault(here)
                if image is not None:
                    # Noise and blur are what they are: no wear that would undo them.
                    worn = image if QUALITY in must_fail else here.random_.choice(LIGHT)(here, image)
                    yield Case(kind, name, item, worn, tuple(must_fail))


# ------------------------------------------------------------------------------------------------------ other hands


def by_hand(scene: Scene, route: Sequence[Room] | None = None, grid: Grid | None = None) -> np.ndarray:
    """The maze (or another `grid`) with `route` (or the solution) drawn as somebody else might."""
    picture = scene.picture
    grid = scene.grid if grid is None else grid
    image = pictures.draw(grid, picture)
    under_letters = scene.random_.random() < 0.5
    stroke(scene, image, centres(picture, grid.route() if route is None else route))
    if under_letters:
        for room, letter, colour in ((grid.start, "S", picture.start_rgb), (grid.end, "E", picture.end_rgb)):
            pictures.paint_letter(image, picture, room, letter, colour)
    return image


def centres(picture: Picture, route: Sequence[Room]) -> np.ndarray:
    """The middles of rooms as points (x, y), float [n, 2]."""
    return np.array([picture.centre(room) for room in route], dtype=float).reshape(-1, 2)


def stroke(scene: Scene, image: np.ndarray, points: np.ndarray, colour: Colour | None = None) -> None:
    """A line through `points` in place, wavering as far as the corridor allows."""
    u, picture = scene.random_.uniform, scene.picture
    width = min(picture.corridor, max(2, round(scene.width * picture.corridor)))
    slack = (picture.corridor - width) / 2
    line = waver(points, 0.7 * slack * u(0, 1), picture.pitch, scene.noise) if len(points) > 1 else points
    colour = scene.red if colour is None else colour
    if scene.width < 1.0:
        fixed = np.rint((line - 0.5 + (0 if width % 2 else 0.5)) * 16).astype(np.int32)
        cv2.polylines(image, [fixed], False, colour, width, cv2.LINE_AA, shift=4)
        return
    half = (width - 1) / 2  # filled from wall to wall: OpenCV's thick lines are a pixel too wide for that
    for (x, y), (other_x, other_y) in pairwise(points):
        if abs(x - other_x) > 1 and abs(y - other_y) > 1:
            cv2.line(image, (round(x), round(y)), (round(other_x), round(other_y)), colour, width, cv2.LINE_AA)
            continue
        rows, columns = (
            slice(max(0, math.ceil(min(ends) - half - 0.5)), max(0, math.floor(max(ends) + half + 0.5)))
            for ends in ((y, other_y), (x, other_x))
        )
        image[rows, columns] = colour


def waver(points: np.ndarray, reach: float, pitch: float, noise: np.random.Generator) -> np.ndarray:
    """A denser line through `points`, float [m, 2], that strays by at most about `reach` pixels and rounds corners."""
    steps = [np.linspace(a, b, 12, endpoint=False) for a, b in pairwise(points)]
    line = np.concatenate([*steps, points[-1:]])
    if reach < 0.5:
        return line
    kernel = np.hanning(9)[1:-1]
    kernel /= kernel.sum()

    def smooth(values: np.ndarray) -> np.ndarray:
        return np.stack([np.convolve(np.pad(v, 3, mode="edge"), kernel, "valid") for v in values.T], axis=1)

    offset = smooth(line) - line
    rounded = line + offset * min(1.0, 0.5 * reach / max(1e-9, np.abs(offset).max()))
    tremor = smooth(smooth(noise.normal(size=line.shape)))
    return rounded + 0.5 * reach * tremor / max(1e-9, np.abs(tremor).max())


def some_red(random_: random.Random) -> Colour:
    """A red that is about as far off as models' reds are: to crimson, tomato, dark red."""
    rgb = colorsys.hsv_to_rgb(random_.uniform(-0.025, 0.03) % 1, random_.uniform(0.8, 1), random_.uniform(0.7, 1))
    r, g, b = (round(255 * part) for part in rgb)
    return r, g, b


# ------------------------------------------------------------------------------------------- wear: must be survived

Wear = Callable[[Scene, np.ndarray], np.ndarray]


def _blurred(image: np.ndarray, sigma: float) -> np.ndarray:
    return cv2.GaussianBlur(image, (0, 0), sigma)


def clipped(image: np.ndarray) -> np.ndarray:
    return np.clip(image, 0, 255).astype(np.uint8)


def grain(scene: Scene, least: float, most: float, image: np.ndarray) -> np.ndarray:
    return scene.noise.normal(0, scene.random_.uniform(least, most), image.shape)


def _jpeg(scene: Scene, image: np.ndarray) -> np.ndarray:
    quality = scene.random_.randint(30, 95)
    _, coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return cv2.cvtColor(np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR)), cv2.COLOR_BGR2RGB)


def _moved(scene: Scene, image: np.ndarray, zoom: float, shift: float) -> np.ndarray:
    """Zoomed by at most `zoom` and shifted by at most `shift` of its side, in x and y."""
    u, side = scene.random_.uniform, image.shape[0]
    zx, zy = (u(1 - zoom, 1 + zoom), u(1 - zoom, 1 + zoom)) if zoom else (1, 1)
    dx, dy = (u(-shift * side, shift * side) for _ in "xy")
    to = np.array([[zx, 0, dx + (1 - zx) * side / 2], [0, zy, dy + (1 - zy) * side / 2]])
    return cv2.warpAffine(image, to, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def _rescale(scene: Scene, image: np.ndarray) -> np.ndarray:
    least = max(0.5, 14 / scene.picture.pitch, 1.2 / scene.picture.wall)
    factor = scene.random_.uniform(min(1.0, least), 1.6)
    width, height = (round(n * factor * scene.random_.uniform(0.97, 1.03)) for n in image.shape[1::-1])
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC)


def _tone(scene: Scene, image: np.ndarray) -> np.ndarray:
    u = scene.random_.uniform
    tinted = 255 * (image / 255) ** u(0.85, 1.2) * u(0.88, 1.05)
    return clipped(tinted + np.array([u(-8, 8) for _ in "rgb"]) + u(-6, 10))


def _vae(scene: Scene, image: np.ndarray) -> np.ndarray:
    """Like a VAE's round trip: soft colour, slightly soft and ringing edges, a faint patchy tint and grain."""
    u, side = scene.random_.uniform, image.shape[0]
    soft = 0.012 * scene.picture.pitch
    y, cr, cb = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb).astype(np.float32))
    luma = _blurred(y, max(0.5, u(0.5, 1) * soft))
    luma = luma + u(0.2, 0.5) * (luma - _blurred(luma, 2.0))
    chroma = [_blurred(plane, max(0.8, 1.5 * soft)) for plane in (cr, cb)]
    ycc = clipped(np.stack([luma, *chroma], axis=-1))
    patches = cv2.resize(scene.noise.normal(0, 3, (8, 8, 3)).astype(np.float32), (side, side))
    return clipped(cv2.cvtColor(ycc, cv2.COLOR_YCrCb2RGB) + patches + grain(scene, 1, 4, image))


def _mixed(scene: Scene, image: np.ndarray) -> np.ndarray:
    """A model's drift, then what a file goes through."""
    either = scene.random_.choice
    for name in ("zoom", either(("tone", "vae", "blur")), either(("rescale", "none")), "jpeg"):
        image = WEAR[name](scene, image)
    return image


WEAR: dict[str, Wear] = {
    "none": lambda scene, image: image,
    "jpeg": _jpeg,
    "shift": lambda scene, image: _moved(scene, image, 0, 0.025),
    "zoom": lambda scene, image: _moved(scene, image, 0.03, 0.01),
    "rescale": _rescale,
    "blur": lambda scene, image: _blurred(image, max(0.4, scene.random_.uniform(0.01, 0.04) * scene.picture.pitch)),
    "noise": lambda scene, image: clipped(image + grain(scene, 2, 10, image)),
    "tone": _tone,
    "vae": _vae,
    "mixed": _mixed,
}
LIGHT = [WEAR[name] for name in ("none", "none", "jpeg", "shift", "blur", "vae", "mixed")]


# ---------------------------------------------------------------------------------------------------------- faults

# What draws it (None where this maze has no room for it), and the checks that must not pass.
Faults = dict[str, tuple[Callable[[Scene], np.ndarray | None] | Any, *tuple[str, ...]]]


def _stops_short(scene: Scene) -> np.ndarray:
    route = scene.route
    left_out = scene.random_.randint(1, max(1, len(route) // 2))
    return by_hand(scene, route[:-left_out] if scene.random_.random() < 0.5 else route[left_out:])


def _gap(scene: Scene) -> np.ndarray | None:
    """From 0.5 to 0.9 of a pitch are missing, in the middle of the way."""
    route, picture = scene.route, scene.picture
    if len(route) < 4:
        return None
    at = scene.random_.randint(1, len(route) - 3)
    image = by_hand(scene)
    here, there = centres(picture, route[at : at + 2])
    half = scene.random_.uniform(0.25, 0.45) * picture.pitch
    reach = np.where(np.abs(here - there) > 1, half, picture.corridor / 2 + 1)
    columns, rows = (slice(round(m - r), round(m + r)) for m, r in zip((here + there) / 2, reach, strict=True))
    image[rows, columns] = scene.drawn()[rows, columns]
    return image


def _neighbours(grid: Grid, room: Room) -> Iterator[tuple[Room, bool]]:
    """Every room beside `room`, and whether a wall is between."""
    r, c = room
    for dr, dc in ((-1, 0), (0, -1), (0, 1), (1, 0)):
        if 0 <= r + dr < grid.rows and 0 <= c + dc < grid.columns:
            yield (r + dr, c + dc), not grid.lattice[2 * r + 1 + dr, 2 * c + 1 + dc]


def _aside(scene: Scene, through: bool) -> np.ndarray | None:
    """The solution, and from one of its rooms into one that is not on it; or `through` a wall into any room."""
    route = scene.route
    exits = [(room, other) for room in route for other, wall in _neighbours(scene.grid, room)
             if wall == through and (through or other not in route)]  # fmt: skip
    if not exits:
        return None
    image = by_hand(scene)
    stroke(scene, image, centres(scene.picture, scene.random_.choice(exits)))
    return image


def _shortcut(scene: Scene) -> np.ndarray | None:
    """Through a single wall between two rooms of the way."""
    route = scene.route
    cuts = [(i, route.index(other)) for i, room in enumerate(route) for other, wall in _neighbours(scene.grid, room)
            if wall and other in route and route.index(other) > i + 1]  # fmt: skip
    if not cuts:
        return None
    here, there = scene.random_.choice(cuts)
    return by_hand(scene, [*route[: here + 1], *route[there:]])


def _with(grid: Grid, places: Sequence[tuple[int, int]], free: bool) -> Grid:
    lattice = grid.lattice.copy()
    for place in places:
        lattice[place] = free
    return replace(grid, lattice=lattice)


def _changeable(scene: Scene, free: bool) -> list[tuple[int, int]]:
    """Places between two rooms, off the solution, that are free or walls."""
    route = set(scene.route)
    return [(r + o + 1, c + p + 1) for r, c in scene.rooms for (o, p), wall in _neighbours(scene.grid, (r, c))
            if (o, p) > (r, c) and wall != free and not {(r, c), (o, p)} <= route]  # fmt: skip


def _changed(scene: Scene, free: bool, most: int) -> np.ndarray | None:
    """One to `most` walls erased (`free`), or openings shut."""
    places = _changeable(scene, free=not free)
    if not places:
        return None
    chosen = scene.random_.sample(places, min(len(places), scene.random_.randint(1, most)))
    return by_hand(scene, scene.route, _with(scene.grid, chosen, free))


def _half_erased(scene: Scene) -> np.ndarray | None:
    """60 to 90 % of one inner wall painted over."""
    walls = _changeable(scene, free=False)
    if not walls:
        return None
    image, picture = by_hand(scene), scene.picture
    r, c = scene.random_.choice(walls)
    y, x = picture.edges(scene.grid.rows, picture.top), picture.edges(scene.grid.columns, picture.left)
    share = scene.random_.uniform(0.6, 0.9)
    high, wide = y[r + 1] - y[r], x[c + 1] - x[c]
    high, wide = (round(share * high), wide) if r % 2 else (high, round(share * wide))
    image[y[r] : y[r] + high, x[c] : x[c] + wide] = picture.floor_rgb
    return image


def _wrong_colour(scene: Scene) -> np.ndarray:
    image = scene.drawn()
    colour = scene.random_.choice(((0, 0, 255), (0, 160, 0), (255, 200, 0), (120, 0, 200), (90, 90, 90)))
    stroke(scene, image, centres(scene.picture, scene.route), colour)
    return image


def _end_moved(scene: Scene) -> np.ndarray | None:
    """E is taken to the first room of the way, and the path drawn there."""
    route = scene.route
    return None if len(route) < 3 else by_hand(scene, route[:2], replace(scene.grid, end=route[1]))


def _mirrored(scene: Scene) -> np.ndarray | None:
    flipped = scene.grid.lattice[:, ::-1]
    if np.array_equal(flipped, scene.grid.lattice):
        return None
    ends = [(r, scene.grid.columns - 1 - c) for r, c in scene.ends]
    return by_hand(scene, None, Grid(np.ascontiguousarray(flipped), *ends))


FAULTS: Faults = {
    "stops short": (_stops_short, REASONING),
    "gap": (_gap, REASONING),
    "detour": (lambda scene: _aside(scene, through=False), REASONING),
    "shortcut through one wall": (_shortcut, RULE, REASONING),
    "on through a wall": (lambda scene: _aside(scene, through=True), RULE),
    "walls erased": (lambda scene: _changed(scene, free=True, most=3), BACKGROUND),
    "wall half erased": (_half_erased, BACKGROUND),
    "walls added": (lambda scene: _changed(scene, free=False, most=2), BACKGROUND),
    "another colour": (_wrong_colour, REASONING),
    "end moved": (_end_moved, REASONING),
    "mirrored": (_mirrored, BACKGROUND),
    "grainy": (lambda scene: clipped(grain(scene, 60, 90, scene.drawn()) + by_hand(scene)), QUALITY),
    "smeared": (
        lambda scene: _blurred(by_hand(scene), scene.random_.uniform(0.17, 0.3) * scene.picture.pitch),
        QUALITY,
    ),
}


# ----------------------------------------------------------------------------------------------------------- traps


def _all_red(scene: Scene) -> np.ndarray:
    """All of the picture, or all but the letters, or the whole maze with a margin around."""
    image, top, left = scene.drawn(), scene.picture.top, scene.picture.left
    how = scene.random_.randrange(3)
    if how == 0:
        image[:] = scene.red
    elif how == 1:
        image[:] = np.rint(0.25 * image + 0.75 * np.array(scene.red)).astype(np.uint8)
    else:
        image[top : len(image) - top, left : len(image) - left] = scene.red
    return image


def _flooded(scene: Scene) -> np.ndarray | None:
    """All corridors red, walls and letters as they were."""
    if len(scene.route) == len(scene.rooms):
        return None  # that is the solution
    return pictures.draw(scene.grid, replace(scene.picture, floor_rgb=scene.red))


def _flooded_off_route(scene: Scene) -> np.ndarray | None:
    """The solution, and red in every second room that is not on it."""
    image, route = by_hand(scene), set(scene.route)
    rest = [room for room in scene.rooms if room not in route][::2]
    for x, y in centres(scene.picture, rest):
        cv2.circle(image, (round(x), round(y)), max(2, scene.picture.corridor // 4), scene.red, -1)
    return image if rest else None


def _walls_between(scene: Scene) -> list[tuple[int, int]]:
    """The walls on the straight line from S to E."""
    start, end = np.array(scene.ends)
    places = {tuple((np.rint(2 * (start + (end - start) * t)) + 1).astype(int)) for t in np.linspace(0, 1, 400)}
    return sorted(place for place in places if not scene.grid.lattice[place])


def _straight(scene: Scene) -> np.ndarray | None:
    return by_hand(scene, scene.ends) if _walls_between(scene) else None


def _erased_then_crossed(scene: Scene) -> np.ndarray | None:
    walls = _walls_between(scene)
    return by_hand(scene, scene.ends, _with(scene.grid, walls, True)) if walls else None


def _outside(scene: Scene) -> np.ndarray:
    """Out through the top, round the maze, in again; at half of the margin."""
    (x0, y0), (x1, y1) = centres(scene.picture, scene.ends)
    rim = scene.picture.top / 2
    image = scene.drawn()
    stroke(scene, image, np.array([(x0, y0), (x0, rim), (x1, rim), (x1, y1)]))
    return image


def _ruled(scene: Scene, points: list[tuple[float, float]], width: int) -> np.ndarray:
    image = scene.drawn()
    cv2.polylines(image, [np.rint(points).astype(np.int32)], False, scene.red, max(2, width), cv2.LINE_AA)
    return image


def _around(scene: Scene) -> np.ndarray:
    """Outside only: from beside S to beside E without a wall being touched."""
    y0, y1 = centres(scene.picture, scene.ends)[:, 1]
    left, top, side = scene.picture.left / 2, scene.picture.top / 2, scene.picture.side
    return _ruled(scene, [(left, y0), (left, top), (side - left, top), (side - left, y1)], round(min(left, top) / 2))


def _along_border(scene: Scene) -> np.ndarray:
    """S and E joined along the outer wall, on it or just beside it."""
    (x0, y0), (x1, y1) = centres(scene.picture, scene.ends)
    edge = scene.picture.top + scene.random_.choice((0.5, -0.5)) * scene.picture.wall
    return _ruled(scene, [(x0, y0), (x0, edge), (x1, edge), (x1, y1)], scene.picture.wall)


def _redrawn(scene: Scene) -> np.ndarray | None:
    """Another maze in the same frame, with the same S and E, and its own solution."""
    for _ in range(20):
        algorithm = scene.random_.choice(list(ALGORITHMS))
        other = replace(scene.grid, lattice=carve(algorithm, scene.grid.rows, scene.grid.columns, scene.random_))
        if not np.array_equal(other.lattice, scene.grid.lattice):
            return by_hand(scene, other.route(), other)
    return None


def _anothers_target(scene: Scene) -> np.ndarray:
    """The right answer to another question, of the same size or of another one."""
    level = scene.random_.choice((scene.grid.rows, *LEVELS[2:6]))
    maze = Maze(scene.picture.style, scene.picture.side)
    while True:
        (other,) = maze.sample(scene.random_.getrandbits(60), level, "test")
        if other.facts["maze"] != scene.item.facts["maze"]:
            return maze.render(other)


def _blank(scene: Scene) -> np.ndarray:
    """Nothing: one colour, or only noise."""
    shape = (scene.picture.side, scene.picture.side, 3)
    if scene.random_.random() < 0.5:
        return np.full(shape, scene.random_.choice((scene.picture.floor_rgb, scene.picture.wall_rgb)), dtype=np.uint8)
    return scene.noise.integers(0, 256, shape, dtype=np.uint8)


TRAPS: Faults = {
    "copy of the input": (Scene.drawn, RULE, REASONING),
    "everything red": (_all_red, RULE),
    "all corridors red": (_flooded, REASONING),
    "red spots everywhere": (_flooded_off_route, REASONING),
    "straight through walls": (_straight, RULE, REASONING),
    "walls erased, then crossed": (_erased_then_crossed, REASONING),
    "outside and in again": (_outside, RULE),  # a broad stroke may touch the very rooms of the solution
    "outside only": (_around, RULE, REASONING),
    "along the border": (_along_border, RULE),  # so may this one
    "another maze, solved": (_redrawn, BACKGROUND),
    "another item's target": (_anothers_target, BACKGROUND),
    "nothing at all": (_blank, BACKGROUND),
}
