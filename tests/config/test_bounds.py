"""Every number of every recipe has a range. Numbers beyond it are rows of tests/test_bad_inputs.py."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from uni_train.config.kinds import KINDS, kind_named
from uni_train.config.messages import limits_of, members


def numbers(kind: Any, key: str, within: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each int or float within an annotation, with the key that leads to it. `within`: dataclasses that hold it."""
    for member in members(kind):
        bare = typing.get_args(member)[0] if hasattr(member, "__metadata__") else member
        if bare in (int, float):
            yield key, member
        elif dataclasses.is_dataclass(bare) and bare not in within:  # a judge may hold judges
            for name, hint in typing.get_type_hints(bare, include_extras=True).items():
                yield from numbers(hint, f"{key}.{name}", (*within, bare))
        elif typing.get_origin(bare) in (tuple, dict):
            for part in typing.get_args(bare):
                yield from numbers(part, f"{key}[]", within)


@pytest.mark.parametrize("kind", KINDS.names())
def test_every_number_has_a_range_with_two_finite_ends(kind: str) -> None:
    found = list(numbers(kind_named(kind).config, kind))
    assert len(found) > 50
    for key, annotation in found:
        limits = limits_of(annotation)
        assert limits is not None, key
        low, high = (a if a is not None else b for a, b in ((limits.ge, limits.gt), (limits.le, limits.lt)))
        assert low is not None and high is not None, key
        assert math.isfinite(typing.cast(float, low)) and math.isfinite(typing.cast(float, high)), key
