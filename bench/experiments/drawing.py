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

_NARROW = "layers=10 hidden_size=72 intermediate_size=240"  # 0.7 % fewer weights; shipped ones do not fit
BASES = {
    "deep": ("deep, as BAGEL", "fusion=deep", ""),
    "last": ("last: also the final states", "fusion=last", ""),
    "queries": ("queries: learned tokens alone", "fusion=queries", ""),
    "early": ("deep, answers said early", "fusion=deep", "early_exit=4"),
    "narrow": ("deep, ten narrower layers", _NARROW, ""),
    "narrow_last": ("last, ten narrower layers", f"fusion=last {_NARROW}", ""),
    **{
        f"last{n}": (f"last, of layer {n}: also the states behind it", f"fusion=last memory_layer={n}", "")
        for n in (1, 3, 4, 5)
    },
}
"""Name -> label, keys of model.architecture, overrides of the pretraining. Layers 1 to 5: the control of `last`, equal
tokens. All of `nano_pretrain` makes narrow layers first, once for both fusions."""


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
    begun, jobs, arms = [], [], {}
    for name in lab.arms(BASES):
        label, keys, own = BASES[name]
        architecture, sets, checkpoint = _architecture(keys), " ".join(lab.overrides), "shipped"
        if _NARROW in keys:
            shape = _architecture(_NARROW)
            begun += plan(f"nano_pretrain out={lab.runs} name=narrow_whole {quick} {shape} {sets}", lab.seeds)
            checkpoint = _model(lab, "narrow_whole", "08")
        jobs += plan(
            f"nano_pretrain out={lab.runs} name={name} model.checkpoint={checkpoint} vae=null {only} {quick} "
            f"parts.commit.updates={updates} parts.commit.mixture.noise_draws=2 {architecture} {sets} {own}",
            lab.seeds,
        )
        arms[label] = (
            f"stars_mixed name={task}-{name} model.checkpoint={_model(lab, name, '00')} {architecture} "
            f"teacher=reference filter=verifier trained=moe_gen 'rounds=[{', '.join(rounds)}]'"
        )
    deep = BASES["deep"][0]
    against = {label: deep for label in arms if label != deep}
    comparison = Comparison("What limits drawing", task, arms, against=against, averaged=("normal",))
    lines = page(replace(lab, only=()), comparison)

    def made() -> Iterator[str]:
        lab.make(begun)
        lab.make(jobs)
        yield from lines

    return made()


def _architecture(keys: str) -> str:
    return " ".join(f"model.architecture.{key}" for key in keys.split())


def _model(lab: Lab, name: str, stage: str) -> str:
    """The weights of the last mixture of a base, as an override of one with the same seed."""
    return f"{lab.runs}/nano_pretrain/{name}-seed${{seed}}/stages/{stage}-pretrain-commit/model"
