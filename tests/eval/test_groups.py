"""Success of held-out prompts as validations write it."""

from __future__ import annotations

from uni_train.eval.groups import clusters_of, passed


def test_the_two_prompts_of_a_pair_are_not_independent() -> None:
    level = {"n": 40, "passed": "1100" * 10}
    alone, pairs = passed([level]), passed([level | {"pairs": [i // 2 for i in range(40)]}])
    assert alone.value == pairs.value == 0.5 and (alone.distinct, pairs.distinct) == (None, 20)
    assert pairs.high - pairs.low > 1.3 * (alone.high - alone.low)
    assert len(set(clusters_of([level, level]))) == 80, "levels share no prompt"
