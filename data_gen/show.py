"""`data show`: items as one image, each with its prompt, its thought and its answer, its input and its target."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uni_train.core.errors import DataError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item

if TYPE_CHECKING:
    import numpy as np
    from PIL import ImageDraw, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PICTURE = 144  # pixels on the sheet for an image
TEXT = 420
GAP = 14
LINE = 17
FONT_SIZE = 13
COLUMNS = 2
_INK, _SOFT, _PAPER, _FRAME = (30, 30, 30), (105, 105, 105), (255, 255, 255), (222, 222, 222)


def contact_sheet(items: Sequence[Item]) -> np.ndarray:
    """`items` in reading order on one sheet, uint8 [H, W, 3]: input image, target image, text, as far as there are.

    Items of a world without sprites show their text only.
    """
    if not items:
        raise DataError("there are no items to show: ask for at least one")
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=FONT_SIZE)
    columns = min(COLUMNS, len(items))
    drawn = [_pictures(item) for item in items]
    pictured = max(len(images) for images in drawn)
    side = pictured * (PICTURE + GAP)
    width = side + TEXT + 2 * GAP
    texts = [_lines(item) for item in items]
    rows = [texts[start : start + columns] for start in range(0, len(items), columns)]
    heights = [max(PICTURE if pictured else 0, *(len(text) * LINE for text in row)) + 2 * GAP for row in rows]
    sheet = Image.new("RGB", (columns * width, sum(heights)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    top = 0
    for r, height in enumerate(heights):
        for c, pixels_of_one in enumerate(drawn[r * columns : (r + 1) * columns]):
            left = c * width
            draw.rectangle((left, top, left + width - 1, top + height - 1), outline=_FRAME)
            for i, pixels in enumerate(pixels_of_one):
                enlarges = max(pixels.shape[:2]) < PICTURE
                resampling = Image.Resampling.NEAREST if enlarges else Image.Resampling.LANCZOS
                resized = Image.fromarray(pixels).resize((PICTURE, PICTURE), resampling)
                sheet.paste(resized, (left + GAP + i * (PICTURE + GAP), top + GAP))
            for i, (text, soft) in enumerate(rows[r][c]):
                at = (left + GAP + side, top + GAP + i * LINE)
                _write(draw, at, text, _SOFT if soft else _INK, font)
        top += height
    return np.asarray(sheet).copy()


def _pictures(item: Item) -> list[np.ndarray]:
    """The input image and the target image, as far as the item has them; uint8 [H, W, 3]."""
    task = task_of(item)
    if not task.has_image(item):
        return []
    input_image = task.input_image(item)
    return [*([] if input_image is None else [input_image]), task.render(item, derive_seed("show", item.id))]


def _lines(item: Item) -> list[tuple[str, bool]]:
    """Wrapped lines of an item and whether each is set in soft ink."""
    limit = TEXT // 7
    lines = [(f"{item.task} {item.level} · {item.split} · {item.answer}", True)]
    lines += [(line, False) for line in textwrap.wrap(item.prompt, limit)]
    lines += [(line, True) for line in textwrap.wrap(item.thought, limit)]
    return lines


def _write(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, ink: tuple[int, int, int], font: Font) -> None:
    """Text at `at`; the root sign, which the font lacks, is drawn as a line."""
    x, y = float(at[0]), at[1]
    for i, part in enumerate(text.split("√")):
        if i:
            draw.line([(x, y + 9), (x + 2, y + 8), (x + 4, y + 13), (x + 8, y + 3), (x + 12, y + 3)], fill=ink)
            x += 11
        draw.text((x, y), part, fill=ink, font=font)
        x += draw.textlength(part, font=font)
