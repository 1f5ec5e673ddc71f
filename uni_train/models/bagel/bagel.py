"""The whole model: ViT and connector, latent in- and output, and the decoder, trained on packed batches.

A latent token enters as ``vae2llm(x_t) + time_embedder(t) + latent_pos_embed[position]``; ViT patches enter as
``connector(vit(patches)) + vit_pos_embed[position]``. `llm2vae` reads the velocity from the final generation hidden
states, `lm_head` the next token from the understanding ones.

Left out: the VAE (latents come in and go out), the tokenizer, and sampling (generation.py).

Shapes: B rows, U understanding tokens, G generation tokens, D width, C numbers per latent token, N ViT patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uni_train.flow.objective import interpolate, velocity_from_clean, velocity_target
from uni_train.flow.schedule import train_timestep
from uni_train.models.bagel.attention import prepare
from uni_train.models.bagel.config import GENERATION_NAMES, BagelConfig
from uni_train.models.bagel.masks import concatenate
from uni_train.models.bagel.mot import LanguageModel
from uni_train.models.bagel.packing import PackedBatch
from uni_train.models.bagel.positions import sincos_table, timestep_sinusoid
from uni_train.models.bagel.prefixes import LayerKeys, PrefixStore
from uni_train.models.bagel.vit import Vit

if TYPE_CHECKING:
    from uni_train.models.bagel.compiled import CompiledSteps


class Connector(nn.Module):
    """Two-layer MLP with tanh-GELU from the ViT's width to the decoder's."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_dim, out_dim)
        self.fc2 = nn.Linear(out_dim, out_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class PositionTable(nn.Module):
    """A frozen 2-D sin-cos table, part of the state dict as in the released checkpoints."""

    def __init__(self, side: int, dim: int) -> None:
        super().__init__()
        self.side = side
        self.pos_embed = nn.Parameter(sincos_table(dim, side), requires_grad=False)

    def forward(self, position: Tensor) -> Tensor:
        return self.pos_embed[position]


class TimeEmbedder(nn.Module):
    """Noise level -> width: sinusoid of size 256, then an MLP with SiLU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        """[I] in [0, 1] -> [I, D]."""
        first = self.mlp[0]
        assert isinstance(first, nn.Linear)
        return self.mlp(timestep_sinusoid(t).to(first.weight.dtype))


@dataclass  # without slots: ZeRO-3 looks for tensors in a module's output by its __dict__
class BagelOutput:
    """Per-token losses, float32, in order of rows.

    Attributes:
        ce: [supervised text tokens] cross-entropy in nats; ce_weight: BAGEL's weights ``1 / sqrt(tokens of the text)``.
        mse: [noised latent tokens] squared error of the velocity (prediction "clean": of the clean latents), mean over
            channels; squared_error: [tokens, C].
        hidden_BUD, hidden_BGD: after the final norms.
    """

    ce: Tensor
    ce_weight: Tensor
    mse: Tensor
    squared_error: Tensor
    hidden_BUD: Tensor
    hidden_BGD: Tensor


class Bagel(nn.Module):
    """BAGEL without its VAE. Parameter names are the official ones.

    Attributes:
        prefixes: texts that are read once where their weights are frozen; None: with each batch anew.
        static: the compiled steps of generation; None: none is compiled.
        records_text: on a GPU, texts are written by CUDA graphs (recorded.py) where nothing is compiled.
    """

    def __init__(self, config: BagelConfig) -> None:
        super().__init__()
        self.config = config
        self.prefixes: PrefixStore | None = None
        self.static: CompiledSteps | None = None
        self.records_text = True
        dim = config.llm.hidden_size
        self.language_model = LanguageModel(config.llm)
        self.time_embedder = TimeEmbedder(dim)
        self.vae2llm = nn.Linear(config.latent_dim, dim)
        self.llm2vae = nn.Linear(dim, config.latent_dim)
        self.latent_pos_embed = PositionTable(config.max_latent_size, dim)
        if config.vit is not None:
            self.vit_model = Vit(config.vit, config.attention)
            self.connector = Connector(config.vit.hidden_size, dim)
            self.vit_pos_embed = PositionTable(config.vit_max_num_patch_per_side, dim)

    @property
    def dtype(self) -> torch.dtype:
        return self.vae2llm.weight.dtype

    def checkpoint_layers(self, every: int) -> None:
        """Recompute every n-th layer of the decoder and of the ViT in the backward pass; 0: keep all activations."""
        self.language_model.model.checkpoint_layers = every
        if self.config.vit is not None:
            self.vit_model.vision_model.checkpoint_layers = every

    def compile_steps(self, on: bool) -> None:
        """Whether torch.compile makes one kernel launch of each step of generation (compiled.py)."""
        from uni_train.models.bagel.compiled import CompiledSteps

        self.static = CompiledSteps() if on else None

    def use_all_weights(self, on: bool) -> None:
        """Whether each forward pass with gradients uses all weights, also those for which it has no tokens."""
        self.language_model.model.use_all_weights(on)

    @property
    def all_weights(self) -> bool:
        return self.language_model.model.all_weights and torch.is_grad_enabled()

    def embed_und(self, batch: PackedBatch) -> Tensor:
        """Text and marker embeddings with the images' patches put in: [B, U, D]."""
        x_BUD = self.language_model.model.embed_tokens(batch.und_id)
        if not batch.vit_lengths:
            return x_BUD + 0 * self._blank() if self.all_weights and self.config.vit is not None else x_BUD
        patches = batch.vit_patches.to(self.dtype)
        seen = self.connector(self.vit_model(patches, batch.vit_position, batch.vit_lengths))
        seen = (seen + self.vit_pos_embed(batch.vit_position)).to(x_BUD.dtype)
        return x_BUD.flatten(0, 1).index_copy(0, batch.vit_index, seen).view(x_BUD.shape)

    def _blank(self) -> Tensor:
        """A number that depends on all weights that look at images."""
        first = torch.zeros(1, dtype=torch.long, device=self.vae2llm.weight.device)
        patch = self.vit_model.vision_model.embeddings.patch_embedding.in_features
        patches = torch.zeros(1, patch, dtype=self.dtype, device=first.device)
        return (self.connector(self.vit_model(patches, first, (1,))) + self.vit_pos_embed(first)).sum()

    def embed_latents(self, x_t_BGC: Tensor, time_BGD: Tensor, position_BG: Tensor) -> Tensor:
        """Latent tokens at their noise level: [B, G, D]. `time_BGD` (from `time_embedder`) broadcasts."""
        return self.vae2llm(x_t_BGC.to(self.dtype)) + time_BGD + self.latent_pos_embed(position_BG)

    def velocity_head(self, hidden_BGD: Tensor, x_t_BGC: Tensor, t: Tensor) -> Tensor:
        """Velocity, float32, from final hidden states; `t` broadcasts against [B, G, 1]."""
        out = self.llm2vae(hidden_BGD).float()
        return velocity_from_clean(x_t_BGC, out, t) if self.config.prediction == "clean" else out

    def forward(self, batch: PackedBatch, noise_BGC: Tensor | None = None) -> BagelOutput:
        """Per-token losses of a packed batch.

        Args:
            noise_BGC: the flow noise; default `batch.noise_BGC`, or drawn from the global generator.
        """
        if noise_BGC is None:
            noise_BGC = batch.noise_BGC if batch.noise_BGC is not None else torch.randn_like(batch.clean_BGC)
        t_I = train_timestep(batch.logit, self.config.timestep_shift)
        x_BUD = self.embed_und(batch)
        if len(t_I) or self.all_weights:
            t_BG1 = t_I[batch.gen_image][..., None]
            x_t_BGC = interpolate(batch.clean_BGC, noise_BGC, t_BG1)
            time_BGD = self.time_embedder(t_I)[batch.gen_image]
            x_BGD = self.embed_latents(x_t_BGC, time_BGD, batch.gen_position)
        else:
            x_BGD = x_BUD[:, :0]
        if batch.prefix_split is not None and batch.prefix_split[0].shape[1] and self.reads_frozen():
            hidden_BUD, hidden_BGD = self._decode_in_two_passes(x_BUD, x_BGD, batch, *batch.prefix_split)
        else:
            attend = prepare(batch.mask, self.config.attention, x_BUD.dtype)
            decoder = self.language_model.model
            hidden_BUD, hidden_BGD = decoder(x_BUD, x_BGD, batch.und_rope, batch.gen_rope, attend)
        logits = self.language_model.lm_head(hidden_BUD.flatten(0, 1)[batch.ce_index])
        ce = F.cross_entropy(logits.float(), batch.ce_label, reduction="none")
        noised = batch.mse_index
        # The error of what the head puts out: a clean image's, divided by t, would be as wide as the smallest t.
        clean = self.config.prediction == "clean"
        target = batch.clean_BGC if clean else velocity_target(batch.clean_BGC, noise_BGC)
        predicted = self.llm2vae(hidden_BGD.flatten(0, 1)[noised]).float()
        squared_error = (predicted - target.flatten(0, 1)[noised]).square()
        return BagelOutput(
            ce=ce,
            ce_weight=batch.ce_weight,
            mse=squared_error.mean(-1),
            squared_error=squared_error,
            hidden_BUD=hidden_BUD,
            hidden_BGD=hidden_BGD,
        )

    def reads_frozen(self) -> bool:
        """Whether gradients are wanted, and all weights that text and ViT tokens pass are frozen.

        Not where devices hold parts of one another's weights: their batches would have to agree in it.
        """
        trained = (name for name, parameter in self.named_parameters() if parameter.requires_grad)
        return (
            torch.is_grad_enabled()
            and not self.all_weights
            and all(any(part in name for part in GENERATION_NAMES) for name in trained)
        )

    def _decode_in_two_passes(
        self, x_BUD: Tensor, x_BGD: Tensor, batch: PackedBatch, text: Tensor, marker: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Hidden states of the frozen text, without gradients; then those of image markers and latents, which read it.

        Joint attention makes the hidden states of all tokens require gradients, although those of frozen text reach no
        weight that is trained. Losses and gradients are those of one pass but for rounding; its backward pass is of
        markers and latents alone.

        Args:
            text, marker: columns of the understanding tokens, int64 [B, N] (`PackedBatch.prefix_split`).
        """
        decoder, impl, dtype = self.language_model.model, self.config.attention, x_BUD.dtype
        wide = [columns[..., None].expand(-1, -1, x_BUD.shape[2]) for columns in (text, marker)]
        seen, read = batch.und_mask.at(text), LayerKeys()
        if self.prefixes is not None and batch.prefixes is not None:
            of_text, read = self.prefixes.read(batch.prefixes, text.shape[1])
        else:
            rope, x_text = batch.und_rope.gather(1, text), x_BUD.gather(1, wide[0])
            with torch.no_grad():
                of_text, _ = decoder(x_text, x_BGD[:, :0], rope, rope[:, :0], prepare(seen, impl, dtype), read)
        read.reading = True
        asking = concatenate(batch.und_mask.at(marker), batch.gen_mask)
        of_marker, hidden_BGD = decoder(
            x_BUD.gather(1, wide[1]),
            x_BGD,
            batch.und_rope.gather(1, marker),
            batch.gen_rope,
            prepare(asking, impl, dtype, concatenate(seen, asking)),
            read,
        )
        return torch.zeros_like(x_BUD).scatter(1, wide[0], of_text).scatter(1, wide[1], of_marker), hidden_BGD

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Fresh weights for training from scratch; also the step after `to_empty` of a model built on the meta device.

        Linear layers get ``N(0, 1 / fan_in)``, the two that write to the residual stream ``1 / sqrt(2 layers)`` of
        that; embeddings 0.5, about the size of the sin-cos tables they meet; biases 0, norms 1; `lm_head` is small,
        so that the first cross-entropy is log(vocabulary); `llm2vae` is zero as in BAGEL.
        """
        generator = torch.Generator().manual_seed(seed)

        def normal_(parameter: Tensor, std: float) -> None:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)

        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                layers = len(self.language_model.model.layers)
                if name.startswith("vit_model") and self.config.vit is not None:
                    layers = self.config.vit.num_hidden_layers
                writes = name.rsplit(".", 1)[-1].startswith(("o_proj", "down_proj", "out_proj", "fc2"))
                into_residual = writes and not name.startswith("connector")
                std = module.in_features**-0.5 * ((2 * max(layers, 1)) ** -0.5 if into_residual else 1.0)
                normal_(module.weight, std)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                normal_(module.weight, 0.5)
            elif isinstance(module, PositionTable):
                module.pos_embed.copy_(sincos_table(module.pos_embed.shape[1], module.side))
            elif isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
                module.bias.zero_()
            elif not list(module.children()) and hasattr(module, "weight"):
                module.weight.fill_(1.0)
        normal_(self.language_model.lm_head.weight, 0.5 / math.sqrt(self.config.llm.hidden_size))
        self.llm2vae.weight.zero_()
        self.llm2vae.bias.zero_()
