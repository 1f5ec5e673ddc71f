"""What a process can see of its own place, how ranks meet, and what they say of their differences."""

from __future__ import annotations

from datetime import timedelta

import pytest

from uni_train.config.compose import compose
from uni_train.core.errors import UsageError, UserError
from uni_train.distributed.preflight import difference, expect_layout
from uni_train.distributed.ranks import ALONE, Ranks, joined


def test_another_number_of_processes_than_the_recipe_asks_for_is_refused() -> None:
    for ranks, override, says in (
        (Ranks(0, 4, 0, 2), "strategy.nodes=4", "2 were started"),
        (ALONE, "strategy.nodes=2", "this process was started alone"),
        (Ranks(0, 4, 0, 2), "strategy.devices=4", "2 were started"),
    ):
        with pytest.raises(UsageError, match=f"{override}, but {says}"):
            expect_layout(ranks, compose("sft_maze", [override]))
    expect_layout(Ranks(0, 4, 0, 2), compose("sft_maze", ["strategy.nodes=2", "strategy.devices=2"]))


@pytest.mark.slow
def test_ranks_that_do_not_meet_say_where_and_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as refused, joined(Ranks(0, 2), timeout=timedelta(seconds=1)):
        pass
    assert "rank 0 of 2 did not meet the others at 127.0.0.1:0" in refused.value.message
    assert "1/2 clients joined" in refused.value.message


def test_three_differences_are_shown_and_code_by_its_name() -> None:
    first = {"version of torch": "2.8", "seed": 0, "uni_train/flow/steps.py": "a", "lr": 1, "rows": 2}
    assert difference(first, {**first, "seed": 1}) == "seed 1, on rank 0 0"
    other = {"version of torch": "2.9", "seed": 0, "uni_train/flow/steps.py": "b", "rows": 3}
    assert difference(first, other) == (
        "version of torch 2.9, on rank 0 2.8; uni_train/flow/steps.py; lr absent, on rank 0 1 and 1 more"
    )
