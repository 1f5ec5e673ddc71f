"""What models do on a GPU: each path runs on the CPU, then on the pretended device, and the results are compared.

    python -m tests.cuda.paths nano_a_little PATH ...      # a JSON object: path -> what was measured

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
from unittest import mock

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


def picture(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


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

    thoughts = model.think(requests, 0.7)
    images = model.draw([replace(one, thought=text) for one, text in zip(requests, thoughts, strict=True)])
    together = model.think_and_draw(requests, 0.0)
    results = {"texts": [*thoughts, *together[0], *model.answer(requests)], "images": [*images, *together[1]]}
    if model.device.type == "cuda":
        sampling = model.sampling
        waits = [syncs(lambda most=most: write(most)) for most in (6, 14)]
        RATES["text token"] = (waits[1] - waits[0]) / (steps[1] - steps[0])
        count_a_step(model, requests)
        model.sampling = sampling
    return results


def count_a_step(model: Any, requests: Sequence[Any]) -> None:
    """What one more denoising step costs; images of these sizes were drawn before, which makes positions."""

    def draw(number: int) -> None:
        model.sampling = replace(model.sampling, steps=number)
        model.draw(requests)

    RATES["denoising step"] = syncs(lambda: draw(3)) - syncs(lambda: draw(2))


def small_nano(device: str) -> Any:
    """With grouped heads, a head that draws and opinions about the next word."""
    from tests.models.nano.conftest import SMALL
    from uni_train.config.compose import compose
    from uni_train.models.load import build_model

    short = ("model.sampling.steps=2", "model.sampling.max_think_tokens=12")
    model: Any = build_model(compose("stars_curriculum", (*SMALL, *short)).model, seed=3)
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


def a_little(model: Any) -> Results:
    """Six tokens and two steps."""
    from uni_train.models.base import Request

    requests = [Request(str(i), prompt, seed=i) for i, prompt in enumerate(PROMPTS)]
    model.sampling = replace(model.sampling, steps=2, max_think_tokens=6)
    return {"texts": model.think(requests, 0.7), "images": model.draw(requests)}


@path
def nano_a_little(device: str, out: Path) -> Results:
    """What defects are tried on."""
    return a_little(small_nano(device))


@path
def nano_nf4_generation(device: str, out: Path) -> Results:
    """Each layer is quantised where it computes."""
    from uni_train.models.quantised import quantise

    return a_little(quantise(small_nano("cpu"), "nf4", device).to(device))


def tiny_bagel(device: str, out: Path, dtype: torch.dtype | None = None) -> Any:
    """Grouped heads, a ViT, guidance by text and by images; the released weights' layout."""
    from tests.models.bagel.conftest import FOLDER
    from tests.models.bagel.published import published
    from uni_train.models.load import build_model, model_config

    config = model_config(str(published(FOLDER, out / "bagel")))
    sampling = replace(config.sampling, steps=2, max_think_tokens=6)
    architecture = replace(config.architecture, image_size=48)
    return build_model(replace(config, architecture=architecture, sampling=sampling), dtype=dtype).to(device)


@path
def bagel_generation(device: str, out: Path) -> Results:
    from uni_train.models.base import Request

    model = tiny_bagel(device, out)
    texts = [Request("a", "draw a red ball", seed=1), Request("b", "two blue cats on a mat please", seed=2)]
    edits = [Request("c", "make it red", (picture(0, 48, 64),), seed=3)]
    edits.append(Request("d", "turn it", (picture(1, 90, 30), picture(2, 20, 50)), seed=4))
    found = generated(model, texts)
    return {"texts": [*found["texts"], *model.answer(edits)], "images": [*found["images"], *model.draw(edits)]}


@path
def bagel_half_generation(device: str, out: Path) -> Results:
    from uni_train.models.base import Request

    model = tiny_bagel(device, out, torch.bfloat16)
    requests = [Request("a", "a ball", (picture(0, 48, 64),), seed=1), Request("b", "Draw it", seed=2)]
    return {"images": model.draw(requests)}


@path
def editor_generation(device: str, out: Path) -> Results:
    from tests.models.qwen_image_edit import tiny
    from tests.models.qwen_image_edit.conftest import config_of
    from uni_train.models.base import Request
    from uni_train.models.load import build_model

    tiny.published(out / "editor", zero_cond_t=True)
    model: Any = build_model(config_of(out / "editor")).to(device)
    requests = [Request("a", "make it red", (picture(0, 50, 80),), seed=1)]
    found = {"images": model.draw(requests), "texts": model.think(requests, 0.7)}
    count_a_step(model, requests)
    return found


@path
def pipeline_generation(device: str, out: Path) -> Results:
    from tests.models.diffusers import tiny
    from tests.models.diffusers.conftest import build
    from uni_train.models.base import Request

    tiny.pipeline("flux").save_pretrained(out / "flux")
    return {"images": build(out / "flux").to(device).draw([Request("a", "a cat", seed=1, size=(64, 96))])}


@path
def janus_generation(device: str, out: Path) -> Results:
    from tests.models.janus.tiny import published
    from uni_train.models.base import Request
    from uni_train.models.load import build_model, model_config

    config = model_config(str(published(out / "janus")))
    model: Any = build_model(replace(config, sampling=replace(config.sampling, max_think_tokens=6))).to(device)
    requests = [Request("a", "Draw 2 cups .", seed=1), Request("b", "Draw a tree", seed=2)]
    return {"texts": model.think(requests, 0.7), "images": model.draw(requests)}


def fitted(device: str, out: Path, recipe: str, *overrides: str) -> Results:
    """Every line of every metrics.jsonl of a run of the command."""
    from tests.tiny import finish

    where = "cpu" if device == "cpu" else "auto"
    run = finish(out, f"strategy.accelerator={where}", *overrides, recipe=recipe)
    files = sorted(run.glob("stages/*/metrics.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert lines, "nothing was trained"
    names = ("loss", "ce", "mse", "grad_norm", "reward", "log_ratio_max", "held_out")
    summary = run / "summary.json"
    scores = rates(json.loads(summary.read_text())) if summary.exists() else []
    return {**{name: [line[name] for line in lines if name in line] for name in names}, "rates": scores}


def rates(value: Any) -> list[float]:
    """All success rates of scores, in order."""
    if isinstance(value, dict):
        own = [float(value["value"])] if isinstance(value.get("value"), (int, float)) else []
        return own + [rate for one in value.values() for rate in rates(one)]
    return [rate for one in value for rate in rates(one)] if isinstance(value, list) else []


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
    work = ("updates=2", "batch.accumulate=2", "evaluate=false", "optimizer.warmup_updates=0", "checkpoint_every=2")
    averages = ("ema=0.5", "strategy.offload_averages=true")
    return fitted(device, out, "sft_nano", *MODEL, *work, *averages, *learned)


BRIGHT = "def bright(prompts, completions, **columns):\n    return [float(i.mean()) / 255 for i in completions]\n"
GRPO = (
    "rewards.right=null epochs=2 rows=4 rollout.prompts_per_epoch=2 rollout.group_size=3 rollout.steps=3 "
    "rollout.last_step=2 objective.clip_low=0.1 objective.clip_high=0.1 alarms.diversity=null alarms.log_ratio=null "
    "held_out.n=0 evaluate=false checkpoint_every=1"
)


def reinforced(device: str, out: Path, *overrides: str) -> Results:
    from tests.tiny import MODEL, save_drawer

    (out / "mine.py").write_text(BRIGHT)
    mine = (f"rewards.bright.function={out / 'mine.py'}:bright", f"model.checkpoint={save_drawer(out / 'drawer')}")
    return fitted(device, out, "flow_grpo_math", *MODEL, *GRPO.split(), *mine, *overrides)


@path
def nano_flow_grpo(device: str, out: Path) -> Results:
    return reinforced(device, out)


@path
def nano_guard_with_thoughts_and_kl(device: str, out: Path) -> Results:
    return reinforced(device, out, "variant=guard", "trained=all", "thoughts={}", "objective.kl=0.01", "epochs=1")


@path
def nano_diffusion_nft(device: str, out: Path) -> Results:
    return reinforced(device, out, "variant=diffusion_nft", "objective.noise_draws=2", "epochs=1")


def reinforced_editing(device: str, out: Path, *overrides: str) -> Results:
    """Two prompts with images, a reward, settings of tests.recipes.flow_grpo."""
    from tests.recipes.flow_grpo.test_published import QUICK

    for i in range(2):
        Image.fromarray(picture(i, 50, 80)).save(out / f"{i}.png")
    rows = [
        {"id": str(i), "prompt": f"make it bright {i}", "images": [f"{i}.png"], "image": f"{i}.png"} for i in range(2)
    ]
    (out / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (out / "mine.py").write_text(BRIGHT)
    files = [f"{key}.path={out / 'rows.jsonl'}" for key in ("prompts", "sft")]
    mine = f"rewards.bright.function={out / 'mine.py'}:bright"
    less = ("epochs=1", "rows=4", "rollout.group_size=2", "rollout.steps=2", "rollout.last_step=1")
    unwatched = ("held_out.n=0", "evaluate=false", "alarms.log_ratio=null")
    return fitted(device, out, "flow_grpo_maze", *QUICK, *files, mine, *less, *unwatched, *overrides)


@path
def bagel_guided_flow_grpo(device: str, out: Path) -> Results:
    from tests.models.bagel.conftest import FOLDER
    from tests.models.bagel.published import published

    model = ("model=bagel_7b", f"model.checkpoint={published(FOLDER, out / 'bagel')}", "ema=0.5", "trained=all")
    return reinforced_editing(device, out, *model, "rollout.guidance=2")


@path
def editor_flow_grpo(device: str, out: Path) -> Results:
    from tests.models.qwen_image_edit import tiny
    from tests.recipes.flow_grpo.test_published import EDITOR

    tiny.published(out / "editor", zero_cond_t=True)
    return reinforced_editing(device, out, *EDITOR, f"model.checkpoint={out / 'editor'}")


ONE_ROUND = ("rounds=[{task:mapping,level:1}]", "budget={mapping1:{prompts:4,updates:3}}", "batch.prompts=4")


@path
def stars(device: str, out: Path) -> Results:
    from tests.tiny import QUICK, save_drawer

    return fitted(
        device, out, "stars_curriculum", *QUICK, *ONE_ROUND, f"model.checkpoint={save_drawer(out / 'drawer')}"
    )


@path
def distillation(device: str, out: Path) -> Results:
    from tests.tiny import QUICK, save_drawer

    more = (*ONE_ROUND, f"model.checkpoint={save_drawer(out / 'drawer')}", "batch.noise_draws=2")
    return fitted(device, out, "distil_curriculum", *QUICK, *more)


def ran(*words: str, code: int = 0) -> str:
    from click.testing import CliRunner

    from uni_train.cli.main import uni_train

    result = CliRunner().invoke(uni_train, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


SHORT = ("sampling.steps=2", "sampling.max_think_tokens=6")


@path
def evaluation(device: str, out: Path) -> Results:
    from tests.tiny import save_drawer

    model = str(save_drawer(out / "drawer"))
    ran("eval", "-c", model, "-b", "unisandbox", "sets=math1", *SHORT, "--n", "2", "--out", str(out), "--name", "a")
    return {"rates": rates(json.loads((out / "a" / "scores.json").read_text()))}


@path
def insight(device: str, out: Path) -> Results:
    from tests.tiny import save_drawer

    model = str(save_drawer(out / "drawer"))
    ran("insight", "attention", model, "task=mapping", "n=1", *SHORT, f"out={out}", "--no-interventions")
    return {"floats": floats(json.loads((out / "attention.json").read_text()))}


@path
def doctor(device: str, out: Path) -> Results:
    return {"texts": [line for line in ran("doctor", "nano").splitlines() if "a guess" in line]}


def floats(value: Any) -> list[float]:
    if isinstance(value, (dict, list)):
        return [one for part in (value.values() if isinstance(value, dict) else value) for one in floats(part)]
    return [value] if isinstance(value, float) else []


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, in bytes of images, relative of numbers; infinite if unlike in kind."""
    if isinstance(ours, (list, tuple)):
        alike = isinstance(theirs, (list, tuple)) and len(ours) == len(theirs)
        return max(map(apart, ours, theirs), default=0.0) if alike else math.inf
    if isinstance(ours, (str, type(None))):
        return 0.0 if ours == theirs else math.inf
    if isinstance(ours, np.ndarray):
        return float(np.abs(ours.astype(np.float64) - theirs).max())
    return abs(ours - theirs) / (1 + abs(theirs))


def watch() -> None:
    """Count syncs of velocities and micro-batches."""
    from tests.cuda.pretend import LOG
    from uni_train.models.bagel.examples import ExamplePacker
    from uni_train.models.bagel.unified import BagelUnified
    from uni_train.training.flow_grpo import trainer
    from uni_train.training.supervised import SupervisedModule

    LOG.watch(BagelUnified, "velocity", "velocity")
    LOG.watch(ExamplePacker, "pack", "micro-batch", counts=False)
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
        "waits": log.syncs.total(),
        "masked_grouped": sum(n for (_, masked, grouped, _), n in log.kernels.items() if masked and grouped),
        "where": [f"{n} {kind}: {where}" for (kind, where), n in log.syncs.most_common(25)],
    }


def mutants() -> dict[str, tuple[Any, str, Callable[[Any], Any]]]:
    """Defects that must not pass on the device: by name the owner, its attribute, and the attribute's defect."""
    from uni_train.models.bagel import attention, generation, mot
    from uni_train.models.bagel.unified import BagelUnified

    def grouped(real: Any) -> Any:
        attend = torch.nn.functional
        return lambda allowed: (
            lambda q, k, v: attend.scaled_dot_product_attention(
                q, k, v, attn_mask=allowed, enable_gqa=q.shape[1] != k.shape[1]
            )
        )

    def waits(real: Any) -> Any:
        return lambda logits, *rest: real(logits + 0 * float(logits[0, 0]), *rest)

    return {
        "positions stay on the host": (
            generation,
            "_latent_grid",
            lambda real: lambda grids, config, device: real(grids, config, torch.device("cpu")),
        ),
        "a generator of the host": (
            BagelUnified,
            "_generator",
            lambda real: lambda self, request, use, device="cpu": real(self, request, use),
        ),
        "noise stays on the host": (BagelUnified, "noise", lambda real: lambda *given: real(*given).cpu()),
        "rope turns the other way": (mot, "RopeTables", lambda real: lambda position, *rest: real(-position, *rest)),
        "masks beside grouped heads": (attention, "_sdpa", grouped),
        "a question for each token": (generation, "perturbed", waits),
    }


def caught(name: str, theirs: Results, folder: Path, most: int) -> str:
    """What is wrong with `nano_a_little` under a defect: mix, numbers, kernels or syncs; empty: nothing.

    most: its syncs without one.
    """
    from tests.cuda.pretend import DeviceMix

    owner, attribute, defect = mutants()[name]
    with mock.patch.object(owner, attribute, defect(getattr(owner, attribute))):
        try:
            found = measured("nano_a_little", theirs, folder)
        except DeviceMix:
            return "mix"
    if max(found["apart"].values()) > 1:
        return "numbers"
    if found["masked_grouped"]:
        return "kernels"
    return "syncs" if found["waits"] > most else ""


def measure(names: Sequence[str]) -> dict[str, Any]:
    """Of paths what `measured` says, and "caught" of defects."""
    from tests.cuda.pretend import register

    register(os.environ["LD_PRELOAD"])
    with tempfile.TemporaryDirectory() as folder:
        places = {(device, name): Path(folder, device, name) for device in ("cpu", "cuda") for name in names}
        for place in places.values():
            place.mkdir(parents=True)
        theirs = {name: PATHS[name]("cpu", places["cpu", name]) for name in names}
        watch()
        found = {name: measured(name, theirs[name], places["cuda", name]) for name in names}
        usual = theirs["nano_a_little"], Path(folder), found["nano_a_little"]["waits"]
        return {**found, "caught": {name: caught(name, *usual) for name in mutants()}}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1:])))
