"""The maze task (ViGoR section 4.3): an input image of a maze, the same image with the way from S to E in red.

Sampler, images and verifier; a level is the side of the grid in rooms. Splits hold whole mazes: one that occurs in
test, turned, mirrored or walked from its end, occurs in no other split, in whatever style. The few mazes of 2 x 2 rooms
cannot be divided and are all test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError, nearest_or_all
from uni_train.core.seeds import digest, rng
from uni_train.data_gen.maze import picture as pictures
from uni_train.data_gen.maze.grid import ALGORITHMS, Grid, draw, moves
from uni_train.data_gen.maze.picture import NANO, STYLES, VARIED, Picture
from uni_train.data_gen.objects import World
from uni_train.data_gen.registry import scoring_beside, task
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.task import Item, Task, Verdict

if TYPE_CHECKING:
    from random import Random

    import numpy as np

# Figure 7 and Table 21, word for word.
INSTRUCTION = (
    "Starting from the green letter 'S' and ending at the red letter 'E', draw a red path that successfully navigates "
    "through the maze without crossing walls."
)
SURE_CORRIDOR = 24  # pixels from which the verifier reads every solution
DRAWS = 100  # of a style that varies, until the verifier reads the solution
_WORDS = {"R": "right", "L": "left", "D": "down", "U": "up"}


@task("maze")
@dataclass(frozen=True)
class Maze(Task):
    """Draw the way through a maze, from S to E.

    style: one of `picture.STYLES`; side: pixels of the square images, None for 512 (nano: what it needs). On
        more pixels a nano maze lies anywhere.
    algorithms: each draw takes one of them.
    """

    name = "maze"
    title = "Mazes"
    levels = tuple(range(2, 25))
    default_levels = (4,)
    level_range = True
    sets, variants, chance = scoring_beside(__file__)
    short = "maze "
    edits = True
    readable = True

    style: str = VARIED
    side: int | None = None
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise DataError(f"there is no style {self.style}: {nearest_or_all(self.style, STYLES)}")

    @classmethod
    def in_world(cls, world: World) -> Task:
        """Of the nano world in the style "nano", else "varied"; `data.maze_style` is another one."""
        return cls(NANO) if world.terse else cls()

    def configured(self, data: Mapping[str, Any]) -> Task:
        return replace(self, side=data["maze_side"], style=data["maze_style"] or self.style)

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One maze of `level` x `level` rooms from `split`.

        Raises:
            DataError: its rooms would be too small to draw, or for the verifier to read the solution.
        """
        self.check(level, split)
        if level == 2 and split != "test":
            raise DataError("the mazes of 2 x 2 rooms are too few to be divided and all test: take level 3 or more")
        random_ = rng("maze", level, split, seed)
        for _ in range(DRAWS if self.style == VARIED else 1):
            algorithm, grid, canonical = self._grid(level, split, random_)
            picture = pictures.choose_picture(self.style, level, self.side, random_)
            if _readable(grid, picture):
                break
        else:
            raise DataError(
                f"the verifier cannot read the solution of a {level} x {level} maze in the style {self.style} on "
                f"{picture.side} x {picture.side} pixels: take a larger image"
            )
        text, steps = grid.to_text(), moves(grid.route())
        return (
            Item(
                id=f"maze{level}/{split}/{digest(*text, str(picture.to_dict()))}",
                task=self.name,
                level=level,
                split=split,
                prompt=INSTRUCTION,
                answer=steps,
                facts={"maze": text, "algorithm": algorithm, "picture": picture.to_dict(), "canonical": canonical},
                thought=_spell(steps),
            ),
        )

    def _grid(self, level: int, split: str, random_: Random) -> tuple[str, Grid, str]:
        """An algorithm, a maze of the split that it carved, and the maze's canonical form."""
        while True:  # each draw falls into the split with a chance of at least one in ten
            algorithm = random_.choice(self.algorithms)
            grid = draw(algorithm, level, level, random_)
            canonical = grid.canonical()
            if level == 2 or split_of(self.name, canonical) == split:
                return algorithm, grid, canonical

    def distinct(self, item: Item) -> str:
        return "".join(item.facts["maze"])

    def has_image(self, item: Item) -> bool:
        return True

    def input_image(self, item: Item) -> np.ndarray:
        """The maze without a path, uint8 [H, W, 3]."""
        grid, picture = read_facts(item)
        return pictures.draw(grid, picture)

    def render(self, item: Item, seed: int = 0) -> np.ndarray:
        """The maze with the path, uint8 [H, W, 3]. It belongs to the input image, so `seed` changes nothing."""
        grid, picture = read_facts(item)
        return pictures.draw(grid, picture, grid.route())

    def symmetric(self, item: Item, random: Random) -> Item:
        """One of sixteen views: the eight of the square, each from S to E or from E to S."""
        grid, _ = read_facts(item)
        view = grid.view(random.randrange(4), *(random.random() < 0.5 for _ in "ms"))
        steps = moves(view.route())
        return replace(item, answer=steps, facts={**item.facts, "maze": view.to_text()}, thought=_spell(steps))

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """The four checks of the paper on any uint8 [H, W, 3], with a score in [0, 1]: see `data_gen.maze.verifier`."""
        from uni_train.data_gen.maze.verifier import judge

        grid, picture = read_facts(item)
        return judge(grid, picture, image)

    def published_item(self, id_: str, prompt: str, given: np.ndarray, solved: np.ndarray) -> Item | None:
        """The maze of two images of somebody else, uint8 [H, W, 3]; None where the verifier might be wrong about it."""
        from uni_train.data_gen.maze.published import READ, read

        try:
            drawn = read(given)
            if drawn is None:
                return None
            grid, picture = drawn
            facts = {"maze": grid.to_text(), "picture": picture.to_dict(), "canonical": grid.canonical()}
            item = Item(id_, self.name, grid.rows, "published", prompt, "", {**facts, "algorithm": READ}, "")
            copied = {check.name: check.status for check in self.verify(item, given).checks}
            sound = self.verify(item, solved).passed and copied["reasoning_success"] == copied["rule_obey"] == "fail"
            return item if sound and copied["background_consistency"] == "pass" else None
        except (DataError, ValueError):
            return None


def read_facts(item: Item) -> tuple[Grid, Picture]:
    """The maze of an item and how it is drawn. DataError if the item is not one of this task."""
    try:
        return Grid.from_text(item.facts["maze"]), Picture.from_dict(item.facts["picture"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{item.id}: its facts do not describe a maze ({type(error).__name__}: {error})") from error


def _readable(grid: Grid, picture: Picture) -> bool:
    """Whether the verifier accepts the solution. Only small corridors are in doubt."""
    if picture.style == NANO or picture.corridor >= SURE_CORRIDOR:
        return True
    from uni_train.data_gen.maze.verifier import judge

    return judge(grid, picture, pictures.draw(grid, picture, grid.route())).passed


def _spell(steps: str) -> str:
    """ "From S go right 2, down 1. That is E." """
    legs = ", ".join(f"{_WORDS[letter]} {len(list(run))}" for letter, run in groupby(steps))
    return f"From S go {legs}. That is E."
