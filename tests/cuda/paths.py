"""What models do on a GPU: each path runs on the CPU, then on the pretended device, and the results are compared.

    python -m tests.cuda.paths PATH ...      # a JSON object: path -> what was measured

Each is a function of (device, folder). It returns what it computed by name: images, numbers, texts.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

Results = dict[str, Any]
PATHS: dict[str, Callable[[str, Path], Results]] = {}
RATES: dict[str, float] = {}
"""Syncs a text token and a denoising step of the last run."""

PROMPTS = ("F means ball . Draw what F means .", "J means F . F means tree . C means J . Draw what C means .")


def path(function: Callable[[str, Path], Results]) -> Callable[[str, Path], Results]:
    PATHS[function.__name__] = function
    return function


def syncs(call: Callable[[], Any]) -> int:
    from tests.cuda.pretend import LOG

    before = LOG.syncs.total()
    call()
    return LOG.syncs.total() - before


def generated(model: Any, requests: Sequence[Any]) -> Results:
    """Thoughts, images and answers; and what one more token and one more step cost."""
    steps: list[int] = []

    def write(most: int) -> None:
        model.sampling = replace(model.sampling, max_think_tokens=most)
        made: list[int] = []
        model.think(requests, 0.7, on_step=lambda done, _: made.append(done))
        steps.append(len(made))

    def draw(number: int) -> None:
        model.sampling = replace(model.sampling, steps=number)
        model.draw(requests)

    thoughts = model.think(requests, 0.7)
    images = model.draw([replace(one, thought=text) for one, text in zip(requests, thoughts, strict=True)])
    together = model.think_and_draw(requests, 0.0)
    found = {"texts": [*thoughts, *together[0], *model.answer(requests)], "images": [*images, *together[1]]}
    spent = [syncs(lambda most=most: write(most)) for most in (4, 16)]
    RATES["text token"] = (spent[1] - spent[0]) / max(1, steps[1] - steps[0])
    RATES["denoising step"] = (syncs(lambda: draw(4)) - syncs(lambda: draw(2))) / 2
    return found


def small_nano(device: str) -> Any:
    """With grouped heads, a head that draws and opinions about the next word."""
    from tests.models.nano.conftest import SMALL
    from uni_train.config.compose import compose
    from uni_train.models.load import build_model

    model: Any = build_model(compose("stars_curriculum", (*SMALL, "model.sampling.max_think_tokens=12")).model, seed=3)
    with torch.no_grad():
        head = model.bagel.llm2vae.weight
        head.copy_(torch.randn(head.shape, generator=torch.Generator().manual_seed(4)) * 0.3)
        model.bagel.language_model.lm_head.weight *= 8
        model.vae.decoder[-1].weight *= 8
    return model.to(device)


@path
def nano_generation(device: str, out: Path) -> Results:
    from uni_train.models.base import Request

    requests = [Request(str(i), prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
    return generated(small_nano(device), requests)


@path
def nano_nf4_generation(device: str, out: Path) -> Results:
    """Each layer is quantised where it computes."""
    from uni_train.models.base import Request
    from uni_train.models.quantised import quantise

    requests = [Request(str(i), prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
    return generated(quantise(small_nano("cpu"), "nf4", device).to(device), requests)


def fitted(device: str, out: Path, recipe: str, *overrides: str) -> Results:
    """Every line of every metrics.jsonl of a run of the command."""
    from tests.tiny import finish

    where = "cpu" if device == "cpu" else "auto"
    run = finish(out, f"strategy.accelerator={where}", *overrides, recipe=recipe)
    files = sorted(run.glob("stages/*/metrics.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert lines, "nothing was trained"
    names = ("loss", "ce", "mse", "grad_norm", "reward", "log_ratio_max", "held_out")
    return {name: [line[name] for line in lines if name in line] for name in names}


def solved(out: Path) -> Path:
    """Rows of text and image in nano's words."""
    rows = [{"prompt": text, "thought": "F means ball .", "image": f"{i}.png"} for i, text in enumerate(PROMPTS * 2)]
    for i in range(len(rows)):
        pixels = np.random.default_rng(i).integers(0, 256, (24, 24, 3), np.uint8)
        Image.fromarray(pixels).save(out / f"{i}.png")
    (out / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return out / "rows.jsonl"


@path
def nano_sft(device: str, out: Path) -> Results:
    from tests.tiny import MODEL

    rows = solved(out)
    learned = [f"sources.{name}.path={rows}" for name in ("thoughts", "images")]
    work = ("updates=3", "batch.accumulate=2", "evaluate=false", "optimizer.warmup_updates=0", "checkpoint_every=2")
    averages = ("ema=0.5", "strategy.offload_averages=true")
    return fitted(device, out, "sft_nano", *MODEL, *work, *averages, *learned)


BRIGHT = "def bright(prompts, completions, **columns):\n    return [float(i.mean()) / 255 for i in completions]\n"
GRPO = (
    "rewards.right=null epochs=2 rows=4 rollout.prompts_per_epoch=2 rollout.group_size=3 rollout.steps=3 "
    "rollout.last_step=2 objective.clip_low=0.1 objective.clip_high=0.1 alarms.diversity=null alarms.log_ratio=null "
    "held_out.n=0 evaluate=false checkpoint_every=1"
)


@path
def nano_flow_grpo(device: str, out: Path) -> Results:
    from tests.tiny import MODEL, save_drawer

    (out / "mine.py").write_text(BRIGHT)
    mine = (f"rewards.bright.function={out / 'mine.py'}:bright", f"model.checkpoint={save_drawer(out / 'drawer')}")
    return fitted(device, out, "flow_grpo_math", *MODEL, *GRPO.split(), *mine)


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference of two results; infinite where they are not alike in kind."""
    if isinstance(ours, (list, tuple)):
        alike = isinstance(theirs, (list, tuple)) and len(ours) == len(theirs)
        return max(map(apart, ours, theirs), default=0.0) if alike else math.inf
    if isinstance(ours, (str, type(None))):
        return 0.0 if ours == theirs else math.inf
    return float(np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max())


def watch() -> None:
    """Count syncs of velocities and micro-batches."""
    from tests.cuda.pretend import LOG
    from uni_train.models.bagel.unified import BagelUnified
    from uni_train.training.flow_grpo import trainer
    from uni_train.training.supervised import SupervisedModule

    LOG.watch(BagelUnified, "velocity", "velocity")
    LOG.watch(trainer, "step_fields", "micro-batch", counts=False)
    LOG.watch(trainer.FlowGrpoModule, "training_step", "micro-batch")
    LOG.watch(SupervisedModule, "training_step", "micro-batch")
    LOG.watch(SupervisedModule, "transfer_batch_to_device", "micro-batch", counts=False)


def measured(name: str, theirs: Results, folder: Path) -> Results:
    """Differences of one path to the CPU, syncs by unit and kernels."""
    from tests.cuda.pretend import LOG, pretending

    LOG.clear()
    RATES.clear()
    with pretending() as log:
        ours = PATHS[name]("cuda", folder)
    rates = {label: log.inside[label] / calls for label, calls in log.calls.items() if calls}
    return {
        "apart": {key: apart(value, theirs[key]) for key, value in ours.items() if value},
        "mixes": log.mixes,
        "syncs": {**RATES, **rates},
        "masked_grouped": sum(n for (_, masked, grouped, _), n in log.kernels.items() if masked and grouped),
        "where": [f"{n} {kind}: {where}" for (kind, where), n in log.syncs.most_common(25)],
    }


def measure(names: Sequence[str]) -> dict[str, Results]:
    from tests.cuda.pretend import register

    register(os.environ["LD_PRELOAD"])
    with tempfile.TemporaryDirectory() as folder:
        places = {(device, name): Path(folder, device, name) for device in ("cpu", "cuda") for name in names}
        for place in places.values():
            place.mkdir(parents=True)
        theirs = {name: PATHS[name]("cpu", places["cpu", name]) for name in names}
        watch()
        return {name: measured(name, theirs[name], places["cuda", name]) for name in names}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1:])))
