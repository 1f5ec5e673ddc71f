"""Puzzles: are their labels right, how fast are they, and what do lazy strategies reach?

    python bench/puzzles.py labels --items 100000    every label beside an independent solver (bench/solvers.py)
    python bench/puzzles.py speed                    items that are drawn, rendered and verified, a second and core
    python bench/puzzles.py changes --items 500      right images after JPEG, shifts and the like: false rejects
    python bench/puzzles.py strategies --items 500   the share that strategies pass which do not solve the puzzle
    python bench/puzzles.py attacks --items 40       wrong images that pass, right ones that fail: so many different
                                                     items of each level in the style plain, thrice as many in nano
    python bench/puzzles.py picture                  draw docs/images/puzzles.png again: a puzzle of each family

Each takes --only FAMILY,FAMILY, all but attacks --style nano. Items are those of the test split, spread over all
levels.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.choices import some_of
from bench.markdown import interval, row, table
from bench.solvers import SOLVERS
from uni_train.core.seeds import rng
from uni_train.data_gen.attacks import ATTACKS, attack_items
from uni_train.data_gen.puzzle import NANO, PLAIN, STYLES, Puzzle
from uni_train.data_gen.registry import TASKS
from uni_train.data_gen.task import Item, collect
from uni_train.eval.statistics import proportion

NANO_ITEMS = 3  # attacked in the style nano for one in the style plain: they take a fifteenth of the time
SECONDS = 3.0  # of a CPU, that the speed of a level is measured for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("labels", "speed", "changes", "strategies", "attacks", "picture"))
    parser.add_argument("--items", type=int, default=1000, help="of all families together, of each, or of each level")
    parser.add_argument("--only", type=some_of(SOLVERS), default=list(SOLVERS))
    parser.add_argument("--style", choices=STYLES, default=PLAIN)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    reports = {
        "labels": labels, "speed": speed, "changes": changes, "strategies": strategies, "attacks": attacks,
        "picture": picture,
    }  # fmt: skip
    for line in reports[arguments.what](arguments.only, arguments.style, arguments.items):
        print(line, flush=True)


def tasks_of(family: str, style: str) -> tuple[Puzzle, tuple[int, ...]]:
    """The task and its levels in a style."""
    task: Puzzle = TASKS.get(family)(style)  # type: ignore[assignment, call-arg]
    return task, task.possible_levels


def items_of(family: str, style: str, n: int) -> Iterator[Item]:
    """`n` draws of the test split, the levels in turn; an item may come again."""
    task, levels = tasks_of(family, style)
    for k in range(n):
        yield task.sample(k // len(levels), levels[k % len(levels)], "test")[0]


def labels(families: list[str], style: str, items: int) -> Iterator[str]:
    yield from table("family", "items", "distinct", "wrong labels", "items solved again a second")
    total: Counter[str] = Counter()
    for family in families:
        begin, wrong, seen = time.process_time(), [], set()
        n = -(-items // len(families))
        for item in items_of(family, style, n):
            seen.add(item.id)
            if SOLVERS[family](item) != item.facts["solution"]:
                wrong.append(item.id)
        yield row(family, n, len(seen), len(wrong), f"{n / (time.process_time() - begin):.0f}")
        for name in wrong[:3]:
            print(f"wrong: {name}", file=sys.stderr)
        total.update(items=n, distinct=len(seen), wrong=len(wrong))
    yield row("all", total["items"], total["distinct"], total["wrong"], "")
    if total["wrong"]:
        sys.exit(1)


def speed(families: list[str], style: str, items: int) -> Iterator[str]:
    """CPU seconds of one process for sampling, rendering the target and verifying it."""
    yield from table("family", "level", "items a second and core")
    for family in families:
        task, levels = tasks_of(family, style)
        for level in levels:
            begin, n = time.process_time(), 0
            while (spent := time.process_time() - begin) < SECONDS:
                (item,) = task.sample(n, level, "train")
                assert task.verify(item, task.render(item)).passed
                n += 1
            yield row(family, level, f"{n / spent:.0f}")


def _jpeg(image: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=70)
    return np.asarray(Image.open(file).convert("RGB"))


def _shifted(y: float, x: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def change(image: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        matrix = np.array([[1.0, 0, x], [0, 1, y]])
        return cv2.warpAffine(image, matrix, image.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)

    return change


def _resized(share: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def change(image: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        small = cv2.resize(image, None, fx=share, fy=share, interpolation=cv2.INTER_AREA)
        return cv2.resize(small, image.shape[1::-1], interpolation=cv2.INTER_CUBIC)

    return change


def _noisy(image: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """What an autoencoder of images does, in its stead: three fifths of the resolution, and noise."""
    soft = _resized(0.6)(image, noise).astype(np.float32)
    return np.clip(soft + noise.normal(0, 6, soft.shape), 0, 255).astype(np.uint8)


CHANGES = {
    "as drawn": lambda image, noise: image,
    "JPEG, quality 70": _jpeg,
    "shift of 1 pixel": _shifted(1, -1),
    "shift of 2 pixels": _shifted(-2, 2),
    "shift by fractions": _shifted(0.5, 1.5),
    "anti-aliased: halved, doubled": _resized(0.5),
    "three fifths and noise": _noisy,
    "1024 pixels": lambda image, noise: cv2.resize(image, (1024, 1024), interpolation=cv2.INTER_CUBIC),
}


def changes(families: list[str], style: str, items: int) -> Iterator[str]:
    yield from table("family", *CHANGES, "false rejects")
    for family in families:
        refused: Counter[str] = Counter()
        task, _ = tasks_of(family, style)
        for k, item in enumerate(items_of(family, style, items)):
            image = task.render(item)
            for name, change in CHANGES.items():
                refused[name] += not task.verify(item, change(image, np.random.default_rng(k))).passed
        whole = proportion(sum(refused.values()), items * len(CHANGES))
        yield row(family, *(refused[name] for name in CHANGES), interval(whole, ".2f", scale=100) + " %")


def strategies(families: list[str], style: str, items: int) -> Iterator[str]:
    yield from table("family", "strategy", "passes", "mean score")
    for family in families:
        passed: Counter[str] = Counter()
        scores: dict[str, list[float]] = {}
        task, _ = tasks_of(family, style)
        for item in items_of(family, style, items):
            for name, state in task.lazy(item.facts, rng("lazy", item.id)).items():
                verdict = task.verify(item, task.picture(item.facts, state))
                passed[name] += verdict.passed
                scores.setdefault(name, []).append(verdict.score or 0)
        for name, some in scores.items():
            share = interval(proportion(passed[name], len(some)), ".1f", scale=100)
            yield row(family, name, f"{share} %", f"{sum(some) / len(some):.2f}")


def attacks(families: list[str], style: str, items: int) -> Iterator[str]:
    """Those of `data audit-verifier`; NANO_ITEMS times as many items in the style nano, fewer where no more differ."""
    yield from table(
        "family", "attacks, plain", "attacks, nano", "false accepts", "right images", "false rejects", "CPU seconds"
    )
    judged = [attack.name for attack in ATTACKS if attack.expected != "survive"]
    for family in families:
        begin, cases, wrong = time.process_time(), Counter[tuple[str, str]](), Counter[str]()
        for task, level in [(tasks_of(family, one)[0], k) for one in STYLES for k in tasks_of(family, one)[1]]:
            n = items * NANO_ITEMS if task.style == NANO else items
            drawn = [item for (item,) in collect(partial(task.sample, level=level, split="test"), n, task.distinct)]
            for item, attack, image, *_ in attack_items(task, drawn, seed=0, only=judged):
                cases[attack.expected, task.style] += 1
                if task.verify(item, image).passed != (attack.expected == "accept"):
                    wrong[attack.expected] += 1
                    print(f"wrong: {item.id} in the style {task.style}: {attack.name}", file=sys.stderr, flush=True)
        n = {kind: [cases[kind, one] for one in STYLES] for kind in ("refuse", "accept")}
        shares = {kind: interval(proportion(wrong[kind], sum(n[kind])), ".2f", scale=100) + " %" for kind in n}
        cells = [*n["refuse"], shares["refuse"], sum(n["accept"]), shares["accept"]]
        yield row(family, *cells, f"{time.process_time() - begin:.0f}")


def picture(families: list[str], style: str, items: int) -> Iterator[str]:
    """Input and target of a puzzle of each family, four families a row."""
    sheet = Image.new("RGB", (4 * 324, -(-len(families) // 4) * 166), "white")
    for place, family in enumerate(sorted(families)):
        task, levels = tasks_of(family, style)
        (item,) = task.sample(3, levels[len(levels) // 2], "test")
        for n, pixels in enumerate((task.input_image(item), task.render(item))):
            shown = Image.fromarray(pixels).resize((150, 150), Image.Resampling.LANCZOS)
            sheet.paste(shown, (place % 4 * 324 + 8 + 152 * n, place // 4 * 166 + 8))
    path = Path(__file__).resolve().parents[1] / "docs/images/puzzles.png"
    sheet.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    yield str(path)


if __name__ == "__main__":
    main()
