"""The figures on mazes in research/verifiers.md, as markdown tables.

    python bench/maze.py suite [--seed 3] [--mazes 54]     the verifier's confusion matrix over the corruption suite
    python bench/maze.py speed [--n 48]                    verified images a second and core
    python bench/maze.py make [--reference PYTHON]         mazes a second, beside those of the package maze-dataset

`suite` draws the same images for the same seed; thresholds were fitted on 0 to 2: report another one. `make` times
this package and, in turn with it, maze-dataset 1.4.2 under the interpreter PYTHON, of a throw-away environment:

    python3.11 -m venv ENV && ENV/bin/pip install maze-dataset==1.4.2 'muutils<0.9'

Times are CPU seconds of one process with one thread (medians of rounds), so that other processes disturb little.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cv2
import numpy as np

from bench.markdown import row, table
from bench.maze_corruptions import WEAR, WIDTHS, Scene, by_hand, some_red, suite
from uni_train.data_gen.maze import picture as pictures
from uni_train.data_gen.maze.grid import ALGORITHMS, draw
from uni_train.data_gen.maze.task import Maze, read_facts
from uni_train.data_gen.maze.verifier import CHECKS, judge
from uni_train.data_gen.seeds import rng
from uni_train.data_gen.task import Item
from uni_train.eval.statistics import proportion

STATUSES = ("pass", "fail", "unreadable")
GRIDS = (4, 8, 16)
ROUNDS = 5
# What maze-dataset does for one maze: carve, choose two rooms and the way between them, draw all of it.
REFERENCE = """
import json, statistics, sys, time, warnings
import numpy as np
from maze_dataset import SolvedMaze
from maze_dataset.generation import LatticeMazeGenerators
warnings.simplefilter("ignore")
for line in sys.stdin:
    name, n, count = json.loads(line)
    carve, shape = getattr(LatticeMazeGenerators, "gen_" + name), np.array([n, n])
    began = time.process_time()
    for _ in range(count):
        maze = carve(shape)
        SolvedMaze.from_lattice_maze(maze, maze.generate_random_path()).as_pixels()
    print(json.dumps((time.process_time() - began) / count), flush=True)
"""


def with_interval(wrong: int, n: int) -> str:
    """ "0.4 % [0.1, 1.0]", the share with its 95 % interval; "-" of nothing."""
    if not n:
        return "-"
    share = proportion(wrong, n)
    return f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


# ------------------------------------------------------------------------------------------------------------- suite


def print_suite(seed: int, mazes: int) -> Iterator[str]:
    matrix: dict[str, Counter[str]] = defaultdict(Counter)
    by_name: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    by_check: dict[str, Counter[tuple[bool, str]]] = defaultdict(Counter)
    for case in suite(seed, mazes):
        verdict = judge(*read_facts(case.item), case.image)
        wrong = case.is_wrong(verdict)
        for counter in (matrix[case.kind], by_name[case.kind, case.name]):
            counter[verdict.status] += 1
            counter["wrong"] += wrong
        for check in verdict.checks:
            if case.kind == "worn" or check.name in case.must_fail:
                by_check[check.name][case.kind == "worn", check.status] += 1
    yield f"Seed {seed}, {mazes} mazes of all styles but nano, {sum(map(total, matrix.values()))} images."
    yield ""
    yield from table("", "images", *STATUSES, "wrong", "of them")
    for kind, truth in (("worn", "right, worn"), ("faulty", "one fault"), ("trap", "traps")):
        counts = matrix[kind]
        yield row(truth, total(counts), *(counts[status] for status in STATUSES), counts["wrong"],
                  with_interval(counts["wrong"], total(counts)))  # fmt: skip
    yield ""
    yield from table("check", "must pass: passes", "does not", "must fail: does not pass", "passes")
    for name in CHECKS:
        counts_of = by_check[name]
        missed = [sum(counts_of[right, status] for status in STATUSES[1:]) for right in (True, False)]
        yield row(name, counts_of[True, "pass"], missed[0], missed[1], counts_of[False, "pass"])
    yield ""
    yield from table("", "images", *STATUSES, "wrong")
    for (kind, name), counts in by_name.items():
        yield row(f"{kind}: {name}", total(counts), *(counts[status] for status in STATUSES), counts["wrong"])


def total(counts: Counter[str]) -> int:
    return sum(counts[status] for status in STATUSES)


# ------------------------------------------------------------------------------------------------------------- speed


def seconds(run: Callable[[], object]) -> float:
    """Median CPU seconds of a run; a first one does not count."""
    taken = []
    for i in range(ROUNDS + 1):
        began = time.process_time()
        run()
        if i:
            taken.append(time.process_time() - began)
    return statistics.median(taken)


def worn(item: Item, seed: int) -> np.ndarray:
    """A solution by another hand as a model might return it: drifted, softened, saved as JPEG; of the same size."""
    grid, picture = read_facts(item)
    random_ = rng("bench", item.id, seed)
    scene = Scene(item, grid, picture, random_, random_.choice(WIDTHS), some_red(random_))
    image = by_hand(scene)
    for name in ("zoom", "vae", "jpeg"):
        image = WEAR[name](scene, image)
    return image


def print_speed(n: int) -> Iterator[str]:
    groups = max(1, n // 16)
    yield from table(
        "images of 512 x 512, a second and core", "targets, one a maze", "targets, 16 a maze", "worn, 16 a maze"
    )
    for style in ("classic", "varied"):
        for level in (4, 8, 16):
            items = Maze(style).generate(n, level, "test", 0)
            scenes = [(*read_facts(item), Maze().render(item)) for item in items]
            columns = (
                scenes,
                [scene for scene in scenes[:groups] for _ in range(16)],
                [(*read_facts(item), worn(item, seed)) for item in items[:groups] for seed in range(16)],
            )
            speeds = (len(some) / seconds(lambda some=some: [judge(*scene) for scene in some])  # type: ignore[misc]
                      for some in columns)  # fmt: skip
            yield row(f"{style}, {level} x {level} rooms", *(f"{speed:.0f}" for speed in speeds))


# -------------------------------------------------------------------------------------------------------------- make


def make_mazes(algorithm: str, n: int, style: str, count: int) -> None:
    """Carve, choose S and E, find the way, draw the maze with it."""
    random_ = rng("bench", algorithm, n)
    for _ in range(count):
        grid = draw(algorithm, n, n, random_)
        pictures.draw(grid, pictures.choose_picture(style, n, None, random_), grid.route())


def print_make(reference: str | None) -> Iterator[str]:
    other = None
    if reference:
        other = subprocess.Popen(
            [reference, "-c", REFERENCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    yield from table(
        "grid", "carved by", "nano, a second", "512 x 512, a second", "maze-dataset, a second", "nano / it"
    )
    for n in GRIDS:
        for algorithm in ALGORITHMS:
            count = max(2, 1500 // n**2 // (4 if algorithm == "wilson" else 1))
            times: dict[str, list[float]] = {"nano": [], "classic": [], "reference": []}
            for _ in range(ROUNDS):
                for style in ("nano", "classic"):
                    began = time.process_time()
                    make_mazes(algorithm, n, style, count)
                    times[style].append((time.process_time() - began) / count)
                if other is not None and other.stdin is not None and other.stdout is not None:
                    print(json.dumps([algorithm, n, count]), file=other.stdin, flush=True)
                    times["reference"].append(float(json.loads(other.stdout.readline() or "NaN")))
            nano, large = (1 / statistics.median(times[style]) for style in ("nano", "classic"))
            theirs = 1 / statistics.median(times["reference"]) if times["reference"] else math.nan
            ratio = f"{nano / theirs:.1f}" if times["reference"] else "-"
            yield row(f"{n} x {n}", algorithm, f"{nano:.0f}", f"{large:.0f}", f"{theirs:.0f}", ratio)
    if other is not None:
        other.kill()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = made.add_subparsers(dest="part", required=True)
    suite_part = parts.add_parser("suite")
    suite_part.add_argument("--seed", type=int, default=3)
    suite_part.add_argument("--mazes", type=int, default=54)
    parts.add_parser("speed").add_argument("--n", type=int, default=48)
    parts.add_parser("make").add_argument("--reference", metavar="PYTHON")
    return made


def main() -> None:
    chosen = parser().parse_args()
    cv2.setNumThreads(1)
    lines = {
        "suite": lambda: print_suite(chosen.seed, chosen.mazes),
        "speed": lambda: print_speed(chosen.n),
        "make": lambda: print_make(chosen.reference),
    }[chosen.part]
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
