"""Published jigsaws, sudokus and plots by program: an output is compared with the image ground truth.

A program reads a case only if the ground truth passes and a copy of the input fails. Further, the ground truth of a
sudoku must be a Latin square. The input of a plot must show its axes. The judge decides outputs that cannot be
read. Visual quality is the judge's (`options.vigor.visual_quality=judge`), for no program here knows what an image
should look like.

Without a program: plots whose input has no axes, so that a right curve may lie anywhere; Klotski and block building,
which are photographs; *algebraic calculation*. Its solutions are images, written anywhere and in any form, so that
reading one needs OCR.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from uni_train.core.errors import DataError
from uni_train.data_gen.canvas import distance, fitted, proportional
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Case
from uni_train.eval.benchmarks.vigor.cases import JIGSAW, PLOT, SUDOKU
from uni_train.eval.benchmarks.vigor.prompts import BACKGROUND, REASONING, RULE
from uni_train.eval.images import bytes_of
from uni_train.models.pictures import decode_picture

WHY = {BACKGROUND: "the background has changed", RULE: "the rules are broken", REASONING: "it is not solved"}
SAME, OTHER = 0.80, 0.55  # likeness (NCC) of pieces that are the same, and that are not; between them nobody can tell
FLAT = 4.0  # of 255: the spread of a piece without anything to see
COLOUR = 24.0  # of 255: how far the mean colour of a piece may drift
SIDES = range(2, 10)  # of jigsaws and sudokus
NEAR = 0.012  # of the longer side: how far a curve may lie from that of the ground truth
CURVE, NO_CURVE = 0.95, 0.85  # shares of a curve that lie near, where it is the same, and where it is another
_PIECE, _GLYPH, _LINES = 24, 20, 24  # pixels a side at which pieces, digits and the lines around a cell are compared
_CELL = 8  # pixels a side of the smallest cell of a sudoku that is read
_BORDER = 0.14  # of a cell's side: lines lie in it
_INK = 60  # of 255: how far a digit's colour is from that of its cell, a curve's from what was there


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """Reads background, rule and reasoning off a final image. n: pieces or cells a side; 0: of a plot."""

    case: Case
    n: int

    def __call__(self, image: np.ndarray) -> Verdict | None:
        """image: uint8 [H, W, 3]. None where it cannot be read."""
        return _prepared(self)(image)


@lru_cache(maxsize=8)  # what is known of all cases is too much to keep; the samples of a case come in a row
def _prepared(reader: Reader) -> _Solution:
    shown, solved = _images(reader.case)
    return _KINDS[reader.case.set](shown, solved, reader.n)


def reader_of(case: Case) -> Reader | None:
    """The case's reader; None where it might be wrong about it."""
    kind = _KINDS.get(case.set)
    if kind is None or not case.images or not case.references:
        return None
    try:
        shown, solved = _images(case)
    except DataError:
        return None
    if shown.shape != solved.shape:
        return None
    for n in (0,) if case.set == PLOT else (int(case.category.split("x")[0]),) if case.category else SIDES:
        read = kind(shown, solved, n)
        right, copied = read(solved), read(shown)
        if right is None or copied is None or not right.passed:
            continue
        by_name = {check.name: check.status for check in copied.checks}
        if by_name[REASONING] == "fail" and by_name[BACKGROUND] == "pass":
            return Reader(case, n)
    return None


def _images(case: Case) -> Iterator[np.ndarray]:
    return (decode_picture(bytes_of(image), case.id) for image in (*case.images, *case.references))


class _Solution(ABC):
    """What is known of a case, prepared once.

    shown, solved: input and ground truth, uint8 [H, W, 3] of one size. n: pieces or cells a side.
    """

    def __init__(self, shown: np.ndarray, solved: np.ndarray, n: int) -> None:
        self.size, self.n = (solved.shape[0], solved.shape[1]), n

    def __call__(self, image: np.ndarray) -> Verdict | None:
        """image: uint8 [H, W, 3] of any size. None where it cannot be read."""
        seen = fitted(image, self.size)
        return None if seen is None else self.read(np.ascontiguousarray(seen))

    @abstractmethod
    def read(self, image: np.ndarray) -> Verdict | None:
        """image: uint8 [H, W, 3], of the ground truth's size."""


def _shrunk(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """At a height and width, averaged where it shrinks: by halves first, which is faster."""
    import cv2

    while image.shape[0] >= 2 * size[0] and image.shape[1] >= 2 * size[1]:
        tall, wide = image.shape[0] // 2, image.shape[1] // 2  # an odd last line is left out: OpenCV is fast for halves
        image = cv2.resize(image[: 2 * tall, : 2 * wide], (wide, tall), interpolation=cv2.INTER_AREA)
    how = cv2.INTER_AREA if image.shape[0] > size[0] else cv2.INTER_LINEAR
    return cv2.resize(image, size[::-1], interpolation=how)


def _verdict(background: bool, rule: bool, reasoning: bool) -> Verdict:
    right = {BACKGROUND: background, RULE: rule, REASONING: reasoning}
    return Verdict(
        tuple(Check(name, "pass" if right[name] else "fail", "" if right[name] else why) for name, why in WHY.items())
    )


def _normalised(many: np.ndarray) -> np.ndarray:
    """Each of float32 [N, ...] without its mean and of norm 1, [N, D]: products are normalised cross-correlations."""
    flat = many.reshape(len(many), int(np.prod(many.shape[1:])))
    centred = flat - (flat.sum(axis=1, keepdims=True) / max(1, flat.shape[1]))
    return np.asarray(centred / (np.linalg.norm(centred, axis=1, keepdims=True) + 1e-9))


# --- jigsaws ---------------------------------------------------------------------------------------------------------


class _Jigsaw(_Solution):
    """Background: pieces keep their colours. Rule: each piece of the ground truth once. Reasoning: all in place."""

    def __init__(self, shown: np.ndarray, solved: np.ndarray, n: int) -> None:
        super().__init__(shown, solved, n)
        self.wanted = _Pieces(solved, n)
        alike = _Pieces(shown, n).alike(self.wanted)
        # whether the input holds the pieces of the ground truth in another order: so many a side it has
        self.permuted = bool(alike.max(axis=1).min() > 0.95 and (np.diag(alike) < SAME).sum() > 1)

    def __call__(self, image: np.ndarray) -> Verdict | None:
        """As above. Pieces are small: the image need not have the size of the ground truth first."""
        return self.read(image) if proportional(image, self.size) else None

    def read(self, image: np.ndarray) -> Verdict | None:
        from scipy.optimize import linear_sum_assignment

        if not self.permuted:
            return None
        pieces = _Pieces(image, self.n)
        likeness = pieces.alike(self.wanted)
        rows, columns = linear_sum_assignment(-likeness)
        best, in_place = likeness[rows, columns], np.diag(likeness)
        doubtful = (in_place > OTHER) & (in_place < SAME) & (in_place >= best)
        if ((best > OTHER) & (best < SAME)).any() or doubtful.any():
            return None
        drift = np.abs(pieces.colours[rows] - self.wanted.colours[columns]).max()
        kept = bool((best >= SAME).all())
        return _verdict(bool(drift <= COLOUR), kept, bool((in_place >= SAME).all()))


class _Pieces:
    """n x n pieces in reading order, at 24 x 24 pixels; their outermost tenth, where seams are, is left out.

    colours: means, float32 [n * n, 3].
    """

    def __init__(self, image: np.ndarray, n: int) -> None:
        side = _PIECE * 5 // 4  # with that tenth
        pixels = _shrunk(image, (n * side, n * side)).reshape(n, side, n, side, 3).swapaxes(1, 2)
        pixels = pixels.reshape(n * n, side, side, 3)[:, side // 10 : -side // 10, side // 10 : -side // 10]
        pixels = pixels.astype(np.float32)
        self.colours = pixels.mean(axis=(1, 2))
        self.flat = pixels.std(axis=(1, 2)).max(axis=1) < FLAT
        self.shape = _normalised(pixels)

    def alike(self, other: _Pieces) -> np.ndarray:
        """Normalised cross-correlation of each with each; of two without anything to see, whether colours are equal."""
        likeness: np.ndarray = self.shape @ other.shape.T
        both = self.flat[:, None] & other.flat
        if both.any():
            away = np.abs(self.colours[:, None] - other.colours).max(axis=2)
            likeness = np.where(both, away <= COLOUR, likeness)
        return likeness


# --- sudokus ---------------------------------------------------------------------------------------------------------


class _Sudoku(_Solution):
    """Background: lines and given digits stay. Rule: no digit twice in a row, column or box, no cell empty. Reasoning:
    the digits of the ground truth. Digits are told apart by those of the ground truth, whatever their colour."""

    def __init__(self, shown: np.ndarray, solved: np.ndarray, n: int) -> None:
        super().__init__(shown, solved, n)
        self.answer: np.ndarray | None = None
        self.box = _grid_box(shown)
        top, left, bottom, right = self.box
        if min(bottom - top, right - left) < n * _CELL:
            return
        border = round(_BORDER * _LINES)
        inside = np.zeros((_LINES, _LINES), bool)
        inside[border:-border, border:-border] = True
        self.around = np.flatnonzero(~np.tile(inside, (n, n)))
        self.lines = self._lines(shown)
        edges = [np.rint(np.linspace(0, length, n + 1)).astype(int) for length in (bottom - top, right - left)]
        self.cells = [
            tuple(slice(round(a + _BORDER * (b - a)), round(b - _BORDER * (b - a))) for a, b in both)
            for both in product(*(pairwise(edge) for edge in edges))
        ]
        few = np.linspace(0, 0.999, 8)
        spots = [np.stack([(answer.start + few * (answer.stop - answer.start)).astype(int) for answer in some])
                 for some in zip(*self.cells, strict=True)]  # fmt: skip
        self.spots = spots[0][:, :, None], spots[1][:, None, :]
        filled, glyphs = self._glyphs(solved)
        self.answer, self.digits = _classes(glyphs, n) if filled.all() else (None, glyphs[:0])
        self.fixed = self._glyphs(shown)[0].reshape(n, n)

    def read(self, image: np.ndarray) -> Verdict | None:
        if self.answer is None:
            return None
        n = self.n
        filled, glyphs = self._glyphs(image)
        likeness = glyphs @ self.digits.T
        ranked = np.sort(likeness, axis=1)
        clear = (ranked[:, -1] >= 0.7) & (ranked[:, -1] - ranked[:, -2] >= 0.08)
        if not clear.all():
            return None
        digits = np.zeros(n * n, int)
        digits[filled] = likeness.argmax(axis=1) + 1
        grid = digits.reshape(n, n)
        kept = bool((grid == self.answer)[self.fixed].all() and self._lines(image) @ self.lines >= SAME)
        return _verdict(kept, _valid(grid, self.answer), bool((grid == self.answer).all()))

    def _grid(self, image: np.ndarray) -> np.ndarray:
        top, left, bottom, right = self.box
        return image[top:bottom, left:right]

    def _lines(self, image: np.ndarray) -> np.ndarray:
        """The grid with what is inside cells left out, in grey, normalised, float32 [D]."""
        import cv2

        grey = cv2.cvtColor(self._grid(image), cv2.COLOR_RGB2GRAY)
        small = _shrunk(grey, (self.n * _LINES, self.n * _LINES)).ravel()[self.around]
        return _normalised(small.astype(np.float32)[None])[0]

    def _glyphs(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which cells are written in, bool [n * n], and what is written in those, normalised, float32 [N, 400]."""
        import cv2

        grid, n = self._grid(image), self.n
        few = np.sort(grid[self.spots].reshape(n * n, -1, 3), axis=1)
        paper = few[:, few.shape[1] // 2].reshape(n, n, 3)  # the median colour of each cell
        ink = distance(grid, cv2.resize(paper, grid.shape[1::-1], interpolation=cv2.INTER_NEAREST))
        written = cv2.threshold(ink, _INK, 1, cv2.THRESH_BINARY)[1]
        filled, glyphs = np.zeros(n * n, bool), []
        for k, inside in enumerate(self.cells):
            cell = written[inside]
            if cv2.countNonZero(cell) < 0.01 * cell.size:
                continue
            filled[k] = True
            x, y, wide, tall = cv2.boundingRect(cell)
            side = max(wide, tall)
            square = np.zeros((side, side), np.uint8)
            top, left = (side - tall) // 2, (side - wide) // 2
            square[top : top + tall, left : left + wide] = ink[inside][y : y + tall, x : x + wide]
            glyphs.append(cv2.resize(square, (_GLYPH, _GLYPH), interpolation=cv2.INTER_AREA))
        return filled, _normalised(np.array(glyphs, np.float32).reshape(-1, _GLYPH * _GLYPH))


def _grid_box(image: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of what is drawn: a grid reaches furthest."""
    drawn = _drawn(image)
    rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
    if not len(rows):
        return 0, 0, image.shape[0], image.shape[1]
    return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1


def _classes(glyphs: np.ndarray, n: int) -> tuple[np.ndarray | None, np.ndarray]:
    """The ground truth as classes 1 to n, int [n, n], and an image of each; None where that is no Latin square."""
    digits: list[np.ndarray] = []
    named = []
    for glyph in glyphs:
        likeness = [float(glyph @ digit) for digit in digits]
        place = int(np.argmax(likeness)) if likeness and max(likeness) > 0.9 else len(digits)
        if place == len(digits):
            digits.append(glyph)
        named.append(place + 1)
    grid = np.array(named).reshape(n, n)
    return (grid, np.stack(digits)) if len(digits) == n and _latin(grid) else (None, glyphs[:0])


def _latin(grid: np.ndarray) -> bool:
    n = len(grid)
    return all(len(set(line)) == n for line in (*grid, *grid.T))


def _valid(grid: np.ndarray, answer: np.ndarray) -> bool:
    """Boxes are checked in the shape that those of the ground truth have: a 6 x 6 has them of 2 x 3 or of 3 x 2."""
    if (grid == 0).any() or not _latin(grid):
        return False
    shapes = [rows for rows in range(2, len(grid)) if len(grid) % rows == 0 and _boxed(answer, rows)]
    return not shapes or any(_boxed(grid, rows) for rows in shapes)


def _boxed(grid: np.ndarray, rows: int) -> bool:
    """Whether boxes of `rows` rows have each digit once."""
    n = len(grid)
    boxes = grid.reshape(n // rows, rows, rows, n // rows).swapaxes(1, 2).reshape(n, n)
    return all(len(set(box)) == n for box in boxes)


# --- plots -----------------------------------------------------------------------------------------------------------


class _Plot(_Solution):
    """Background: what the input shows stays. Rule and reasoning: the curve of the ground truth, for Table 14 gives
    both 0 where shape or range differ. A curve is what has changed away from what the input shows."""

    def __init__(self, shown: np.ndarray, solved: np.ndarray, n: int) -> None:
        super().__init__(shown, solved, n)
        self.shown = shown
        self.near = max(3, round(NEAR * max(self.size)))
        inked = _grown(_drawn(shown), 3)
        self.free = ~inked
        self.wanted = _changed(solved, shown) & self.free
        self.beside = _grown(self.wanted, self.near, round_=True)
        self.readable = _has_axes(shown, self.wanted, self.near)
        self.stays = np.flatnonzero(inked & ~_grown(_changed(solved, shown), self.near))
        self.background = self._background(shown)

    def _background(self, image: np.ndarray) -> np.ndarray:
        return _normalised(image.reshape(-1, 3)[self.stays].astype(np.float32)[None])[0]

    def read(self, image: np.ndarray) -> Verdict | None:
        if not self.readable:
            return None
        drawn_pixels = _changed(image, self.shown) & self.free
        drawn = int(drawn_pixels.sum())
        if drawn < 0.1 * self.wanted.sum() or not self.wanted.any():
            shares = [0.0]
        else:
            covered = _grown(drawn_pixels, self.near, round_=True)[self.wanted].mean()
            shares = [float((drawn_pixels & self.beside).sum() / drawn), float(covered)]
        if min(shares) < CURVE and min(shares) >= NO_CURVE:
            return None
        right = min(shares) >= CURVE
        kept = bool(self._background(image) @ self.background >= SAME)
        return _verdict(kept, right, right)


def _has_axes(shown: np.ndarray, curve: np.ndarray, near: int) -> bool:
    """Whether lines of the input run along both sides of the curve's box, and the curve leaves most of it free."""
    rows, columns = np.flatnonzero(curve.any(axis=1)), np.flatnonzero(curve.any(axis=0))
    if not len(rows):
        return False
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    if _grown(curve, near)[top:bottom, left:right].mean() > 0.6:
        return False
    ink = _drawn(shown)
    return bool(ink[:, left:right].mean(axis=1).max() > 0.6 and ink[top:bottom].mean(axis=0).max() > 0.6)


def _drawn(image: np.ndarray) -> np.ndarray:
    """Where something stands on the page, bool [H, W]."""
    page = np.median(image.reshape(-1, 3)[::7], axis=0).astype(np.uint8)  # of every seventh pixel: it is most of them
    return _changed(image, np.broadcast_to(page, image.shape))


def _changed(image: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Where two images differ, bool [H, W]."""
    return distance(image, shown) > _INK


def _grown(mask: np.ndarray, by: int, round_: bool = False) -> np.ndarray:
    """Where a mask lies within `by` pixels: in a square, or in a circle."""
    import cv2

    shape = cv2.MORPH_ELLIPSE if round_ else cv2.MORPH_RECT
    kernel = cv2.getStructuringElement(shape, (2 * by + 1, 2 * by + 1))
    return cv2.dilate(mask.astype(np.uint8), kernel).astype(bool)


_KINDS: dict[str, type[_Solution]] = {JIGSAW: _Jigsaw, SUDOKU: _Sudoku, PLOT: _Plot}
