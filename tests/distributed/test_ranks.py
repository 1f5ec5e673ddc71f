"""Who a process is among those of its run, by the environment."""

from __future__ import annotations

import pytest

from uni_train.core.errors import UserError
from uni_train.distributed.ranks import ALONE, Ranks

GIVEN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


def test_a_process_is_who_torchrun_says_and_alone_without_it() -> None:
    assert Ranks.from_environment(GIVEN) == Ranks(5, 8, 1, 4)
    assert not Ranks.from_environment(GIVEN).is_main
    assert Ranks.from_environment({"PATH": "/bin"}) == ALONE
    assert ALONE.is_main


def test_an_environment_that_cannot_be_names_what_is_wrong() -> None:
    for name, value, says in (
        ("RANK", "8", "RANK=8 WORLD_SIZE=8"),
        ("LOCAL_WORLD_SIZE", "16", "LOCAL_WORLD_SIZE=16"),
        ("LOCAL_RANK", "one", "LOCAL_RANK='one'"),
        ("LOCAL_RANK", "", "LOCAL_RANK=''"),
    ):
        with pytest.raises(UserError, match=says):
            Ranks.from_environment(GIVEN | {name: value})
