"""What faster sampling saves and changes, beside exact sampling of the same models: a markdown table for each.

    python bench/sampling.py [--only nano,bagel,qwen_image_edit,flux] [--rounds 3]

nano is the shipped one, the others have random weights and tiny sizes (tests/models), with more layers than in tests.
Times are CPU seconds of one image on one thread, medians, relative to exact ones measured in turn. Errors are means
over images of the same seeds: the distance of latents relative to their length, as the VAE takes them, and pixels in
levels of 0 to 255. Random weights say nothing about the errors of trained ones, a CPU nothing about the speed of a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bagel import TINY, picture
from bench.choices import some_of
from bench.markdown import row, table
from bench.timing import interleaved, machine
from tests.models.bagel.published import published
from tests.models.diffusers import tiny as pipelines
from tests.models.qwen_image_edit import tiny as editor
from tests.models.qwen_image_edit.conftest import config_of
from uni_train.config.schema import ModelConfig
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.family import family_of
from uni_train.models.load import build_model, model_config
from uni_train.stages.cpu import prepare_cpu

IMAGES = 4
LAYERS = 8
SIDE = 64
STEPS = 20
THRESHOLDS = (0.05, 0.2)
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {},
    **{f"first_block_cache={x}": {"first_block_cache": x} for x in THRESHOLDS},
    **{f"weights={form}": {"weights": form} for form in ("fp8", "int8", "nf4")},
    "half the steps": {"steps": 0.5},
}


@dataclass(frozen=True)
class Subject:
    """A model and what it is asked: `config` with `steps` denoising steps."""

    title: str
    config: ModelConfig
    requests: Sequence[Request]

    def built(self, weights: str | None = None, first_block_cache: float | None = None, steps: float = 1.0) -> Any:
        """The model with an option. steps: a share of its own."""
        own = self.config.sampling
        sampling = replace(own, steps=max(1, round(steps * own.steps)), first_block_cache=first_block_cache)
        return build_model(replace(self.config, sampling=sampling, weights=weights))  # type: ignore[arg-type]


def drawn(model: UnifiedModel, requests: Sequence[Request]) -> tuple[torch.Tensor, np.ndarray]:
    """Latents [B, ...] as the VAE takes them, and images [B, H, W, 3] of one size."""
    kept: list[torch.Tensor] = []
    vae: Any = model.vae
    decode = vae.decode

    def keeping(latents: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        kept.append(latents.float().cpu())
        return decode(latents, *args, **kwargs)

    vae.decode = keeping
    images = np.stack([model.draw([request])[0] for request in requests])
    vae.decode = decode
    return torch.cat(kept), images.astype(float)


def compared(subject: Subject, rounds: int) -> Iterator[str]:
    """A table with a row for each option."""
    yield from table(
        subject.title, "time of an image, exact = 1", "latents, relative L2 error", "pixels, mean error in levels"
    )
    caches = "sampling.first_block_cache" in family_of(subject.config.family).optional_keys
    options = {name: values for name, values in OPTIONS.items() if caches or "first_block_cache" not in values}
    models = {name: subject.built(**values) for name, values in options.items()}
    results = {name: drawn(model, subject.requests) for name, model in models.items()}
    runs = {name: partial(model.draw, subject.requests[:1]) for name, model in models.items()}
    seconds = interleaved(rounds, runs, clock="cpu")
    latents, images = results["exact"]
    for name, (own_latents, own_images) in results.items():
        error = float((own_latents - latents).norm() / latents.norm())
        levels = float(np.abs(own_images - images).mean())
        yield row(name, f"{seconds[name] / seconds['exact']:.2f}", f"{error:.3f}", f"{levels:.2f}")


# --- the models -----------------------------------------------------------------------------------------------------


def nano(folder: Path) -> Subject:
    config = model_config("nano")
    asked = [Request(str(i), f"Draw {i + 1} apples .", seed=i) for i in range(IMAGES)]
    return Subject(f"nano, shipped weights, {config.sampling.steps} steps", config, asked)


def bagel(folder: Path) -> Subject:
    config = model_config(str(published(TINY, folder)))
    sampling = replace(config.sampling, steps=STEPS)
    architecture = replace(config.architecture, image_size=SIDE)
    asked = [Request(str(i), "a red boat", seed=i) for i in range(IMAGES)]
    guided = replace(config, sampling=sampling, architecture=architecture)
    return Subject(f"tiny BAGEL, guided, {STEPS} steps", guided, asked)


def deeper(pipeline: Any, folder: Path) -> Path:
    """Save a pipeline whose transformer has LAYERS layers of each kind."""
    made = pipeline.transformer
    names = [name for name in ("num_layers", "num_single_layers") if name in made.config]
    torch.manual_seed(0)
    pipeline.transformer = type(made).from_config({**made.config, **dict.fromkeys(names, LAYERS)}).eval()
    pipeline.save_pretrained(folder)
    return folder


def qwen_image_edit(folder: Path) -> Subject:
    editor.published(folder, zero_cond_t=True)
    pipeline = editor.pipeline(zero_cond_t=True)
    deeper_transformer = deeper(pipeline, folder / "deeper") / "transformer"
    for file in deeper_transformer.iterdir():
        file.replace(folder / "transformer" / file.name)
    config = config_of(folder)
    sampling = replace(config.sampling, steps=STEPS, edit_text_scale=4.0)
    asked = [Request(str(i), "make it red", (picture(i, SIDE),), seed=i) for i in range(IMAGES)]
    return Subject(
        f"Qwen-Image-Edit of {LAYERS} layers, guided, {STEPS} steps", replace(config, sampling=sampling), asked
    )


def flux(folder: Path) -> Subject:
    config = model_config(str(deeper(pipelines.pipeline("flux"), folder)))
    asked = [Request(str(i), "a red boat", seed=i, size=(SIDE, SIDE)) for i in range(IMAGES)]
    sampling = replace(config.sampling, steps=STEPS)
    return Subject(f"FLUX of {LAYERS} + {LAYERS} layers, {STEPS} steps", replace(config, sampling=sampling), asked)


SUBJECTS: dict[str, Callable[[Path], Subject]] = {one.__name__: one for one in (nano, bagel, qwen_image_edit, flux)}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--only", type=some_of(SUBJECTS), default=",".join(SUBJECTS), help="models, with commas (default: all)"
    )
    made.add_argument("--rounds", type=int, default=3)
    return made


def main() -> None:
    chosen = parser().parse_args()
    prepare_cpu(1)
    print(machine())
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen.only:
            print(flush=True)
            for line in compared(SUBJECTS[name](Path(directory) / name), chosen.rounds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
