"""Judging a drawn solution from its pixels: the four checks of ViGoR's Table 21, and a score.

What an image shows is read by `uni_train.data_gen.maze.reading`; here one rule turns a reading into checks and score:

- background_consistency: no wall is missing where no stroke hides it, no opening is blocked, nothing is added.
- rule_obey: there is a red path, it goes through no wall, does not lie on walls, stays inside the maze.
- reasoning_success: the path is one unbroken line through openings from S to E. Any such line counts; in a perfect maze
  there is one. A detour that reaches another room, a second line, red everywhere are none.
- visual_quality: not noisy, not blurred beyond what the corridors can bear, no foreign colours.
"""

from __future__ import annotations

import numpy as np

from uni_train.data_gen import canvas
from uni_train.data_gen.canvas import Limits
from uni_train.data_gen.maze.grid import Grid
from uni_train.data_gen.maze.picture import NANO, Picture, draw
from uni_train.data_gen.maze.reading import Reading, pair_of, read_picture, read_places, where
from uni_train.data_gen.puzzle import FILTERED
from uni_train.data_gen.registration import resized
from uni_train.data_gen.task import Check, Verdict

CHECKS = ("background_consistency", "rule_obey", "visual_quality", "reasoning_success")
NOISY = Limits({1: 110}, mean=1, reach=1, luma=50, chroma=55, window=7, most=5)  # of nano, whose places were read
ON_WALLS = 0.05  # of all red may lie in the inner half of thick walls


def judge(grid: Grid, picture: Picture, image: np.ndarray) -> Verdict:
    """The verdict on `image`, uint8 [H, W, 3] of any size, for a maze that was shown as `picture`."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"an image is uint8 [H, W, 3], not {image.dtype} {list(image.shape)}")
    if picture.style != NANO:
        return verdict_of(grid, read_picture(grid, picture, image))
    reading = read_places(grid, picture, image)
    verdict = verdict_of(grid, reading)
    seen = resized(image, picture.side)
    # Places are means: they miss what is thin or faint, and JPEG blends their colours.
    if verdict.passed and reading.places is not None and canvas.difference(seen, reading.places, NOISY)[0] > 1:
        reading.changed.append("something thin or faint is there")
    elif verdict.passed or not reading.flaws:
        return verdict
    target = draw(grid, picture, grid.route())
    if canvas.difference(seen, canvas.filtered(target, seen), FILTERED[NANO])[0] <= 1:
        reading = read_places(grid, picture, target)
    return verdict_of(grid, reading)


def verdict_of(grid: Grid, reading: Reading) -> Verdict:
    """The four checks of a reading, and the score: 1 if all pass, else what part of the way is right.

    score = reach * purity / (1 + crossings) / (1 + changes / 2), halved if the quality fails. reach: the share of the
    solution's rooms that are covered without a gap from S and from E; purity: the share of rooms with red that are on
    the solution. A copy of the input has 0, red everywhere next to 0.
    """
    if reading.unreadable:
        return Verdict(tuple(Check(name, "unreadable", reading.unreadable) for name in CHECKS), 0.0)
    reasons = {
        "background_consistency": reading.changed[:3],
        "rule_obey": _breaches(reading),
        "visual_quality": reading.flaws,
        "reasoning_success": _unsolved(grid, reading),
    }
    checks = tuple(Check(name, "fail" if reasons[name] else "pass", ", ".join(reasons[name])) for name in CHECKS)
    return Verdict(checks, _score(grid, reading) if any(reasons.values()) else 1.0)


def _breaches(reading: Reading) -> list[str]:
    if not reading.visited and not reading.outside and not reading.crossed:
        return ["there is no red path"]
    breaches = [f"red goes through {wall}" for wall in reading.crossed[:3]]
    if reading.on_walls > ON_WALLS:
        breaches.append(f"{reading.on_walls:.0%} of the red lies on walls")
    if reading.outside:
        breaches.append("red leaves the maze")
    return breaches


def _unsolved(grid: Grid, reading: Reading) -> list[str]:
    if not reading.visited:
        return ["there is no red path"]
    missed = [letter for letter, room in (("S", grid.start), ("E", grid.end)) if room not in reading.visited]
    if missed:
        return [f"the path does not reach {' and '.join(missed)}"]
    degree = dict.fromkeys(reading.visited, 0)
    for pair in reading.openings:
        for room in pair:
            degree[room] += 1
    line = all(n == (1 if room in (grid.start, grid.end) else 2) for room, n in degree.items())
    if line and len(reading.openings) == len(reading.visited) - 1 and reading.unbroken:
        return []
    stray = reading.visited - set(grid.route())
    if stray:
        return [f"red also in {where(min(stray))}" + (f" and {len(stray) - 1} more rooms" if len(stray) > 1 else "")]
    return ["red is no single unbroken line from S to E"]


def _score(grid: Grid, reading: Reading) -> float:
    route = grid.route()
    covered = 0
    for way in (route, route[::-1]):
        for here, there in zip([way[0], *way], way, strict=False):
            if there not in reading.visited or (here != there and pair_of(here, there) not in reading.openings):
                break
            covered += 1
    purity = len(reading.visited & set(route)) / max(1, len(reading.visited))
    crossings = len(reading.crossed) + reading.outside + (reading.on_walls > ON_WALLS)
    score = min(1.0, covered / len(route)) * purity / (1 + crossings) / (1 + len(reading.changed) / 2)
    return round(score * (0.5 if reading.flaws else 1), 4)
