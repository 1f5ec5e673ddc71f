"""The mixture-of-transformers decoder: two sets of weights, one attention.

Understanding tokens (text, ViT patches, all markers) and generation tokens (VAE latents) are two separate dense
tensors. In all layers each has its own norms, projections and MLP (`*_moe_gen` for generation). Only attention joins
them: [understanding | generation] along the sequence. Nothing is gathered or scattered; the order in which the tokens
were packed lives in the mask and in the rope positions alone. Either tensor may be empty; its weights are then skipped,
unless `all_weights` is set (see Decoder).

Shapes: B rows, U understanding tokens, G generation tokens, L = U + G; D width, H query heads, K key/value heads, d
channels of a head.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from uni_train.models.bagel.attention import Attend
from uni_train.models.bagel.config import LlmConfig
from uni_train.models.bagel.norm import HeadNormRope, RMSNorm, RopeTables

Rope = tuple[RopeTables, ...]
"""Of the understanding and of the generation tokens."""


class LayerCache(Protocol):
    """Keys and values of earlier tokens, per layer."""

    def extend(self, layer: int, k_BKLd: Tensor, v_BKLd: Tensor) -> tuple[Tensor, Tensor]:
        """Earlier keys and values with the new ones behind them."""


class Mlp(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        # The same numbers in place: in batches half of the time beside the products is traffic with memory.
        return self.down_proj(F.silu(self.gate_proj(x), inplace=True).mul_(self.up_proj(x)))


class MotAttention(nn.Module):
    """Joint attention; q, k, v have biases, o has none; RMSNorm per head on q and k before rope."""

    def __init__(self, config: LlmConfig) -> None:
        super().__init__()
        dim, d = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.head_dim = config.num_attention_heads, config.num_key_value_heads, d
        self.q_proj = nn.Linear(dim, self.heads * d)
        self.k_proj = nn.Linear(dim, self.kv_heads * d)
        self.v_proj = nn.Linear(dim, self.kv_heads * d)
        self.o_proj = nn.Linear(self.heads * d, dim, bias=False)
        self.q_norm = HeadNormRope(d, config.rms_norm_eps)
        self.k_norm = HeadNormRope(d, config.rms_norm_eps)
        self.q_norm_moe_gen = HeadNormRope(d, config.rms_norm_eps)
        self.k_norm_moe_gen = HeadNormRope(d, config.rms_norm_eps)
        self.q_proj_moe_gen = nn.Linear(dim, self.heads * d)
        self.k_proj_moe_gen = nn.Linear(dim, self.kv_heads * d)
        self.v_proj_moe_gen = nn.Linear(dim, self.kv_heads * d)
        self.o_proj_moe_gen = nn.Linear(self.heads * d, dim, bias=False)
        self.all_weights = False

    def forward(
        self, x_BUD: Tensor, x_BGD: Tensor, rope: Rope, attend: Attend, cache: LayerCache | None, layer: int
    ) -> tuple[Tensor, Tensor]:
        und, d = x_BUD.shape[1], self.head_dim
        rope_und, rope_gen = rope
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        run_und, run_gen = _runs(x_BUD, self.all_weights), _runs(x_BGD, self.all_weights)
        if run_und:
            q = self.q_norm(self.q_proj(x_BUD).unflatten(-1, (self.heads, d)), rope_und)
            k = self.k_norm(self.k_proj(x_BUD).unflatten(-1, (self.kv_heads, d)), rope_und)
            v = self.v_proj(x_BUD).unflatten(-1, (self.kv_heads, d)).transpose(1, 2)
            parts.append((q, k, v))
        if run_gen:
            q = self.q_norm_moe_gen(self.q_proj_moe_gen(x_BGD).unflatten(-1, (self.heads, d)), rope_gen)
            k = self.k_norm_moe_gen(self.k_proj_moe_gen(x_BGD).unflatten(-1, (self.kv_heads, d)), rope_gen)
            v = self.v_proj_moe_gen(x_BGD).unflatten(-1, (self.kv_heads, d)).transpose(1, 2)
            parts.append((q, k, v))
        q, k, v = parts[0] if len(parts) == 1 else (torch.cat(pair, dim=2) for pair in zip(*parts, strict=True))
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        o_BLD = attend(q, k, v).transpose(1, 2).flatten(2)
        o_BUD, o_BGD = o_BLD[:, :und], o_BLD[:, und:]
        return (
            self.o_proj(o_BUD) if run_und else x_BUD,
            self.o_proj_moe_gen(o_BGD) if run_gen else x_BGD,
        )


class MotLayer(nn.Module):
    """Pre-norm decoder layer with two sets of weights."""

    def __init__(self, config: LlmConfig, index: int) -> None:
        super().__init__()
        dim, hidden, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        self.index = index
        self.self_attn = MotAttention(config)
        self.mlp = Mlp(dim, hidden)
        self.mlp_moe_gen = Mlp(dim, hidden)
        self.input_layernorm = RMSNorm(dim, eps)
        self.input_layernorm_moe_gen = RMSNorm(dim, eps)
        self.post_attention_layernorm = RMSNorm(dim, eps)
        self.post_attention_layernorm_moe_gen = RMSNorm(dim, eps)
        self.all_weights = False

    def forward(
        self, x_BUD: Tensor, x_BGD: Tensor, rope: Rope, attend: Attend, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor]:
        und, gen = _runs(x_BUD, self.all_weights), _runs(x_BGD, self.all_weights)
        normed_und = self.input_layernorm(x_BUD) if und else x_BUD
        normed_gen = self.input_layernorm_moe_gen(x_BGD) if gen else x_BGD
        mixed_und, mixed_gen = self.self_attn(normed_und, normed_gen, rope, attend, cache, self.index)
        if und:
            x_BUD = x_BUD + mixed_und
            x_BUD = x_BUD + self.mlp(self.post_attention_layernorm(x_BUD))
        if gen:
            x_BGD = x_BGD + mixed_gen
            x_BGD = x_BGD + self.mlp_moe_gen(self.post_attention_layernorm_moe_gen(x_BGD))
        return x_BUD, x_BGD


class Decoder(nn.Module):
    """Embedding table, layers, and the two final norms.

    Attributes:
        checkpoint_layers: recompute every n-th layer in the backward pass instead of keeping its activations; 0: none.
        all_weights: with gradients, use the weights of empty tensors too. Devices that hold parts of one another's
            weights have to ask for them equally often.
    """

    def __init__(self, config: LlmConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(MotLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm_moe_gen = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.checkpoint_layers = 0
        self.all_weights = False

    def use_all_weights(self, on: bool) -> None:
        """Set `all_weights` here and in all layers."""
        self.all_weights = on
        for layer in self.layers:
            assert isinstance(layer, MotLayer)
            layer.all_weights = layer.self_attn.all_weights = on

    def forward(
        self,
        x_BUD: Tensor,
        x_BGD: Tensor,
        position_BU: Tensor,
        position_BG: Tensor,
        attend: Attend,
        cache: LayerCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Embedded tokens of both kinds and their rope positions -> hidden states after the final norm."""
        rope = tuple(
            RopeTables(position, self.config.head_dim, self.config.rope_theta, x_BUD.dtype)
            for position in (position_BU, position_BG)
        )
        every = self.checkpoint_layers if torch.is_grad_enabled() else 0
        for number, layer in enumerate(self.layers):
            if every and number % every == 0:
                x_BUD, x_BGD = checkpoint(layer, x_BUD, x_BGD, rope, attend, cache, use_reentrant=False)
            else:
                x_BUD, x_BGD = layer(x_BUD, x_BGD, rope, attend, cache)
        und = self.norm(x_BUD) if _runs(x_BUD, self.all_weights) else x_BUD
        gen = self.norm_moe_gen(x_BGD) if _runs(x_BGD, self.all_weights) else x_BGD
        return und, gen


class LanguageModel(nn.Module):
    """Decoder and output head, under the official names."""

    def __init__(self, config: LlmConfig) -> None:
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)


def _runs(x: Tensor, all_weights: bool) -> bool:
    """An empty tensor skips its weights; DDP must expect parameters without gradient."""
    return x.shape[1] > 0 or (all_weights and torch.is_grad_enabled())
