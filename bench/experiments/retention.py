"""What trainings of nano change beside what they train, as `retention` measures it.

    python bench/experiment.py replay --seeds 0,1,2 --threads 1 --jobs 2      # how much replay keeps the rest?
    python bench/experiment.py retention --seeds 0 --threads 1 --jobs 2       # after each recipe that needs no data

Losses are those of rows as nano's pretraining has them, by kind. Sets are those of maths and mapping that no round or
prompt of the recipe names; of puzzles nano draws none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from bench.experiment import Job, Lab, plan
from bench.markdown import interval, row, table
from uni_train.config.compose import compose
from uni_train.core.reading_limits import read_json
from uni_train.eval.compare import Row, compare
from uni_train.eval.report.run import read_lines
from uni_train.eval.report.sections.retention import FACTS, FOLDER, LOSSES, START, by_kind
from uni_train.eval.statistics import mean_over_seeds
from uni_train.stages.retention import retained

SHARES = (0.0, 0.1, 0.3)
RECIPES = (
    "stars_mapping level=1", "stars_math level=1", "stars_curriculum", "dpo_mapping level=1", "distil_curriculum",
    "flow_grpo_math evaluation.modes=[normal,cot]",
)  # fmt: skip
"""Recipes of nano that need neither data nor another run."""
MODES = ("normal", "cot")
CHANCE = 0.05  # p of a set below which it is named


def replay(lab: Lab, n: int = 32, recipe: str = "stars_mapping level=1") -> Iterator[str]:
    """The share of pretraining rows in each batch, against accuracy and losses; equal prompts and updates."""
    keys = f"retention.rows=pretrain retention.n={n}"
    arms = {share: _jobs(lab, f"{recipe} pretrain_replay={share} name=replay{share} {keys}") for share in SHARES}
    return _replay(lab, arms)


def retention(lab: Lab, n: int = 64) -> Iterator[str]:
    """What each recipe has changed."""
    chosen = lab.arms([line.split()[0] for line in RECIPES])
    keys = f"name=retention retention.rows=pretrain retention.n={n}"
    arms = {line: f"{line} {keys} retention.sets=[{','.join(_known(line))}]" for line in RECIPES}
    return _retention(lab, {line: _jobs(lab, arm) for line, arm in arms.items() if line.split()[0] in chosen})


def _known(line: str) -> list[str]:
    """Sets of the tasks that nano was pretrained on, but for those that the recipe trains."""
    recipe, *overrides = line.split()
    return [name for name in retained(compose(recipe, overrides)) if name.startswith(("math", "mapping"))]


def _jobs(lab: Lab, line: str) -> list[Job]:
    return plan(f"{line} out={lab.runs} {' '.join(lab.overrides)}", lab.seeds)


def _replay(lab: Lab, arms: dict[float, list[Job]]) -> Iterator[str]:
    lab.make(job for jobs in arms.values() for job in jobs)
    changes = {share: [_losses(job.folder) for job in jobs] for share, jobs in arms.items()}
    kinds = list(changes[SHARES[0]][0])
    yield from ("Change of the loss of rows that are not trained, mean over seeds with a 95 % interval:", "")
    yield from table("replay", *MODES, *kinds)
    for share, jobs in arms.items():
        scores = [read_json(job.folder / "summary.json")["scores"]["after"] for job in jobs]
        means = (fmean(cell["value"] for one in scores for cell in one[mode].values()) for mode in MODES)
        losses = (mean_over_seeds([one[kind] for one in changes[share]], (-99.0, 99.0)) for kind in kinds)
        yield row(share, *(f"{mean:.2f}" for mean in means), *(interval(loss, "+.3f") for loss in losses))


def _retention(lab: Lab, arms: dict[str, list[Job]]) -> Iterator[str]:
    lab.make(job for jobs in arms.values() for job in jobs)
    kinds = ("caption, text", "verify, text", "maths_answer, text", "text_to_image, image, mean")
    yield from (f"Mean over sets, before and after; sets that changed (p below {CHANCE}); change of losses:", "")
    yield from table("recipe", *MODES, "sets lost", "sets won", *kinds)
    for line, jobs in arms.items():
        rows = [one for job in jobs for one in _sets(job.folder)]
        losses = [_losses(job.folder) for job in jobs]
        sets = [[one for one in rows if one.setting == mode] for mode in MODES]
        means = [f"{fmean(one.first for one in some):.2f} to {fmean(one.second for one in some):.2f}" for some in sets]
        moved = [one for one in rows if one.comparison.p_value < CHANCE]
        lost, won = ([one for one in moved if (one.second < one.first) is down] for down in (True, False))
        named = [", ".join(sorted({f"{one.set} {one.setting}" for one in some})) or "none" for some in (lost, won)]
        yield row(line, *means, *named, *(f"{fmean(one[kind] for one in losses):+.3f}" for kind in kinds))


def _losses(run: Path) -> dict[str, float]:
    """Kind and part -> mean change of the loss."""
    first, *_, last = read_lines(run / FOLDER / LOSSES)
    return {name: fmean(after) - fmean(before) for name, (before, after) in by_kind(first, last).items()}


def _sets(run: Path) -> Sequence[Row]:
    trained = read_json(run / FOLDER / FACTS)["trained"]
    return [one for one in compare(run / FOLDER / START, run / FOLDER / trained).rows if one.first or one.second]
