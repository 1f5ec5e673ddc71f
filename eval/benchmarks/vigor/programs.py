"""What a program decides of the images of a case, so that no judge is asked.

A case with an item of data_gen has the item's verifier. A published maze has no grid in its record: it is read out of
its input image. It is used only if the image ground truth passes the verifier and a copy of the input fails. Published
jigsaws, sudokus and plots are compared with their ground truth (`solutions`). The judge decides everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.benchmark import Case
from uni_train.eval.benchmarks.vigor import solutions
from uni_train.eval.benchmarks.vigor.cases import MAZE
from uni_train.eval.benchmarks.vigor.prompts import (
    BACKGROUND,
    DIMENSIONS,
    PROCESS,
    QUALITY,
    REASONING,
    RULE,
    verdict_of,
)
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import decode_picture

if TYPE_CHECKING:
    import numpy as np

    from uni_train.data_gen.maze.grid import Grid
    from uni_train.data_gen.maze.picture import Picture

DARK, PALE, GREY = 128, 100, 70  # of 255: a wall is darker and paler, a letter more of its colour
WALL, FREE = 0.9, 0.1  # shares of dark pixels in a place of the lattice
READ = "published"  # the style of a maze that was read


@dataclass(frozen=True, slots=True)
class Program:
    """What is known of a case's images, uint8 [H, W, 3].

    result: of the final image; None where it cannot be read. process: of all frames; None: the judge's. dimensions:
    those that an answer has.
    """

    result: Callable[[np.ndarray], Verdict | None]
    process: Callable[[Sequence[np.ndarray]], Verdict] | None = None
    dimensions: tuple[str, ...] = DIMENSIONS


def program_of(case: Case) -> Program | None:
    """The program that decides a case; None where one might be wrong about it."""
    item = Item.from_dict(case.facts["item"]) if case.facts["item"] else read_maze(case)
    if item is None:
        result = solutions.reader_of(case)
        return None if result is None else Program(result)
    if item.task == "maze":
        return Program(partial(task_of(item).verify, item), partial(maze_process, item))
    return Program(partial(sprites_result, item), dimensions=(RULE, REASONING))  # no input with a background to keep


def sprites_result(item: Item, image: np.ndarray) -> Verdict:
    """Object (rule), and object and count (reasoning), of drawn sprites."""
    verdict = task_of(item).verify(item, image)
    if verdict.status == "unreadable":
        return Verdict(tuple(Check(name, "unreadable", verdict.reason) for name in (RULE, REASONING)))
    drawn = next(check for check in verdict.checks if check.name == "object")
    return Verdict((Check(RULE, drawn.status, drawn.reason), Check(REASONING, verdict.status, verdict.reason)))


def maze_process(item: Item, frames: Sequence[np.ndarray]) -> Verdict:
    """Shares of the frames, as the templates of process define them.

    A frame is beneficial if its score is above that of the one before, or if it keeps a solution.
    """
    verdicts = [task_of(item).verify(item, frame) for frame in frames]
    shares = {
        name: sum(c.status == "pass" for v in verdicts for c in v.checks if c.name == name) / len(frames)
        for name in (BACKGROUND, RULE, QUALITY)
    }
    scores = [verdict.score or 0.0 for verdict in verdicts]
    before = [0.0, *scores]
    shares[REASONING] = sum(now > then or now == 1 for then, now in zip(before, scores, strict=False)) / len(frames)
    return verdict_of(shares, PROCESS)


def read_maze(case: Case) -> Item | None:
    """The maze of a published record, or None where a program might be wrong about it."""
    if case.set != MAZE or not case.images or not case.references:
        return None
    shown, solved = (decode_picture(bytes_of(image), case.id) for image in (*case.images, *case.references))
    try:
        read = _read(shown)
        if read is None:
            return None
        grid, picture = read
        facts = {"maze": grid.to_text(), "picture": picture.to_dict(), "canonical": grid.canonical(), "algorithm": READ}
        item = Item(case.id, "maze", grid.rows, "published", case.prompt, "", facts, "")
        verify = task_of(item).verify
        copied = {check.name: check.status for check in verify(item, shown).checks}
        sound = verify(item, solved).passed and copied[REASONING] == copied[RULE] == "fail"
        return item if sound and copied[BACKGROUND] == "pass" else None
    except (DataError, ValueError):
        return None


def _read(image: np.ndarray) -> tuple[Grid, Picture] | None:
    """Grid and geometry of a square image with dark walls, a green S and a red E."""
    import numpy as np

    from uni_train.data_gen.maze.picture import LEAST_CORRIDOR

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
    import numpy as np

    from uni_train.data_gen.maze.grid import Grid
    from uni_train.data_gen.maze.picture import Picture

    (top, left), (wall, corridor) = corner, widths
    red, green, blue = (image[:, :, channel].astype(int) for channel in range(3))
    ends, inks = [], []
    for mask in ((green > red + GREY) & (green > blue + GREY // 2), (red > green + GREY) & (red > blue + GREY)):
        y, x = np.nonzero(mask)
        if not len(y):
            return None
        at = [int((np.median(one) - begin - wall / 2) // (wall + corridor)) for one, begin in ((y, top), (x, left))]
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
    import numpy as np

    return _rgb(np.median(pixels, axis=0))


def _rgb(values: object) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in values)  # type: ignore[attr-defined]
    return red, green, blue
