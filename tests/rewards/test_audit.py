"""`uni_train data audit-verifier`: false accepts, false rejects, and functions that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from uni_train.cli.main import uni_train

REWARDS = """
import os, time

def everything(prompts, completions, **columns):
    assert columns["item"][0].prompt == prompts[0]
    assert columns["target_image"][0].shape == columns["input_image"][0].shape
    return [1.0] * len(completions)

def nothing(image, item):
    return 0

class Learned: pass

def talkative(image, item):
    raise ValueError("word " * 2_000_000)

def failing(image, item):
    print("no part of the report")
    if image.shape[0] == 1:
        raise ValueError("too small")
    if image.shape[1] == 20000:
        time.sleep(600)
    if image.shape[0] < image.shape[1]:
        os._exit(3)
    return "yes" if image.min() == 255 else float("nan") if image.max() == 0 else 7
"""


def run(tmp_path: Path, function: str, *options: object) -> Result:
    (tmp_path / "rewards.py").write_text(REWARDS, encoding="utf-8")
    arguments = ["--task", "maze", "--style", "nano", "--level", 3, "--split", "test", "--n", 2, *options]
    name = f"{tmp_path / 'rewards.py'}:{function}" if function else ""
    words = ["data", "audit-verifier", *([name] if name else []), *map(str, arguments)]
    return CliRunner().invoke(uni_train, words, catch_exceptions=False)


def test_a_sound_verifier_passes_its_audit(tmp_path: Path) -> None:
    done = run(tmp_path, "")
    assert done.exit_code == 0, done.output
    assert "false accepts: 0 of 44 images" in done.output and "false rejects: 0 of 16 images" in done.output


def test_false_accepts_and_rejects_are_listed_and_kept(tmp_path: Path) -> None:
    lenient = run(tmp_path, "everything", "--out", tmp_path / "kept")
    assert lenient.exit_code == 1
    assert "false accepts: 44 of 44 images" in lenient.output and "false rejects: 0 of 16 images" in lenient.output
    page = (tmp_path / "kept" / "audit.html").read_text(encoding="utf-8")
    assert "False accepts" in page and page.count("data:image/") == 44 == len(list((tmp_path / "kept").glob("*.png")))
    strict = run(tmp_path, "nothing", "--json")
    rows = [json.loads(line) for line in strict.stdout.splitlines()]
    assert strict.exit_code == 1 and {row["expected"] for row in rows if row["wrong"]} == {"accept"}
    assert rows[0]["share"]["value"] == 1 and rows[0]["share"]["n"] == 2 == len(rows[0]["items"])


def test_what_a_function_says_may_be_long(tmp_path: Path) -> None:
    done = run(tmp_path, "talkative", "--out", tmp_path / "kept")
    said = " ".join(done.output.split())
    assert done.exit_code == 1 and "raised ValueError: word word" in said and "rewards.py, line" in said
    assert len(said) < 10_000 and (tmp_path / "kept" / "audit.html").stat().st_size < 1_000_000


def test_what_a_function_does_wrong_is_a_finding(tmp_path: Path) -> None:
    done = run(tmp_path, "failing", "--patience", 0.5, "--json")
    assert done.exit_code == 1
    problems = {row["attack"]: row["problems"] for row in map(json.loads, done.stdout.splitlines())}
    assert problems["white"] == {"returned 'yes', not a number": 2}
    assert problems["black"] == {"returned nan, not in [0, 1]": 2}
    assert next(iter(problems["as it is"])) == "returned 7, not in [0, 1]"
    assert next(iter(problems["1 x 1"])).startswith("raised ValueError: too small (")
    hung = problems["20,000 pixels wide"]
    assert hung == {"gave no score within 0.5 s": 1, "gave no score within 0.5 s: 3 times, so the audit ends": 1}
    assert problems["wrong size"] == {"ended its process (exit code 3)": 1}


@pytest.mark.parametrize(("function", "reason"), [("absent", "has no function absent"), ("Learned", "is a class")])
def test_what_is_no_function_is_refused(tmp_path: Path, function: str, reason: str) -> None:
    refused = run(tmp_path, function)
    assert refused.exit_code == 2 and reason in refused.output
