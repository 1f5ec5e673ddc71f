"""The understanding encoder: a SigLIP-style ViT over packed patches of images of any grid, without padding tokens.

Pre-norm blocks with layer norm, tanh-GELU and biases; a learned position table indexed by ``row * side + column``;
attention stays within an image. The patch embedding is a linear layer on flattened patches.

Shapes: N patches of all images, I images, P patches of the largest image; V width, H heads, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from uni_train.models.bagel.attention import Attend, prepare_bool, prepare_full
from uni_train.models.bagel.config import AttentionImpl, VitConfig


class VitAttention(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.heads = config.num_attention_heads
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.q_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x_IPV: Tensor, attend: Attend) -> Tensor:
        q, k, v = (
            proj(x_IPV).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class VitMlp(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class VitLayer(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.self_attn = VitAttention(config)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = VitMlp(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x_IPV: Tensor, attend: Attend) -> Tensor:
        x_IPV = x_IPV + self.self_attn(self.layer_norm1(x_IPV), attend)
        return x_IPV + self.mlp(self.layer_norm2(x_IPV))


class VitEmbeddings(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.patch_embedding = nn.Linear(config.patch_dim, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_per_side**2, config.hidden_size)

    def forward(self, patches_NP: Tensor, position_N: Tensor) -> Tensor:
        return self.patch_embedding(patches_NP) + self.position_embedding(position_N)


class VitEncoder(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(VitLayer(config) for _ in range(config.num_hidden_layers))


class VitTransformer(nn.Module):
    """Embeddings, layers, final norm.

    Attributes:
        checkpoint_layers: recompute every n-th layer in the backward pass instead of keeping its activations; 0: none.
    """

    def __init__(self, config: VitConfig, attention: AttentionImpl) -> None:
        super().__init__()
        self.attention = attention
        self.embeddings = VitEmbeddings(config)
        self.encoder = VitEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.checkpoint_layers = 0

    def forward(self, patches_NP: Tensor, position_N: Tensor, lengths: Sequence[int]) -> Tensor:
        """Flattened patches [N, p*p*C] of all images, their grid ids, and patches per image -> [N, V]."""
        x_NV = self.embeddings(patches_NP, position_N)
        longest = max(lengths)
        if min(lengths) == longest:
            x_IPV = x_NV.view(len(lengths), longest, -1)
            attend = prepare_full(x_IPV, self.attention)
            slots = None
        else:
            there = torch.arange(longest, device=x_NV.device) < torch.tensor(lengths, device=x_NV.device)[:, None]
            # From the lengths, which are known here: asking the device for them would wait for it.
            slots = torch.cat([torch.arange(i * longest, i * longest + n) for i, n in enumerate(lengths)])
            slots = slots.to(x_NV.device)
            x_IPV = x_NV.new_zeros(len(lengths) * longest, x_NV.shape[-1]).index_copy(0, slots, x_NV)
            x_IPV = x_IPV.view(len(lengths), longest, -1)
            attend = prepare_bool(there[:, None, None, :], self.attention, x_NV.dtype)
        every = self.checkpoint_layers if torch.is_grad_enabled() else 0
        for number, layer in enumerate(self.encoder.layers):
            again = every and number % every == 0
            x_IPV = checkpoint(layer, x_IPV, attend, use_reentrant=False) if again else layer(x_IPV, attend)
        x_NV = x_IPV.flatten(0, 1)
        return self.post_layernorm(x_NV if slots is None else x_NV[slots])


class Vit(nn.Module):
    """`VitTransformer` under its official name `vision_model`."""

    def __init__(self, config: VitConfig, attention: AttentionImpl) -> None:
        super().__init__()
        self.vision_model = VitTransformer(config, attention)

    def forward(self, patches_NP: Tensor, position_N: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.vision_model(patches_NP, position_N, lengths)
