"""The start by hand does what it is there for, and leaves sizes alone that have no room for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.models.nano.conftest import last_state
from uni_train.config.compose import compose
from uni_train.core.seeds import rng
from uni_train.data_gen.objects import NANO
from uni_train.models.base import Request
from uni_train.models.load import build_model
from uni_train.models.nano.nano import Nano

CONFIG = compose("nano_pretrain").model  # the shipped sizes


def test_before_any_training_the_object_of_the_asked_chain_matters_most() -> None:
    nano = build_model(CONFIG, seed=0)
    assert isinstance(nano, Nano)
    wins, trials, links = 0, 60, 2
    for seed in range(trials):
        random = rng("lookup", seed, links)
        symbols = random.sample(NANO.symbols, 3 * links)
        nouns = random.sample([noun.singular for noun in NANO.nouns], 4)
        chains = [symbols[i * links : (i + 1) * links] for i in range(3)]
        order = random.sample(range(3 * links), 3 * links)
        asked = random.randrange(3)
        states = []
        for changed in (None, 0, 1, 2):
            meanings = [nouns[3] if i == changed else nouns[i] for i in range(3)]
            ends = zip(chains, meanings, strict=True)
            rules = [f"{a} means {b} ." for chain, meaning in ends for a, b in pairwise([*chain, meaning])]
            text = f"{' '.join(rules[i] for i in order)} Draw what {chains[asked][0]} means"
            states.append(last_state(nano, [], [nano.tokenizer.tokens.bos, *nano.tokenizer.encode(text)]))
        effects = [float((state - states[0]).norm()) for state in states[1:]]
        wins += max(range(3), key=effects.__getitem__) == asked
    assert wins >= 0.55 * trials  # 1 in 3 by chance: p < 0.001


@pytest.mark.parametrize(
    "sizes", [{"layers": 1}, {"kv_heads": 1}, {"kv_heads": 2}, {"heads": 1, "kv_heads": 1}, {"hidden_size": 48}]
)
def test_other_sizes_are_built_as_well(sizes: dict[str, int]) -> None:
    nano = build_model(replace(CONFIG, architecture=replace(CONFIG.architecture, **sizes)))
    assert len(nano.think([Request("a", "Draw 1 apple .")])) == 1
