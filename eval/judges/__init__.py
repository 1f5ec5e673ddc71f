"""Judging by a model what no program can check: which model, what it is asked, how its words are read, what is kept.

questions    the pieces that benchmarks ask with: caption then compare, yes or no, JSON
wording      what a way of asking adds to a prompt and reads of a reply
ways         how often and how: binary, chain of thought, majority, confidence, tournament
asking       stored replies first, then the model; re-asking, limits
client       a question over HTTP, its reply, what a failure means
replies      what judges have said, by content
judging      what is stored is read, the rest asked and logged
cascade      small judges first, the large one where they settle nothing
log          judgements in inspect-ai's log format
anchors      samples of which the truth is known; labels: those that people have labelled
calibrating  how far a judge agrees with them (agreement, perturbation); calibration: the record, which judging cites
prevalence   a judge's scores, corrected for the mistakes that its calibration knows
"""

from uni_train.eval.judges.cascade import run
from uni_train.eval.judges.judging import expect_answer
from uni_train.eval.judges.questions import (
    caption_matches,
    filled_in,
    image_satisfies,
    prompt_accepted,
    thought_satisfies,
)
from uni_train.eval.judges.revision import with_served_revision

__all__ = [
    "caption_matches",
    "expect_answer",
    "filled_in",
    "image_satisfies",
    "prompt_accepted",
    "run",
    "thought_satisfies",
    "with_served_revision",
]
