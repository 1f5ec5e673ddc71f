"""STARS' filters go by name; one of somebody else's is as good, and says of each sample whether it is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list
from uni_train.core.errors import UserError
from uni_train.core.registry import PluginError
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.filtering import accepted, decided
from uni_train.recipes.stars.filters import FILTERS, Asking, accept, reject

SAMPLES = [
    Scored(Sample(Ask(Case(str(i), "mapping1", "Draw A ."), "cot", 0, i)), Verdict((Check("count", status),)))
    for i, status in enumerate(("pass", "fail"))
]


@pytest.fixture
def odd() -> Iterator[None]:
    """A filter that is registered for one test."""

    @FILTERS.register("odd")
    def odd(samples: list[Scored], asking: Asking) -> list[Verdict]:
        """Keep samples of odd seeds."""
        return [accept("odd") if one.sample.ask.seed % 2 else reject("odd", "even") for one in samples]

    yield
    del FILTERS._entries["odd"]


def kept(name: str) -> list[str]:
    config = compose("stars_mapping", ["level=1", f"filter={name}"])
    assert isinstance(config, StarsConfig)
    return [one.sample.ask.case.id for one in accepted(decided(config, lambda: None, SAMPLES))]  # type: ignore[arg-type, return-value]


def test_what_is_kept_is_what_the_named_filter_says(odd: None) -> None:
    assert (kept("none"), kept("verifier"), kept("odd")) == (["0", "1"], ["0"], ["1"])
    planned = stage_list(compose("stars_mapping", ["level=1", "filter=odd"]))
    assert any("keep samples of odd seeds" in one.summary for one in planned)


def test_a_filter_that_takes_a_name_or_says_too_little_is_named(odd: None) -> None:
    with pytest.raises(PluginError, match='registers the filter "verifier", a name that uni_train has taken'):
        FILTERS.register("verifier")(lambda samples, asking: [])
    FILTERS._entries["odd"] = type(FILTERS._entries["odd"])(lambda samples, asking: [], "mine")
    with pytest.raises(UserError, match="filter=odd gave 0 verdicts for 2 samples"):
        kept("odd")
