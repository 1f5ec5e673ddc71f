"""Wrong images of an item, which its verifier should refuse: four fixed kinds, made from the target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item

if TYPE_CHECKING:
    import numpy as np


def corrupted(item: Item, others: Iterable[Item]) -> dict[str, np.ndarray]:
    """Description -> image, uint8 [H, W, 3] each.

    Changes are the pixels in which target and input differ. Without an input of the target's size, they differ from
    the target's most frequent colour. Without changes there is no image but the target of another item.

    Args:
        others: of the same task. Without one that has another answer, its target is left out.

    Raises:
        DataError: the item has no image.
    """
    import numpy as np

    task = task_of(item)
    target, input_image = task.render(item, 0), task.input_image(item)
    _, places, counts = np.unique(target @ np.array([1 << 16, 1 << 8, 1]), return_index=True, return_counts=True)
    plain = np.broadcast_to(target.reshape(-1, 3)[places[counts.argmax()]], target.shape)
    before = input_image if input_image is not None and input_image.shape == target.shape else plain
    changes = np.argwhere((target != before).any(axis=-1))
    other = next((one for one in others if one.answer != item.answer), None)
    images = {} if other is None else {"target of another item": task_of(other).render(other, 0)}
    if not changes.size:
        return images
    erased, undone = target.copy(), target.copy()
    y, x = changes[len(changes) // 2]
    half = max(1, min(target.shape[:2]) // 8)
    area = slice(max(0, y - half), y + half), slice(max(0, x - half), x + half)
    erased[area] = plain[area]
    rows, columns = changes[: len(changes) // 2].T
    undone[rows, columns] = before[rows, columns]
    nothing = "nothing drawn" if before is plain else "input copied"
    return {nothing: before.copy(), **images, "a patch erased": erased, "half undone": undone}
