"""A nano of a few thousand parameters with random weights, built as a recipe builds it."""

from __future__ import annotations

import pytest
import torch

from uni_train.config.compose import compose
from uni_train.config.schema import ModelConfig
from uni_train.models.bagel.attention import prepare_bool
from uni_train.models.bagel.generation import prefill
from uni_train.models.bagel.packing import Segment
from uni_train.models.load import build_model
from uni_train.models.nano.nano import Nano

SIZES = {"hidden_size": 32, "intermediate_size": 48, "layers": 2, "heads": 2, "kv_heads": 1}
SIZES |= {"vit_hidden_size": 32, "vit_intermediate_size": 48, "vit_heads": 2}
SMALL = ("model.checkpoint=null", "model.sampling.steps=4", *(f"model.architecture.{k}={v}" for k, v in SIZES.items()))


@pytest.fixture(scope="session")
def small_config() -> ModelConfig:
    return compose("stars_curriculum", SMALL).model


@pytest.fixture
def nano(small_config: ModelConfig) -> Nano:
    """Fresh for every test, with a head that draws and opinions about the next word (they start at zero)."""
    model = build_model(small_config, seed=3)
    assert isinstance(model, Nano)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        head = model.bagel.llm2vae.weight
        head.copy_(torch.randn(head.shape, generator=generator) * 0.3)
        model.bagel.language_model.lm_head.weight *= 8
        model.vae.decoder[-1].weight *= 8  # vivid pictures: small changes of latents show
    return model


def last_state(nano: Nano, context: list[Segment], ids: list[int]) -> torch.Tensor:
    """The final hidden state of the understanding stream after a context and an unfinished text."""
    model = nano.bagel
    cache = prefill(model, [context]).grown(len(ids))
    x = model.language_model.model.embed_tokens(torch.tensor([ids]))
    rope = cache.next_rope[:, None] + torch.arange(len(ids))
    allowed = torch.cat([cache.valid[:, None].expand(1, len(ids), -1), torch.ones(1, len(ids), len(ids)).tril() > 0], 2)
    attend = prepare_bool(allowed[:, None], model.config.attention, x.dtype)
    with torch.no_grad():
        hidden, _ = model.language_model.model(x, x[:, :0], rope, rope[:, :0], attend, cache)
    return hidden[0, -1]
