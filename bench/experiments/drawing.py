"""What limits drawing: does it lag behind saying because the answer forms where drawing cannot read it?

    python bench/experiment.py drawing --seeds 0,1,2 --threads 1 --jobs 2 --runs runs/drawing
    python bench/experiment.py drawing -o task=mapping --runs runs/drawing
    python -m uni_train insight states -c runs/drawing/shipped/stars_mixed/maths-last-seed0   # layers, before and after

Bases of nano differ in what images read of understanding (uni_train/models/bagel/fusion.py), or in where answers form
(`early_exit`). All begin with the shipped checkpoint, and get as many updates of its last mixture. Then only generation
weights learn reasoning prompts of three levels -> images, mixed: solutions of the items, so that no base has better
samples than another. Everything that is not named is equal: rows, updates, rates, questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from bench.experiment import Lab, plan
from bench.experiments.unisandbox import Comparison, page
from uni_train.config.compose import compose

BASES = {
    "deep": ("deep, as BAGEL", "deep", ""),
    "last": ("last: also the final states", "last", ""),
    "queries": ("queries: learned tokens alone", "queries", ""),
    "early": ("deep, answers said early", "deep", "early_exit=4"),
    **{
        f"last{n}": (f"last, of layer {n}: also the states behind it", f"last model.architecture.memory_layer={n}", "")
        for n in (1, 3, 4, 5)
    },
}
"""Name -> label, fusion, overrides of the pretraining. Other layers are the control of `last`: equal tokens."""


def drawing(
    lab: Lab, task: Literal["maths", "mapping"] = "maths", updates: int = 200, learned: int = 300
) -> Iterator[str]:
    """updates: of the pretraining that a base goes on with; learned: of prompts -> images."""
    parts = compose("nano_pretrain").parts  # type: ignore[attr-defined]
    only = " ".join(f"parts.{name}=null" for name in parts if name != "commit")
    quick = "evaluation.sets=[math1] evaluation.modes=[normal] evaluation.n=1"
    rounds = [
        f"{{task: {task}, level: {level}, prompts: 1024, updates: {learned // 3}, replay: {{pretrain: 0.2}}}}"
        for level in (1, 2, 3)
    ]
    jobs, arms = [], {}
    for name in lab.arms(BASES):
        label, fusion, own = BASES[name]
        about = f"model.architecture.fusion={fusion} {' '.join(lab.overrides)}"
        jobs += plan(
            f"nano_pretrain out={lab.runs} name={name} model.checkpoint=shipped vae=null {only} {quick} "
            f"parts.commit.updates={updates} parts.commit.mixture.noise_draws=2 {about} {own}",
            lab.seeds,
        )
        folder = f"{lab.runs}/nano_pretrain/{name}-seed${{seed}}/stages/00-pretrain-commit/model"
        arms[label] = (
            f"stars_mixed name={task}-{name} model.checkpoint={folder} model.architecture.fusion={fusion} "
            f"teacher=reference filter=verifier trained=moe_gen 'rounds=[{', '.join(rounds)}]'"
        )
    deep = BASES["deep"][0]
    against = {label: deep for label in arms if label != deep}
    comparison = Comparison("What limits drawing", task, arms, against=against, averaged=("normal",))
    lines = page(replace(lab, only=()), comparison)

    def made() -> Iterator[str]:
        lab.make(jobs)
        yield from lines

    return made()
