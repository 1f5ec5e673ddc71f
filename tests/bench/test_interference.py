"""Long traces: what stands before the refined prompt, and what a run counts."""

from __future__ import annotations

from collections import Counter

from bench.experiments import interference
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.load import build_model, model_config

ITEMS = [item for level in (1, 3) for item in get_task("mapping", "nano").generate(4, level, "test", 0)]


def test_every_thought_ends_in_its_own_refined_prompt_and_only_drafts_conclude_otherwise() -> None:
    told = dict(interference.ways(ITEMS))
    assert len(told) == 3 + 3 * len(interference.LENGTHS)
    objects = {noun.singular for noun in NANO.nouns}
    for name, asked in told.items():
        for item, (prompt, thought) in zip(ITEMS, asked, strict=True):
            if name == interference.PLAIN:
                assert thought is None and prompt == f"Draw {item.thought.rpartition('So draw ')[2]}"
                continue
            assert thought is not None and prompt == item.prompt
            refined = interference._parts(item)[1]
            assert thought.endswith(refined)
            before = thought.removesuffix(item.thought).removesuffix(refined)
            strange = Counter(before.split()) & Counter({one: 99 for one in objects})
            if name.endswith(("others", "drafts")):
                assert strange and item.facts["object"] not in strange
                assert ("So draw" in before) == name.endswith("drafts")
            else:
                assert not strange
    for length in interference.LENGTHS:
        for sums, others in zip(told[f"{length} sums"], told[f"{length} others"], strict=True):
            assert str(sums[1]).count(" .") == str(others[1]).count(" ."), "as many sentences"


def test_an_image_is_counted_right_and_its_shares_of_attention_are_shares() -> None:
    model = build_model(model_config("shipped"))
    assert isinstance(model, BagelUnified)
    told = dict(interference.ways(ITEMS))
    short, astray = (interference.asked(model, ITEMS, told[name], 0) for name in (interference.OWN, "8 drafts"))
    assert sum(short.right) > sum(astray.right) and sum(astray.distracted) > 0 == sum(short.distracted)
    assert astray.words > short.words
    for one in (short, astray):
        assert all(0 < sum(values) <= 1 + 1e-5 for values in zip(*one.shares.values(), strict=True))
