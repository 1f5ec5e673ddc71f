"""What a fine-tuning says of its length and rate before it begins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recipes.sft.test_sft import fit, place  # noqa: F401  # a fixture
from uni_train.recipes.sft.budget import usual_passes


@pytest.mark.parametrize(("rows", "passes"), [(1, 200), (40, 100), (4_000, 10), (400_000, 1), (10**9, 1)])
def test_usual_passes(rows: int, passes: float) -> None:
    assert usual_passes(rows) == pytest.approx(passes)


@pytest.mark.parametrize(("updates", "usual"), [(100, True), (3, False)])
def test_a_dry_run_says_passes_and_what_is_usual(place: Path, tmp_path: Path, updates: int, usual: bool) -> None:  # noqa: F811
    """Three rows of four each update, beside two talks of which none is drawn any longer."""
    keys = ("sources.t2i=null", "sources.editing=null", "sources.vlm=null", "batch.tokens=null", "batch.rows=6")
    result = fit(place, tmp_path, *keys, f"updates={updates}", "--dry-run")
    assert result.exit_code == 0, result.output
    said = re.search(
        r"items: a row has about \d+ tokens; (\d+) updates draw each of 3 about (\d+) times(.*)", result.output
    )
    assert said is not None, result.output
    assert (said[1], said[2]) == (str(updates), str(2 * updates))
    assert said[3] == ("" if usual else ", and about 200 times is usual: updates=100")
