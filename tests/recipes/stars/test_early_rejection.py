"""`early_rejection`: wrong thoughts are not drawn, what is refused half-way is not finished, all else stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.recipes.stars.test_curricula import pixels, rounds_of, samples
from tests.tiny import finish
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.eval.scored import read_folder
from uni_train.eval.sets.thoughts import conclusion
from uni_train.recipes.stars.early_rejection import FOLDER

SHIPPED = ("level=3", "model.threads=1", "model.sampling.steps=2", "temperature=3", "evaluation.n=1", "batch.prompts=8")
SHIPPED += ("evaluation.sets=[math1]", "evaluation.modes=[normal]", "pretrain_replay=0", "thoughts_replay=0")
SHIPPED += ("candidates=2", "model.draw_batch=8", "batch.noise_draws=1", "filter=none")
SUDOKU = "rounds=[{task: sudoku, level: 1, prompts: 8, updates: 1}]"


@pytest.mark.parametrize("kept", ["", "kept: 4, "])
def test_a_thought_that_concludes_wrong_is_not_drawn_and_nothing_else_changes(kept: str, tmp_path: Path) -> None:
    rounds = "rounds=[{{task: maths, level: 3, prompts: 16, {}updates: 1}}]".format
    whole = finish(tmp_path / "a", *SHIPPED, rounds(""), recipe="stars_math")
    early = finish(tmp_path / "b", *SHIPPED, rounds(kept), "early_rejection=thought", recipe="stars_math")
    stage = "01-sample-math3"
    rejected = [answer.sample for answer in read_folder(early / "stages" / stage / FOLDER)]
    drawn = {answer.sample.identity: answer for answer in samples(early, stage)}
    expected = samples(whole, stage)[: len(drawn) + len(rejected)]
    for answer in expected:
        sample = answer.sample
        if conclusion(sample.thought, sample.ask.case) == "wrong":
            (same,) = (one for one in rejected if one.identity == sample.identity)
            assert same.thought == sample.thought and not same.drawn
        else:
            assert drawn[sample.identity].sample == sample and drawn[sample.identity].verdict == answer.verdict
    (round_,) = rounds_of(early)
    assert rejected and round_["calls"]["thoughts"] == len(expected) == len(drawn) + len(rejected)
    assert round_["sampled"] == round_["kept"] == round_["calls"]["images"] == len(drawn)


def test_what_the_teacher_refuses_half_way_is_not_finished(tmp_path: Path) -> None:
    asked = (*SHIPPED, "rounds=[{task: maths, level: 3, prompts: 16, updates: 1}]", "filter=self")
    asked += ("model.sampling.steps=4",)
    whole = finish(tmp_path / "a", *asked, recipe="stars_math")
    early = finish(tmp_path / "b", *asked, "early_rejection=image", recipe="stars_math")
    (before,), (after,) = rounds_of(whole), rounds_of(early)
    expected = {answer.sample.identity: answer for answer in samples(whole, "02-filter-math3")}
    drawn = samples(early, "02-filter-math3")
    rejected = [answer.sample.identity for answer in read_folder(early / "stages/01-sample-math3" / FOLDER)]
    assert len(drawn) + len(rejected) == len(expected) == 32 and 0 < len(rejected) < 32
    for answer in drawn:
        same = expected[answer.sample.identity]
        assert answer.sample.thought == same.sample.thought and answer.filter_verdict == same.filter_verdict
        assert np.abs(pixels([answer]) - pixels([same])).max() <= 1
    lost = sum(expected[one].filter_verdict.passed for one in rejected)  # type: ignore[union-attr]
    assert after["kept"] == before["kept"] - lost and lost < len(rejected) / 2
    assert (before["filter"], after["filter"], after["warning"]) == ("self", "self+early_rejection", None)
    calls = {"thoughts": 32, "answers": 32 + len(drawn), "images": len(drawn)}
    assert after["calls"] == calls | {"velocities": 4 * len(drawn) + 2 * len(rejected)}


@pytest.mark.parametrize(
    ("recipe", "overrides", "reason"),
    [
        ("stars_math", ("mode=normal", "thoughts_replay=0"), "needs mode=cot"),
        ("stars_math", ("redraw=4",), "needs mode=cot, redraw=1"),
        ("gym", (SUDOKU,), "needs mode=cot"),
        ("stars_math", (SUDOKU,), "no program reads thoughts about sudoku"),
        ("stars_math", ("early_rejection=image", "filter=verifier"), "early_rejection=image needs filter=self"),
        ("stars_math", ("early_rejection=image", "model.sampling.steps=1"), "steps=1 has no half"),
        ("stars_math", ("early_rejection=image", "teacher=shipped"), "needs filter=self, redraw=1 and the run's own"),
    ],
)
def test_it_is_refused_where_no_thought_is_read(recipe: str, overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        compose(recipe, ["early_rejection=thought", *overrides])
