"""Janus as a UnifiedModel: one decoder writes words, and images as tokens of a VQ model, one after the other.

It answers and draws. It has no think mode: a system prompt asks for a thought. The thought is added to the prompt of
the image, as for remote models. It draws from text only, in one size. training.py teaches it in text.

Shapes: B rows, L tokens of the longest chat, G tokens of an image, V of the image vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.models.bagel.prompts import THINK_THEN_DRAW
from uni_train.models.base import ImageGenerator, OnStep, Request, SkillMissing, TextGenerator
from uni_train.models.batches import check_requests
from uni_train.models.writing import perturbed, write

SYSTEM = (
    "You are a helpful language and vision assistant. You are able to understand the visual content that the user "
    "provides, and assist the user with a variety of tasks using natural language."
)
"""Of answers, as in pretraining; images are drawn without a system prompt."""
MARKERS = IMAGE, BEGIN, END = "<image_placeholder>", "<begin_of_image>", "<end_of_image>"
_IMAGE_TEMPERATURE = 1.0  # of the released sampling


def chat(prompt: str, images: int = 0, system: str = "") -> str:
    """One turn of the user, up to where the assistant begins."""
    before = f"{system}\n\n" if system else ""
    shown = f"{IMAGE}\n" * images
    return f"{before}<|User|>: {shown}{prompt.strip()}\n\n<|Assistant|>:"


class Janus(ImageGenerator, TextGenerator):
    """transformers' JanusForConditionalGeneration, asked in batches.

    An answer depends on its batch only by rounding.

    Args:
        tokenizer: of the checkpoint, which puts the first token before a text.
        image_processor: of the checkpoint, for images that are looked at.
    """

    family = "janus"
    janus: Any  # transformers' module, whose methods nn.Module does not have

    def __init__(
        self, name: str, janus: nn.Module, tokenizer: Any, image_processor: Any, sampling: SamplingConfig
    ) -> None:
        super().__init__()
        self.name = name
        self.janus = janus.requires_grad_(False)
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.sampling = sampling

    # --- asking --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def think(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: OnStep | None = None
    ) -> list[str]:
        """What it writes when a system prompt asks for a plan."""
        return self._write(requests, THINK_THEN_DRAW, temperature, on_step)

    @torch.no_grad()
    def answer(self, requests: Sequence[Request], *, think: bool = False, on_step: OnStep | None = None) -> list[str]:
        """A reply to images and prompt."""
        if think:
            raise SkillMissing(self.name, "think before it answers")
        return self._write(requests, SYSTEM, None, on_step)

    @torch.no_grad()
    def draw(self, requests: Sequence[Request], on_step: OnStep | None = None) -> list[np.ndarray]:
        """Images from words, token by token, each from its request's seed; a thought is read behind the prompt.

        Raises:
            SkillMissing: a request shows images. UserError: an empty prompt, or another size than its own.
        """
        if not requests:
            return []
        check_requests(requests, MARKERS)
        for request in requests:
            if request.images:
                raise SkillMissing(self.name, "draw from images")
            if request.size is not None and request.size != self.picture_size(request):
                raise UserError(
                    f"request {request.id}: {self.name} cannot draw {request.size[0]} x {request.size[1]} pixels",
                    f"It draws {self._side} x {self._side} alone.",
                )
        thoughts = ["" if request.thought is None else f"\n\n{request.thought}" for request in requests]
        prompts = [f"{request.prompt}{thought}" for request, thought in zip(requests, thoughts, strict=True)]
        inputs = self._read([f"{chat(words)}{BEGIN}" for words in prompts])
        tokens_BG = self._image_tokens(inputs, [derive_seed(request.seed, "draw") for request in requests], on_step)
        pixels = self.janus.decode_image_tokens(tokens_BG).float().cpu()  # [B, H, W, 3] in [-1, 1]
        return list(((pixels + 1) * 127.5).clamp(0, 255).to(torch.uint8).numpy())

    def picture_size(self, request: Request) -> tuple[int, int]:
        return self._side, self._side

    # --- inside --------------------------------------------------------------------------------------------------

    def _write(
        self, requests: Sequence[Request], system: str, temperature: float | None, on_step: OnStep | None
    ) -> list[str]:
        from transformers import GenerationMixin

        if not requests:
            return []
        check_requests(requests, MARKERS)
        chats = [chat(request.prompt, len(request.images), system) for request in requests]
        return write(
            partial(GenerationMixin.generate, self.janus),  # Janus's own leaves processors of logits out
            self.tokenizer,
            self._read(chats, [image for request in requests for image in request.images]),
            end=self.tokenizer.eos_token_id,
            max_tokens=self.sampling.max_think_tokens,
            temperature=self.sampling.temperature if temperature is None else temperature,
            seeds=[derive_seed(request.seed, "write") for request in requests],
            on_step=on_step,
        )

    def _read(self, chats: Sequence[str], images: Sequence[np.ndarray] = ()) -> dict[str, Tensor]:
        """input_ids and attention_mask int64 [B, L], padded on the left; with images also pixel_values."""
        texts = [self._with_places(text) for text in chats]
        read = self.tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        inputs = {name: read[name].to(self.device) for name in ("input_ids", "attention_mask")}
        if images:
            inputs["pixel_values"] = self._pixels(images).to(self.device, self.janus.dtype)
        return inputs

    def _with_places(self, text: str) -> str:
        """A chat with a marker for each token of its images."""
        return text.replace(IMAGE, f"{BEGIN}{IMAGE * self.janus.config.vision_config.num_image_tokens}{END}")

    def _pixels(self, images: Sequence[np.ndarray]) -> Tensor:
        """float32 [N, 3, H, W], as the vision encoder takes them."""
        pixels: Tensor = self.image_processor(images=list(images), return_tensors="pt")["pixel_values"]
        return pixels

    def _image_tokens(self, inputs: dict[str, Tensor], seeds: Sequence[int], on_step: OnStep | None) -> Tensor:
        """int64 [B, G]; with guidance each row is read a second time with its words blanked (DeepSeek's sampling)."""
        from transformers import DynamicCache

        inner = self.janus.model
        generators = [torch.Generator(self.device).manual_seed(seed) for seed in seeds]
        ids_BL, mask_BL = inputs["input_ids"], inputs["attention_mask"]
        scale = self.sampling.cfg_text_scale
        guided = scale != 1
        if guided:
            begin = self.tokenizer.convert_tokens_to_ids(BEGIN)
            words = (ids_BL != self.tokenizer.bos_token_id) & (ids_BL != begin)
            ids_BL = torch.cat([ids_BL, ids_BL.masked_fill(words, self.tokenizer.pad_token_id)])
            mask_BL = torch.cat([mask_BL, mask_BL])
        x_BLD = inner.get_input_embeddings()(ids_BL)
        places_BL = (mask_BL.cumsum(-1) - 1).clamp_min(0)
        cache, tokens = DynamicCache(config=inner.language_model.config), []
        count = self._grid**2
        for step in range(count):
            read = inner.language_model(
                inputs_embeds=x_BLD, attention_mask=mask_BL, position_ids=places_BL, past_key_values=cache
            )
            logits = inner.generation_head(read.last_hidden_state[:, -1]).float()
            if guided:
                under, empty = logits.chunk(2)
                logits = empty + scale * (under - empty)
            tokens.append(perturbed(logits, _IMAGE_TEMPERATURE, generators).argmax(-1))
            x_BLD = self.janus.prepare_embeddings_for_image_generation(tokens[-1].repeat(1 + guided)[:, None])
            mask_BL = torch.cat([mask_BL, mask_BL.new_ones(len(mask_BL), 1)], -1)
            places_BL = places_BL[:, -1:] + 1
            if on_step is not None:
                on_step(step + 1, count)
        return torch.stack(tokens, -1)

    @property
    def _grid(self) -> int:
        """Image tokens a side."""
        return int(self.janus.config.vq_config.num_patches)

    @property
    def _side(self) -> int:
        """Pixels a side: each stage of the VQ model but one halves it."""
        return self._grid * 2 ** (len(self.janus.config.vq_config.channel_multiplier) - 1)
