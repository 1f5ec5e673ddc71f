"""Shades of grey, in tenths of white: level 1 names one, level 2 asks for a sum that needs a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from uni_train.core.seeds import digest, rng
from uni_train.data_gen.registry import task
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.task import Check, Item, Task, Verdict

if TYPE_CHECKING:
    import numpy as np

NAMES = (
    "light",
    "dim",
    "grey",
    "pale",
    "dark",
    "bright",
    "soft",
    "faint",
    "deep",
    "dull",
    "clear",
    "cloudy",
    "misty",
    "smoky",
    "dusty",
    "sooty",
    "snowy",
    "milky",
    "chalky",
    "silver",
    "pearl",
    "slate",
    "stone",
    "iron",
)
WORDS = (*NAMES, "tenths")
SIDE = 24
TOLERANCE = 0.05  # of white


@task("shades")
class Shades(Task):
    name = "shades"
    title = "Shades of grey"
    levels = (1, 2)
    sets: ClassVar[Mapping[int, str]] = {1: "shades1", 2: "shades2"}
    short = "S"
    chance = 1 / 9
    guess = "guessing the shade"

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        self.check(level, split)
        random_ = rng(self.name, level, split, seed)
        while True:
            word, known, more = random_.choice(NAMES), random_.randint(1, 9), random_.randint(1, 9)
            tenths = known + more if level == 2 else more
            asked = f"{word} + {more}" if level == 2 else f"{more}"
            prompt = f"{word} means {known} . Draw {asked} tenths ."
            if tenths < 10 and split_of(self.name, prompt, test_tenths=2) == split:
                break
        facts = {"world": "nano", "tenths": tenths, "canonical": prompt}
        name = f"shades{level}/{split}/{digest(prompt)}"
        return (Item(name, self.name, level, split, prompt, f"{tenths} tenths", facts, f"{tenths} tenths ."),)

    def render(self, item: Item, seed: int) -> np.ndarray:
        import numpy as np

        return np.full((SIDE, SIDE, 3), round(25.5 * item.facts["tenths"]), np.uint8)

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        off = abs(float(image.mean()) / 255 - item.facts["tenths"] / 10)
        return Verdict((Check("shade", "pass" if off <= TOLERANCE else "fail", f"{off:.2f} of white off"),))
