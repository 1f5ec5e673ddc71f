"""`uni_train generate`: one prompt to an image (and the thought behind it), or to an answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.commands import completer
from uni_train.cli.numbers import INTERLEAVING, QUANTISED, Finite
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from uni_train.config.schema import Quantised
    from uni_train.console.progress import Bar, ConsoleProgress


@click.command()
@click.option(
    "--model", "-m", required=True, metavar="PATH|NAME", shell_complete=completer("models"),
    help="A checkpoint, a run, or a name of `models`.",
)  # fmt: skip
@click.option("--prompt", "-p", required=True, metavar="TEXT", help="What to draw, to change or to answer.")
@click.option(
    "--image", "images", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="An input image; repeatable.",
)  # fmt: skip
@click.option("--think", is_flag=True, help="Reason in text first; the thought is written beside the image.")
@click.option("--answer", is_flag=True, help="Print a text answer instead of drawing.")
@click.option(
    "--interleaving", type=click.Choice(INTERLEAVING), help="Answer with texts and images in turns, this way."
)
@click.option("--max-images", type=click.IntRange(1, 1_000), metavar="N", help="Of such an answer.  [default: 3 or 10]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A .png file.  [default: generated.png]")
@click.option("--weights", type=click.Choice(QUANTISED), help="Hold the decoder in 4 or 8 bits.  [default: as stored]")
@click.option(
    "--compile", is_flag=True, help="Compile the denoising steps by torch.compile: slower at first, then faster."
)
@click.option("--size", metavar="HxW", help="Height and width in pixels.  [default: the image's, or the model's]")
@click.option("--steps", type=click.IntRange(1, 1_000), metavar="N", help="Denoising steps.  [default: the model's]")
@click.option(
    "--first-block-cache", type=Finite(0, 1), metavar="X",
    help="Pipelines of diffusers: skip all but the first block of a step whose first output changes by less.  "
    "[default: exact]",
)  # fmt: skip
@click.option("--text-scale", type=Finite(0), metavar="X", help="Classifier-free guidance by the text; 1 = off.")
@click.option("--image-scale", type=Finite(0), metavar="X", help="Guidance by the input images; 1 = off.")
@click.option("--temperature", type=Finite(0), metavar="X", help="Temperature of thoughts and answers; 0 is greedy.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, metavar="N",
    help="Of the first; the next have the next seeds.",
)  # fmt: skip
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Number of images or answers."
)
@click.option(
    "--redraw", type=click.IntRange(1, 1_000), metavar="N",
    help="Have the model judge its image, and draw at most N until it accepts one.  [default: the first]",
)  # fmt: skip
def generate(
    model: str,
    prompt: str,
    images: tuple[Path, ...],
    think: bool,
    answer: bool,
    interleaving: str | None,
    max_images: int | None,
    out: Path | None,
    weights: Quantised | None,
    compile: bool,
    size: str | None,
    steps: int | None,
    first_block_cache: float | None,
    text_scale: float | None,
    image_scale: float | None,
    temperature: float | None,
    seed: int,
    count: int,
    redraw: int | None,
) -> None:
    """Draw an image, edit images, or answer in text.

    With --image the model edits these images; without it, it draws from the text alone. The same seed gives the same
    image. --image-scale has no effect unless --text-scale is above 1.

    \b
    Examples:
      uni_train generate -m nano -p "J means F. # means tree. C means #. F means ball. Draw what C means." --think
      uni_train generate -m checkpoints/BAGEL-7B-MoT -p "a red boat" --think --out boat.png
      uni_train generate -m checkpoints/BAGEL-7B-MoT -p "make it blue" --image boat.png -n 4
      uni_train generate -m checkpoints/BAGEL-7B-MoT -p "What is this?" --image boat.png --answer
      uni_train generate -m checkpoints/ThinkMorph-7B -p "Find the way out." --image maze.png --interleaving thinkmorph
    """
    for_pictures = {"--out": out, "--size": size, "--steps": steps, "--first-block-cache": first_block_cache,
                    "--text-scale": text_scale, "--image-scale": image_scale, "--redraw": redraw}  # fmt: skip
    if interleaving and (think or answer or redraw):
        given = "--think" if think else "--answer" if answer else "--redraw"
        raise UsageError(f"{given} has no meaning with --interleaving", "Leave one of them out.")
    if max_images is not None and not interleaving:
        raise UsageError("--max-images is about interleaved answers", "Add --interleaving, or leave it out.")
    if answer and (about := next((name for name, value in for_pictures.items() if value is not None), None)):
        raise UsageError(f"{about} is about images, and --answer draws none", "Leave one of them out.")
    if not prompt.strip():
        raise UsageError("--prompt is empty", "Say what is to be drawn or answered.")
    out = out if out is not None else Path("generated.png")
    if not out.name or out.is_dir():
        raise UsageError(f"--out {out} is a folder", "Give the name of a .png file.")
    if out.suffix.lower() != ".png":
        raise UsageError(f"images are written as PNG, not as {out.name}", f"Give --out {out.with_suffix('.png')}.")

    # Before torch is imported, which takes seconds.
    from uni_train.models.checkpoint import model_config

    config = model_config(model, weights, compile)
    for path in images:
        if not path.exists():
            raise UserError(f"{path}: no such file", "Check the path of the image.")

    from dataclasses import replace

    from rich.console import Console

    from uni_train.console.progress import ConsoleProgress
    from uni_train.models.base import Request
    from uni_train.models.pictures import read_image

    shown = tuple(map(read_image, images))
    asked = [Request(f"{prompt[:40]!r}", prompt, shown, seed=seed + i, size=_size(size)) for i in range(count)]
    progress = ConsoleProgress(Console(stderr=True))
    changes = dict(steps=steps, temperature=temperature, first_block_cache=first_block_cache or None,
                   cfg_text_scale=text_scale, edit_text_scale=text_scale, cfg_img_scale=image_scale,
                   edit_img_scale=image_scale, interleaving=interleaving, max_images=max_images)  # fmt: skip
    sampling: dict[str, Any] = {key: value for key, value in changes.items() if value is not None}
    config = replace(config, sampling=replace(config.sampling, **sampling))
    if images and not answer and config.sampling.edit_img_scale > 1 >= config.sampling.edit_text_scale:
        progress.say("note: guidance by the images does nothing while --text-scale is 1 or less")
    progress.say(f"loading {config.name} from {config.checkpoint}")

    from functools import partial

    from uni_train.api import build_here
    from uni_train.models.base import ImageGenerator, TextGenerator, expect_skill
    from uni_train.models.batches import fitting

    loaded = build_here(config)
    if interleaving:
        from uni_train.cli.interleaved import write_answers

        for path in write_answers(loaded, asked, config.draw_batch, out, partial(_Steps, progress)):
            echo(path)
        return
    if answer:
        writer = expect_skill(loaded, TextGenerator)
        for start in range(0, len(asked), config.think_batch):
            batch = asked[start : start + config.think_batch]
            with _Steps(progress, "answering") as steps_done:
                for text in fitting(partial(writer.answer, think=think, on_step=steps_done), batch):
                    echo(text)
        return
    drawer: Any = expect_skill(loaded, ImageGenerator)
    if redraw is not None and redraw > 1:
        from uni_train.eval.redraw import Redrawing

        drawer = Redrawing(loaded, redraw, loaded.family)
    for start in range(0, len(asked), config.draw_batch):
        batch = asked[start : start + config.draw_batch]
        thoughts: list[str] | list[None] = [None] * len(batch)
        with _Steps(progress, *(["thinking"] if think else []), "drawing") as steps_done:
            if think:
                both = partial(drawer.think_and_draw, on_step=steps_done)
                pairs = fitting(lambda some, both=both: [*zip(*both(some), strict=True)], batch)  # type: ignore[misc]
                thoughts, pictures = map(list, zip(*pairs, strict=True))
            else:
                pictures = fitting(partial(drawer.draw, on_step=steps_done), batch)
        for i, (picture, thought) in enumerate(zip(pictures, thoughts, strict=True), start):
            path = out if count == 1 else out.with_name(f"{out.stem}-{seed + i}{out.suffix}")
            for written in _write(path, picture, thought):
                echo(written)
    if drawer is not loaded:
        progress.say(f"{drawer.images} images drawn, {drawer.judgements} judged by the model itself")


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)[x×](\d+)", text.strip().lower())
    if match is None:
        raise UsageError(f"cannot read the size {text}", "Write height x width, for example --size 768x1024.")
    return int(match[1]), int(match[2])


class _Steps:
    """A bar for each phase of the work (thinking, drawing); a new phase starts counting from 1."""

    def __init__(self, progress: ConsoleProgress, *titles: str) -> None:
        self._progress, self._titles = progress, list(titles)
        self._bar: Bar | None = None

    def __call__(self, done: int, total: int) -> None:
        from uni_train.console.progress import Bar

        if done == 1 or self._bar is None:
            self.__exit__()
            title = self._titles.pop(0) if len(self._titles) > 1 else self._titles[0]
            self._bar = Bar(self._progress.console, title, total, 0)
        self._bar.advance()

    def __enter__(self) -> _Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _write(path: Path, picture: Any, thought: str | None) -> list[Path]:
    """The image, and the thought beside it; their paths."""
    from uni_train.core.files import atomic_write_bytes, atomic_write_text
    from uni_train.models.pictures import encode_png

    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_bytes(path, encode_png(picture))
    if thought is None:
        return [path]
    beside = path.with_suffix(".txt")
    atomic_write_text(beside, thought + "\n")
    return [path, beside]
