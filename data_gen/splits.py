"""Train, validation and test, disjoint by construction: a hash of the canonical form decides, 80 / 10 / 10.

What must not leak is in the canonical form (the expression; the rules), what may vary is not (the object that is
counted; the phrasing; who asks), so nothing learnt by heart in train answers a test prompt.
"""

from __future__ import annotations

from uni_train.core.seeds import derive_seed


def split_of(task: str, canonical: str, test_tenths: int = 1) -> str:
    """ "train", "validation" (a tenth) or "test" (`test_tenths`) for a canonical form of `task`."""
    bucket = derive_seed("split", task, canonical) % 10
    first_of_test = 10 - test_tenths
    if bucket == first_of_test - 1:
        return "validation"
    return "test" if bucket >= first_of_test else "train"
