"""The start by hand does what it is there for, and leaves sizes alone that have no room for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from uni_train.config.compose import compose
from uni_train.config.schema import ModelConfig
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.seeds import rng
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


@pytest.mark.parametrize("links", [1, 2])
def test_before_any_training_the_object_of_the_asked_chain_matters_most(config: ModelConfig, links: int) -> None:
    nano = build_model(config, seed=0)
    assert isinstance(nano, Nano)
    wins, trials = 0, 60
    for seed in range(trials):
        random = rng("lookup", seed, links)
        symbols = random.sample(NANO.symbols, 3 * links)
        nouns = random.sample([noun.singular for noun in NANO.nouns], 4)
        chains = [symbols[i * links : (i + 1) * links] for i in range(3)]
        order = random.sample(range(3 * links), 3 * links)
        asked = random.randrange(3)

        def state(
            meanings: list[str],
            chains: list[list[str]] = chains,
            order: list[int] = order,
            asked: int = asked,
        ) -> torch.Tensor:
            rules = [
                f"{left} means {right} ."
                for chain, meaning in zip(chains, meanings, strict=True)
                for left, right in pairwise([*chain, meaning])
            ]
            return last_state(nano, f"{' '.join(rules[i] for i in order)} Draw what {chains[asked][0]} means")

        plain = state(nouns[:3])
        effects = []
        for i in range(3):
            meanings = nouns[:3]
            meanings[i] = nouns[3]
            effects.append(float((state(meanings) - plain).norm()))
        wins += max(range(3), key=effects.__getitem__) == asked
    assert wins >= 0.55 * trials  # 1 in 3 by chance: p < 0.001


@pytest.mark.parametrize(
    "sizes", [{"layers": 1}, {"kv_heads": 1}, {"kv_heads": 2}, {"heads": 1, "kv_heads": 1}, {"hidden_size": 48}]
)
def test_other_sizes_are_built_as_well(config: ModelConfig, sizes: dict[str, int]) -> None:
    nano = build_model(replace(config, architecture=replace(config.architecture, **sizes)))
    assert len(nano.think([Request("a", "Draw 1 apple .")])) == 1
