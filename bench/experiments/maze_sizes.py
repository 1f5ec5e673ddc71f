"""Sizes of mazes: an editor trained on one size, tested on all, by positions that its training has seen.

    python bench/experiment.py maze_sizes --runs runs/sizes --seeds 0,1,2 --threads 1
    python bench/experiment.py maze_sizes --runs runs/sizes --seeds 0 -o sizes=4 -o n=200 -o updates=300 -o tested=50

Mazes lie anywhere on a canvas of CANVAS pixels, in training and in the test. So every position of the canvas is trained
where the size leaves room: 36 places for 4 x 4, 4 for 8 x 8. Every seed has mazes and first weights of its own.
Success is the verifier's on the test split; ViGoR tests 2 x 2 to 7 x 7.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from bench.experiment import Job, Lab, plan
from bench.experiments.mazes import held_out_items, percent, right, walls_ignored
from bench.markdown import row, table
from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.export import make as export
from uni_train.data_gen.maze.picture import NANO
from uni_train.data_gen.maze.task import Maze
from uni_train.data_gen.task import Item
from uni_train.eval.benchmarks.vigor.cases import MAZE_LEVELS

CANVAS = 40  # pixels a side: 10 x 10 tokens; 9 x 9 rooms fill it
TESTED = (2, 3, 4, 5, 6, 7, 8)


def maze_sizes(
    lab: Lab, sizes: str = "4,6,8", n: int = 2000, updates: int = 5000, tested: int = 500, augment: bool = True
) -> Iterator[str]:
    """sizes: to train on, one by one. n: solved mazes of each. tested: mazes a size, or all that there are (2 x 2).
    augment: by symmetries. Raises UsageError."""
    levels = sizes.split(",")
    if not set(levels) <= {str(level) for level in TESTED if level > 2}:
        raise UsageError(f"cannot read -o sizes={sizes}", "Write sizes of 3 to 8 with commas: sizes=4,6,8.")

    def made() -> Iterator[str]:
        jobs = {
            (seed, int(level)): _job(lab, seed, int(level), n, updates, augment)
            for seed in lab.seeds
            for level in levels
        }
        lab.make(jobs.values())
        yield from sizes_table({key: _measured(job, tested) for key, job in jobs.items()})
        lazy = (f"{100 * walls_ignored(_asked(level, tested)):.1f}" for level in TESTED)
        yield row("walls ignored: one turn at most", *lazy, "-")

    return made()


def _job(lab: Lab, seed: int, level: int, n: int, updates: int, augment: bool) -> Job:
    """The training on one size; its solved mazes are made once."""
    folder = lab.runs / f"solved{level}-seed{seed}-{n}"
    if not folder.exists():
        export(Maze(NANO, CANVAS), level, n, "train", derive_seed("maze sizes", level, seed), NANO, folder, False)
    source = f"{{path: {folder / 'items.jsonl'}, augment: {'symmetries' if augment else 'null'}}}"
    given = [f"out={lab.runs}", f"name=size{level}", f"updates={updates}", f"sources.mazes={source}"]
    given += [f"data.maze_side={CANVAS}", f"model.architecture.image_size={CANVAS}", "batch.example_tokens=400"]
    (job,) = plan(shlex.join(["sft_maze", *given, "held_out.task=null", *lab.overrides]), [seed])
    return job


def _measured(job: Job, tested: int) -> dict[int, float]:
    """Share of the test mazes that a finished run solves, by size."""
    weights = job.folder / "stages" / "00-sft" / "model"
    return {level: float(right(weights, _asked(level, tested)).mean()) for level in TESTED}


def _asked(level: int, tested: int) -> list[Item]:
    return held_out_items(level, tested, task=Maze(NANO, CANVAS))


def sizes_table(shares: Mapping[tuple[int, int], Mapping[int, float]]) -> Iterator[str]:
    """From seed and trained size -> tested size -> share of mazes solved, in [0, 1]."""
    seeds, sizes = (sorted({key[place] for key in shares}) for place in (0, 1))
    yield f"Seeds {', '.join(map(str, seeds))}; percent of the test mazes solved, mean over seeds [95 % t interval]."
    yield ""
    yield from table("trained on", *(f"{level} x {level}" for level in TESTED), "mean of 2 to 7")
    for size in sizes:
        found = [shares[seed, size] for seed in seeds]
        means = [sum(one[level] for level in MAZE_LEVELS) / len(MAZE_LEVELS) for one in found]
        yield row(f"{size} x {size}", *(percent([one[level] for one in found]) for level in TESTED), percent(means))
