"""Long traces: what stands before the refined prompt, and what a run counts."""

from __future__ import annotations

from bench.experiments import interference
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.load import build_model, model_config

ITEMS = [item for level in (1, 3) for item in get_task("mapping", "nano").generate(4, level, "test", 0)]


def test_an_image_is_counted_right_and_its_shares_of_attention_are_shares() -> None:
    model = build_model(model_config("shipped"))
    assert isinstance(model, BagelUnified)
    told = dict(interference.ways(ITEMS))
    short, astray = (interference.asked(model, ITEMS, told[name], 0) for name in (interference.OWN, "8 drafts"))
    assert sum(short.right) > sum(astray.right) and sum(astray.distracted) > 0 == sum(short.distracted)
    assert astray.words > short.words
    for one in (short, astray):
        assert all(0 < sum(values) <= 1 + 1e-5 for values in zip(*one.shares.values(), strict=True))
