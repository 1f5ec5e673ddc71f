"""The start by hand does what it is there for, and leaves sizes alone that have no room for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from data_gen.objects import NANO
from data_gen.seeds import rng
from uni_train.config.compose import compose
from uni_train.config.schema import ModelConfig
from uni_train.models.bagel.generation import prefill
from uni_train.models.base import Request
from uni_train.models.load import build_model
from uni_train.models.nano.nano import Nano


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    """The shipped sizes."""
    return compose("nano_pretrain").model


def last_state(nano: Nano, text: str) -> torch.Tensor:
    """The final hidden state of the understanding stream at the last word of a text."""
    model = nano.bagel
    ids = [nano.tokenizer.bos_id, *nano.tokenizer.encode(text)]
    cache = prefill(model, [[]]).grown(len(ids))
    from uni_train.models.bagel.attention import prepare_bool

    x = model.language_model.model.embed_tokens(torch.tensor([ids]))
    rope = torch.arange(len(ids))[None]
    attend = prepare_bool(torch.ones(1, 1, len(ids), len(ids)).tril() > 0, model.config.attention, x.dtype)
    with torch.no_grad():
        hidden, _ = model.language_model.model(x, x[:, :0], rope, rope[:, :0], attend, cache)
    return hidden[0, -1]


def test_before_any_training_the_meaning_of_the_asked_symbol_matters_most(config: ModelConfig) -> None:
    nano = build_model(config, seed=0)
    assert isinstance(nano, Nano)
    wins, trials = 0, 30
    for seed in range(trials):
        random = rng("induction", seed)
        symbols = random.sample(NANO.symbols, 3)
        nouns = random.sample([noun.singular for noun in NANO.nouns], 4)
        asked = random.randrange(3)

        def state(meanings: list[str], symbols: list[str] = symbols, asked: int = asked) -> torch.Tensor:
            rules = " ".join(f"{s} means {m} ." for s, m in zip(symbols, meanings, strict=True))
            return last_state(nano, f"{rules} Draw what {symbols[asked]} means")

        plain = state(nouns[:3])
        effects = []
        for i in range(3):
            meanings = nouns[:3]
            meanings[i] = nouns[3]
            effects.append(float((state(meanings) - plain).norm()))
        wins += max(range(3), key=effects.__getitem__) == asked
    assert wins >= 0.8 * trials  # 1 in 3 by chance


@pytest.mark.parametrize(
    "sizes", [{"layers": 1}, {"kv_heads": 1}, {"kv_heads": 2}, {"heads": 1, "kv_heads": 1}, {"hidden_size": 48}]
)
def test_other_sizes_are_built_as_well(config: ModelConfig, sizes: dict[str, int]) -> None:
    nano = build_model(replace(config, architecture=replace(config.architecture, **sizes)))
    assert len(nano.think([Request("a", "Draw 1 apple .")])) == 1
