"""Images of a training run for people: groups with verdicts and rewards, and contact sheets of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Verdict
from uni_train.eval.groups import Group, Member
from uni_train.files import atomic_path
from uni_train.models.pictures import decode_png, encode_png

if TYPE_CHECKING:
    from uni_train.training.flow_grpo.rollout import ScoredImages

SHOWN_GROUPS, SHOWN_MEMBERS = 6, 12
_BORDER = 2
_LEAST = 64  # pixels a side below which images are enlarged


def groups_of(drawn: ScoredImages, group_size: int) -> list[Group]:
    """The first groups of an epoch and their first images: chosen by their place, not by how they turned out."""
    groups = []
    for g, prompt in enumerate(drawn.prompts[:SHOWN_GROUPS]):
        item = prompt.columns.get("item")
        members = []
        for i in range(g * group_size, g * group_size + min(group_size, SHOWN_MEMBERS)):
            image = drawn.images[i]
            verdict = drawn.scores.verdicts[i] if drawn.scores.verdicts else None
            if verdict is None and item is not None:
                verdict = task_of(item).verify(item, image)
            each = drawn.scores.each[i]
            rewards = {
                name: None if np.isnan(value) else float(value)
                for name, value in zip(drawn.scores.names, each, strict=True)
            }
            members.append(Member(encode_png(image), verdict, float(drawn.scores.total[i]), rewards))
        level, answer = prompt.columns.get("level"), prompt.columns.get("answer")
        groups.append(
            Group(
                prompt.id,
                prompt.text,
                members,
                [encode_png(image) for image in prompt.images],
                level if isinstance(level, int) else None,
                answer if isinstance(answer, str) else None,
            )
        )
    return groups


def write_sheet(groups: Sequence[Group], file: Path) -> None:
    """A row a group, first what was shown; the border goes from red (worst reward of all) to green (best)."""
    from PIL import Image

    totals = [member.total or 0.0 for group in groups for member in group.members]
    low, spread = min(totals), (max(totals) - min(totals)) or 1.0
    shown = [[decode_png(image) for image in group.inputs[:1]] for group in groups]
    drawn = [[decode_png(member.image) for member in group.members] for group in groups]
    images = [image for row in [*shown, *drawn] for image in row]
    height, width = (max(image.shape[side] for image in images) + 2 * _BORDER for side in (0, 1))
    across = max(len(row) for row in drawn)
    sheet = []
    for group, given, made in zip(groups, shown, drawn, strict=True):
        cells = [_framed(given[0] if given else None, (128, 128, 128), height, width)]
        for member, image in zip(group.members, made, strict=True):
            good = ((member.total or 0.0) - low) / spread
            cells.append(_framed(image, (int(220 * (1 - good)), int(180 * good), 40), height, width))
        cells += [_framed(None, (0, 0, 0), height, width)] * (across - len(made))
        sheet.append(np.concatenate([_enlarged(cell) for cell in cells], axis=1))
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as temporary:
        Image.fromarray(np.concatenate(sheet)).save(temporary, "PNG")


def log_groups(logger: Any, key: str, groups: Sequence[Group], step: int) -> None:
    """The images with prompts, verdicts and rewards to W&B (`logger`: Lightning's, or None)."""
    if logger is None:
        return
    images, captions = [], []
    for group in groups:
        for image in group.inputs:
            images.append(decode_png(image))
            captions.append(group.prompt)
        for member in group.members:
            images.append(decode_png(member.image))
            captions.append("\n".join([group.prompt, *caption(member)]))
    # W&B shows all images of a key at one size, and small ones as small as they are.
    height, width = (max(image.shape[side] for image in images) for side in (0, 1))
    framed = [_enlarged(_framed(image, (255, 255, 255), height, width, 0)) for image in images]
    logger.log_image(key=key, images=framed, caption=captions, step=step)


def caption(member: Member) -> list[str]:
    """An image's verdict and rewards, in words."""
    said = [] if member.verdict is None else [_verdict(member.verdict)]
    if member.total is not None:
        each = ", ".join(f"{name} {'failed' if v is None else f'{v:.3g}'}" for name, v in member.rewards.items())
        said.append(f"reward {member.total:.3g} ({each})")
    return said


def _verdict(verdict: Verdict) -> str:
    return f"{verdict.status}: {verdict.reason}" if verdict.reason else verdict.status


def _framed(
    image: np.ndarray | None, colour: tuple[int, int, int], height: int, width: int, border: int = _BORDER
) -> np.ndarray:
    cell = np.full((height, width, 3), 255, np.uint8)
    if image is not None:
        h, w = image.shape[:2]
        cell[: h + 2 * border, : w + 2 * border] = colour
        cell[border : border + h, border : border + w] = image
    return cell


def _enlarged(image: np.ndarray) -> np.ndarray:
    times = max(1, _LEAST // image.shape[0])
    return image.repeat(times, axis=0).repeat(times, axis=1)
