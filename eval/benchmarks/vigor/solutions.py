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

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from uni_train.data_gen.errors import DataError
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
ASPECT = 0.05  # how far the sides of an output may differ in proportion
SIDES = range(2, 10)  # of jigsaws and sudokus
NEAR = 0.012  # of the longer side: how far a curve may lie from that of the ground truth
CURVE, NO_CURVE = 0.95, 0.85  # shares of a curve that lie near, where it is the same, and where it is another
_PIECE, _GLYPH = 24, 20  # pixels a side at which pieces and digits are compared
_INK = 60.0  # of 255: how far a digit's colour is from that of its cell, a curve's from what was there


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads background, rule and reasoning off a final image. n: pieces or cells a side; 0: of a plot."""

    case: Case
    n: int

    def __call__(self, image: np.ndarray) -> Verdict | None:
        """image: uint8 [H, W, 3]. None where it cannot be read."""
        shown, solved = _images(self.case)
        return _READERS[self.case.set](_fitted(image, solved), shown, solved, self.n)


def reader_of(case: Case) -> Reader | None:
    """The case's reader; None where it might be wrong about it."""
    read = _READERS.get(case.set)
    if read is None or not case.images or not case.references:
        return None
    try:
        shown, solved = _images(case)
    except DataError:
        return None
    if shown.shape != solved.shape:
        return None
    for n in (0,) if case.set == PLOT else (int(case.category.split("x")[0]),) if case.category else SIDES:
        right, copied = read(solved, shown, solved, n), read(shown, shown, solved, n)
        if right is None or copied is None or not right.passed:
            continue
        by_name = {check.name: check.status for check in copied.checks}
        if by_name[REASONING] == "fail" and by_name[BACKGROUND] == "pass":
            return Reader(case, n)
    return None


def _images(case: Case) -> Iterator[np.ndarray]:
    """Input and ground truth, decoded anew: those of all cases are too many to keep."""
    return (decode_picture(bytes_of(image), case.id) for image in (*case.images, *case.references))


def _fitted(image: np.ndarray, like: np.ndarray) -> np.ndarray | None:
    """At the size of `like`; None where its proportions are others."""
    import cv2

    (height, width), (tall, wide) = image.shape[:2], like.shape[:2]
    if abs(width * tall / (height * wide) - 1) > ASPECT:
        return None
    if (height, width) == (tall, wide):
        return image
    return cv2.resize(image, (wide, tall), interpolation=cv2.INTER_AREA if height > tall else cv2.INTER_LINEAR)


def _verdict(background: bool, rule: bool, reasoning: bool) -> Verdict:
    right = {BACKGROUND: background, RULE: rule, REASONING: reasoning}
    return Verdict(
        tuple(Check(name, "pass" if right[name] else "fail", "" if right[name] else why) for name, why in WHY.items())
    )


# --- jigsaws ---------------------------------------------------------------------------------------------------------


def _jigsaw(image: np.ndarray | None, shown: np.ndarray, solved: np.ndarray, n: int) -> Verdict | None:
    """Background: pieces keep their colours. Rule: each piece of the ground truth once. Reasoning: all in place."""
    from scipy.optimize import linear_sum_assignment

    if image is None:
        return None
    pieces, given, wanted = (_pieces(one, n) for one in (image, shown, solved))
    if not _permuted(given, wanted):
        return None
    likeness = np.array([[_alike(one, other) for other in wanted] for one in pieces])
    rows, columns = linear_sum_assignment(-likeness)
    best, in_place = likeness[rows, columns], np.diag(likeness)
    if ((best > OTHER) & (best < SAME)).any() or ((in_place > OTHER) & (in_place < SAME) & (in_place >= best)).any():
        return None
    drift = [
        np.abs(pieces[i].mean(axis=(0, 1)) - wanted[j].mean(axis=(0, 1))).max()
        for i, j in zip(rows, columns, strict=True)
    ]
    kept = bool((best >= SAME).all())
    return _verdict(max(drift) <= COLOUR, kept, bool((in_place >= SAME).all()))


def _pieces(image: np.ndarray, n: int) -> list[np.ndarray]:
    """n x n pieces in reading order, float32 [24, 24, 3]; their outermost tenth, where seams are, is left out."""
    import cv2

    height, width = image.shape[0] / n, image.shape[1] / n
    found = []
    for row in range(n):
        for column in range(n):
            top, left = round((row + 0.1) * height), round((column + 0.1) * width)
            piece = image[top : round((row + 0.9) * height), left : round((column + 0.9) * width)]
            found.append(cv2.resize(piece, (_PIECE, _PIECE), interpolation=cv2.INTER_AREA).astype(np.float32))
    return found


def _permuted(given: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    """Whether the input holds the pieces of the ground truth in another order: so many a side it has."""
    best = [max(_alike(one, other) for other in wanted) for one in given]
    moved = sum(_alike(one, other) < SAME for one, other in zip(given, wanted, strict=True))
    return min(best) > 0.95 and moved > 1


def _alike(one: np.ndarray, other: np.ndarray) -> float:
    """Normalised cross-correlation; of pieces without anything to see, whether their colours are the same."""
    if one.std(axis=(0, 1)).max() < FLAT and other.std(axis=(0, 1)).max() < FLAT:
        return float(np.abs(one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))).max() <= COLOUR)
    return _ncc(one, other)


def _ncc(one: np.ndarray, other: np.ndarray) -> float:
    a, b = one.ravel() - one.mean(), other.ravel() - other.mean()
    return float(a @ b / np.sqrt(float(a @ a) * float(b @ b) + 1e-9))


# --- sudokus ---------------------------------------------------------------------------------------------------------


def _sudoku(image: np.ndarray | None, shown: np.ndarray, solved: np.ndarray, n: int) -> Verdict | None:
    """Background: lines and given digits stay. Rule: no digit twice in a row, column or box, no cell empty. Reasoning:
    the digits of the ground truth. Digits are told apart by those of the ground truth, whatever their colour."""
    if image is None:
        return None
    box = _grid_box(shown)
    wanted, given, seen = (_glyphs(one, box, n) for one in (solved, shown, image))
    answer, digits = _classes(wanted, n)
    if answer is None:
        return None
    read = [_digit(glyph, digits) for glyph in seen]
    if None in read:
        return None
    found = np.array(read).reshape(n, n)
    fixed = np.array([glyph is not None for glyph in given]).reshape(n, n)
    kept = bool((found == answer)[fixed].all()) and _lines_kept(image, shown, box, n)
    return _verdict(kept, _valid(found, answer), bool((found == answer).all()))


def _grid_box(image: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, bottom, right of what is drawn: a grid reaches furthest."""
    drawn = _drawn(image)
    rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
    if not len(rows):
        return 0, 0, image.shape[0], image.shape[1]
    return int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1


def _cells(box: tuple[int, int, int, int], n: int) -> Iterator[tuple[slice, slice]]:
    """The insides of the n x n cells, in reading order: rows and columns of an image."""
    top, left, bottom, right = box
    height, width = (bottom - top) / n, (right - left) / n
    for row in range(n):
        for column in range(n):
            y, x = top + row * height, left + column * width
            yield (slice(round(y + 0.14 * height), round(y + 0.86 * height)),
                   slice(round(x + 0.14 * width), round(x + 0.86 * width)))  # fmt: skip


def _glyphs(image: np.ndarray, box: tuple[int, int, int, int], n: int) -> list[np.ndarray | None]:
    """What is written in each cell, float32 [20, 20] of ink; None in an empty one."""
    import cv2

    glyphs: list[np.ndarray | None] = []
    for inside in _cells(box, n):
        cell = image[inside].astype(np.float32)
        ink = np.abs(cell - np.median(cell.reshape(-1, 3), axis=0)).max(axis=2)
        ys, xs = np.nonzero(ink > _INK)
        if len(ys) < 0.01 * ink.size:
            glyphs.append(None)
            continue
        glyph = ink[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
        side = max(glyph.shape)
        square = np.zeros((side, side), np.float32)
        y, x = ((side - length) // 2 for length in glyph.shape)
        square[y : y + glyph.shape[0], x : x + glyph.shape[1]] = glyph
        glyphs.append(cv2.resize(square, (_GLYPH, _GLYPH), interpolation=cv2.INTER_AREA))
    return glyphs


def _classes(glyphs: list[np.ndarray | None], n: int) -> tuple[np.ndarray | None, list[np.ndarray]]:
    """The ground truth as classes 1 to n, int [n, n], and an image of each; None where that is no Latin square."""
    digits: list[np.ndarray] = []
    named = []
    for glyph in glyphs:
        if glyph is None:
            return None, []
        likeness = [_ncc(glyph, digit) for digit in digits]
        place = int(np.argmax(likeness)) if likeness and max(likeness) > 0.9 else len(digits)
        if place == len(digits):
            digits.append(glyph)
        named.append(place + 1)
    grid = np.array(named).reshape(n, n)
    return (grid, digits) if len(digits) == n and _latin(grid) else (None, [])


def _digit(glyph: np.ndarray | None, digits: list[np.ndarray]) -> int | None:
    """Which of the digits it is; 0: the cell is empty; None: nobody can tell."""
    if glyph is None:
        return 0
    ranked = sorted(((_ncc(glyph, digit), place + 1) for place, digit in enumerate(digits)), reverse=True)
    clear = ranked[0][0] >= 0.7 and ranked[0][0] - ranked[1][0] >= 0.08
    return ranked[0][1] if clear else None


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


def _lines_kept(image: np.ndarray, shown: np.ndarray, box: tuple[int, int, int, int], n: int) -> bool:
    """Whether the grid looks as before, with what is inside cells left out."""
    outside = np.ones(shown.shape[:2], bool)
    for inside in _cells(box, n):
        outside[inside] = False
    return _ncc(image[outside].astype(np.float32), shown[outside].astype(np.float32)) >= SAME


# --- plots -----------------------------------------------------------------------------------------------------------


def _plot(image: np.ndarray | None, shown: np.ndarray, solved: np.ndarray, n: int) -> Verdict | None:
    """Background: what the input shows stays. Rule and reasoning: the curve of the ground truth, for Table 14 gives
    both 0 where shape or range differ. A curve is what has changed away from what the input shows."""
    import cv2

    if image is None:
        return None
    inked = _grown(_drawn(shown), 3)
    wanted, found = (_changed(one, shown) & ~inked for one in (solved, image))
    near = max(3, round(NEAR * max(shown.shape[:2])))
    if not _has_axes(shown, wanted, near):
        return None
    stays = inked & ~_grown(_changed(solved, shown), near)
    kept = _ncc(image[stays].astype(np.float32), shown[stays].astype(np.float32)) >= SAME
    away = [cv2.distanceTransform((~one).astype(np.uint8), cv2.DIST_L2, 3) if one.any() else None
            for one in (wanted, found)]  # fmt: skip
    shares = [
        0.0 if one.sum() < 0.1 * wanted.sum() or distance is None else float((distance[one] <= near).mean())
        for one, distance in zip((found, wanted), away, strict=True)
    ]
    if min(shares) < CURVE and min(shares) >= NO_CURVE:
        return None
    right = min(shares) >= CURVE
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
    import cv2

    red, green, blue = cv2.split(cv2.absdiff(image, np.ascontiguousarray(shown)))
    return cv2.max(cv2.max(red, green), blue) > _INK  # type: ignore[no-any-return]


def _grown(mask: np.ndarray, by: int) -> np.ndarray:
    import cv2

    return cv2.dilate(mask.astype(np.uint8), np.ones((2 * by + 1, 2 * by + 1), np.uint8)).astype(bool)


_Reader = Callable[[np.ndarray | None, np.ndarray, np.ndarray, int], Verdict | None]
_READERS: dict[str, _Reader] = {JIGSAW: _jigsaw, SUDOKU: _sudoku, PLOT: _plot}
