"""Published files through `insight`: which analyses take them, and which questions are asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.eval.benchmarks.published import opened, row, write
from tests.insight.command import GOLDEN, insight
from tests.models.bagel.published import published
from tests.models.test_remote import says, serving
from uni_train.config.insight import InsightConfig
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.ureason.files import write_folder
from uni_train.eval.benchmark import Source
from uni_train.eval.generation import asks_of, cases_of
from uni_train.insight.published import published_cases

SHORT = ("sampling.max_think_tokens=8", "sampling.steps=2", "maps=1", "n=2")
NO_PROGRAM = "no program can check the images of changed thoughts in spatial"
NO_ANSWER = "needs exact answers that a program can read, and published files have none"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BAGEL, and small files of UReason in the published schema."""
    folder = tmp_path_factory.mktemp("published")
    published(GOLDEN, folder / "BAGEL")
    write(folder / "ureason", "ureason", *(row("ureason", id=n) for n in (1, 2, 3)))
    return folder


@pytest.mark.parametrize(
    ("analysis", "task", "data", "more", "problem"),
    [
        ("attention", "ureason", "ureason", ["interventions=false"], ""),
        ("attention", "ureason", "ureason", [], NO_PROGRAM),
        ("links", "ureason", "ureason", [], NO_ANSWER),
        ("states", "ureason", "ureason", [], NO_ANSWER),
        ("attention", "mapping", "ureason", [], "data names ureason, and task is mapping"),
        ("attention", "wise", "wise", [], 'there is no task "wise"'),
        ("attention", "ureason", "ureason", ["level=1"], "level is of generated questions"),
        ("attention", "ureason", "ureason", ["split=train"], "split is of generated questions"),
        ("attention", "ureason", "ureason", ["data.unisandbox=x"], "data names ureason, unisandbox, and task"),
        ("attention", "ureason", "ureason", ["data.ureason=nowhere"], "nowhere is no folder"),
    ],
)  # fmt: skip
def test_each_analysis_takes_published_questions_or_says_why_not(
    analysis: str, task: str, data: str, more: list[str], problem: str, place: Path, tmp_path: Path
) -> None:
    options = SHORT if analysis == "attention" else ()
    files = () if any(word.startswith("data.ureason=") for word in more) else (f"data.{data}={place / data}",)
    result = insight(analysis, place / "BAGEL", f"task={task}", *files, *more, *options, f"out={tmp_path / 'in'}")
    said = " ".join(f"{result.output} {result.exception}".split())
    assert problem in said and (result.exit_code == 0) == (not problem), said
    if not problem:
        found = json.loads((tmp_path / "in/attention.json").read_text())
        assert np.allclose(np.array(found["shares"]).sum(-1), 1, atol=1e-5)
        assert f"files of yours, {found['asked']['items']} cases" in found["asked"]["questions"]
        assert "files of yours" in (tmp_path / "in/insight.html").read_text()


def test_questions_prompts_and_noise_are_those_of_the_benchmark(place: Path) -> None:
    benchmark = opened("ureason", Source(data=place / "ureason"))
    config = InsightConfig(task="ureason", data={"ureason": str(place / "ureason")}, seed=3)
    ours, questions = published_cases("attention", str(place / "BAGEL"), config, 2)
    theirs = cases_of(benchmark, subset=2, seed=3)
    asked = [
        [(ask.case.id, ask.case.prompt, ask.seed) for ask in asks_of(cases, [setting], seed=3)]
        for cases, setting in ((ours, "cot"), (theirs, "reasoning_guided"))
    ]
    assert asked[0] == asked[1] and len(asked[0]) == 2
    assert questions == benchmark.questions(theirs)


def test_a_judge_scores_changed_thoughts_and_no_other_item_s_is_drawn(place: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def reply(path: str, body: bytes) -> tuple[int, object]:
        seen.append(body.decode())
        return says("<answer>Yes</answer>")

    with serving(reply) as judge:  # type: ignore[arg-type]
        words = (f"data.ureason={place / 'ureason'}", f"judge.model={judge.url}#painter", f"out={tmp_path / 'in'}")
        result = insight("attention", place / "BAGEL", "task=ureason", *words, *SHORT)
    assert result.exit_code == 0, result.output
    assert seen and all("A pen." in question for question in seen), "the criterion of the file"
    right, effects = json.loads((tmp_path / "in/attention.json").read_text())["tables"][:2]
    assert [name for name, *_ in right["rows"]][:2] == ["As it is", "Dropped (empty)"]
    assert not any("Another item" in str(cells) for cells in right["rows"])
    assert "Another item's thought is left out" in effects["note"]


def test_files_of_ours_are_checked_by_program(tmp_path: Path) -> None:
    """nano draws them; the outcome stands in the rows."""
    items = get_task("ureason", "nano").generate(2, 1, "test", 0)
    write_folder(tmp_path / "mine", items)
    words = (f"data.ureason={tmp_path / 'mine'}", "n=2", "maps=1", "sampling.steps=2", f"out={tmp_path / 'in'}")
    result = insight("attention", "shipped", "task=ureason", *words)
    assert result.exit_code == 0, result.output
    assert "Effect of changing the thought" in (tmp_path / "in/insight.html").read_text()
