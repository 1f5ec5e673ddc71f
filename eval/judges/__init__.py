"""Judging by a model what no program can check: which model, what it is asked, how its words are read, what is kept.

judge      samples to verdicts: stored replies first, then the model; small judges first; limits; the record
ways       the questions that benchmarks ask with, ways of asking
calibrate  measuring a judge on anchors, samples of known truth, such as labels of people
agreement  the numbers of that, their record, which evaluations cite, and scores corrected by it
tables     calibrations as tables
replies    what judges have said, by content
log        judgements in inspect-ai's log format
"""

from uni_train.eval.judges.judge import NoReply, Stopped, expect_answer, run, with_served_revision
from uni_train.eval.judges.ways import (
    caption_matches,
    dialect,
    filled_in,
    image_satisfies,
    prompt_accepted,
    thought_satisfies,
)
from uni_train.eval.reading import JsonReader

__all__ = [
    "JsonReader",
    "NoReply",
    "Stopped",
    "caption_matches",
    "dialect",
    "expect_answer",
    "filled_in",
    "image_satisfies",
    "prompt_accepted",
    "run",
    "thought_satisfies",
    "with_served_revision",
]
