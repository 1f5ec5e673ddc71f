"""The figures of a GPU, of random weights at full size: tables for people, and the same as JSON.

    git clone https://github.com/ByteDance-Seed/Bagel official
    python bench/gpu.py --official official --models bagel_7b --only write,draw,guidance --seconds 170
    python bench/gpu.py --models bagel_7b,qwen_image_edit_2511 --only train --seconds 480
    python bench/gpu.py --official official --only grpo,load,compiled --seconds 160

These three calls take nine minutes each. Further options: [--models nano,bagel_7b,qwen_image_edit_2511]
[--sides 512,1024] [--counts 1,8,16] [--group 16] [--out DIR] [--tiny]. Each part begins no row after `--seconds`, and
none of its n-th model after as large a share of them. Rows for which no time or memory was left say so, and so does
what fails. `--out` gets gpu.json and gpu.md after every row; parts that earlier calls measured on this device stay.
`--tiny` is the same code with small sizes, on a CPU too: a test runs it; its figures mean nothing.

    draw    images from text (BAGEL) or from an image (Qwen-Image-Edit), with the decoding
    guidance  its branches in one pass beside a pass each, by the latent tokens of all images; the threshold is
            ONE_PASS of uni_train/models/bagel/generation.py
    write   thoughts, as tokens of text; `eager`: without a CUDA graph of the step
    train   packed updates: seconds, share of the peak FLOP a second (MFU), memory beside what `plan` predicts
    load    stored weights to the device, tensor by tensor
    grpo    an epoch of Flow-GRPO in parts; how far replayed steps are from drawn ones in other batch shapes (the
            on-policy check), in the precision of the run
    compiled  images and thoughts with `model.compile`, beside those without

Images and texts are made by ours and, with the same weights, by the released code of BAGEL or diffusers' pipeline.
"ours / it" is the time of ours beside that. All are asked for the same: guidance by text, as many steps, greedy texts.

Times on CUDA are those of its events, memory is the most that PyTorch's allocator held. On a CPU they are wall time,
and memory that became resident.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import lightning.pytorch as pl
import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bagel import SENTENCE, picture
from bench.choices import some_of
from bench.markdown import row, table
from bench.official_bagel import Official
from bench.timing import peak_memory
from uni_train.config.compose import compose
from uni_train.config.kinds import Updates
from uni_train.config.schema import LoraConfig, ModelConfig, OptimizerConfig, StrategyConfig, TrainingConfig
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path
from uni_train.models.bagel import generation
from uni_train.models.bagel.generation import generate_text, prefill
from uni_train.models.bagel.packing import Text
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.bagel.vae import VaeConfig
from uni_train.models.base import Example, Request, UnifiedModel
from uni_train.models.family import family_of
from uni_train.models.load import build_model, compile_steps
from uni_train.models.meta import without_weights
from uni_train.models.quantised import quantise
from uni_train.models.weights import Weights, write
from uni_train.plan.hardware import GPUS
from uni_train.plan.updates import lighter, supervised
from uni_train.rewards.contract import Prompt, Reward
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised
from uni_train.training.flow_grpo.config import AlarmsConfig, GrpoConfig, RolloutConfig
from uni_train.training.flow_grpo.rollout import PromptList, Sampling
from uni_train.training.flow_grpo.trainer import ROLLOUTS, fit_flow_grpo
from uni_train.training.flow_grpo.variants import ObjectiveConfig
from uni_train.training.lora import adapted, add_adapters
from uni_train.training.supervised import FitOptions

GIB = 2**30
LONG = 5.0
"""Seconds of a first call from which on it is measured once more only."""
LORA = LoraConfig(rank=32, alpha=64.0)
TRAININGS = (  # trained, weights, moments
    ("lora", None, "full"),
    ("lora", "nf4", "full"),
    ("lora", "int8", "full"),
    ("all", None, "8bit"),
)


@dataclass(frozen=True)
class Sizes:
    """What is asked. sides: pixels. updates: of a training, the first two of which do not count."""

    sides: Sequence[int] = (512, 1024)
    counts: Sequence[int] = (1, 8, 16)
    steps: int = 10
    written: int = 256
    rows: int = 8
    updates: int = 6
    group: int = 16


TINY = Sizes(sides=(32,), counts=(1, 2), steps=2, written=3, rows=2, updates=3, group=2)
SMALL = ("hidden_size=64", "intermediate_size=96", "layers=2", "heads=2", "kv_heads=2", "vit_hidden_size=32")
SMALL_VIT = ("vit_intermediate_size=48", "vit_layers=2", "vit_heads=2")
SMALL_EDITOR = ("hidden_size=128", "heads=1", "kv_heads=1")  # its rotary tables want heads of 128
ROPE = {"mrope_section": [16, 24, 24], "rope_type": "default", "rope_theta": 1_000_000.0}
SMALL_TEXT = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 512,
}


# --- the machine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """The first GPU, or the CPU. peak: its FLOP a second in bfloat16 by the data sheet (None: not known here)."""

    device: torch.device
    name: str
    peak: float | None

    @classmethod
    def here(cls) -> Machine:
        if not torch.cuda.is_available():
            return cls(torch.device("cpu"), "CPU", None)
        name, memory = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
        known = [one for one in GPUS.values() if one.name.split("-")[0].upper() in name.upper()]
        near = min(known, key=lambda one: abs(one.memory - memory), default=None)
        return cls(torch.device("cuda", 0), name, near.half if near is not None else None)

    def measure(self, run: Callable[[], object], times: int = 3) -> tuple[float, float]:
        """Median seconds after a first run, of a long one those of the second; most bytes during the first beyond those
        before it."""
        began = time.perf_counter()
        if self.device.type == "cpu":
            held = peak_memory(run) or 0.0
            taken = []
            for _ in range(times if time.perf_counter() - began < LONG else 1):
                began = time.perf_counter()
                run()
                taken.append(time.perf_counter() - began)
            return statistics.median(taken), held * 2**20
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        most = torch.cuda.max_memory_allocated() - before
        taken = []
        for _ in range(times if time.perf_counter() - began < LONG else 1):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            run()
            last.record()
            torch.cuda.synchronize()
            taken.append(first.elapsed_time(last) / 1000)
        return statistics.median(taken), most

    @property
    def accelerator(self) -> Literal["cpu", "gpu"]:
        return "cpu" if self.device.type == "cpu" else "gpu"

    def tidy(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


@contextmanager
def floats(dtype: torch.dtype) -> Iterator[None]:
    """What is made within this block has numbers of this type where it does not say."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def configured(name: str, tiny: bool, side: int) -> ModelConfig:
    """Of a model without a folder, at full size or tiny."""
    if name == "nano":
        return replace(compose("stars_curriculum", []).model, threads=1)
    sizes = (*SMALL, *SMALL_VIT, *(SMALL_EDITOR if name.startswith("qwen") else ())) if tiny else ()
    small = [f"model.architecture.{key}" for key in sizes]
    config = compose("sft", [f"model={name}", *small, f"model.architecture.image_size={side}"]).model
    if config.editing is not None:
        seen = replace(config.editing, latent_size=side, look_size=min(config.editing.look_size, side))
        config = replace(config, editing=seen)
    return replace(config, checkpoint=None)


def made(config: ModelConfig, machine: Machine) -> UnifiedModel:
    """The model with random weights in bfloat16 on the device (nano: its own, in float32)."""
    if config.family == "nano":
        return build_model(config).to(machine.device)
    from uni_train.models.bagel import checkpoint as bagel
    from uni_train.models.qwen_image_edit import checkpoint as editor

    def on_device() -> torch.device:
        return machine.device

    with (
        mock.patch.object(bagel, "without_weights", on_device),
        mock.patch.object(editor, "without_weights", on_device),
        parts_of(config),
        floats(torch.bfloat16),
    ):
        model, _ = family_of(config.family).skeleton(config)
    if isinstance(model, BagelUnified):
        model.bagel.to(torch.bfloat16)  # tables that numpy has made, too
        model.vae.float()  # as published
    else:
        _speak(model)
    return model.eval()


@contextmanager
def parts_of(config: ModelConfig) -> Iterator[None]:
    """Within this block what the recipe does not size is small if the model is; an editor's text encoder has rotary
    tables."""
    from uni_train.models.bagel import checkpoint as bagel
    from uni_train.models.qwen_image_edit import checkpoint as editor

    tiny = config.architecture.layers == 2
    with mock.patch.dict(editor._TEXT_7B, {"rope_parameters": ROPE, **(SMALL_TEXT if tiny else {})}):  # type: ignore[dict-item]
        if not tiny:
            yield
            return
        vae = partial(VaeConfig, width=32, multipliers=(1, 1, 1, 1), blocks=1)
        with mock.patch.multiple(bagel, VaeConfig=vae, _VOCABULARY=512):
            yield


def _speak(model: Any) -> None:
    """A tokenizer of bytes, whose markers are where the text encoder looks for them."""
    from tests.models.qwen_image_edit.tiny import processor

    model.processor = processor()
    model.text_encoder.config.image_token_id = model.processor.image_token
    markers = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    for key, marker in markers.items():
        setattr(model.text_encoder.config, key, model.processor.tokenizer.convert_tokens_to_ids(marker))


def asked(config: ModelConfig, side: int, count: int) -> list[Request]:
    images = (picture(0, side),) if config.edits else ()
    return [Request(f"r{n}", SENTENCE, images, seed=n, size=None if images else (side, side)) for n in range(count)]


# --- a run of the bench ---------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """Collects rows, and writes all of them after each."""

    machine: Machine
    sizes: Sizes
    models: Sequence[str]
    tiny: bool
    seconds: float
    out: Path
    official: Path | None = None
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take over what an earlier call has measured here."""
        file = self.out / "gpu.json"
        if file.is_file():
            earlier = json.loads(file.read_text(encoding="utf-8"))
            if earlier | self._about == earlier:
                self.rows = earlier["parts"]

    @property
    def _about(self) -> dict[str, Any]:
        return {"device": self.machine.name, "torch": torch.__version__, "tiny": self.tiny}

    def part(self, name: str, cases: Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]) -> None:
        """Measure the cases of a part while there is time."""
        began = time.monotonic()
        found = self.rows[name] = []
        for about, measure in cases:
            share = (self.models.index(about["model"]) + 1) / len(self.models) if "model" in about else 1
            if time.monotonic() - began > self.seconds * share:
                found.append(about | {"left out": "no time"})
                continue
            try:
                result = measure()
            except torch.OutOfMemoryError:
                result = {"left out": "out of memory"}
            except Exception as error:  # a row that fails must not take the others along
                result = {"left out": f"{type(error).__name__}: {error}".splitlines()[0][:160]}
            found.append(about | result)
            self.machine.tidy()
            self.write()
            print(name, json.dumps(found[-1]), flush=True)

    def write(self) -> None:
        """gpu.json and gpu.md."""
        about = self._about
        with atomic_path(self.out / "gpu.json") as path:
            path.write_text(json.dumps(about | {"parts": self.rows}, indent=1) + "\n", encoding="utf-8")
        with atomic_path(self.out / "gpu.md") as path:
            path.write_text("\n".join(self.page()) + "\n", encoding="utf-8")

    def page(self) -> Iterator[str]:
        yield from (f"# {self.machine.name}", "", f"`python bench/gpu.py`, torch {torch.__version__}.")
        if self.tiny:
            yield from ("", "Tiny sizes: these figures say only that the code runs.")
        for name, found in self.rows.items():
            columns = list(dict.fromkeys(key for one in found for key in one))
            yield from ("", f"## {name}", "", *table(*columns))
            yield from (row(*(_cell(one.get(key, "")) for key in columns)) for one in found)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Cases = Iterator[tuple[dict[str, Any], Callable[[], dict[str, Any]]]]


# --- load -----------------------------------------------------------------------------------------------------------


def load(bench: Bench) -> Cases:
    for name in bench.models:
        config = configured(name, bench.tiny, bench.sizes.sides[0])
        yield {"model": name}, partial(_load, bench, config)


def _load(bench: Bench, config: ModelConfig) -> dict[str, Any]:
    state = made(config, bench.machine).state_dict()
    size = sum(value.nbytes for value in state.values())
    with tempfile.TemporaryDirectory(dir=bench.out) as folder:
        if shutil.disk_usage(folder).free < 1.1 * size:
            return {"GiB": size / GIB, "left out": "no room on the disk"}
        file = Path(folder) / "all.safetensors"
        write(file, {n: (v.dtype, tuple(v.shape)) for n, v in state.items()}, lambda n: state[n].cpu())
        names = list(state)
        state.clear()
        bench.machine.tidy()
        stored = Weights([file])
        seconds, _ = bench.machine.measure(lambda: [stored.read(n).to(bench.machine.device) for n in names], 1)
    return {"GiB": size / GIB, "s": seconds, "GiB/s": size / GIB / seconds}


# --- train ----------------------------------------------------------------------------------------------------------


def train(bench: Bench) -> Cases:
    for name in bench.models:
        for side in bench.sizes.sides if name != "nano" else (24,):
            for trained, weights, state in TRAININGS if name != "nano" else (("all", None, "full"),):
                config = configured(name, bench.tiny, side)
                about = {"model": name, "side": side, "trained": trained, "moments": state}
                about["weights"] = weights or ("float32" if name == "nano" else "bfloat16")
                learnt = replace(config, weights=weights)
                yield about, partial(_train, bench, learnt, side, trained, state)


def _examples(config: ModelConfig, side: int, rows: int) -> list[Example]:
    images = (picture(0, side),) if config.edits else ()
    words = "Draw 2 cups." if config.family == "nano" else SENTENCE
    return [Example(words, images, target=picture(n, side), seed=n) for n in range(rows)]


def _train(bench: Bench, config: ModelConfig, side: int, trained: str, moments: Any) -> dict[str, Any]:
    nano, machine = config.family == "nano", bench.machine
    large = not nano
    training = TrainingConfig(
        optimizer=OptimizerConfig(lr=1e-6, state=moments),
        strategy=StrategyConfig(precision="bf16-true" if large else "32-true", accelerator=machine.accelerator),
        checkpoint_every=10**6,
    )
    rows = _examples(config, side, bench.sizes.rows)
    predicted, flops = _predicted(config, training, rows, trained)
    model = made(replace(config, weights=None), machine)
    quantise(model, config.weights)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=large)
    clock = _Clock(machine)
    with tempfile.TemporaryDirectory() as folder, adapted(model, LORA, 0) if trained == "lora" else nullcontext():
        fit_supervised(
            model, {"rows": rows}, Constant({"rows": 1.0}), training, Updates(bench.sizes.updates, rows=len(rows)),
            Path(folder), FitOptions(trained=trained, progress=False), callbacks=[clock],
        )  # fmt: skip
    seconds = statistics.median(np.diff(clock.moments)[1:])
    tokens = sum(model.example_tokens(one) for one in rows)
    return {
        "tokens": tokens,
        "s": float(seconds),
        "tokens/s": tokens / seconds,
        "TFLOP": flops / 1e12,
        "MFU": flops / seconds / machine.peak if machine.peak else None,
        "GiB": clock.most / GIB,
        "plan GiB": predicted / GIB,
    }


def _predicted(
    config: ModelConfig, training: TrainingConfig, rows: Sequence[Example], trained: str
) -> tuple[int, float]:
    """Bytes at the peak and FLOP of an update, as `plan` traces them."""
    family = family_of(config.family)
    with parts_of(config):
        model, _ = family.skeleton(config)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=config.family != "nano")
    if trained == "lora":
        with without_weights():
            add_adapters(model, LORA, 0)
    loss = family.shapes(model).loss(rows, training.ce_weight, training.mse_weight)
    (traced,) = supervised(model, [loss], training, "meta", trained=trained)
    traced = lighter(traced, model, config.weights, training.optimizer.state)
    return traced.timeline.peak(), traced.flops


class _Clock(pl.Callback):
    """When updates end; the most memory of all of them."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.moments, self.most = machine, list[float](), 0

    def on_train_batch_end(self, *_: object) -> None:
        if self.machine.device.type == "cuda":
            torch.cuda.synchronize()
            self.most = torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        self.moments.append(time.perf_counter())


# --- draw and write -------------------------------------------------------------------------------------------------


class Subject:
    """A model that is made when it is first asked, what does the same with its weights, and the times of ours."""

    def __init__(self, bench: Bench, config: ModelConfig) -> None:
        self.bench, self.config = bench, config
        self.ours: dict[int, float] = {}

    @cached_property
    def model(self) -> Any:
        model = made(self.config, self.bench.machine)
        model.sampling = replace(model.sampling, steps=self.bench.sizes.steps)
        return model

    @cached_property
    def official(self) -> Official:
        if self.bench.official is None:
            raise UserError("the released code is not here", "Clone it, and give --official FOLDER.")
        return Official(self.bench.official, self.model)

    @cached_property
    def pipeline(self) -> Any:
        from diffusers import FlowMatchEulerDiscreteScheduler, QwenImageEditPlusPipeline

        from tests.models.qwen_image_edit.tiny import SCHEDULER

        model = self.model
        parts = {name: getattr(model, name) for name in ("vae", "text_encoder", "processor", "transformer")}
        pipeline = QwenImageEditPlusPipeline(
            FlowMatchEulerDiscreteScheduler(**SCHEDULER), tokenizer=model.processor.tokenizer, **parts
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    @property
    def family(self) -> str:
        return self.config.family

    @property
    def makers(self) -> tuple[str, ...]:
        """Who makes images."""
        return ("ours", *{"bagel": ("official",), "qwen_image_edit": ("diffusers",)}.get(self.family, ()))

    def measured(self, by: str, count: int, run: Callable[[], object]) -> tuple[float, float, dict[str, Any]]:
        """Seconds, bytes beyond the weights, and how they compare with ours."""
        more: dict[str, Any] = {}
        if by == "compiled":
            compile_steps(self.model, False)
            self.ours[count], _ = self.bench.machine.measure(run)
            compile_steps(self.model, True)
            began = time.perf_counter()
            run()
            more["s of the first call"] = time.perf_counter() - began
        seconds, most = self.bench.machine.measure(run)
        if by == "ours":
            self.ours[count] = seconds
        elif count in self.ours:
            more["ours / it"] = self.ours[count] / seconds
        return seconds, most, more


def draw(bench: Bench) -> Cases:
    for name in bench.models:
        for side in bench.sizes.sides if name != "nano" else (24,):
            subject = Subject(bench, configured(name, bench.tiny, side))
            for by in subject.makers:
                for count in bench.sizes.counts:
                    about = {"model": name, "side": side, "at once": count, "steps": bench.sizes.steps, "by": by}
                    yield about, partial(_draw, subject, side, count, by)


def _draw(subject: Subject, side: int, count: int, by: str) -> dict[str, Any]:
    model, requests = subject.model, asked(subject.config, side, count)
    if subject.family == "nano":
        requests = [replace(one, prompt="Draw 2 cups.", size=None) for one in requests]
    runs: dict[str, Callable[[], object]] = {
        "official": lambda: subject.official.draw([one.prompt for one in requests], side),
        "diffusers": lambda: _by_pipeline(subject, side, count),
    }
    seconds, most, more = subject.measured(by, count, runs.get(by, lambda: model.draw(requests)))
    if by == "ours":
        noise = model.noise(requests)
        with torch.inference_mode():
            condition = model.encode(requests)
            more["of it decoding"], _ = subject.bench.machine.measure(lambda: model.decode(noise, condition), 1)
    return {"s": seconds, "images/s": count / seconds, "GiB beside weights": most / GIB, **more}


def guidance(bench: Bench) -> Cases:
    for name in bench.models:
        for side in (bench.sizes.sides[0] // 2, *bench.sizes.sides) if name.startswith("bagel") else ():
            subject = Subject(bench, configured(name, bench.tiny, side))
            for count in bench.sizes.counts:
                yield {"model": name, "side": side, "at once": count}, partial(_guidance, subject, side, count)


def _guidance(subject: Subject, side: int, count: int) -> dict[str, Any]:
    model, requests, seconds = subject.model, asked(subject.config, side, count), {}
    for passes, most in (("s in one pass", sys.maxsize), ("s in two", -1)):
        with mock.patch.object(generation, "ONE_PASS", most):
            seconds[passes], _ = subject.bench.machine.measure(lambda: model.draw(requests))
    latents = count * (side // model.stride) ** 2
    return {"latent tokens": latents, **seconds, "one / two": seconds["s in one pass"] / seconds["s in two"]}


def _by_pipeline(subject: Subject, side: int, count: int) -> object:
    """Images from an image by one call of diffusers' pipeline; it resizes no more than ours."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as plus

    config = subject.config
    assert config.editing is not None
    look = config.editing.look_size
    with mock.patch.multiple(plus, VAE_IMAGE_SIZE=side**2, CONDITION_IMAGE_SIZE=look**2):
        return subject.pipeline(
            image=Image.fromarray(picture(0, side)),
            prompt=SENTENCE,
            negative_prompt=config.editing.negative_prompt,
            true_cfg_scale=config.sampling.edit_text_scale,
            num_inference_steps=subject.bench.sizes.steps,
            height=side,
            width=side,
            num_images_per_prompt=count,
        )


def write_text(bench: Bench) -> Cases:
    for name in bench.models:
        subject = Subject(bench, configured(name, bench.tiny, bench.sizes.sides[0]))
        if subject.family != "qwen_image_edit":  # its text is written by transformers
            for by in (*subject.makers, "eager"):
                for count in bench.sizes.counts:
                    yield {"model": name, "at once": count, "by": by}, partial(_write, subject, count, by)


def _write(subject: Subject, count: int, by: str) -> dict[str, Any]:
    model, written = subject.model, subject.bench.sizes.written
    words = "Draw 2 cups." if subject.family == "nano" else SENTENCE

    def ours() -> None:
        cache = prefill(model.bagel, [[Text(model.tokenizer.encode(words))]] * count)
        generate_text(model.bagel, cache, written, stop=-1, close=False)

    run = ours if by != "official" else lambda: subject.official.write([words] * count, written)
    model.bagel.records_text = by != "eager"
    with torch.inference_mode():
        seconds, most, more = subject.measured(by, count, run)
    rates = {"thoughts/s": count / seconds, "tokens/s": count * written / seconds}
    return {"tokens": written, **rates, "GiB beside weights": most / GIB, **more}


def compiled(bench: Bench) -> Cases:
    for name in bench.models:
        side = bench.sizes.sides[0] if name != "nano" else 24
        subject = Subject(bench, configured(name, bench.tiny, side))
        for count in bench.sizes.counts:
            about = {"model": name, "at once": count}
            yield about | {"what": f"images, {side} pixels"}, partial(_draw, subject, side, count, "compiled")
            if subject.family != "qwen_image_edit":
                yield about | {"what": "thoughts"}, partial(_write, subject, count, "compiled")


# --- grpo -----------------------------------------------------------------------------------------------------------


def grpo(bench: Bench) -> Cases:
    for name in bench.models:
        side = bench.sizes.sides[0] if name != "nano" else 24
        config = configured(name, bench.tiny, side)
        yield {"model": name, "side": side}, partial(_grpo, bench, config, side)


def brightness(prompts: Sequence[str], completions: Sequence[np.ndarray], **columns: object) -> list[float]:
    return [float(image.mean()) for image in completions]


def _grpo(bench: Bench, config: ModelConfig, side: int) -> dict[str, Any]:
    """Two epochs: groups drawn together, replayed in micro-batches of a fourth of them."""
    machine, large = bench.machine, config.family != "nano"
    settings = GrpoConfig(
        epochs=2,
        rows=max(bench.sizes.group // 4, 1),
        rollout=RolloutConfig(prompts_per_epoch=2, group_size=bench.sizes.group, steps=bench.sizes.steps),
        objective=ObjectiveConfig(clip_low=1e-4, clip_high=1e-4, on_policy_check=1e9),
        alarms=AlarmsConfig(log_ratio=None, diversity=None),
        optimizer=OptimizerConfig(lr=1e-6),
        checkpoint_every=10**6,
        strategy=StrategyConfig(precision="bf16-true" if large else "32-true", accelerator=machine.accelerator),
    )
    model = made(config, machine)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=large)
    words = "Draw 2 cups." if not large else SENTENCE
    images = (picture(0, side),) if config.edits else ()
    prompts = PromptList([Prompt(f"p{n}", words, images) for n in range(2)], 0)
    if machine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder, adapted(model, LORA, 0) if large else nullcontext():
        with model.guided_at(1.0):
            fit_flow_grpo(
                model, Sampling(prompts, [Reward("brightness", brightness)]), settings, Path(folder),
                FitOptions(stage="grpo", trained="lora" if large else "all", progress=False, log_every=1),
            )  # fmt: skip
        epochs = [json.loads(line) for line in (Path(folder) / ROLLOUTS).read_text().splitlines()]
        first = json.loads((Path(folder) / "metrics.jsonl").read_text().splitlines()[0])
    most = torch.cuda.max_memory_allocated() / GIB if machine.device.type == "cuda" else None
    parts = {f"s {name}": float(value) for name, value in epochs[-1]["seconds"].items()}
    return {**parts, "GiB": most, "gate": first["log_ratio_max"]}


PARTS: dict[str, Callable[[Bench], Cases]] = {
    "draw": draw,
    "guidance": guidance,
    "write": write_text,
    "train": train,
    "grpo": grpo,
    "load": load,
    "compiled": compiled,
}
MODELS = ("nano", "bagel_7b", "qwen_image_edit_2511")


def numbers(text: str) -> tuple[int, ...]:
    """Of "1,8"."""
    return tuple(map(int, text.split(",")))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=some_of(PARTS), default=",".join(PARTS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sides", type=numbers, help="of images, in pixels")
    parser.add_argument("--counts", type=numbers, help="images and thoughts made at once")
    parser.add_argument("--group", type=int, help="images a prompt of the part grpo")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--official", type=Path, help="a checkout of the released code of BAGEL")
    parser.add_argument("--out", type=Path, default=Path("gpu"))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    if machine.device.type == "cpu" and not options.tiny:
        parser.error("there is no GPU here: --tiny runs the same code with small sizes")
    options.out.mkdir(parents=True, exist_ok=True)
    given = {key: value for key in ("sides", "counts", "group") if (value := getattr(options, key)) is not None}
    sizes = replace(TINY if options.tiny else Sizes(), **given)
    names = options.models.split(",")
    bench = Bench(machine, sizes, names, options.tiny, options.seconds, options.out, options.official)
    for name in options.only:
        bench.part(name, PARTS[name](bench))
    print(f"{options.out / 'gpu.md'}, {options.out / 'gpu.json'}")


if __name__ == "__main__":
    main()
