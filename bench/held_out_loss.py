"""Learned or memorised? A small model trains on 30 captioned images; ten are held out (docs/training.md).

    python bench/held_out_loss.py moved                          # nano; half a minute on one idle core
    python bench/held_out_loss.py moved --rates 3e-5,3e-3,0.1    # a table of learning rates
    python bench/held_out_loss.py moved --model flux             # a tiny FLUX, trained first on 400 plain images

The tiny FLUX is all parts of the published one with random weights, 32 x 32 pixels; five minutes on one idle core.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train import fit
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_text
from uni_train.data_gen.registry import get_task
from uni_train.eval.scored import read_folder
from uni_train.training.metric_log import read_metrics

ROWS, BEFORE, DRAWN = 40, 400, 6
KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda image: image,
    "moved": lambda image: np.roll(image, (8, 8), (0, 1)),  # by a patch, to where it never draws
    "inverted": lambda image: 255 - image,  # which its autoencoder cannot represent
}
RATES = {"nano": "3e-3", "flux": "1e-3"}
ALONE = ("batch.tokens=null", "strategy.all_cores=false", "model.threads=1")
FLUX = ("model=diffusers", "model.architecture.image_size=32", "strategy.precision=32-true", "trained=all")


def make_rows(folder: Path, kind: str, rows: int = ROWS) -> Path:
    """Captioned images: what a symbol means by a rule."""
    task = get_task("mapping", "nano")
    folder.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(task.generate(rows, 1, "train", 0)[:rows]):
        image = task.render(item, number)
        Image.fromarray(KINDS[kind](image)).save(folder / f"{number:03}.png")
        atomic_write_text(folder / f"{number:03}.txt", item.prompt)
    return folder


def tiny_flux(out: Path) -> Path:
    """A run that has taught a tiny FLUX to draw plain images."""
    import torch

    from tests.models.diffusers import tiny

    folder = out / "tiny_flux"
    if not folder.exists():
        torch.manual_seed(0)
        tiny.flux().save_pretrained(folder)
    rows = make_rows(out / "rows" / "before", "plain", BEFORE)
    keys = [*FLUX, *ALONE, f"model.checkpoint={folder}", f"sources={rows}", f"out={out}", "name=tiny_flux"]
    return fit("sft", [*keys, "optimizer.lr=1e-3", "updates=300", "batch.rows=16"]).path


def drawn(moment: Path) -> list[np.ndarray]:
    """Images of the held-out prompts."""
    return [np.asarray(Image.open(io.BytesIO(one.sample.image or b""))) for one in read_folder(moment)]


def reconstructed(images: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As nano's autoencoder returns them."""
    import torch

    from uni_train.models.bagel.images import pixels
    from uni_train.models.load import build_model, model_config

    vae = build_model(model_config("nano")).vae
    with torch.no_grad():
        returned = vae.decode(vae.encode(pixels(images), torch.zeros(len(images), 1, 1, 1)))
    return list(((returned + 1) * 127.5).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy())


def show(file: Path, rows: Sequence[Sequence[np.ndarray]]) -> None:
    """Rows of images of one size, three times as large."""
    grid = np.concatenate([np.concatenate(some, 1) for some in rows])
    whole = Image.fromarray(grid)
    whole.resize((3 * whole.width, 3 * whole.height), Image.Resampling.NEAREST).save(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("--model", choices=tuple(RATES), default="nano")
    parser.add_argument("--rates", help="learning rates, with commas")
    parser.add_argument("--picture", type=Path, help="a PNG: rows, what nano's VAE returns, before, after each rate")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    try:
        run(parser.parse_args())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def run(given: argparse.Namespace) -> None:
    """Train at each rate, then print the table."""
    rows = make_rows(given.out / "rows" / given.kind, given.kind)
    keys = [f"sources={rows}", f"out={given.out}", *ALONE, "batch.rows=8", "updates=160"]
    keys += ["held_out_loss.share=0.25", "held_out_loss.every=20", f"held_out.path={rows}", f"held_out.n={DRAWN}"]
    if given.model == "nano":
        keys += ["batch.noise_draws=2", "evaluate=false"]
    else:
        keys += [*FLUX, f"model.checkpoint={tiny_flux(given.out)}"]
    logs, pictures = {}, []
    for rate in (given.rates or RATES[given.model]).split(","):
        name = f"{given.model}-{given.kind}-{rate}"
        trained = fit("sft_nano" if given.model == "nano" else "sft", [*keys, f"optimizer.lr={rate}", f"name={name}"])
        (log,) = trained.path.glob("stages/*/held_out_loss.jsonl")
        logs[rate] = read_metrics(log)
        moments = sorted(trained.path.glob("stages/*/held_out/*"))
        pictures += [drawn(moment) for moment in moments[-1 if pictures else 0 :]]
    if given.picture is not None:
        targets = [np.asarray(Image.open(file)) for file in sorted(rows.glob("*.png"))[:DRAWN]]
        returned = [reconstructed(targets)] if given.model == "nano" else []
        show(given.picture, [targets, *returned, *pictures])
    print("Loss of held-out rows, then of as many trained ones, by learning rate:")
    for line in table("updates", *logs):
        print(line)
    for moments in zip(*logs.values(), strict=True):
        print(row(moments[0]["step"], *(f"{one['held_out/loss']:.3f} / {one['train/loss']:.3f}" for one in moments)))


if __name__ == "__main__":
    main()
