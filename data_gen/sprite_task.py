"""Tasks whose answer is so many of one thing: in the nano world sprites show it, and a program reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.objects import NANO, World
from uni_train.data_gen.task import Item, Task, Verdict

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class SpriteTask(Task):
    """A task in a world. Facts of its items have "world", "object" (singular), "plural" and "count" (1 to 6)."""

    world: World = NANO

    @classmethod
    def in_world(cls, world: World) -> Task:
        return cls(world)

    def render(self, item: Item, seed: int) -> np.ndarray:
        """`count` sprites of the item's object, uint8 [24, 24, 3]. DataError for another world than nano."""
        if not self.has_image(item):
            world = item.facts.get("world")
            raise DataError(f"{item.id} is from the {world} world: only the nano world has sprites to draw")
        from uni_train.data_gen import sprites

        return sprites.render(item.facts["object"], item.facts["count"], seed)

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Exactly the right number of the right object, and nothing else; uint8 [H, W, 3]."""
        from uni_train.data_gen import sprites

        return sprites.verify_sprites(image, item.facts["object"], item.facts["count"])
