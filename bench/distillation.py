"""Think-distillation beside STARS (docs/distillation.md): `python bench/papers.py --method distil`.

Three pages: the curriculum on mapping, each level of maths, and level 1 of mapping after few updates. Both methods have
the same prompts, thoughts and updates; distillation is also given a third of the prompts. Differences are paired by
seed and question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.markdown import row, table
from bench.stars import SETTINGS, Summary, column
from uni_train.eval.statistics import Estimate, mean_over_seeds, paired

if TYPE_CHECKING:
    from bench.papers import Page, Row, Run

STARS, DISTILLED, THIRD = "STARS", "distilled", "distilled, a third of the prompts"
SHORT = (25, 50, 100)  # updates
ONE_LINK = 'distil_curriculum "rounds=[{task:mapping,level:1,replay:{pretrain:${pretrain_replay}}}]"'


def arms(curriculum: str, thirds: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Page -> label -> the runs. thirds: a third of each mapping round's prompts."""
    fewer = " ".join(f"budget.{name}.prompts={prompts}" for name, prompts in thirds.items())
    distilled = "distil_curriculum evaluation.every_round=true"
    maths = {
        f"{label} on Math{level}": f"{recipe} level={level}"
        for level in (1, 2, 3)
        for label, recipe in ((STARS, "stars_math"), (DISTILLED, "distil_math"))
    }
    short = {
        f"{label}, {updates} updates": f"{recipe} budget.mapping1.updates={updates} name=m1-{updates}"
        for updates in SHORT
        for label, recipe in ((STARS, "stars_mapping level=1"), (DISTILLED, ONE_LINK))
    }
    return {
        "distil_mapping": {
            STARS: curriculum,
            DISTILLED: f"{distilled} name=rounds",
            THIRD: f"{distilled} {fewer} name=third",
        },
        "distil_maths": maths,
        "distil_speed": short,
    }


def lines(page: Page, found: Mapping[str, Mapping[str, Sequence[Run]]], command: str) -> Iterator[str]:
    """One page. found: base -> label of an arm -> its runs."""
    from bench.papers import rows_of

    yield f"# {page.title}"
    yield ""
    yield f"    {command}"
    yield ""
    yield "[a, b]: 95 % t interval over seeds. (a, b): over questions, in clusters of one expression or set of rules."
    yield "Minutes: sampling, filtering and training, without evaluations. Images: finished by the teacher."
    for base, runs in found.items():
        rows = rows_of(base, runs)
        yield ""
        yield from _scores(page, rows)
        yield ""
        yield from _differences(page, rows)
        yield ""
        yield from _costs(runs)


def _scores(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    from bench.papers import _cell

    cells = [(setting, name) for setting in SETTINGS if setting in page.modes for name in page.sets]
    inner = page.sets if "cot" in page.modes else ()
    titles = [f"Normal / CoT {column(('', name)).strip()}" for name in inner]
    yield from table("model", "seeds", *map(column, cells), *titles)
    for one in rows:
        values = [_cell(*one.score([cell]), one.when == "before") for cell in cells]
        shares = [_share(one.score([("normal", name)])[0], one.score([("cot", name)])[0]) for name in inner]
        yield row(one.label, len(one.runs), *values, *shares)


def _share(part: Estimate | None, whole: Estimate | None) -> str:
    if part is None or whole is None or part.value is None or not whole.value:
        return "-"
    return f"{part.value / whole.value:.2f}"


def _differences(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    """Of each distilled row and the row of STARS in its place, after the last update."""
    last = {one.label.partition(" + ")[2]: one for one in rows if one.when == "after"}
    cells = [("normal", name) for name in page.sets]
    yield "Distilled minus STARS, paired by seed and question:"
    yield ""
    yield from table("minus", *map(column, cells))
    for label, one in last.items():
        if not label.startswith(DISTILLED):
            continue
        rival = next(other for name, other in last.items() if _rivals(name, label))
        yield row(f"{label} - {rival.label.partition(' + ')[2]}", *(_difference(one, rival, cell) for cell in cells))


def _rivals(stars: str, distilled: str) -> bool:
    """Whether this row of STARS is what that distilled row is compared with."""
    place = distilled.removeprefix(THIRD).removeprefix(DISTILLED)
    return stars.startswith(STARS) and stars.removeprefix(STARS) == place


def _difference(one: Row, rival: Row, cell: tuple[str, str]) -> str:
    pairs = list(zip(rival.asked(*cell), one.asked(*cell), strict=True))
    if not pairs:
        return "-"
    gaps = [sum(after.right) / len(after.right) - sum(before.right) / len(before.right) for before, after in pairs]
    first = [right for before, _ in pairs for right in before.right]
    second = [right for _, after in pairs for right in after.right]
    clusters = [cluster for before, _ in pairs for cluster in before.clusters]
    seeds, questions = mean_over_seeds(gaps, (-1, 1)), paired(first, second, clusters).difference
    spread = f" [{seeds.low:+.2f}, {seeds.high:+.2f}]" if seeds.n > 1 else ""
    return f"{seeds.value:+.2f}{spread} ({questions.low:+.2f}, {questions.high:+.2f})"


def _costs(runs: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    calls = ("thoughts", "images", "velocities", "rollout")
    yield from table("runs", "updates", *calls, "minutes")
    for label, some in runs.items():
        counts = [f"{_mean(some, lambda summary, name=name: _calls(summary, name)):.0f}" for name in calls]  # type: ignore[misc]
        updates = _mean(some, lambda summary: sum(one["updates"] for one in summary["rounds"]))
        minutes = _mean(some, lambda summary: math.fsum(one["seconds"] for one in summary["rounds"]) / 60)
        yield row(label, f"{updates:.0f}", *counts, f"{minutes:.1f}")


def _calls(summary: Summary, name: str) -> float:
    return math.fsum((one.get("calls") or {}).get(name, 0) for one in summary["rounds"])


def _mean(runs: Sequence[Run], value: Callable[[Summary], float]) -> float:
    return math.fsum(value(run.summary) for run in runs) / len(runs)
