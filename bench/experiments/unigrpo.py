"""UniGRPO beside its rivals at equal wall time: what of a thought and its image is worth learning?

    python bench/experiment.py unigrpo --runs runs/rivals --threads 1 --seeds 0,1,2,3,4
    python bench/experiment.py unigrpo --runs runs/equal --threads 1 -o epochs=60      # equally many images instead

Every arm draws thoughts and images as unigrpo_math does, and the verifier rewards the images. They differ in what is
learned from them. All begin with the shipped nano, or with `--set model.checkpoint=FOLDER`. Of maths of level 3 it
thinks 63 % right at temperature 1, at which rollouts think (maths_paper: 57 %), and 76 % greedily, as evaluations do.
How many epochs fill the seconds is measured first, on a short run of each arm, so arms are run one after the other.

Right images and thoughts are of the test split, before and after. Runs with other epochs need another --runs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from bench.experiment import Job, Lab, plan, seconds_each
from bench.experiments.mazes import percent
from bench.experiments.unisandbox import Cell, Row, Run, difference
from bench.markdown import row, table
from uni_train.data_gen.registry import set_name
from uni_train.eval.benchmark import Sample
from uni_train.eval.scored import read_folder
from uni_train.eval.sets.thoughts import conclusion

RECIPE = "unigrpo_math"
PACE = 4  # epochs of the short run
JOINT = "joint"
ARMS = {
    "thoughts": ("thoughts alone, GRPO", "objective.image_weight=0"),
    "kept": (
        "thoughts of right images, cross-entropy",
        "objective.image_weight=0 thoughts.loss=cross_entropy objective.baseline=batch thoughts.kl=0",
    ),
    "images": ("images alone, Flow-GRPO", "thoughts.weight=0 trained=moe_gen"),
    JOINT: ("both, UniGRPO", ""),
    "result": ("both, results weigh 3", "thoughts.result_weight=3"),
}
"""Name -> label, what differs from RECIPE."""


def unigrpo(
    lab: Lab, seconds: float = 480, epochs: int | None = None, prompts: int = 1500, level: int = 3, tested: int = 500
) -> Iterator[str]:
    """seconds: of each arm's training. epochs: of each arm, in place of seconds. prompts: different ones, of a level.
    tested: test prompts. Raises UsageError."""
    arms = lab.arms(ARMS, [arm for arm in ARMS if arm != "result"])
    cell = ("cot", set_name("maths", level))

    def jobs(arm: str, name: str, n: int, seeds: Sequence[int], evaluate: bool = True) -> list[Job]:
        given = [f"out={lab.runs}", f"name={name}", f"epochs={n}", f"prompts.n={prompts}", f"prompts.levels=[{level}]"]
        asked = ["held_out.n=0", f"evaluation.sets=[{cell[1]}]", "evaluation.modes=[cot]", f"evaluation.n={tested}"]
        line = shlex.join([RECIPE, *given, *asked, f"evaluate={evaluate}", *lab.overrides])
        return plan(f"{line} {ARMS[arm][1]}", seeds)

    def lasting(arm: str) -> int:
        def measure() -> float:
            (job,) = jobs(arm, f"pace-{arm}", PACE, lab.seeds[:1], evaluate=False)
            lab.make([job])
            return result(job)["seconds"] / PACE

        return epochs or max(1, round(seconds / seconds_each(lab.runs / "pace.json", arm, measure)))

    for arm in arms:
        jobs(arm, arm, 1, lab.seeds)  # slips show now

    def made() -> Iterator[str]:
        planned = {arm: jobs(arm, arm, lasting(arm), lab.seeds) for arm in arms}
        for of_seed in zip(*planned.values(), strict=True):
            lab.make(of_seed)
        yield from tables(planned, cell)

    return made()


def result(job: Job) -> Any:
    """Of a finished training."""
    (manifest,) = job.folder.glob("stages/*-grpo/manifest.json")
    return json.loads(manifest.read_text(encoding="utf-8"))["result"]


def share(run: Run, when: str, of: Callable[[Sample], bool]) -> float:
    """In [0, 1], of the samples of an evaluation."""
    folders = run.folder.glob(f"stages/*-evaluate-{when}/scored")
    samples = [one.sample for folder in folders for one in read_folder(folder, images=False)]
    return sum(map(of, samples)) / len(samples)


def concludes(sample: Sample) -> bool:
    """Whether its thought ends at the answer."""
    return conclusion(sample.thought, sample.ask.case) == "right"


def derives(sample: Sample) -> bool:
    """Whether its thought is the item's derivation, step by step: right, and not by luck."""
    return bool(sample.thought == sample.ask.case.facts["item"]["thought"])


def tables(planned: Mapping[str, Sequence[Job]], cell: Cell) -> Iterator[str]:
    """Costs and gains of every arm, all of whose runs are finished."""
    rows = {arm: Row(arm, tuple(Run(job.folder) for job in jobs), "after") for arm, jobs in planned.items()}
    measures: dict[str, Callable[[Run, str], Any]] = {
        "right thoughts": partial(share, of=concludes),
        "of right steps": partial(share, of=derives),
        "right images": lambda run, when: run.answers(when)[cell].mean().value,
    }
    heads = [head for name in measures for head in (name, "gained")]
    yield f"Percent of the test prompts of {cell[1]}, mean over {len(next(iter(planned.values())))} seeds [t interval]."
    yield "The last column is the gap of right images, paired by seed [t interval] and question (a, b)."
    yield ""
    yield from table("learned", "seconds", "epochs", "images drawn", *heads, "minus UniGRPO")
    for arm, jobs in planned.items():
        config, spent, shares = cast(Any, jobs[0].config), [result(job)["seconds"] for job in jobs], []
        for measure in measures.values():
            before, after = ([measure(run, when) for run in rows[arm].runs] for when in ("before", "after"))
            shares += [percent(after), percent([b - a for a, b in zip(before, after, strict=True)], "+")]
        gap = difference(rows[arm], rows[JOINT], cell) if arm != JOINT and JOINT in rows else "-"
        costs = (f"{min(spent):.0f}-{max(spent):.0f}", config.epochs, config.epochs * config.images)
        yield row(ARMS[arm][0], *costs, *shares, gap)
