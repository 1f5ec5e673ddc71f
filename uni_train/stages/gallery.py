"""Images of a training run for people: samples with verdicts and rewards, and contact sheets of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.core.files import atomic_path
from uni_train.data_gen.registry import task_of
from uni_train.eval.images import pixels
from uni_train.eval.sample import Ask, Case, Sample, Scored
from uni_train.eval.task_benchmark import item_case
from uni_train.models.pictures import encode_png

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from uni_train.eval.images import Image as Encoded
    from uni_train.rewards.contract import Prompt, Scores

_BORDER = 2
_LEAST = 64  # pixels a side below which images are enlarged


def case_of(prompt: Prompt, keep: bool = True) -> Case:
    """A prompt as it is stored. Its facts have the level and the answer, where they are known. keep: its images."""
    item, known = prompt.columns.get("item"), {name: prompt.columns.get(name) for name in ("level", "answer")}
    case = Case(prompt.id, "", prompt.text) if item is None else item_case(item)
    facts = {**case.facts, **{name: value for name, value in known.items() if isinstance(value, int | str)}}
    return replace(case, images=tuple(map(encode_png, prompt.images)) if keep else (), facts=facts)


def scored_image(step: int, prompt: Prompt, ask: Ask, image: np.ndarray, keep: bool = True) -> Scored:
    """An image with the verdict of the prompt's task, if it is of one. keep: the image is stored."""
    item = prompt.columns.get("item")
    parts = (encode_png(image),) if keep else ()
    sample = Sample(ask, prompt=prompt.text, parts=parts, facts={"step": step})
    return Scored(sample, failure="unjudged") if item is None else Scored(sample, task_of(item).verify(item, image))


def rewarded(answer: Scored, scores: Scores, i: int) -> Scored:
    """With the rewards of image `i`, and the verdict that one of them brought."""
    rewards = [
        [name, None if np.isnan(value) else float(value)]
        for name, value in zip(scores.names, scores.each[i], strict=True)
    ]
    facts = {**answer.sample.facts, "rewards": rewards, "reward": float(scores.total[i])}
    verdict = scores.verdicts[i] if scores.verdicts else None
    return replace(answer, sample=replace(answer.sample, facts=facts), verdict=verdict or answer.verdict)


def write_sheet(groups: Sequence[Sequence[Scored]], file: Path) -> None:
    """A row a group, first what was shown; the border goes from red (worst reward of all) to green (best)."""
    from PIL import Image, ImageOps

    def framed(image: Encoded, *colour: int) -> Picture:
        return ImageOps.expand(Image.fromarray(pixels(image)), _BORDER, colour)

    def rewarded(answer: Scored) -> Picture:
        good = (_reward(answer) - low) / spread
        return framed(answer.sample.drawn[-1], int(220 * (1 - good)), int(180 * good), 40)

    totals = [_reward(answer) for group in groups for answer in group]
    low, spread = min(totals), (max(totals) - min(totals)) or 1.0
    given = [[framed(image, 128, 128, 128) for image in group[0].sample.ask.case.images[:1]] for group in groups]
    blank = Image.new("RGB", (1, 1), "white")
    rows = [[*(some or [blank]), *map(rewarded, group)] for some, group in zip(given, groups, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as temporary:
        _sheet(rows, [cell for row in rows for cell in row]).save(temporary, "PNG")


def log_images(logger: Any, key: str, scored: Iterable[Scored], step: int) -> None:
    """The images with prompts, verdicts and rewards to W&B (`logger`: Lightning's, or None)."""
    from PIL import Image

    if logger is None:
        return
    images: list[Picture] = []
    captions: list[str] = []
    for answer in scored:
        case = answer.sample.ask.case
        images += [Image.fromarray(pixels(image)) for image in (*case.images, *answer.sample.drawn)]
        captions += [case.prompt] * len(case.images) + ["\n".join([case.prompt, *caption(answer)])]
    # W&B shows all images of a key at one size, and small ones as small as they are.
    logger.log_image(key=key, images=[_sheet([[image]], images) for image in images], caption=captions, step=step)


def caption(answer: Scored) -> list[str]:
    """An image's verdict and rewards, in words."""
    facts, lines = answer.sample.facts, list[str]()
    if answer.verdict is not None:
        lines.append(": ".join(filter(None, (answer.verdict.status, answer.verdict.reason))))
    if "reward" in facts:
        each = ", ".join(f"{name} {'failed' if v is None else f'{v:.3g}'}" for name, v in facts["rewards"])
        lines.append(f"reward {facts['reward']:.3g} ({each})")
    return lines


def _reward(answer: Scored) -> float:
    return float(answer.sample.facts.get("reward", 0.0))


def _sheet(rows: Sequence[Sequence[Picture]], sizes: Sequence[Picture]) -> Picture:
    """Cells as large as the largest of `sizes`, the rest white; enlarged where they are small."""
    from PIL import Image, ImageOps

    width, height = (max(image.size[side] for image in sizes) for side in (0, 1))
    sheet = Image.new("RGB", (width * max(map(len, rows)), height * len(rows)), "white")
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            sheet.paste(image, (x * width, y * height))
    return ImageOps.scale(sheet, max(1, _LEAST // height), Image.Resampling.NEAREST)
