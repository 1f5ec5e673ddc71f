"""Published jigsaws, sudokus and plots by program, on records of our own in their schema."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.eval.benchmarks.published import write_vigor
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Source
from uni_train.eval.benchmarks.vigor import Vigor, solutions
from uni_train.eval.benchmarks.vigor.cases import make_case
from uni_train.eval.benchmarks.vigor.solutions import Reader, reader_of
from uni_train.models.pictures import encode_png

SQUARE = np.array([[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]])
GIVEN = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]], bool)


def sudoku(grid: np.ndarray, given: np.ndarray = GIVEN, cell: int = 64) -> np.ndarray:
    """Given digits in blue, others in black, 0 left empty."""
    n = len(grid)
    image = Image.new("RGB", (n * cell + 40, n * cell + 40), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=cell * 0.6)
    for i in range(n + 1):
        at, wide = 20 + i * cell, 4 if i % 2 == 0 else 2
        draw.line((20, at, 20 + n * cell, at), "black", wide)
        draw.line((at, 20, at, 20 + n * cell), "black", wide)
    for (row, column), digit in np.ndenumerate(grid):
        if digit:
            at = (20 + (column + 0.5) * cell, 20 + (row + 0.5) * cell)
            draw.text(at, str(digit), (30, 60, 200) if given[row, column] else (20, 20, 20), font, anchor="mm")
    return np.asarray(image)


def scenery(seed: int = 0, side: int = 240) -> np.ndarray:
    """Smooth colours and some shapes."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(30, 226, (12, 12, 3), dtype=np.uint8))
    image = small.resize((side, side), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(40):
        x, y, r = random.integers(0, side), random.integers(0, side), random.integers(4, 14)
        draw.ellipse((x - r, y - r, x + r, y + r), tuple(int(v) for v in random.integers(0, 256, 3)))
    return np.asarray(image)


def scrambled(image: np.ndarray, order: list[int], n: int) -> np.ndarray:
    side = image.shape[0] // n
    pieces = [image[r * side : (r + 1) * side, c * side : (c + 1) * side] for r in range(n) for c in range(n)]
    rows = [np.concatenate([pieces[i] for i in order[r * n : (r + 1) * n]], axis=1) for r in range(n)]
    return np.concatenate(rows)


def axes(width: int = 480, height: int = 360) -> np.ndarray:
    """A formula above a frame with ticks and their labels."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.text((width / 2, 20), "y = sin(x) + x / 4,  x in [-10, 10]", "black", ImageFont.load_default(size=18), "mm")
    draw.rectangle((60, 45, width - 20, height - 40), outline="black", width=2)
    for x in range(60, width - 20, 50):
        draw.line((x, height - 40, x, height - 34), "black", 2)
        draw.text((x, height - 20), f"{(x - 60) // 20 - 10}", "black", ImageFont.load_default(size=12), "mm")
    return np.asarray(image)


def plot(f: Callable[[np.ndarray], np.ndarray], to: float = 10, colour: str = "blue", wide: int = 2) -> np.ndarray:
    """The curve of f over [-10, to] in those axes, y from -4 to 4."""
    image = Image.fromarray(axes())
    x = np.linspace(-10, to, 800)
    points = zip(60 + (x + 10) / 20 * 400, 182 - f(x) / 4 * 130, strict=True)
    ImageDraw.Draw(image).line([(float(a), float(b)) for a, b in points], colour, wide, "curve")
    return np.asarray(image)


def wave(x: np.ndarray) -> np.ndarray:
    return np.sin(x) + x / 4


def record(task: str, shown: np.ndarray, solved: np.ndarray, size: str = "") -> Case:
    images = encode_png(shown), encode_png(solved)
    return make_case(task, "1", "Solve it.", images[0], answer_image=images[1], size=size)


def reader(task: str, shown: np.ndarray, solved: np.ndarray, size: str = "") -> Reader:
    found = reader_of(record(task, shown, solved, size))
    assert found is not None
    return found


def as_models_draw(image: np.ndarray, side: int) -> np.ndarray:
    """Another size, JPEG, a little noise."""
    buffer = io.BytesIO()
    Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=80)
    noise = np.random.default_rng(side).normal(0, 4, (side, side, 3))
    return np.clip(np.asarray(Image.open(buffer)) + noise, 0, 255).astype(np.uint8)


def statuses(verdict: Verdict | None) -> str:
    """A letter a check: "ppf" for pass, pass, fail; "" where only a judge can tell."""
    return "" if verdict is None else "".join(check.status[0] for check in verdict.checks)


def test_sudokus_are_read_whatever_the_colour_of_their_digits() -> None:
    shown, solved = sudoku(np.where(GIVEN, SQUARE, 0)), sudoku(SQUARE)
    read = reader("sudoku", shown, solved, size="4x4")
    assert read.n == 4
    swapped, changed, one_empty = SQUARE.copy(), SQUARE.copy(), SQUARE.copy()
    swapped[:, [1, 2]] = swapped[:, [2, 1]]
    changed[0, 0], one_empty[0, 1] = 2, 0
    for image, said in (
        (solved, "ppp"), (as_models_draw(sudoku(SQUARE, np.ones_like(GIVEN)), 512), "ppp"),
        (shown, "pff"), (sudoku(one_empty), "pff"), (sudoku(changed), "fff"), (sudoku(swapped), "fff"),
        (np.zeros_like(solved), "fff"), (scenery(side=256), ""),
    ):  # fmt: skip
        assert statuses(read(image)) == said


def cyclic(steps: Sequence[int]) -> np.ndarray:
    """A Latin square whose rows are shifted by `steps`."""
    n = len(steps)
    return np.array([[(column + step) % n + 1 for column in range(n)] for step in steps])


@pytest.mark.parametrize(
    ("solved", "boxes_broken"),
    [
        (SQUARE, cyclic((0, 1, 2, 3))), (cyclic((0, 3, 1, 4, 2, 5)), cyclic((0, 1, 2, 3, 4, 5))),  # 2 x 2, 2 x 3
        (cyclic((0, 2, 4, 1, 3, 5)), cyclic((0, 1, 2, 3, 4, 5))),
        (cyclic((0, 3, 6, 1, 4, 7, 2, 5, 8)), cyclic(range(9))),
    ],
    ids=["4", "6, two rows", "6, three rows", "9"],
)  # fmt: skip
def test_boxes_of_every_size_keep_the_rule(solved: np.ndarray, boxes_broken: np.ndarray) -> None:
    """A Latin square with broken boxes keeps no rule of sudoku; a size without boxes has rows and columns alone."""
    given = np.zeros(solved.shape, bool)
    read = reader("sudoku", sudoku(np.where(given, solved, 0), given), sudoku(solved, given))
    assert read.n == len(solved)
    assert statuses(read(sudoku(solved, given))) == "ppp"
    assert statuses(read(sudoku(boxes_broken, given)))[1:] == "ff"
    seven, other = cyclic(range(7)), cyclic([*range(1, 7), 0])
    assert solutions._valid(other, seven)


def test_a_jigsaw_is_right_when_every_piece_is_at_its_place() -> None:
    solved, order = scenery(), [3, 0, 2, 1, 5, 8, 6, 4, 7]
    for n in (2, 4):  # pieces are found without a size
        assert reader("jigsaw_puzzle", scrambled(solved, [*range(1, n * n), 0], n), solved).n == n
    read = reader("jigsaw_puzzle", scrambled(solved, order, 3), solved)
    assert read.n == 3
    for image, said in (
        (as_models_draw(solved, 300), "ppp"),
        (scrambled(solved, order, 3), "ppf"), (scrambled(solved, [0, 1, 2, 3, 4, 5, 6, 8, 7], 3), "ppf"),
        (solved[:, :150], ""),
    ):  # fmt: skip
        assert statuses(read(image)) == said
    assert statuses(read(scrambled(solved, [0, 0, 2, 3, 4, 5, 6, 7, 8], 3)))[-1] == "f"


def test_a_plot_is_right_where_its_curve_lies_on_the_true_one() -> None:
    read = reader("function_plotting", axes(), plot(wave))
    noisy = np.asarray(Image.fromarray(as_models_draw(plot(wave), 640)).resize((640, 480)))
    for image, said in (
        (plot(wave), "ppp"), (plot(wave, colour="red", wide=4), "ppp"), (noisy, "ppp"),
        (axes(), "pff"), (plot(lambda x: np.cos(x) + x / 4), "pff"), (plot(lambda x: 1.5 * np.sin(x) + x / 4), "pff"),
        (plot(wave, to=5), "pff"), (np.full_like(axes(), 255), "fff"),
        (plot(wave, to=8), ""), (plot(wave)[:, :300], ""),  # nine tenths of it: nobody can tell how exact is exact
    ):  # fmt: skip
        assert statuses(read(image)) == said


@pytest.mark.slow
def test_what_a_program_might_be_wrong_about_is_the_judge_s() -> None:
    solved = scenery()
    wrong = SQUARE.copy()
    wrong[0] = wrong[1]
    for name, task, shown, answer, *size in (
        ("other size", "jigsaw_puzzle", solved[:200], solved),
        ("not its pieces", "jigsaw_puzzle", scenery(1), solved, "3x3"),
        ("solved already", "jigsaw_puzzle", solved, solved),
        ("no Latin square", "sudoku", sudoku(np.where(GIVEN, wrong, 0)), sudoku(wrong)),
        ("cells of two pixels", "sudoku", np.full((8, 8, 3), 255, np.uint8), np.zeros((8, 8, 3), np.uint8)),
        ("a plot without axes", "function_plotting", np.full_like(axes(), 255), plot(wave)),
        ("a plot that fills its box", "function_plotting", axes(), plot(lambda x: 3 * np.sin(20 * x))),
        ("a building", "block_building", solved[::-1], solved),
    ):
        assert reader_of(record(task, shown, answer, *size)) is None, name


def test_a_judge_is_asked_where_the_program_cannot_tell(tmp_path: Path) -> None:
    shown, solved = sudoku(np.where(GIVEN, SQUARE, 0)), sudoku(SQUARE)
    data = write_vigor(tmp_path, record("sudoku", shown, solved, size="4x4"))
    benchmark = Vigor(Source(data=data))
    (case,) = benchmark.cases()

    def sample(image: np.ndarray, setting: str = "direct") -> Sample:
        return Sample(Ask(case, setting, 0, 1), parts=(encode_png(image),))

    right = benchmark.check(sample(solved))
    assert right is not None and right.passed and benchmark.check(sample(scenery(side=256))) is None
    assert benchmark.check(sample(solved, "process")) is None
    assert Vigor(Source(data=data, verifier="judge")).check(sample(solved)) is None
    asks = [Ask(case, "direct", 0, 1)]
    assert benchmark.calls(asks)["judge"] == 0
    assert Vigor(Source(data=data), visual_quality="judge").calls(asks)["judge"] == 1
