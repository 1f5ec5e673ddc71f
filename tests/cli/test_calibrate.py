"""`uni_train eval calibrate` as typed, by judges of nano's world on a real port."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.eval.judges.server import Asked, JudgeServer
from uni_train.cli.main import uni_train
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox

SMALL = ("eval", "calibrate", "-b", "unisandbox", "--n", "4", "--sets", "math1", "verifier=judge")


@pytest.mark.slow
def test_judges_and_ways_are_compared_on_labels(tmp_path: Path) -> None:
    """Two people label the reference of each of four cases as right, and that of the next one as wrong."""
    benchmark = UniSandbox(Source(world="nano", n=4, sets=("math1",)))
    lines, captions = ["id,images,rater,label"], {}
    for place, case in enumerate(benchmark.cases()):
        image = benchmark.reference(case) or b""
        (tmp_path / f"{place}.png").write_bytes(image)
        item = case.facts["item"]["facts"]
        captions[base64.b64encode(image).decode()] = f"Caption: {item['count']} {item['object']}"
        for shown, label in ((place, "pass"), ((place + 1) % 4, "fail")):
            lines += [f"{case.id},{shown}.png,{who},{label}" for who in ("ann", "bob")]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")

    def reply(asked: Asked) -> str:
        (image,) = asked.images
        return captions[image.partition("base64,")[2]] if asked.body["model"] == "good" else "Caption: unclear"

    def calibrated(judge: str, *ways: str) -> str:
        typed = [*SMALL, "--labels", f"{tmp_path}/labels.csv", f"judge.model={judge}", "judge.dialect=nano", *ways]
        result = CliRunner().invoke(uni_train, [*typed, f"out={tmp_path}/evals"], terminal_width=100)
        assert result.exit_code == 0, result.output
        return result.output

    with JudgeServer(reply) as server:
        assert re.search(r"accuracy +0\.50", calibrated(f"{server.url}#bad"))
        good = calibrated(f"{server.url}#good", "--ways", "published,majority", "judge.draws=3", "--reruns", "1")
    for words in ("good, majority of 3", "bad, published", "always no", "people among themselves", "flips over reruns"):
        assert words in good, good
    assert "judges and ways, on the same samples" in good and "accuracy on human anchors" in good


@pytest.mark.slow
def test_a_judge_is_measured_by_the_question_of_the_filter(tmp_path: Path) -> None:
    """It is asked once about an image, told the prompt and not the answer; the record is that of filter=judge."""
    benchmark = UniSandbox(Source(world="nano", n=4, sets=("math1",)))
    own = {case.prompt: base64.b64encode(benchmark.reference(case) or b"").decode() for case in benchmark.cases()}

    def reply(asked: Asked) -> str:
        (prompt,) = (prompt for prompt in own if f"Question: {prompt}\n" in asked.words)
        return f"Final Answer: {'YES' if asked.images[0].endswith(own[prompt]) else 'NO'}"

    with JudgeServer(reply) as server:
        typed = [*SMALL, "--filter", f"judge.model={server.url}#exact", f"out={tmp_path}/evals"]
        result = CliRunner().invoke(uni_train, typed, terminal_width=100)
    assert result.exit_code == 0 and re.search(r"accuracy +1\.00", result.output), result.output
    assert len(server.asked) == 8
    assert [path.name[:12] for path in (tmp_path / "evals/store/calibrations").iterdir()] == ["stars_filter"]
    wise = CliRunner().invoke(uni_train, ["eval", "calibrate", "--filter", "-b", "ufo", f"judge.model={server.url}#x"])
    assert wise.exit_code == 2 and "--filter: ufo has no questions of our tasks" in wise.output, wise.output
