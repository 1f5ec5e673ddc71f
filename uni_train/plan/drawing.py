"""What reinforcement draws and learns from, with shapes alone: requests, conditions, rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uni_train.config.schema import EditingConfig
from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import Schedule
from uni_train.models.bagel.generation import Contexts, KVCache, guidance_contexts
from uni_train.models.bagel.packing import Segment, Text, VaeImage, VitImage, encode
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request
from uni_train.plan.trace import StandIn, following, place
from uni_train.plan.updates import Cast, Traced, updates

if TYPE_CHECKING:
    from uni_train.models.qwen_image_edit.unified import QwenImageEdit
    from uni_train.training.flow_grpo.batches import GrpoRows
    from uni_train.training.flow_grpo.settings import FlowGrpoSettings
    from uni_train.training.settings import SupervisedSettings


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt of a recipe as a model would be asked it, and the size of the answer in latent tokens."""

    request: Request
    tokens: int
    channels: int
    stride: int
    grid: tuple[int, int]


def asked(model: BagelUnified | QwenImageEdit, request: Request) -> Asked:
    """Sizes of the picture that a model draws for a request."""
    if isinstance(model, BagelUnified):
        size = request.size or (model.image_size, model.image_size)
        if request.size is None and request.images:
            size = model.vae_transform.target_size(*request.images[-1].shape[:2])
        stride, channels = model.stride, model.bagel.config.latent_dim
    else:
        from uni_train.models.qwen_image_edit.latents import fit_area

        seen = request.images[-1].shape[:2] if request.images else (1, 1)
        size = request.size or fit_area(model.sampling.side, *seen)
        stride, channels = model.latents.stride, model.latents.channels
    h, w = size[0] // stride, size[1] // stride
    return Asked(request, h * w, channels, stride, (h, w))


def condition(model: BagelUnified | QwenImageEdit, one: Asked, rows: int, device: StandIn) -> Any:
    """What `model.encode` would return for `rows` such requests, without reading them."""
    if isinstance(model, BagelUnified):
        return _contexts(model, one, rows, device)
    return _edit_condition(model, one, rows, device)


def _contexts(model: BagelUnified, one: Asked, rows: int, device: StandIn) -> Contexts:
    """Caches as long as the guidance's three contexts."""
    request, editing = one.request, model.sampling.editing
    images: list[Segment] = []
    for image in request.images:
        h, w = (side // model.stride for side in model.vae_transform.target_size(*image.shape[:2]))
        images.append(VaeImage((h, w)))
        if model.vit_transform is not None:
            patch = model.vit_transform.stride
            seen = model.vit_transform.target_size(*model.vae_transform.target_size(*image.shape[:2]))
            images.append(VitImage((seen[0] // patch, seen[1] // patch)))
    guidance: Guidance = editing if request.images and editing is not None else model.sampling.guidance
    full, no_text, no_images = guidance_contexts([*images, Text(model.tokenizer.encode(request.prompt))])
    by_text = guidance.text_scale > 1
    return Contexts(
        _cache(model, full, rows, device),
        _cache(model, no_text, rows, device) if by_text else None,
        _cache(model, no_images, rows, device) if by_text and guidance.img_scale > 1 else None,
        (one.grid,) * rows,
        guidance,
    )


def _cache(model: BagelUnified, segments: Sequence[Segment], rows: int, device: StandIn) -> KVCache:
    llm = model.bagel.config.llm
    length = encode(segments, model.bagel.config).length if segments else 0
    shape = (rows, llm.num_key_value_heads, length, llm.head_dim)
    blank = [torch.empty(shape, dtype=model.bagel.dtype, device=device) for _ in range(2 * llm.num_hidden_layers)]
    layers = llm.num_hidden_layers
    valid = torch.empty((rows, length), dtype=torch.bool, device=device)
    return KVCache(blank[:layers], blank[layers:], valid, torch.zeros(rows, dtype=torch.long, device=device))


def _edit_condition(model: QwenImageEdit, one: Asked, rows: int, device: StandIn) -> Any:
    from uni_train.models.qwen_image_edit.condition import EditCondition
    from uni_train.models.qwen_image_edit.latents import fit_area

    editing: EditingConfig = model.editing
    side = editing.latent_size if editing.plus else model.sampling.side
    sizes = [fit_area(side, *image.shape[:2]) for image in one.request.images]
    grids = [model.latents.grid(size) for size in sizes]
    words = editor_text(model, one.request)
    width = int(model.transformer.config.joint_attention_dim)

    def text(tokens: int) -> Tensor:
        return torch.empty(tokens, width, dtype=model.transformer.dtype, device=device)

    shown = sum(h * w for h, w in grids)
    guided = model.sampling.scale > 1
    unguided = words - model.processor.count(one.request.prompt) + 1
    return EditCondition(
        [text(words) for _ in range(rows)],
        [text(unguided) for _ in range(rows)] if guided else None,
        [torch.empty(shown, one.channels, device=device) for _ in range(rows)],
        [(one.grid, *grids)] * rows,
        list(range(rows)),
    )


_CHAT = 20  # tokens of the chat that are left around the words: the system prompt's are dropped


def editor_text(model: QwenImageEdit, request: Request) -> int:
    """Text tokens that the transformer reads for a request: the words, and the images as the Qwen2.5-VL sees them."""
    from uni_train.models.qwen_image_edit.latents import fit_area

    side = model.editing.look_size if model.editing.plus else model.sampling.side
    looked = [fit_area(side, *image.shape[:2]) for image in request.images]
    return _CHAT + model.processor.count(request.prompt) + sum(h // 28 * (w // 28) for h, w in looked)


# --- training ---------------------------------------------------------------------------------------------------------


def edited(
    model: QwenImageEdit, one: Asked, rows: int, settings: SupervisedSettings, cast: Cast | None, micros: int = 1
) -> Traced:
    """An update of an editor on the flow loss of `rows` noised pictures a micro-batch, under conditions that are there:
    reading them happens before, without gradients."""
    from uni_train.training.supervised import SupervisedModule

    with following("meta") as trace:
        place(model, "meta", cast)
        module = SupervisedModule(model, settings)

        def loss() -> Tensor:
            under = condition(model, one, rows, "meta")
            x, noise = (torch.empty(rows, one.tokens, one.channels, device="meta") for _ in range(2))
            velocity = model.velocity(x, torch.empty(rows, device="meta"), under)
            return settings.mse_weight * (velocity - noise).square().mean(-1).sum()

        return updates(trace, module, [loss] * micros, settings, "meta")


def reinforced(
    model: BagelUnified | QwenImageEdit,
    one: Asked,
    rows: int,
    grpo: FlowGrpoSettings,
    settings: SupervisedSettings,
    cast: Cast | None,
    pictures: int,
) -> Traced:
    """An epoch's drawing and an update on `rows` random steps a micro-batch, of which there are two where the epoch
    has more than one.

    Args:
        pictures: of this GPU, in an epoch.
    """
    from uni_train.training.flow_grpo.module import FlowGrpoModule

    with following("meta") as trace:
        place(model, "meta", cast)
        module = FlowGrpoModule(model, settings, grpo)
        trace.name([module.reference.copy if module.reference is not None else {}, module.sampler or {}], "reference")
        under = condition(model, one, max(pictures // grpo.group_size, 1), "meta")
        trace.name(_stored(one, pictures, grpo), "rollouts")
        trace.name(_tensors(under), "rollouts")
        drawn = min(grpo.draw_rows, pictures)

        def draw() -> None:
            x = torch.empty(drawn, one.tokens, one.channels, device="meta")
            with module.sampling():
                model.velocity(x, torch.ones((), device="meta"), _picked(under, drawn))

        def loss() -> Tensor:
            return _objective(module, _rows(module, one, rows, grpo, _picked(under, rows)))

        more = pictures * grpo.window_size // grpo.updates_per_epoch > rows
        return updates(trace, module, [loss] * (1 + more), settings, "meta", draw)


def _objective(module: Any, rows: GrpoRows) -> Tensor:
    found = module._forward_process(rows) if module.rule is None else module._policy(rows)
    return found[0]


def _picked(under: Any, rows: int) -> Any:
    """`rows` rows of a condition of one row a group."""
    there = under.rows if isinstance(under, Contexts) else len(under)
    return under.select([row % there for row in range(rows)])


def _stored(one: Asked, pictures: int, grpo: FlowGrpoSettings) -> list[Tensor]:
    """As in rollouts.Rollouts."""
    size = (one.tokens, one.channels)
    final = torch.empty(pictures, *size, device="meta")
    if grpo.variant == "diffusion_nft":
        return [final]
    dtype = getattr(torch, grpo.latents)
    found = [final, torch.empty(pictures, grpo.window_size + 1, *size, dtype=dtype, device="meta")]
    if grpo.variant == "guard":
        found.append(torch.empty(pictures, grpo.window_size, *size, device="meta"))
    return found


def _rows(module: Any, one: Asked, rows: int, grpo: FlowGrpoSettings, under: Any) -> GrpoRows:
    """As in batches.make_rows."""
    from uni_train.training.flow_grpo.batches import GrpoRows

    def latents() -> Tensor:
        return torch.empty(rows, one.tokens, one.channels, device="meta")

    def numbers() -> Tensor:
        return torch.empty(rows, device="meta")

    nft, none = grpo.variant == "diffusion_nft", torch.empty(rows, 0, device="meta")
    return GrpoRows(
        x=latents(),
        t=numbers(),
        condition=under,
        steps=torch.zeros(rows, dtype=torch.long, device="meta"),
        after=none if nft else latents(),
        old_log_prob=none[:, :0] if nft else numbers(),
        old_mean=latents() if grpo.variant == "guard" else none,
        clean=latents() if nft else none,
        advantage=numbers(),
        mask=torch.ones(rows, one.tokens, 1, dtype=torch.bool, device="meta"),
        share=1.0,
        schedule=_Levels(torch.empty(grpo.steps + 1, device="meta")),
        fresh=False,
    )


class _Levels(Schedule):
    """Noise levels without numbers, which cannot be checked."""

    def __post_init__(self) -> None:
        pass


def _tensors(under: Any) -> list[Tensor]:
    """Of a condition."""
    if isinstance(under, Contexts):
        caches = [cache for cache in (under.full, under.no_text, under.no_images) if cache is not None]
        return [tensor for cache in caches for tensor in (*cache.keys, *cache.values)]
    return [*under.text, *(under.empty or []), *under.latents]
