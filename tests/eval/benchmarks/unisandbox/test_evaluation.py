"""UniSandbox through the whole evaluator: the shipped nano draws, a judge on a real port looks."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.eval.benchmarks.published import write
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import EvaluationPlan, run
from uni_train.models.pictures import decode_png

# In nano's words, with one label that is wrong and one question that nobody can draw.
ROWS = [
    {"Question": "Draw as many apples as 1 + 2 .", "Answer": "3 apples", "id": "1"},
    {"Question": "Draw as many stars as 2 * 2 .", "Answer": "5 stars", "id": "2"},
    {"Question": "Draw as many moons as 4 * 3 .", "Answer": "12 moons", "id": "3"},
]


def look(asked: Asked) -> str:
    """A judge with good eyes: captions what the pixels show, and compares word by word."""
    if asked.images:
        seen = sprites.read(decode_png(base64.b64decode(asked.images[0].partition(",")[2])))
        return f"Caption: {NANO.noun(seen.name).counted(seen.count) if seen.readable and seen.name else 'Error'}"
    caption, expected = re.findall(r"\*\*(?:Generated Caption|Expected Answer):\*\* (.*)", asked.last)
    return f"Score: {'YES' if caption == expected else 'NO'}"


@pytest.mark.slow
def test_both_labels_score_one_drawing(tmp_path: Path) -> None:
    data = write(tmp_path / "files", "unisandbox", *ROWS)

    def plan(labels: str, judge: JudgeConfig) -> EvaluationPlan:
        config = EvalConfig(settings=("cot",), judge=judge, out=str(tmp_path / "evals"))
        return EvaluationPlan(checkpoint="shipped", benchmarks=[UniSandbox(data, labels=labels)], config=config)

    with JudgeServer(look) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        official = run(plan("official", judge))
        captions = sum(bool(asked.images) for asked in server.asked)
        comparisons = len(server.asked) - captions
        both = run(plan("both", judge))
        later = server.asked[captions + comparisons :]
    assert official.calls["draw"]["made"] == captions == 3
    assert both.calls["draw"] == {"made": 0, "stored": 3, "failed": 0}
    assert [bool(asked.images) for asked in later] == [False]  # one more label, compared with the caption that is there
    scores = both.results["unisandbox"].scores["labels"]
    found = {one.sample.ask.case.id: one for one in both.scored("unisandbox", images=True)}
    assert found["math1/2"].sample.image == found["math1/2/corrected"].sample.image
    assert found["math1/1"].passed and found["math1/2/corrected"].passed  # the shipped nano reasons well
    assert not found["math1/2"].passed and found["math1/2"].cause == "reasoning wrong"  # by the label
    assert [scores[label]["cot"]["math1"]["n"] for label in ("official", "corrected")] == [3, 2]
