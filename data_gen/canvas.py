"""Pictures of puzzles: a canvas to draw on, and how a drawn image is read back by templates and colours.

Places are (y, x) in units. A canvas has `scale` pixels a unit. Lines and discs of a crisp canvas (nano) are not
anti-aliased, so its images hold few colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

Colour = tuple[int, int, int]
Place = tuple[float, float]
PAPER, INK = (250, 250, 250), (25, 25, 35)
RED, BLUE, GREEN, YELLOW, PURPLE, CYAN = (
    (225, 40, 40), (40, 80, 220), (20, 150, 60), (245, 200, 30), (140, 50, 170), (40, 190, 210),
)  # fmt: skip
GREY = (125, 125, 130)  # between ink and paper: what is left of a letter's edge
PALETTE = (RED, BLUE, GREEN, YELLOW, PURPLE, CYAN)
ASPECT = 0.05  # how far the sides of an image may differ in proportion
GAIN, OFFSET = 0.3, 32  # of a mild filter: contrast, and grey levels of 255 that it adds to the middle one
_SHIFT = 6  # bits of OpenCV's fractions of a pixel
_DIGITS = (31599, 9362, 29671, 29391, 23497, 31183, 31215, 29330, 31727, 31695)  # 3 x 5 bits, row by row


class Canvas:
    """An image that is drawn on.

    Attributes:
        pixels: uint8 [height * scale, width * scale, 3].
    """

    def __init__(self, height: float, width: float, scale: float = 1.0, crisp: bool = False) -> None:
        self.scale, self.crisp = scale, crisp
        self.pixels = np.full((round(height * scale), round(width * scale), 3), PAPER[0], dtype=np.uint8)

    def rect(self, box: Sequence[float], colour: Colour) -> None:
        """Fill a rectangle along the pixels; box: top, left, bottom, right."""
        top, left, bottom, right = (max(0, round(edge * self.scale)) for edge in box)
        self.pixels[top:bottom, left:right] = colour

    def frame(self, box: Sequence[float], width: float, colour: Colour) -> None:
        """The outline of a rectangle, `width` units wide, within it."""
        top, left, bottom, right = box
        self.rect((top, left, top + width, right), colour)
        self.rect((bottom - width, left, bottom, right), colour)
        self.rect((top, left, bottom, left + width), colour)
        self.rect((top, right - width, bottom, right), colour)

    def polygon(self, places: Sequence[Place], colour: Colour) -> None:
        """A filled convex polygon."""
        import cv2

        cv2.fillConvexPoly(self.pixels, self._fixed(places), colour, self._kind, _SHIFT)

    def line(self, places: Sequence[Place], width: float, colour: Colour) -> None:
        """A line through places, with round corners."""
        import cv2

        thickness = max(1, round(width * self.scale))
        cv2.polylines(self.pixels, [self._fixed(places)], False, colour, thickness, self._kind, _SHIFT)

    def disc(self, centre: Place, radius: float, colour: Colour) -> None:
        import cv2

        ((x, y),) = self._fixed([centre]).tolist()
        cv2.circle(self.pixels, (x, y), round(radius * self.scale * 2**_SHIFT), colour, -1, self._kind, _SHIFT)

    def ring(self, centre: Place, radius: float, width: float, colour: Colour) -> None:
        """A circle; `radius` is that of the middle of its line."""
        import cv2

        ((x, y),) = self._fixed([centre]).tolist()
        thickness = max(1, round(width * self.scale))
        cv2.circle(self.pixels, (x, y), round(radius * self.scale * 2**_SHIFT), colour, thickness, self._kind, _SHIFT)

    def text(self, centre: Place, text: str, height: float, colour: Colour = INK) -> None:
        """Text around `centre`, its digits about `height` units high; up to 5 units digits alone, 3 units wide."""
        ink = _small(text) if height <= 5 else _ink(text, height, self.scale)
        top, left = (round(at * self.scale - length / 2) for at, length in zip(centre, ink.shape, strict=True))
        skip_y, skip_x = max(0, -top), max(0, -left)
        area = self.pixels[max(0, top) : top + ink.shape[0], max(0, left) : left + ink.shape[1]]
        share = ink[skip_y : skip_y + area.shape[0], skip_x : skip_x + area.shape[1], None]
        area[:] = np.rint(area + (np.asarray(colour) - area.astype(np.float32)) * share).astype(np.uint8)

    @property
    def _kind(self) -> int:
        import cv2

        return cv2.LINE_8 if self.crisp else cv2.LINE_AA

    def _fixed(self, places: Sequence[Place]) -> np.ndarray:
        """Places as OpenCV wants them: (x, y) of pixels' middles, in fractions of 2**_SHIFT."""
        pixels = np.asarray(places, dtype=np.float64)[:, ::-1] * self.scale - 0.5
        return np.rint(pixels * 2**_SHIFT).astype(np.int32)


@cache
def _ink(text: str, height: float, scale: float) -> np.ndarray:
    """The ink of bold text, float32 [H, W] in [0, 1], its digits `height` units high and in the middle of H.

    It is reduced from letters four times as large, so that it looks alike at all scales.
    """
    import cv2
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=4 * 1.35 * height)
    stroke = 4 * height / 18
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text, stroke_width=stroke, anchor="mm"))
    half = max(abs(top), abs(bottom))
    mask = Image.new("L", (right - left, 2 * half))
    draw = ImageDraw.Draw(mask)
    draw.text((-left, half), text, fill=255, font=font, stroke_width=stroke, anchor="mm")
    size = (max(1, round(mask.width * scale / 4)), max(1, round(mask.height * scale / 4)))
    return cv2.resize(np.asarray(mask, dtype=np.float32) / 255, size, interpolation=cv2.INTER_AREA)


@cache
def _small(digits: str) -> np.ndarray:
    """The ink of digits of 3 x 5 pixels, float32 [5, 4 n - 1]."""
    ink = np.zeros((5, 4 * len(digits) - 1), dtype=np.float32)
    for at, digit in enumerate(digits):
        bits = _DIGITS[int(digit)]
        ink[:, 4 * at : 4 * at + 3] = [[bits >> (14 - 3 * y - x) & 1 for x in range(3)] for y in range(5)]
    return ink


# -------------------------------------------------------------------------------------------------------------- reading


def fitted(image: np.ndarray, size: tuple[int, int], least: float = 0.0) -> np.ndarray | None:
    """`image` at a height and width; None where its proportions are others, or a side is below a share of its own."""
    import cv2

    if image.shape[:2] == size:
        return image
    if min(image.shape[0] / size[0], image.shape[1] / size[1]) < least or not proportional(image, size):
        return None
    how = cv2.INTER_AREA if image.shape[0] > size[0] else cv2.INTER_LINEAR
    return cv2.resize(image, size[::-1], interpolation=how)


def proportional(image: np.ndarray, size: tuple[int, int]) -> bool:
    """Whether an image has nearly the proportions of a height and width."""
    (height, width), (tall, wide) = image.shape[:2], size
    return abs(width * tall / (height * wide) - 1) <= ASPECT


def registered(image: np.ndarray, like: np.ndarray) -> np.ndarray:
    """`image` laid over `like`, both uint8 [side, side, 3]: shifts and zooms of up to a tenth."""
    import cv2

    from uni_train.data_gen.registration import Template, warped

    channel, reference = (cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY) for picture in (image, like))
    return warped(image, Template(reference).register(channel))


def blurred(image: np.ndarray, window: int) -> np.ndarray:
    """The mean of window x window pixels around each; as it is for a window of 1."""
    import cv2

    return image if window == 1 else cv2.blur(image, (window, window), borderType=cv2.BORDER_REPLICATE)


def patches(image: np.ndarray, boxes: np.ndarray, every: int = 1) -> np.ndarray:
    """What is in boxes of one size, of `every` so many pixels one, float32 [n, d].

    boxes: int [n, 4] of top, left, bottom, right.
    """
    cut = [image[top:bottom:every, left:right:every].ravel() for top, left, bottom, right in boxes.tolist()]
    return np.stack(cut).astype(np.float32)


def nearest(seen: np.ndarray, templates: np.ndarray) -> np.ndarray:
    """For each of `seen`, float32 [n, d], which of its templates [n, k, d] is least far away; int [n]."""
    alike = np.matmul(templates, seen[:, :, None])[:, :, 0]  # |t - s|^2 = |t|^2 - 2 t s + |s|^2
    norms = np.einsum("nkd,nkd->nk", templates, templates)
    return np.asarray((norms - 2 * alike).argmin(axis=1))


def colours_at(image: np.ndarray, boxes: np.ndarray, palette: Sequence[Colour]) -> np.ndarray:
    """Which colour of `palette` the mean of each box is nearest to; int [n]."""
    means = np.stack([image[top:bottom, left:right].mean(axis=(0, 1)) for top, left, bottom, right in boxes.tolist()])
    return np.asarray(np.square(means[:, None] - np.asarray(palette)).sum(axis=2).argmin(axis=1))


def near(image: np.ndarray, colour: Colour, rivals: Sequence[Colour]) -> np.ndarray:
    """Where `image` is nearer to `colour` than to each of `rivals` and to grey; bool [H, W]."""
    here, others = np.asarray(colour, dtype=np.float32), np.asarray((*rivals, GREY), dtype=np.float32)
    # |p - here|^2 < |p - other|^2
    bounds = (np.square(here).sum() - np.square(others).sum(axis=1)) / 2
    nearer = (here - others) @ image.reshape(-1, 3).T.astype(np.float32) > bounds[:, None]
    return np.asarray(nearer.all(axis=0).reshape(image.shape[:2]))


class Limits(NamedTuple):
    """How far an image may be from what is drawn.

    means: pixels a side that are averaged -> how far their mean may be off in any channel, of 255.
    mean, reach, window: pixels a side of squares. The mean around a pixel is compared with all that is drawn within
    reach. It stands out if it is further off than by luma or chroma. Of a window, `most` pixels may.
    """

    means: Mapping[int, int]
    mean: int
    reach: int
    luma: int
    chroma: int
    window: int
    most: int


def difference(image: np.ndarray, drawn: np.ndarray, limits: Limits) -> tuple[float, int, int]:
    """How far two images are apart where they are furthest, 1 is the most that they may be; and its row and column."""
    import cv2

    worst = (0.0, 0, 0)
    half = cv2.addWeighted(image, 0.5, drawn, -0.5, 128)  # of the difference
    for window, limit in limits.means.items():
        _, high, _, (x, y) = cv2.minMaxLoc(distance(blurred(half, window), np.full_like(half, 128)))
        worst = max(worst, (2 * high / limit, y, x))
    if worst[0] > 1:
        return worst
    seen, like = (cv2.cvtColor(picture, cv2.COLOR_RGB2YCrCb) for picture in (blurred(image, limits.mean), drawn))
    near, by = np.ones((limits.reach,) * 2, np.uint8), (limits.luma, limits.chroma, limits.chroma, 0)
    low, top = cv2.subtract(cv2.erode(like, near), by), cv2.add(cv2.dilate(like, near), by)  # type: ignore[call-overload]
    out, square = (cv2.inRange(seen, low, top) == 0).view(np.uint8), (limits.window,) * 2
    _, high, _, (x, y) = cv2.minMaxLoc(cv2.boxFilter(out, -1, square, normalize=False, borderType=cv2.BORDER_CONSTANT))
    return max(worst, (min(2.0, high / (limits.most + 0.5)), y, x))


def distance(image: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far two images are apart in the worst channel, uint8 [H, W]."""
    import cv2

    red, green, blue = cv2.split(cv2.absdiff(image, np.ascontiguousarray(other)))
    return np.asarray(cv2.max(cv2.max(red, green), blue))


def filtered(drawn: np.ndarray, like: np.ndarray) -> np.ndarray:
    """What is drawn under the mild filter that makes it most like another image: 3 x 3 pixels in luma and chroma.

    Blur, shifts of less than a pixel, gamma and the halved chroma of JPEG nearly are such filters.
    """
    import cv2

    planes, step = [], max(1, len(drawn) // 48)  # some pixels are enough
    for plane, seen in zip(
        *(cv2.split(cv2.cvtColor(picture, cv2.COLOR_RGB2YCrCb)) for picture in (drawn, like)), strict=True
    ):
        wide = cv2.copyMakeBorder(plane, 1, 1, 1, 1, cv2.BORDER_REPLICATE)
        shifted = (wide[y : y + len(plane), x : x + plane.shape[1]] for y in range(3) for x in range(3))
        some = seen[::step, ::step].ravel()
        near = np.stack([*(shift[::step, ::step].ravel() for shift in shifted), np.ones_like(some)]).astype(np.float32)
        kernel = np.linalg.solve(near @ near.T + len(some) * np.eye(10), near @ (some - near[4]))
        gain, offset = kernel[:9].sum(), kernel[9]  # beside the image as it is
        if abs(gain) > GAIN or abs(128 * gain + offset) > OFFSET:
            return drawn
        kernel[4] += 1
        mix = kernel[:9].reshape(3, 3)
        planes.append(cv2.filter2D(plane, -1, mix, delta=offset, borderType=cv2.BORDER_REPLICATE))
    return cv2.cvtColor(cv2.merge(planes), cv2.COLOR_YCrCb2RGB)
