"""Images that attack a scoring function of a task: wrong ones that it must refuse, right ones that it must accept.

All are made from a task's own images, through the interface `Task` alone. *Changed* pixels are those in which the
target differs from the input. Without an input image they are those in which it differs from its most frequent colour.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from PIL import Image as Images

from uni_train.core.errors import DataError
from uni_train.core.reading_limits import open_image, rgb
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Item, Task

Expected = Literal["refuse", "accept", "survive"]
"""Survive: any score in [0, 1] will do, in time and without an exception."""
WIDE = 20_000  # pixels
SYMMETRIC = 48  # of 255; pictures of 32 x 32 that are turned onto themselves differ by less
RED = np.array((225, 40, 40))  # of second answers that are drawn over a right one
SEEN = 140  # of 255: how far they are from what they are drawn over
SPOT = 3  # sides of a window, in which walls are erased or a part is copied, in that of the image


@dataclass(frozen=True, eq=False)
class Scene:
    """What attacks on one item are made from; images are uint8 [H, W, 3].

    Attributes:
        given: the input image, or a page of one colour.
        changed: bool [H, W].
        page, ink: the most frequent colours of the input and of the changed pixels, uint8 [3].
        other: the target of another item, if any.
    """

    given: np.ndarray
    target: np.ndarray
    changed: np.ndarray
    page: np.ndarray
    ink: np.ndarray
    other: np.ndarray | None
    random: np.random.Generator

    def blank(self, colour: Any) -> np.ndarray:
        return np.full_like(self.target, colour)

    def undone(self, mask: np.ndarray) -> np.ndarray:
        """The target with the input in the masked pixels."""
        return np.where(mask[..., None], self.given, self.target)


class Attack(NamedTuple):
    """A named way to make an image; None where the scene does not allow it.

    edits: for tasks with an input image alone, where the place of the answer counts. least: pixels of a side.
    """

    name: str
    expected: Expected
    draw: Callable[[Scene], np.ndarray | None]
    edits: bool = False
    least: int = 0


class Case(NamedTuple):
    """An attack on an item; the images are uint8 [H, W, 3]."""

    item: Item
    attack: Attack
    image: np.ndarray
    input_image: np.ndarray | None
    target: np.ndarray


def attack_items(
    task: Task, items: Sequence[Item], seed: int, trusted: bool = False, only: Collection[str] = ()
) -> Iterator[Case]:
    """Every attack on every item that applies. Wrong images that equal an accepted one are left out.

    Args:
        only: names of attacks; empty: all.
        trusted: leave out wrong images that `task.verify` passes; for functions that are not the task's own.

    Raises:
        DataError: an item has no image, or its target equals its input.
    """
    for i, item in enumerate(items):
        scene = _scene(task, item, [one for one in (*items[i + 1 :], *items[:i]) if one.answer != item.answer], seed)
        given, target = task.input_image(item), scene.target
        accepted: list[np.ndarray] = []
        for attack in ATTACKS:
            if min(target.shape[:2]) < attack.least or (attack.edits and given is None):
                continue
            if only and attack.name not in only:
                continue
            random = np.random.default_rng(derive_seed("attack", seed, item.id, attack.name))
            image = attack.draw(replace(scene, random=random))
            if image is None or (
                attack.expected == "refuse" and any(np.array_equal(image, picture) for picture in accepted)
            ):
                continue
            if attack.expected == "accept":
                accepted.append(image)
            if not (attack.expected == "refuse" and trusted and task.verify(item, image).passed):
                yield Case(item, attack, image, given, target)


def _scene(task: Task, item: Item, others: Sequence[Item], seed: int) -> Scene:
    if not task.has_image(item):
        raise DataError(f"{item.id} has no image to attack: take the nano world")
    drawn = derive_seed("attacked", seed)
    given, target = task.input_image(item), task.render(item, drawn)
    page = _most_frequent((target if given is None else given).reshape(-1, 3))
    before = np.full_like(target, page) if given is None else given
    if before.shape != target.shape:
        before = cv2.resize(before, target.shape[1::-1], interpolation=cv2.INTER_AREA)
    changed = (before != target).any(axis=2)
    if not changed.any():
        raise DataError(f"{item.id}: its target image equals its input, so there is nothing to attack")
    other = task.render(others[0], drawn) if others else None
    return Scene(before, target, changed, page, _most_frequent(target[changed]), other, np.random.default_rng(0))


def _most_frequent(pixels: np.ndarray) -> np.ndarray:
    """The colour uint8 [3] that most of [N, 3] have."""
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, counts = np.unique(packed, return_counts=True)
    colour = int(colours[counts.argmax()])
    return np.array([colour >> 16, colour >> 8 & 255, colour & 255], np.uint8)


# --- wrong images ----------------------------------------------------------------------------------------------------


def _noise(scene: Scene) -> np.ndarray:
    return scene.random.integers(0, 256, scene.target.shape, dtype=np.uint8)


def _flooded(scene: Scene) -> np.ndarray:
    """Everything of the colour that the answer covers most is painted as the answer is."""
    free = (scene.target == _most_frequent(scene.given[scene.changed])).all(axis=2)
    return np.where(free[..., None], scene.ink, scene.target).astype(np.uint8)


def _small(scene: Scene) -> np.ndarray:
    image, (height, width) = scene.blank(scene.page), scene.target.shape[:2]
    image[: height // 2, : width // 2] = cv2.resize(
        scene.target, (width // 2, height // 2), interpolation=cv2.INTER_AREA
    )
    return image


def _moved(image: np.ndarray, right: int, down: int, fill: Any) -> np.ndarray:
    height, width = image.shape[:2]
    moved = np.full_like(image, fill)
    moved[down:, right:] = image[: height - down, : width - right]
    return moved


def _fullest_window(mask: np.ndarray) -> np.ndarray:
    """The mask within the window that holds most of it, bool [H, W]."""
    height, width = (side // SPOT for side in mask.shape)
    sums = cv2.integral(mask.astype(np.uint8))
    windows = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    top, left = np.unravel_index(windows.argmax(), windows.shape)
    window = np.zeros_like(mask)
    window[top : top + height, left : left + width] = mask[top : top + height, left : left + width]
    return window


def _erased(scene: Scene) -> np.ndarray | None:
    """Input that the target keeps, where there is most of it, replaced by the page's colour."""
    lost = _fullest_window(~scene.changed & (scene.given != scene.page).any(axis=2))
    return np.where(lost[..., None], scene.page, scene.target).astype(np.uint8) if lost.any() else None


def _component(mask: np.ndarray) -> np.ndarray:
    """The largest connected component, bool [H, W]."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    return labels == 1 + stats[1:, cv2.CC_STAT_AREA].argmax()


def _duplicated(scene: Scene) -> np.ndarray | None:
    """The fullest window of the largest drawn component once more, at a random place away from changed pixels.

    At least half of it is new there: two equal digits that nearly coincide are one.
    """
    drawn = scene.changed & (scene.target != scene.page).any(axis=2)
    if not drawn.any():
        return None
    part = _fullest_window(_component(drawn))
    margin = min(part.shape) // 16
    near = cv2.dilate(scene.changed.astype(np.float32), np.ones((2 * margin + 1, 2 * margin + 1)))
    rows, columns = (slice(places[0], places[-1] + 1) for places in map(np.flatnonzero, (part.any(1), part.any(0))))
    stroke = part[rows, columns]
    alike = (scene.target == _most_frequent(scene.target[part])).all(axis=2)
    near_it, alike_there = (
        cv2.matchTemplate(image.astype(np.float32), stroke.astype(np.float32), cv2.TM_CCORR) for image in (near, alike)
    )
    free = np.argwhere((near_it < 0.5) & (alike_there < stroke.sum() / 2))
    if not len(free):
        return None
    y, x = scene.random.choice(free)
    image, (height, width) = scene.target.copy(), stroke.shape
    image[y : y + height, x : x + width][stroke] = scene.target[rows, columns][stroke]
    return image


def _halved(scene: Scene) -> np.ndarray:
    """The changed pixels beyond the middle of their longer extent undone."""
    places = np.argwhere(scene.changed)
    axis = int(np.ptp(places, axis=0).argmax())
    middle = (places[:, axis].min() + places[:, axis].max()) / 2
    return scene.undone(np.indices(scene.changed.shape)[axis] > middle)


def _turned(scene: Scene, turn: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """The target turned; None where input or target stay nearly the same, so that the answer may stay right."""
    for image in (scene.given, scene.target):
        sides = [cv2.resize(side, (32, 32), interpolation=cv2.INTER_AREA) for side in (image, turn(image).copy())]
        if np.abs(sides[0].astype(int) - sides[1]).max() < SYMMETRIC:
            return None
    return turn(scene.target).copy()


def _written(scene: Scene) -> np.ndarray:
    image, (height, width) = scene.target.copy(), scene.target.shape[:2]
    (length, _), _ = cv2.getTextSize("CORRECT", cv2.FONT_HERSHEY_SIMPLEX, 1.0, 3)
    scale = 0.9 * width / length
    where = (int(0.05 * width), int(0.5 * height + 12 * scale))
    return cv2.putText(image, "CORRECT", where, cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), max(1, round(3 * scale)))


def _drawn_over(scene: Scene, share: float, thickness: float, strength: float = 1.0) -> np.ndarray | None:
    """The target and a red line over it, where most of it is seen; None where less than half would be.

    share: of the diagonal. What is shorter keeps away from changed pixels; 0 is a dot. thickness: in 64ths of the side;
    at least a pixel. strength: 1 covers.
    """
    height, width = scene.target.shape[:2]
    pixels, margin = max(1, round(thickness * min(height, width) / 64)), min(height, width) // 16
    seen = np.abs(scene.target - RED).max(axis=2) > SEEN
    if share < 1:
        seen &= ~cv2.dilate(scene.changed.view(np.uint8), np.ones((2 * margin + 1,) * 2)).view(bool)
    elif (free := seen & (scene.target == scene.page).all(axis=2)).any():
        seen = free
    lines = []
    for _ in range(32):
        middle, angle = scene.random.uniform(0.2, 0.8, 2) * (width, height), scene.random.uniform(0, np.pi)
        reach = share * math.hypot(height, width) / 2 * np.array([math.cos(angle), math.sin(angle)])
        begin, end = np.rint([middle - reach, middle + reach]).astype(int).tolist()
        lines.append(cv2.line(np.zeros((height, width), np.uint8), begin, end, 1, pixels).view(np.bool_))
    best = max(lines, key=lambda line: (line & seen).sum())
    mixed = np.rint(scene.target + (RED - scene.target) * strength).astype(np.uint8)
    return np.where(best[..., None], mixed, scene.target) if 2 * (best & seen).sum() > best.sum() else None


# --- right images ----------------------------------------------------------------------------------------------------


def _saved(image: Images.Image, file_type: str, **options: Any) -> np.ndarray:
    """The image as a loader reads it from a file, uint8 [H, W, 3]."""
    file = io.BytesIO()
    image.save(file, file_type, **options)
    return _loaded(file.getvalue())


def _loaded(file: bytes) -> np.ndarray:
    with open_image(file, "an attack") as image:
        return rgb(image)


def _gamma(image: np.ndarray, gamma: float) -> np.ndarray:
    return np.rint(255 * (image / 255) ** gamma).astype(np.uint8)


def _resized(scene: Scene) -> np.ndarray:
    image = Images.fromarray(scene.target)
    smaller = (3 * image.width // 4, 3 * image.height // 4)
    return np.asarray(image.resize(smaller, Images.Resampling.LANCZOS).resize(image.size, Images.Resampling.LANCZOS))


def _palette(image: np.ndarray, method: Images.Quantize = Images.Quantize.MEDIANCUT) -> np.ndarray:
    return _saved(Images.fromarray(image).quantize(256, method), "PNG")


def _turned_file(scene: Scene) -> np.ndarray:
    exif = Images.Exif()
    exif[0x0112] = 6  # shown turned by 90 degrees clockwise
    return _saved(Images.fromarray(np.rot90(scene.target)), "PNG", exif=exif)


def _sixteen_bits(scene: Scene) -> np.ndarray:
    deep = scene.target[..., ::-1].astype(np.uint16) * 257
    return _loaded(cv2.imencode(".png", deep)[1].tobytes())


# --- images of any score ---------------------------------------------------------------------------------------------


def _transparent(scene: Scene) -> np.ndarray:
    height, width = scene.target.shape[:2]
    noise = scene.random.integers(0, 256, (height, width, 4), dtype=np.uint8)
    return _saved(Images.fromarray(noise), "PNG")


def _resized_to(scene: Scene, width: int, height: int) -> np.ndarray:
    return cv2.resize(scene.target, (width, height), interpolation=cv2.INTER_NEAREST)


ATTACKS = (
    Attack("as it is", "accept", lambda scene: scene.target),
    Attack("JPEG quality 70", "accept", lambda s: _saved(Images.fromarray(s.target), "JPEG", quality=70), least=64),
    Attack("JPEG quality 85", "accept", lambda s: _saved(Images.fromarray(s.target), "JPEG", quality=85)),
    Attack("gamma 0.8", "accept", lambda scene: _gamma(scene.target, 0.8)),
    Attack("gamma 1.25", "accept", lambda scene: _gamma(scene.target, 1.25)),
    Attack("blurred", "accept", lambda scene: cv2.GaussianBlur(scene.target, (0, 0), 0.8), least=64),
    Attack("shifted 1 pixel", "accept", lambda scene: _moved(scene.target, 1, 1, scene.page), least=128),
    Attack("shifted 2 pixels", "accept", lambda scene: _moved(scene.target, 2, 0, scene.page), least=128),
    Attack("resized to 75 % and back", "accept", _resized, least=64),
    Attack("palette file", "accept", lambda scene: _palette(scene.target)),
    Attack("RGBA file", "accept", lambda s: _saved(Images.fromarray(s.target).convert("RGBA"), "PNG")),
    Attack("file turned by EXIF", "accept", _turned_file),
    Attack("16-bit file", "accept", _sixteen_bits),
    Attack("blank", "refuse", lambda scene: scene.blank(scene.page)),
    Attack("white", "refuse", lambda scene: scene.blank(255)),
    Attack("black", "refuse", lambda scene: scene.blank(0)),
    Attack("noise", "refuse", _noise),
    Attack("all in the answer's colour", "refuse", lambda scene: scene.blank(scene.ink)),
    Attack("free space in that colour", "refuse", _flooded),
    Attack("input copied", "refuse", lambda scene: scene.given, edits=True),
    Attack("another item's answer", "refuse", lambda scene: scene.other),
    Attack("answer pasted small", "refuse", _small, edits=True),
    Attack("answer shifted by a quarter", "refuse", lambda s: _moved(
        s.target, s.target.shape[1] // 4, s.target.shape[0] // 4, s.page), edits=True),
    Attack("answer without the input", "refuse", lambda s: np.where(
        s.changed[..., None], s.target, s.page).astype(np.uint8), edits=True),
    Attack("input erased in part", "refuse", _erased, edits=True),
    Attack("one part missing", "refuse", lambda scene: scene.undone(_component(scene.changed))),
    Attack("one part twice", "refuse", _duplicated),
    Attack("half of the answer", "refuse", _halved),
    Attack("text written over it", "refuse", _written),
    Attack("thin line over it", "refuse", lambda scene: _drawn_over(scene, 2.0, 0)),
    Attack("faint line over it", "refuse", lambda scene: _drawn_over(scene, 2.0, 1, 1 / 2)),
    Attack("short stroke over it", "refuse", lambda scene: _drawn_over(scene, 1 / 8, 0.5)),
    Attack("dot over it", "refuse", lambda scene: _drawn_over(scene, 0.0, 4)),
    Attack("turned by 90 degrees", "refuse", lambda scene: _turned(scene, np.rot90), edits=True),
    Attack("mirrored", "refuse", lambda scene: _turned(scene, np.fliplr), edits=True),
    Attack("1 x 1", "survive", lambda scene: scene.target[:1, :1]),
    Attack("20,000 pixels wide", "survive", lambda scene: _resized_to(scene, WIDE, 16)),
    Attack("wrong size", "survive", lambda s: _resized_to(s, 2 * s.target.shape[1] + 1, s.target.shape[0] // 2 + 1)),
    Attack("palette of noise", "survive", lambda scene: _palette(_noise(scene), Images.Quantize.FASTOCTREE)),
    Attack("transparent noise", "survive", _transparent),
)  # fmt: skip
