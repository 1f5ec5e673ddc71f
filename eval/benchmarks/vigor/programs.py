"""Where a program decides: records of our own, and published mazes that can be read without doubt.

A published maze has no grid in its record. It is read out of its input image (`read_maze`), and used only if the
image ground truth passes the verifier and a copy of the input fails; the judge decides every other maze.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.maze.task import TEST_LEVELS, read_facts
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.benchmarks.vigor.files import Record
from uni_train.eval.benchmarks.vigor.tasks import ALGEBRA, MAZE
from uni_train.eval.benchmarks.vigor.templates import BACKGROUND, DIMENSIONS, QUALITY, REASONING, RULE
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import decode_picture, encode_png

if TYPE_CHECKING:
    import numpy as np

    from uni_train.data_gen.maze.grid import Grid
    from uni_train.data_gen.maze.picture import Picture

LEVELS = (1, 2, 3)  # of the equations
DARK, PALE, GREY = 128, 100, 70  # of 255: a wall is darker and paler, a letter more of its colour
WALL, FREE = 0.9, 0.1  # shares of dark pixels in a place of the lattice
READ = "published"  # the style of a maze that was read


def own_records(world: str, n: int, split: str, seed: int, sets: Sequence[str] | None) -> list[Record]:
    """`n` records a task. nano's world: equations that are drawn as sprites, and mazes where they are named, for nano
    edits nothing and nano_edit reads nothing else. Everyday world: mazes."""
    found = []
    default = (ALGEBRA,) if world == NANO.name else (MAZE,)
    for task in sets or default:
        if task == ALGEBRA and world == NANO.name:
            found += [_of_equation(item) for item in _spread("maths", LEVELS, world, n, split, seed)]
        elif task == MAZE:
            found += [_of_maze(item) for item in _spread("maze", TEST_LEVELS, world, n, split, seed)]
        else:
            have = f"{ALGEBRA}, {MAZE}" if world == NANO.name else MAZE
            raise DataError(f"the {world} world has no {task} of our own, only {have}: set data.vigor=FOLDER")
    return found


def answer_image(item: Item) -> bytes:
    """An image that is right, as PNG."""
    return encode_png(task_of(item).render(item, derive_seed(0, "reference", item.id)))


def dimensions(item: Item) -> tuple[str, ...]:
    """Those that a program finds in an answer. Sprites have no input whose background could be kept."""
    return DIMENSIONS if item.task == "maze" else (RULE, REASONING)


def result_of(item: Item, image: np.ndarray) -> Verdict:
    """The checks of Result on a final image: all four of a maze; of sprites object (rule) and both (reasoning)."""
    verdict = task_of(item).verify(item, image)
    if item.task == "maze":
        return verdict
    if verdict.status == "unreadable":
        return Verdict(tuple(Check(name, "unreadable", verdict.reason) for name in dimensions(item)))
    drawn = next(check for check in verdict.checks if check.name == "object")
    return Verdict((
        Check(RULE, drawn.status, drawn.reason), Check(REASONING, verdict.status, verdict.reason),
    ))  # fmt: skip


def process_of(item: Item, frames: Sequence[np.ndarray]) -> dict[str, float]:
    """Dimension -> share of the frames, as the templates of process define them. A frame is beneficial if it is nearer
    to the solution than the one before (the verifier's score), or keeps a solution."""
    verdicts = [task_of(item).verify(item, frame) for frame in frames]
    shares = {
        name: sum(c.status == "pass" for v in verdicts for c in v.checks if c.name == name) / len(frames)
        for name in (BACKGROUND, RULE, QUALITY)
    }
    scores = [verdict.score or 0.0 for verdict in verdicts]
    before = [0.0, *scores]
    shares[REASONING] = sum(now > then or now == 1 for then, now in zip(before, scores, strict=False)) / len(frames)
    return shares


def read_maze(record: Record) -> Item | None:
    """The maze of a published record, or None where a program might be wrong about it."""
    if record.task != MAZE or record.image is None or record.answer_image is None:
        return None
    shown = decode_picture(bytes_of(record.image), record.id)
    solved = decode_picture(record.answer_image.read_bytes(), str(record.answer_image))
    try:
        read = _read(shown)
        if read is None:
            return None
        grid, picture = read
        facts = {"maze": grid.to_text(), "picture": picture.to_dict(), "canonical": grid.canonical(), "algorithm": READ}
        item = Item(record.id, "maze", grid.rows, "published", record.instruction, "", facts, "")
        copied = {check.name: check.status for check in result_of(item, shown).checks}
        sound = result_of(item, solved).passed and copied[REASONING] == copied[RULE] == "fail"
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


def _spread(task: str, levels: Sequence[int], world: str, n: int, split: str, seed: int) -> list[Item]:
    """`n` items, of all levels alike; mazes of 2 x 2 rooms are test alone and few."""
    from uni_train.data_gen.registry import TASKS

    kind = TASKS.get(task).in_world(get_world(world))
    levels = [level for level in levels if task != "maze" or level > 2 or (split == "test" and n <= 6 * len(levels))]
    shares = [n // len(levels) + (index < n % len(levels)) for index in range(len(levels))]
    return [
        item
        for level, share in zip(levels, shares, strict=True)
        if share
        for item in kind.generate(share, level, split, seed)
    ]


def _of_equation(item: Item) -> Record:
    name = item.id.replace("/", "-")
    return Record(f"{ALGEBRA}/{name}", ALGEBRA, item.prompt, answer=item.answer, item=item)


def _of_maze(item: Item) -> Record:
    name = item.id.replace("/", "-")
    shown = task_of(item).input_image(item)
    assert shown is not None, "a maze is shown"
    rows = read_facts(item)[0].rows
    return Record(f"{MAZE}/{name}", MAZE, item.prompt, encode_png(shown), size=f"{rows}x{rows}", item=item)


def copied(records: Mapping[str, Record], items: Mapping[str, Item]) -> list[Verdict]:
    """What a model that copies its input is worth on the mazes, by the program."""
    shown = ((item, records[name].image) for name, item in items.items() if item.task == "maze")
    return [result_of(item, decode_picture(bytes_of(image), item.id)) for item, image in shown if image is not None]
