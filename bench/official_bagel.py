"""The released code of BAGEL with the weights of a model of ours, as the other side of a benchmark.

    git clone https://github.com/ByteDance-Seed/Bagel

The loop of interleaved answers is in the code released with ThinkMorph, whose model is the same:

    git clone https://github.com/ThinkMorph/ThinkMorph

It asks for transformers 4.49 and flash_attn. Names that transformers has given up since are put back, and without
flash_attn, which has no CPU, its one function is PyTorch's attention, of samples of equal lengths at once. It
computes in bfloat16: weights in float32 are copied, for autocast would cast each of them in every call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from uni_train.core.seeds import derive_seed
from uni_train.models.bagel.config import BagelConfig
from uni_train.models.bagel.images import ImageTransform, pixels
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Example, Request


def attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, causal: bool, **_: Any
) -> Tensor:
    """`flash_attn_varlen_func` by SDPA: [tokens, heads, d] of all samples; causal masks end at the last key."""
    asked, seen = (ends.diff().tolist() for ends in (cu_seqlens_q, cu_seqlens_k))
    if len({*zip(asked, seen, strict=True)}) > 1:
        parts = zip(q.split(asked), k.split(seen), v.split(seen), strict=True)
        return torch.cat([_attend(*(x[None] for x in part), causal)[0] for part in parts])
    samples = len(asked)
    return _attend(*(x.unflatten(0, (samples, -1)) for x in (q, k, v)), causal).flatten(0, 1)


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """[samples, tokens, heads, d] of samples of equal lengths."""
    queries, keys, mask = q.shape[1], k.shape[1], None
    if causal and queries > 1:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


def default_rope(config: Any, device: Any = None, **_: Any) -> tuple[Tensor, float]:
    """Inverse frequencies and the factor of attention, as transformers 4.49 made them."""
    d = config.hidden_size // config.num_attention_heads
    return 1.0 / config.rope_theta ** (torch.arange(0, d, 2, device=device).float() / d), 1.0


@contextmanager
def former_transformers(folder: Path) -> Iterator[None]:
    """Within this block modules of a checkout can be imported and their classes made."""
    from transformers import modeling_rope_utils, modeling_utils, utils

    assert modeling_utils  # it asks for flash_attn as well, before there is one
    flash = ModuleType("flash_attn")
    flash.flash_attn_varlen_func = attention  # type: ignore[attr-defined]
    former = {
        **dict.fromkeys(
            ("add_start_docstrings", "add_start_docstrings_to_model_forward", "replace_return_docstrings"),
            lambda *_, **__: lambda function: function,
        ),
        **dict.fromkeys(("is_flash_attn_2_available", "is_flash_attn_greater_or_equal_2_10"), lambda: False),
    }
    missing = find_spec("flash_attn") is None
    if missing:
        sys.modules["flash_attn"] = flash
    try:
        with (
            mock.patch.multiple(utils, create=True, **former),
            mock.patch.dict(modeling_rope_utils.ROPE_INIT_FUNCTIONS, default=default_rope),
            mock.patch.object(sys, "path", [str(folder), *sys.path]),
        ):
            yield
    finally:
        if missing:
            del sys.modules["flash_attn"]


class Official:
    """The released model, which shares the weights of `ours`; it reads, writes and draws, and looks if `sees`."""

    def __init__(
        self, folder: Path, ours: BagelUnified, sees: bool = False, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self.ours, self.sees, self.dtype, config = ours, sees, dtype, ours.bagel.config
        with former_transformers(folder):
            bagel, self.navit, self.siglip = (
                import_module(f"modeling.bagel.{name}") for name in ("bagel", "qwen2_navit", "siglip_navit")
            )
            self.model = self._made(bagel, config)
        marks = config.tokens
        self.marks = {
            "bos_token_id": marks.bos,
            "eos_token_id": marks.eos,
            "start_of_image": marks.start_of_image,
            "end_of_image": marks.end_of_image,
        }

    def _made(self, bagel: Any, config: BagelConfig) -> Any:
        ours, navit = self.ours, self.navit
        names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        sizes = {name: getattr(config.llm, name) for name in (*names, "num_key_value_heads", "rms_norm_eps")}
        llm = navit.Qwen2Config(
            **sizes, max_position_embeddings=config.llm.max_position_embeddings, rope_theta=config.llm.rope_theta,
            qk_norm=True, tie_word_embeddings=False, layer_module="Qwen2MoTDecoderLayer",
        )  # fmt: skip
        llm.rope_theta, llm.pad_token_id, llm.rope_scaling = config.llm.rope_theta, None, None
        vae = SimpleNamespace(downsample=ours.stride // config.latent_patch_size, z_channels=config.latent_channels)
        assert config.vit is not None
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "patch_size")
        sizes = {name: getattr(config.vit, name) for name in names} | {"image_size": config.vit.image_size}
        vit = self.siglip.SiglipVisionConfig(**sizes, rope=False) if self.sees else None
        whole = bagel.BagelConfig(
            visual_und=self.sees, llm_config=llm, vae_config=vae, latent_patch_size=config.latent_patch_size,
            max_latent_size=config.max_latent_size, vit_max_num_patch_per_side=config.vit_max_num_patch_per_side,
            vit_config=vit,
        )  # fmt: skip
        with torch.device("meta"):
            language = navit.Qwen2ForCausalLM(llm)
            seeing = self.siglip.SiglipVisionModel(vit) if vit is not None else None
            model = bagel.Bagel(language, seeing, whole)
            if seeing is not None:
                seeing.vision_model.embeddings.convert_conv2d_to_linear(vit, meta=True)
        half = {name: x.to(self.dtype) for name, x in ours.bagel.state_dict().items()}
        state = {name: x for name, x in half.items() if self.sees or not name.startswith(("vit_", "connector"))}
        model.load_state_dict(state, assign=True)
        rotary = language.model.rotary_emb
        rotary.inv_freq, _ = default_rope(llm, ours.device)
        return model.eval()

    def _on_device(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: x.to(self.ours.device) if isinstance(x, Tensor) else x for name, x in given.items()}

    def _read(self, prompts: Sequence[str]) -> tuple[Any, list[int], list[int]]:
        past, none = self.navit.NaiveCache(self.ours.bagel.config.llm.num_hidden_layers), [0] * len(prompts)
        given, lengths, ropes = self.model.prepare_prompts(none, none, prompts, self.ours.tokenizer, self.marks)
        with self._autocast():
            return self.model.forward_cache_update_text(past, **self._on_device(given)), lengths, ropes

    def _autocast(self) -> torch.autocast:
        """As the released notebook; weights that are bfloat16 it need not cast."""
        return torch.autocast(self.ours.device.type, torch.bfloat16)

    @torch.inference_mode()
    def draw(self, prompts: Sequence[str], side: int) -> list[np.ndarray]:
        """Images from text with guidance by text, as the released notebook asks for them."""
        sampling, guidance = self.ours.sampling, self.ours.guidance(images=False)
        sizes = [(side, side)] * len(prompts)
        past, lengths, ropes = self._read(prompts)
        none = [0] * len(prompts)
        given = self.model.prepare_vae_latent(lengths, ropes, sizes, self.marks)
        poorer = self.model.prepare_vae_latent_cfg(none, none, sizes)
        with self._autocast():
            latents = self.model.generate_image(
                past_key_values=past,
                cfg_text_past_key_values=self.navit.NaiveCache(self.ours.bagel.config.llm.num_hidden_layers),
                num_timesteps=sampling.steps + 1,
                timestep_shift=sampling.timestep_shift,
                cfg_text_scale=guidance.text_scale,
                cfg_interval=guidance.interval,
                cfg_renorm_type=guidance.renorm,
                cfg_renorm_min=guidance.renorm_min,
                **self._on_device(given),
                **{f"cfg_text_{name.removeprefix('cfg_')}": x for name, x in self._on_device(poorer).items()},
            )
        return self.ours.decode(torch.stack(latents).float())

    @torch.inference_mode()
    def write(self, prompts: Sequence[str], tokens: int) -> Tensor:
        """So many greedy token ids behind each prompt, int64 [tokens, B]; the first is bos."""
        past, lengths, ropes = self._read(prompts)
        given = self._on_device(self.model.prepare_start_tokens(lengths, ropes, self.marks))
        with self._autocast():
            found: Tensor = self.model.generate_text(past, max_length=tokens, **given)
        return found

    def packed(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Prompts and the images to draw as the released training reads them, but for their latents."""
        marks, encode, stride = self.ours.bagel.config.tokens, self.ours.tokenizer.encode, self.ours.stride
        side = self.ours.bagel.config.max_latent_size
        ids, texts, latents, places, ropes, lengths, masks, grids = ([] for _ in range(8))  # type: ignore[var-annotated]
        begin = 0
        for example in examples:
            assert example.target is not None
            h, w = (pixels // stride for pixels in example.target.shape[:2])
            text = [marks.bos, *encode(example.prompt), marks.eos]
            n, end = len(text), len(text) + h * w + 2
            ids += [*text, marks.start_of_image, marks.end_of_image]
            texts += [begin + at for at in (*range(n + 1), end - 1)]
            latents += range(begin + n + 1, begin + end - 1)
            places += [row * side + column for row in range(h) for column in range(w)]
            ropes += [*range(n), *[n] * (h * w + 2)]
            mask = torch.full((end, end), -torch.inf).triu(1)
            mask[n:, n:] = 0
            masks.append(mask)
            lengths.append(end)
            grids.append((h, w))
            begin += end
        whole = {"packed_text_ids": ids, "packed_text_indexes": texts, "packed_position_ids": ropes}
        whole |= {
            "packed_latent_position_ids": places,
            "packed_vae_token_indexes": latents,
            "mse_loss_indexes": latents,
        }
        return {
            "sequence_length": begin,
            "sample_lens": lengths,
            "nested_attention_masks": masks,
            "patchified_vae_latent_shapes": grids,
            **{name: torch.tensor(value) for name, value in whole.items()},
        }

    def update(self, optimizer: torch.optim.Optimizer, packed: dict[str, Any], images: Sequence[np.ndarray]) -> None:
        """An update on examples whose packing costs nothing; images are encoded, as ours encodes them in its batch."""
        ours, counts = self.ours, [h * w for h, w in packed["patchified_vae_latent_shapes"]]
        self.model.train()
        with torch.no_grad():
            x = pixels(images)
            stride = ours.stride // ours.bagel.config.latent_patch_size
            noise = torch.randn(len(x), ours.bagel.config.latent_channels, *(side // stride for side in x.shape[2:]))
            latents = ours.vae.encode(x, noise).to(self.dtype)  # type: ignore[operator]
        levels = torch.randn(len(counts)).repeat_interleave(torch.tensor(counts)).to(self.dtype)
        # PyTorch's kernel for GPUs is none of a CPU, which may choose here.
        with mock.patch.object(self.navit, "sdpa_kernel", lambda **_: nullcontext()), self._autocast():
            loss = self.model(padded_latent=latents, packed_timesteps=levels, **packed)["mse"].mean()
        optimizer.zero_grad()
        loss.backward()
        trained = [weight for weight in self.model.parameters() if weight.grad is not None]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        self.model.eval()


class OfficialLoop(Official):
    """Interleaved answers by the loop released with ThinkMorph, one request at a time, with the noise that ours has.

    Args:
        dtype: float32: of all that the released code computes in bfloat16.
    """

    def __init__(self, folder: Path, ours: BagelUnified, dtype: torch.dtype) -> None:
        super().__init__(folder, ours, sees=True, dtype=dtype)
        with former_transformers(folder):
            loop = import_module("inferencer")
        self.bagel = sys.modules[type(self.model).__module__]
        self.noises: list[Tensor] = []
        assert ours.vit_transform is not None
        see = SimpleNamespace(encode=lambda x: ours.vae.encode(x, self._noise()), decode=ours.vae.decode)  # type: ignore[operator]
        transforms = map(_Transform, (ours.vae_transform, ours.vit_transform))
        self.loop = loop.InterleaveInferencer(self.model, see, _Marked(ours), *transforms, self.marks)

    def _noise(self, *_: Any) -> Tensor:
        return self.noises.pop(0)

    def _drawn_noises(self, request: Request, images: int) -> Iterator[Tensor]:
        """What ours draws for an answer: to see the input images, and in each round to draw and to see that image."""
        ours = self.ours
        size, patch = ours.picture_size(request), ours.bagel.config.latent_patch_size

        def to_see(seed: int, size: tuple[int, ...]) -> Tensor:
            h, w = (side * patch for side in ours.grid(size))
            generator = torch.Generator().manual_seed(derive_seed(seed, "see"))
            return torch.randn(1, ours.bagel.config.latent_channels, h, w, generator=generator)

        yield from (to_see(request.seed, ours.vae_transform.target_size(*x.shape[:2])) for x in request.images)
        for number in range(images):
            seed = derive_seed(request.seed, "round", number)
            (noise,) = ours.noise([replace(request, seed=seed, size=size)])
            yield noise
            yield to_see(seed, size)

    @torch.inference_mode()
    def compose(self, request: Request, images: int) -> list[str | np.ndarray]:
        """At most so many images, texts greedily."""
        sampling, guidance = self.ours.sampling, self.ours.guidance(images=True)
        self.noises = list(self._drawn_noises(request, images))
        modules = (self.bagel, self.navit, self.siglip, sys.modules["inferencer"])
        autocast = partial(torch.autocast, "cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16)
        changed = _Torch(bfloat16=self.dtype, randn=self._noise, autocast=lambda **_: autocast())
        with ExitStack() as patches:
            for module in modules:
                patches.enter_context(mock.patch.object(module, "torch", changed, create=True))
            answer = self.loop(
                input_list=[*map(Image.fromarray, request.images), request.prompt], think=True, do_sample=False,
                max_think_token_n=sampling.max_think_tokens + 1, cfg_text_scale=guidance.text_scale,
                cfg_img_scale=guidance.img_scale, cfg_interval=guidance.interval, cfg_renorm_min=guidance.renorm_min,
                cfg_renorm_type=guidance.renorm, timestep_shift=sampling.timestep_shift,
                num_timesteps=sampling.steps + 1, max_rounds=images, image_shapes=self.ours.picture_size(request),
            )  # fmt: skip
        return [part if isinstance(part, str) else np.asarray(part) for part in answer]


class _Torch:
    """torch with other names for a few of its things."""

    def __init__(self, **others: Any) -> None:
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _Marked:
    """A tokenizer whose texts begin with the marker by which the released code splits them."""

    def __init__(self, ours: BagelUnified) -> None:
        self.encode, self._ours = ours.tokenizer.encode, ours

    def decode(self, ids: Tensor) -> str:
        return "<|im_start|>" + self._ours.tokenizer.decode(ids.tolist()[1:])


class _Transform:
    """A resize of ours as the released code calls it: torchvision is not needed."""

    def __init__(self, ours: ImageTransform) -> None:
        self._ours = ours

    def resize_transform(self, image: Image.Image) -> Image.Image:
        return Image.fromarray(self._ours.resize(np.asarray(image)))

    def __call__(self, image: Image.Image) -> Tensor:
        return pixels([self._ours.resize(np.asarray(image))])[0]
