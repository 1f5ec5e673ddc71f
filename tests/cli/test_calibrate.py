"""`uni_train eval calibrate` as typed, by judges of nano's world on a real port."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.eval.judges.server import Asked, JudgeServer
from uni_train.cli.main import uni_train
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox

SMALL = ("eval", "calibrate", "-b", "unisandbox", "--n", "4", "--sets", "math1", "verifier=judge")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(uni_train, [str(one) for one in arguments], catch_exceptions=False, terminal_width=100)


def labelled(folder: Path) -> tuple[Path, dict[str, str]]:
    """Two people on the references of four cases, each shown for two of them; and what is seen where."""
    benchmark = UniSandbox(Source(world="nano", n=4, sets=("math1",)))
    cases = benchmark.cases()
    lines, captions = ["id,images,rater,label"], {}
    for place, case in enumerate(cases):
        image = benchmark.reference(case) or b""
        (folder / f"{place}.png").write_bytes(image)
        item = case.facts["item"]["facts"]
        captions[f"{place}.png"] = f"Caption: {item['count']} {item['object']}"
        for shown in (place, (place + 1) % 4):
            right = "pass" if shown == place else "fail"
            lines += [f"{case.id},{shown}.png,{who},{right}" for who in ("ann", "bob")]
    path = folder / "labels.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, captions


@pytest.mark.slow
def test_judges_and_ways_are_compared_on_labels(tmp_path: Path) -> None:
    path, captions = labelled(tmp_path)
    seen = {base64.b64encode((tmp_path / name).read_bytes()).decode(): said for name, said in captions.items()}

    def reply(asked: Asked) -> str:
        (image,) = asked.images
        return seen[image.partition("base64,")[2]] if asked.body["model"] == "good" else "Caption: unclear"

    with JudgeServer(reply) as server:
        options = ("--labels", path, "judge.dialect=nano", "--out", tmp_path / "evals")
        bad = run(*SMALL, *options, f"judge.model={server.url}#bad")
        assert bad.exit_code == 0 and re.search(r"accuracy +0\.50", bad.output), bad.output
        ways = ("--ways", "published,majority", "judge.draws=3", "--reruns", "1")
        good = run(*SMALL, *options, f"judge.model={server.url}#good", *ways)
    assert good.exit_code == 0, good.output
    for words in ("good, majority of 3", "bad, published", "always no", "people among themselves", "flips over reruns"):
        assert words in good.output, good.output
    assert "judges and ways, on the same samples" in good.output and "accuracy on human anchors" in good.output


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["judge=null"], 2, ["verifier=judge needs a judge"]),
        (["--references", "none"], 2, ["nothing to compare the judge with"]),
        (["--changes", "jpg"], 2, ["--changes jpg", "Did you mean jpeg?"]),
        (["--ways", "majorty"], 2, ["judge.way must be one of", "Did you mean majority?"]),
        (["judge.dialect=nano", "judge.way=binary"], 2, ["judge.way=binary"]),
        (["--labels", "{folder}/labels.csv"], 1, ["labels.csv, line 3: unisandbox has no case"]),
        (["--labels", "{folder}/none.csv"], 1, ["none.csv"]),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(
    arguments: list[str], code: int, parts: list[str], tmp_path: Path
) -> None:
    benchmark = UniSandbox(Source(world="nano", n=4, sets=("math1",)))
    (tmp_path / "labels.csv").write_text(f"id,label\n{benchmark.cases()[0].id},1\nmath1-none,0\n")
    typed = [one.format(folder=tmp_path) for one in arguments]
    result = run(*SMALL, "judge.model=http://127.0.0.1:9/v1#j", *typed, "--out", tmp_path / "evals")
    assert result.exit_code == code and all(part in result.output for part in parts), result.output
    assert len(result.output.splitlines()) <= 6
