"""The experiment on redrawing: which image each arm takes, and what it counts."""

from __future__ import annotations

from bench.experiments.redraw import Prompt, arms, majority


def test_arms_choose_among_the_same_images() -> None:
    yes, no = True, False
    prompts = [
        Prompt("a", [no, yes, no, yes], [no, yes, yes, yes], ["x", "y", "x", None], ["y", "y", "x", None]),
        Prompt("b", [no, no, no, yes], [no, no, no, no], [None] * 4, [None, "z", "y", "z"]),
        Prompt("c", [yes, no, no, no], [yes, no, no, no], ["x"] * 4, ["y", "x", "x", "x"]),
    ]
    found = {
        name: (list(arm.right), arm.images, arm.judgements, arm.captions) for name, arm in arms(prompts, 4).items()
    }
    assert found == {
        "once": ([no, no, yes], 3, 0, 0),
        "redrawn by its judgement": ([yes, yes, yes], 2 + 4 + 1, 2 + 3 + 1, 0),
        "best of 3 at once by its judgement": ([yes, no, yes], 9, 6, 0),  # 5 calls, where redrawing took 13 / 3
        "majority of 4 by its captions": ([no, no, yes], 12, 0, 12),
        "majority of 4 by the program": ([no, no, no], 12, 0, 0),
        "any of 4": ([yes, yes, yes], 12, 0, 0),
    }
    assert (majority(["x", "y", "y"]), majority([None, None])) == (1, 0)
