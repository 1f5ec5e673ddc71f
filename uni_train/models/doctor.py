"""Whether a checkpoint is fit for hours of work: what commonly is wrong with one, in the order in which it shows.

Each check says one thing. What a check needs is loaded once; a model too large for this machine is looked at by its
headers alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device

from uni_train.core.errors import SkillMissing, UserError
from uni_train.core.hub import local
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.models.adapters import FILES, open_adapter
from uni_train.models.base import Example, ImageGenerator, Request, TextGenerator, Trainable, UnifiedModel, expect_skill
from uni_train.models.checkpoint import inspect, source_of
from uni_train.models.family import Inspection, family_of
from uni_train.models.load import build_model, model_config
from uni_train.models.weights import Weights
from uni_train.run_folder import is_run

GIB = 2**30
_PROBED = 10**9  # parameters up to which a CPU answers in a minute
_SHOWN = 3
_NOTHING = 3.0  # squared error of a velocity above which a model is worse than one that always says zero (about 2)
_FLAT = 1.0  # deviation of the pixels of an image with nothing on it
_EMA = ("ema.safetensors", "model.safetensors")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: "ok", "wrong" (do not start with it) or "note"."""

    check: str
    verdict: Literal["ok", "wrong", "note"]
    detail: str


@dataclass(slots=True)
class Examination:
    """Findings so far; `image` is the probe that was drawn, uint8 [H, W, 3]."""

    findings: list[Finding]
    image: np.ndarray | None = None

    @property
    def wrong(self) -> bool:
        return any(finding.verdict == "wrong" for finding in self.findings)


def examine(name_or_path: str) -> Examination:
    """Every check, as far as the checkpoint can be loaded.

    Raises:
        UserError: nothing lies there. UsageError: no such name.
    """
    inspection = inspect(name_or_path)
    seen = Examination([_layout(inspection), _dtypes(inspection)])
    folder = Path(inspection.path) if inspection.path is not None else None
    if folder is not None:
        seen.findings += [*_averages(folder), *_adapters(source_of(name_or_path).adapters), *_unused(folder)]
    if not inspection.loads:
        return seen
    memory = _memory(inspection)
    seen.findings.append(memory)
    if memory.verdict == "wrong":
        return seen
    config = model_config(name_or_path)
    try:
        model = build_model(config)
    except UserError as error:  # such as weights that are no numbers
        seen.findings.append(Finding("loading", "wrong", f"{error.message}. {error.hint or ''}".strip()))
        return seen
    seen.findings += [_numbers(model), *_tokenizer(model)]
    item = _item(model)
    if inspection.total > _PROBED and not torch.cuda.is_available():
        seen.findings.append(Finding("probe", "note", "not asked: so large a model takes too long without a GPU"))
    elif not seen.wrong:
        model = model.to("cuda") if torch.cuda.is_available() else model
        try:
            seen.findings.append(_loss(expect_skill(model, Trainable), item, config.edits))
        except SkillMissing as error:
            seen.findings.append(Finding("first loss", "note", error.message))
        _probe(model, item, config.edits, seen)
    return seen


def _layout(inspection: Inspection) -> Finding:
    if inspection.loads:
        return Finding("layout", "ok", f"{inspection.what}; {inspection.total:,} parameters, complete")
    more = "; ".join(inspection.problems[:_SHOWN]) or inspection.what
    return Finding("layout", "wrong", f"{more}. {inspection.hint}".strip())


def _dtypes(inspection: Inspection) -> Finding:
    kinds = sorted({dtype for dtypes in inspection.weights.values() for dtype in dtypes})
    files = [f"{name}: {', '.join(dtypes)}" for name, dtypes in inspection.weights.items()]
    detail = "; ".join(files) or "nothing is stored"
    if any("16" in kind and "b" not in kind.lower() for kind in kinds):
        return Finding("dtypes", "note", f"{detail}; float16 is read as float32: it would overflow")
    return Finding("dtypes", "ok", detail)


def _averages(folder: Path) -> Iterator[Finding]:
    """How far the averaged weights are from the last ones, where both are there."""
    ema, last = (folder / name for name in _EMA)
    if not (ema.is_file() and last.is_file()):
        return
    ours, theirs = Weights([ema]), Weights([last])
    names = sorted(set(ours.shapes) & set(theirs.shapes))
    off, size = 0.0, 0.0
    for name in names[:: max(1, len(names) // 20)]:  # a twentieth: whole files take minutes
        average, other = ours.read(name).float(), theirs.read(name).float()
        off, size = off + (average - other).square().sum().item(), size + average.square().sum().item()
    share = math.sqrt(off / max(size, 1e-30))
    verdict: Literal["ok", "note"] = "ok" if 0 < share < 0.1 else "note"
    yield Finding("averages", verdict, f"{_EMA[0]} and {_EMA[1]} differ by {share:.2%} of their length")


def _adapters(given: Sequence[str]) -> Iterator[Finding]:
    """Adapters that are merged: one whose second matrices are zero changes nothing."""
    for path in given:
        adapter = open_adapter(local(path))
        stored = Weights([adapter.file])
        idle = [layer for layer, parts in adapter.layers.items() if not stored.read(parts["up"]).any()]
        if idle:
            detail = f"{adapter.file}: {len(idle)} of {len(adapter.layers)} layers do nothing (B is zero)"
            yield Finding("adapters", "wrong", detail)
        else:
            yield Finding("adapters", "ok", f"{adapter.file}: {adapter.title}, merged, none of which is zero")


def _unused(folder: Path) -> Iterator[Finding]:
    """Adapters in the folder or beside it, which nobody has asked for."""
    for place in (folder, folder / "adapter"):
        for file in (place / name for name in FILES):
            if file.is_file():
                yield Finding("adapters", "note", f"{file} is not merged: for that, give {folder}+{file}")
    if (beside := folder.parent / "adapter").is_dir() and is_run(folder.parent.parent.parent):
        yield Finding("adapters", "note", f"{beside} is merged into {folder.name} already")


def _memory(inspection: Inspection) -> Finding:
    """Whether the weights fit where they would be loaded."""
    here = Path("/proc/meminfo")
    free = None
    if here.is_file():
        lines = dict(line.split(":", 1) for line in here.read_text(encoding="ascii").splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    training = f"training whole in bfloat16 about {14 * inspection.total / GIB:.1f} GiB"
    detail = f"weights {inspection.bytes / GIB:.2f} GiB; {training}"
    if free is None:
        return Finding("memory", "note", detail)
    detail += f"; {free / GIB:.1f} GiB are free here"
    if torch.cuda.is_available():
        detail += f", {torch.cuda.mem_get_info()[0] / GIB:.1f} GiB on the GPU"
    if inspection.bytes > free:
        return Finding("memory", "wrong", f"{detail}: the weights do not fit")
    return Finding("memory", "ok", detail)


def _numbers(model: UnifiedModel) -> Finding:
    """Weights that are no numbers, and layers that were never written."""
    bad = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    if bad:
        more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        return Finding("numbers", "wrong", f"NaN or infinity in {', '.join(bad[:_SHOWN])}{more}")
    empty = [name for name, weight in model.named_parameters() if weight.ndim >= 2 and not weight.any()]
    if empty:
        return Finding("numbers", "wrong", f"all zero, so never trained: {', '.join(empty[:_SHOWN])}")
    return Finding("numbers", "ok", "all weights are finite, no matrix is zero")


def _tokenizer(model: UnifiedModel) -> Iterator[Finding]:
    if model.vocabulary is not None:
        problem = model.tokenizer_problem(_item(model).prompt)
        detail = problem or f"texts come back; markers are four of {model.vocabulary} ids"
        yield Finding("tokenizer", "wrong" if problem else "ok", detail)


def _item(model: UnifiedModel) -> Item:
    """An item of maths, in the world of the model."""
    task = get_task("maths", family_of(model.family).world)  # type: ignore[arg-type]
    return task.generate(1, 1, "test", 0)[0]


def _loss(model: Trainable, item: Item, edits: bool) -> Finding:
    """First losses of drawing the item's image by its exact thought; `edits`: from an image."""
    side = model.describe().get("image_size", 64)
    target = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    example = Example(item.prompt, target=target, answer=None, seed=0)
    if model.vocabulary is None:
        example = replace(example, images=(target,) if edits else ())
    else:
        task = get_task(item.task, family_of(model.family).world)  # type: ignore[arg-type]
        if task.has_image(item):
            example = replace(example, target=task.render(item, 0))
        example = replace(example, thought=item.thought or item.prompt)
    with torch.no_grad():
        loss = model.supervised_loss(move_data_to_device(model.collate([example], 0), model.device))
    parts = []  # what the model learns: one that only draws has no loss on text
    if loss.ce_tokens and model.vocabulary is not None:
        most = math.log(model.vocabulary)
        parts.append(("text", (loss.ce_sum / loss.ce_tokens).item(), most, f"a guess: {most:.1f}"))
    if loss.mse_tokens:
        parts.append(("image", (loss.mse_sum / loss.mse_tokens).item(), _NOTHING, "saying nothing: about 2"))
    detail = ", ".join(f"{name} {value:.2f} ({about})" for name, value, _, about in parts)
    right = all(math.isfinite(value) and value <= most for _, value, most, _ in parts)
    return Finding("first loss", "ok" if right else "wrong", detail)


def _probe(model: UnifiedModel, item: Item, edits: bool, seen: Examination) -> None:
    """One thought, and one image drawn by it; `edits`: from an image."""
    request = Request(item.id, item.prompt, seed=1)
    if edits:
        request = replace(request, images=(np.full((64, 64, 3), 128, np.uint8),))
    try:
        thought = ""
        try:
            (thought,) = expect_skill(model, TextGenerator).think([request])
            good = bool(thought.strip())
            seen.findings.append(Finding("thought", "ok" if good else "wrong", repr(thought[:80])))
        except SkillMissing as error:
            seen.findings.append(Finding("thought", "note", error.message))
        drawer = expect_skill(model, ImageGenerator)
        (seen.image,) = drawer.draw([replace(request, thought=thought if thought.strip() else None)])
    except SkillMissing as error:
        seen.findings.append(Finding("probe", "note", error.message))
        return
    except UserError as error:
        seen.findings.append(Finding("probe", "wrong", error.message))
        return
    seen.findings.append(image_finding("image", seen.image))


def image_finding(check: str, image: np.ndarray) -> Finding:
    """Size and spread of an image, uint8 [H, W, 3]; one with nothing on it is wrong."""
    height, width = image.shape[:2]
    spread = float(image.std())
    detail = f"{height} x {width}, pixels {image.min()} to {image.max()}, deviation {spread:.0f}"
    return Finding(check, "ok" if spread > _FLAT else "wrong", detail)
