"""What was asked stands wherever a score stands."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.eval.sample_evaluation import sample_evaluation
from uni_train.cli.evaluation.running import show
from uni_train.config.schema import EvalConfig
from uni_train.console.progress import ConsoleProgress
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.eval import evaluation as engine
from uni_train.eval import summary, tracking
from uni_train.eval.benchmark import generated_questions, worlds_of
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.compare import compare
from uni_train.eval.evaluation import Evaluation, EvaluationPlan
from uni_train.eval.leaderboard import leaderboard
from uni_train.eval.report import write_report
from uni_train.eval.report.comparison import write_comparison
from uni_train.eval.report.evaluation import report_of
from uni_train.eval.report.leaderboard import SCORES, write_leaderboard
from uni_train.eval.sampler import item_case

NANO = "generated questions of the nano world, not the benchmark"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    out = tmp_path_factory.mktemp("evals")
    benchmark = UniSandbox(n=3, sets=("math1", "mapping1"))
    return engine.run(
        EvaluationPlan(checkpoint="shipped", benchmarks=[benchmark], config=EvalConfig(out=str(out), name="one"))
    )


def unnamed(page: str) -> list[str]:
    """What stands right above the tables that do not say what was asked."""
    above = [before[-200:] for before in page.split("<table")[:-1]]
    return [text for text in above if f'<span class="questions">{NANO}</span></p>' not in text]


def _printed(evaluation: Evaluation) -> str:
    buffer = io.StringIO()
    show(evaluation, ConsoleProgress(Console(file=buffer, width=160)))
    return " ".join(buffer.getvalue().split())


class _Logged(dict[str, Any]):
    """A W&B run that keeps what it is given."""

    step = 0

    def __init__(self) -> None:
        super().__init__()
        self.config: dict[str, Any] = _Config()

    def log(self, logged: dict[str, Any], **_: Any) -> None:
        self.update(logged)


class _Config(dict[str, Any]):
    def update(self, given: Any = (), **_: Any) -> None:
        super().update(given)


def test_generated_questions_are_named_on_every_table_and_page(evaluated: Evaluation, tmp_path: Path) -> None:
    result = evaluated.results["unisandbox"]
    assert result.questions == NANO and {table.questions for table in result.tables} == {NANO}
    assert _printed(evaluated).count(NANO) == 2  # both tables that the terminal shows
    page = report_of(evaluated).read_text(encoding="utf-8")
    assert page.count("<table") == len(result.tables) + 2 and unnamed(page) == []  # causes and outcomes too
    board = leaderboard([f"a={evaluated.folder}"])
    page = write_leaderboard(tmp_path / "board", board).read_text(encoding="utf-8")
    assert len(unnamed(page)) == 1 and f"unisandbox: {NANO}." in page  # that of all benchmarks
    assert NANO in (tmp_path / "board" / SCORES).read_text()
    files = list((tmp_path / "board" / "tables").iterdir())
    assert len(files) == 2 * len(result.tables) and all(NANO in file.read_text() for file in files)
    compared = compare(evaluated.folder, evaluated.folder)
    assert unnamed(write_comparison(tmp_path / "flips.html", compared).read_text()) == []
    view = pytest.importorskip("uni_train.view", exc_type=ImportError)
    texts = view.read(evaluated.folder).texts["one"]
    assert len(texts) == len(result.tables) and all(NANO in text for tag in texts.values() for _, text in tag.values())
    assert compared.to_dict()["questions"] == {"unisandbox": NANO}


def test_wandb_is_told(evaluated: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "Table", lambda columns, data: (columns, data))
    run: Any = _Logged()
    tracking.log_evaluation(run, evaluated, None, n_images=0)
    tables = [value for key, value in run.items() if "/tables/" in key]
    assert run.config["questions"] == {"unisandbox": NANO}
    assert tables and all(columns[-1] == "questions" and data[0][-1] == NANO for columns, data in tables)


def test_a_run_says_it_too_and_the_papers_numbers_are_of_other_questions(run_dir: Path) -> None:
    assert summary.read(run_dir)["questions"] == NANO
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert page.count("<table") == 5 and unnamed(page) == [] and NANO.capitalize() in page  # each table, and the head
    assert "<p>BAGEL-7B, other questions <b>0.64</b></p>" in page and ">paper <b>" not in page
    assert "The paper&#39;s model is BAGEL-7B, on other questions" in page


@pytest.mark.parametrize("name", [name for name in TASKS.names() if TASKS.get(name).sets])
def test_questions_of_every_task_have_a_name(name: str) -> None:
    kind = get_task(name)
    cases = [item_case(item) for level in kind.sets for item in kind.generate(2, level, "test", 0)]
    assert worlds_of(cases) in ("nano", name)
    assert worlds_of([*cases, item_case(get_task("maths").generate(1, 1, "test", 0)[0])]) in ("nano", f"{name}+nano")


def test_published_files_are_told_with_revision_and_share(tmp_path: Path) -> None:
    for prefix in ("", "direct_"):
        rows = [{"id": i, "prompt": f"{prefix}Task {i}", "expect_en": f"A {i}.", "category": "code"} for i in range(4)]
        (tmp_path / f"{prefix}code.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = UReason(tmp_path)
    assert benchmark.questions(3) == f"published files, revision {benchmark.revision}, 3 of 4 cases"
    assert UReason(n=3, world="everyday").questions(3) == generated_questions("everyday")
    own = sample_evaluation(tmp_path / "sums", 2)  # a benchmark without a paper
    assert own.results["sums"].questions == ""  # of an earlier version: nothing is claimed
