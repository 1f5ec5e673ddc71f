"""Train, validation and test, disjoint by construction: a hash of the canonical form decides, 80 / 10 / 10.

Maths is divided 60 / 10 / 30, so that 300 expressions of one operation are left for the test.

What must not leak is in the canonical form (the expression; the rules), what may vary is not (the object that is
counted; the phrasing; who asks), so nothing learnt by heart in train answers a test prompt.
"""

from __future__ import annotations

from data_gen.seeds import derive_seed


TEST_TENTHS = {"maths": 3}


def split_of(task: str, canonical: str) -> str:
    """ "train", "validation" or "test" for a canonical form of `task`."""
    bucket = derive_seed("split", task, canonical) % 10
    first_of_test = 10 - TEST_TENTHS.get(task, 1)
    if bucket == first_of_test - 1:
        return "validation"
    return "test" if bucket >= first_of_test else "train"
