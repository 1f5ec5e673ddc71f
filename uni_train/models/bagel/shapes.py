"""BAGEL's batches and conditions with shapes alone, for `plan` and `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from uni_train.models.bagel import attention
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.generation import Contexts, guidance_contexts
from uni_train.models.bagel.packing import PackedBatch, Segment, Text, VaeImage, VitImage, encode
from uni_train.models.bagel.prefixes import MOST_BYTES
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Example
from uni_train.models.shapes import ImageRequest, Shapes


class BagelShapes(Shapes):
    model: BagelUnified

    def __init__(self, model: BagelUnified) -> None:
        super().__init__(model, model.stride, model.bagel.config.latent_dim)

    def condition(self, image_request: ImageRequest, rows: int, device: str) -> Contexts:
        """Caches as long as the guidance's three contexts."""
        model, request = self.model, image_request.request
        images: list[Segment] = []
        for image in request.images:
            h, w = (side // model.stride for side in model.vae_transform.target_size(*image.shape[:2]))
            images.append(VaeImage((h, w)))
            if model.vit_transform is not None:
                patch = model.vit_transform.stride
                seen = model.vit_transform.target_size(*model.vae_transform.target_size(*image.shape[:2]))
                images.append(VitImage((seen[0] // patch, seen[1] // patch)))
        guidance = model.guidance(bool(request.images))
        full, no_text, no_images = guidance_contexts([*images, Text(model.tokenizer.encode(request.prompt))])
        by_text = guidance.text_scale > 1
        return Contexts(
            self._cache(full, rows, device),
            self._cache(no_text, rows, device) if by_text else None,
            self._cache(no_images, rows, device) if by_text and guidance.img_scale > 1 else None,
            (image_request.grid,) * rows,
            guidance,
        )

    def _cache(self, segments: Sequence[Segment], rows: int, device: str) -> KVCache:
        length = encode(segments, self.model.bagel.config).length if segments else 0
        bagel = self.model.bagel
        return KVCache.empty(bagel.config, rows, bagel.dtype, device, length)

    def tensors(self, condition: Contexts) -> list[Tensor]:
        return [tensor for cache in condition.caches for tensor in (*cache.keys, *cache.values)]

    def loss(self, examples: Sequence[Example], ce_weight: float, mse_weight: float) -> Callable[[], Tensor]:
        packed = self.model.examples.blank(examples, "cuda")
        return packed_loss(self.model, packed, ce_weight, mse_weight, "meta")

    def kept_texts(self) -> int:
        return MOST_BYTES if self.model.bagel.reads_frozen() else 0

    def describe(self, batches: Sequence[Sequence[Example]]) -> list[str]:
        config, micros = self.model.bagel.config, len(batches)
        packed = [batch for examples in batches for batch in self.model.examples.blank(examples)]
        tokens = sum(map(sum, (lengths for batch in packed for lengths in batch.sample_lengths)))
        ce, mse = self.model.token_counts(packed)
        examples = sum(map(len, batches))
        lines = [
            f"one update: {examples} examples, {tokens:,} tokens; learned: {ce:,} text tokens, {mse:,} latent tokens"
        ]
        if micros > 1:
            lines.append(f"  {micros} micro-batches, the first of them:")
        for batch in packed[: max(len(packed) // micros, 1)]:
            (rows, und), gen, patches = batch.und_id.shape, batch.gen_rope.shape[1], len(batch.vit_index)
            vit = f", ViT [{patches:,}, {config.vit.patch_dim}]" if patches and config.vit is not None else ""
            lines.append(
                f"  text and ViT tokens [{rows}, {und:,}], latents [{rows}, {gen:,}, {config.latent_dim}]{vit}"
            )
        return lines


def packed_loss(
    model: BagelUnified, packed: Sequence[PackedBatch], ce_weight: float, mse_weight: float, device: str
) -> Callable[[], Tensor]:
    """The supervised loss of a micro-batch made by `ExamplePacker.blank`."""
    long = [part.mask for part in packed if part.mask.order.shape[1] >= attention.FLEX_FROM]
    pairs = [mask.order.numel() * mask.order.shape[1] for mask in long]
    computed = sum(n * mask.computed_share() for n, mask in zip(pairs, long, strict=True))

    def loss() -> Tensor:
        token = attention.computed_share.set(computed / sum(pairs) if pairs else 1.0)
        loss = model.supervised_loss([part.to(device) for part in packed])
        attention.computed_share.reset(token)
        return ce_weight * loss.ce_sum + mse_weight * loss.mse_sum

    return loss
