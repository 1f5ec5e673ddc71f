"""Interleaved answers of BAGEL's layout: write, draw, read the drawn image, and go on until a text is the last one.

    style        system prompt, inputs          a text is followed by an image     texts are written behind
    chain        none, images then prompt       if it has <image_start>            latents and ViT patches
    thinkmorph   its own, images then prompt    if it has <image_start>            latents and ViT patches
    zebra_cot    its own, prompt then images    if it has no final answer          ViT patches alone

`thinkmorph` is what the code released with ThinkMorph-7B does (Gu et al. 2025, arXiv 2510.27492; inferencer.py): it
ends with its third image, if not before. `zebra_cot` is that of Bagel-Zebra-CoT (Li et al. 2025, arXiv 2507.16746;
infz_bf16.py), but for a limit, which that has not. `chain` is how rows with
`output_text_list` are trained (training/data/edit.py). Images are guided by the text-free and the image-free context:

    chain, thinkmorph   of the request alone, without what the answer has said or drawn
    zebra_cot           text-free: all but the last text; image-free: all texts, the answer's own included

The released code of Bagel-Zebra-CoT reads everything again for each text and each image. Here each token is read once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from torch import Tensor

from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import SkillMissing
from uni_train.core.seeds import derive_seed
from uni_train.flow.guidance import Guidance
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.generation import Contexts, guidance_contexts, prefill, read_contexts
from uni_train.models.bagel.packing import Segment
from uni_train.models.base import OnStep, Request

_MARK = "<image_start>"
_THINKMORPH = (
    "\nLet's think step by step to answer the question. For text-based thinking, enclose the process within <think> "
    "</think>, e.g. <think> thinking process here </think>. For visual thinking, enclose the content within "
    "<image_start> </image_end>, e.g. <image_start> thinking image here </image_end>. Finally conclude with the final "
    "answer wrapped in <answer></answer> tags, i.e.<answer> answer here </answer>.\n"
)
_ZEBRA_COT = (
    "You are an AI reasoning assistant capable of step-by-step interleaved text and visual chain of thought. Think "
    "step by step and use visual aids to enhance your problem-solving. Provide your final conclusion clearly in the "
    'format of "Final Answer: <answer here>"'
)


@dataclass(frozen=True, slots=True)
class Style:
    """How a checkpoint takes turns.

    Attributes:
        system: the text before all others; empty: none.
        prompt_first: the prompt comes before the input images.
        ends: a text with one of these is the last; empty: a text without `_MARK` is.
        writes_behind_latents: texts are written behind images as latents and ViT patches, else as patches alone.
        guided_by_own_texts: the contexts of guidance have what the answer has said.
        closes: behind the last possible image a text is written, too.
        images: most images of an answer.
    """

    system: str = ""
    prompt_first: bool = False
    ends: tuple[str, ...] = ()
    writes_behind_latents: bool = True
    guided_by_own_texts: bool = False
    closes: bool = True
    images: int = 3

    def goes_on(self, text: str) -> bool:
        """Whether an image follows a text; none follows a blank one, as where no position is left for a token."""
        if not self.ends:
            return _MARK in text
        return bool(text.strip()) and not any(end in text for end in self.ends)


STYLES = {
    "chain": Style(),
    "thinkmorph": Style(system=_THINKMORPH, closes=False),
    "zebra_cot": Style(
        system=_ZEBRA_COT,
        prompt_first=True,
        ends=("Final Answer:", "<answer>"),
        writes_behind_latents=False,
        guided_by_own_texts=True,
        images=10,
    ),
}


class Model(Protocol):
    """What this module asks of a `BagelUnified` (unified.py)."""

    name: str
    bagel: Bagel
    sampling: SamplingConfig

    def check(self, requests: Sequence[Request]) -> None: ...
    def check_length(self, request: Request, segments: Sequence[Segment]) -> None: ...
    def picture_size(self, request: Request) -> tuple[int, int]: ...
    def grid(self, size: tuple[int, ...]) -> tuple[int, int]: ...
    def text(self, text: str) -> Segment: ...
    def seen(self, request: Request) -> list[Segment]: ...
    def latents(self, requests: Sequence[Request]) -> list[list[Segment]]: ...
    def guidance(self, images: bool) -> Guidance: ...
    def written(
        self, requests: Sequence[Request], cache: KVCache, temperature: float | None, on_step: OnStep | None
    ) -> tuple[list[str], KVCache]: ...
    def noise(self, requests: Sequence[Request]) -> Tensor: ...
    def drawn(self, contexts: Contexts, noise: Tensor, on_step: OnStep | None) -> list[np.ndarray]: ...


@dataclass(frozen=True, slots=True)
class _State:
    """What the live rows have read.

    Attributes:
        rows: numbers of their requests.
        writing: what texts are written behind. drawing: what images are drawn under.
    """

    rows: list[int]
    writing: KVCache
    drawing: Contexts

    def select(self, places: Sequence[int]) -> _State:
        if len(places) == len(self.rows):
            return self
        rows = [self.rows[place] for place in places]
        return _State(rows, self.writing.select(places), self.drawing.select(places))


def compose(model: Model, requests: Sequence[Request], on_step: OnStep | None = None) -> list[list[str | np.ndarray]]:
    """Texts and images (uint8 [H, W, 3]) in their order, for each request; blank texts are left out.

    All live rows write together, and draw together. Randomness comes from the request's seed and the round. Images have
    the size that `draw` would choose. An answer ends behind its last possible image; those that would go on are counted
    on stderr.

    Raises:
        SkillMissing: the model's `sampling` names no style.
        UserError: a request that cannot be read.
    """
    name = model.sampling.interleaving
    if name is None:
        hint = "Say how this checkpoint was taught to: sampling.interleaving=chain, thinkmorph or zebra_cot."
        raise SkillMissing(model.name, "answer with text and images in one pass", hint)
    style = STYLES[name]
    most = model.sampling.max_images or style.images
    parts: list[list[str | np.ndarray]] = [[] for _ in requests]
    if not requests:
        return parts
    model.check(requests)
    sizes = [model.picture_size(request) for request in requests]
    state = _read(model, requests, style)
    for number in range(most + style.closes):
        rounds = [
            replace(requests[row], size=sizes[row], seed=derive_seed(requests[row].seed, "round", number))
            for row in state.rows
        ]
        texts, written = model.written(rounds, state.writing, None, on_step)
        for row, text in zip(state.rows, texts, strict=True):
            parts[row] += [text] if text.strip() else []
        going = [place for place, text in enumerate(texts) if style.goes_on(text)]
        if not going:
            return parts
        if number == most:
            state = state.select(going)
            break
        texts, rounds = [texts[place] for place in going], [rounds[place] for place in going]
        state = replace(state, writing=written).select(going)
        drawing = _with_texts(model, state, texts, style)
        images = model.drawn(drawing, model.noise(rounds), on_step)
        for row, image in zip(state.rows, images, strict=True):
            parts[row].append(image)
        if number + 1 < most + style.closes:
            shown = [replace(request, images=(image,)) for request, image in zip(rounds, images, strict=True)]
            state = _with_images(model, replace(state, drawing=drawing), shown, style)
    print(
        f"{len(state.rows)} of {len(requests)} interleaved answers were cut behind {most} images (sampling.max_images)",
        file=sys.stderr,
    )
    return parts


def _read(model: Model, requests: Sequence[Request], style: Style) -> _State:
    """The requests before anything is answered."""
    system: list[Segment] = [model.text(style.system)] if style.system else []
    seen, contexts = [], []
    for request, latents in zip(requests, model.latents(requests), strict=True):
        patches, prompt = model.seen(request), [model.text(request.prompt)]
        both = [segment for pair in zip(latents, patches, strict=True) for segment in pair]
        contexts.append(guidance_contexts([*prompt, *both] if style.prompt_first else [*both, *prompt], system))
        seen.append([*system, *prompt, *patches] if style.prompt_first else [*system, *patches, *prompt])
        model.check_length(request, contexts[-1][0])
    grids = [model.grid(model.picture_size(request)) for request in requests]
    drawing = read_contexts(model.bagel, contexts, grids, model.guidance(images=True))
    writing = drawing.full if style.writes_behind_latents else prefill(model.bagel, seen)
    return _State([*range(len(requests))], writing, drawing)


def _with_texts(model: Model, state: _State, texts: Sequence[str], style: Style) -> Contexts:
    """What the images are drawn under that follow these texts, which `state.writing` has."""
    before, segments = state.drawing, [[model.text(text)] for text in texts]
    full = state.writing if style.writes_behind_latents else prefill(model.bagel, segments, before.full)
    if not style.guided_by_own_texts:
        return replace(before, full=full)
    no_images = None if before.no_images is None else prefill(model.bagel, segments, before.no_images)
    return replace(before, full=full, no_text=None if before.no_text is None else before.full, no_images=no_images)


def _with_images(model: Model, state: _State, shown: Sequence[Request], style: Style) -> _State:
    """The state after each row's image was read; `shown`: requests whose only image it is."""
    seen = [model.seen(request) for request in shown]
    both = [[*latents, *patches] for latents, patches in zip(model.latents(shown), seen, strict=True)]
    full = prefill(model.bagel, both, state.drawing.full)
    writing = full if style.writes_behind_latents else prefill(model.bagel, seen, state.writing)
    return replace(state, writing=writing, drawing=replace(state.drawing, full=full))
