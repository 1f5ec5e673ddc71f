"""Every number of every recipe has an upper limit, and what is beyond it is refused at once with its key."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.config.kinds import KINDS, kind_named
from uni_train.config.messages import limits_of, members
from uni_train.core.errors import UsageError


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


ENDLESS = [
    ("stars_curriculum", "model.architecture.layers=100000000"),
    ("stars_curriculum", "rounds.0.prompts=1000000000000"),
    ("stars_curriculum", "evaluation.n=1000000000000"),
    ("stars_curriculum", "model.sampling.temperature=nan"),
    ("stars_curriculum", "model.sampling.cfg_text_scale=inf"),
    ("stars_curriculum", "seed=" + "9" * 5001),
    ("flow_grpo_maze", "rollout.group_size=1000000000"),
    ("flow_grpo_maze", "rewards.solved.weight=1e308"),
    ("sft_nano", "batch.rows=1000000000"),
    ("knowledge", "characters.n=100000000"),
    ("nano_pretrain", "vae.updates=100000000000"),
]


@pytest.mark.parametrize(("recipe", "override"), ENDLESS, ids=[f"{r}-{o[:40]}" for r, o in ENDLESS])
def test_what_would_never_end_is_refused_with_its_key(recipe: str, override: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(recipe, [override])
    assert override.partition("=")[0] in caught.value.message and len(caught.value.message) < 6000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flow_grpo_maze", "prompts.levels=[25]"], "prompts.levels: maze has no level 25"),
        (["flow_grpo_maze", "rewards.solved.function=nothing"], "no reward"),
        (["flow_grpo_maze", "rewards.solved.function=gone.py:score"], "gone.py"),
        (["flow_grpo_maze", "prompts.levels=[9]"], "prompts.levels: maze of level 9 has no set"),
        (["sft_maze", "held_out.levels=[2]", "held_out.split=test"], "Levels with a set: 3, 4, 5, 6, 7, 8."),
        (["sft_maze", "held_out.levels=[99]"], "held_out.levels: maze has no level 99"),
        (
            ["stars_curriculum", "evaluation.n=3000", "evaluation.sets=[math1]"],
            "evaluation.n 3000 is too many for math1",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_fit_and_its_dry_run_and_leaves_nothing(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uni_train.fitting.missing", lambda config: [])  # sources that nobody has made here
    for dry in (["--dry-run"], []):
        refused = CliRunner().invoke(uni_train, ["fit", *arguments, *dry], catch_exceptions=False)
        assert refused.exit_code in (1, 2) and message in " ".join(refused.output.split())
    assert not (tmp_path / "runs").exists()
