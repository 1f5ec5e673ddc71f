"""What was asked stands wherever a score stands."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from tests.eval.benchmarks.published import opened, row, write, write_vigor
from tests.eval.sample_evaluation import sample_evaluation
from uni_train.cli.evaluation.running import show
from uni_train.config.schema import EvalConfig
from uni_train.console.progress import ConsoleProgress
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.eval import evaluation as engine
from uni_train.eval import summary, tracking
from uni_train.eval.benchmark import BENCHMARKS, Ask, Benchmark, Sample, Scored, Source, generated_questions, worlds_of
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.vigor.cases import generated
from uni_train.eval.benchmarks.wise.cases import CATEGORIES
from uni_train.eval.benchmarks.wise.editions import VERIFIED
from uni_train.eval.compare import compare
from uni_train.eval.evaluation import Evaluation, EvaluationPlan
from uni_train.eval.generation import cases_of
from uni_train.eval.leaderboard import leaderboard
from uni_train.eval.report.evaluation import report_of, write_comparison
from uni_train.eval.report.leaderboard import SCORES, write_leaderboard
from uni_train.eval.report.run import write_report
from uni_train.eval.results import printed
from uni_train.eval.task_benchmark import item_case

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"
NANO = "generated questions of the nano world, not the benchmark"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    config = EvalConfig(out=str(tmp_path_factory.mktemp("evals")), name="one")
    benchmark = UniSandbox(Source(n=3, sets=("math1", "mapping1")))
    return engine.run(EvaluationPlan(checkpoint="shipped", benchmarks=[benchmark], config=config))


def unnamed(page: str) -> list[str]:
    """What stands right above the tables that do not say what was asked."""
    above = [before[-200:] for before in page.split("<table")[:-1]]
    return [text for text in above if f'<span class="questions">{NANO}</span></p>' not in text]


def test_generated_questions_are_named_on_every_table_and_page(evaluated: Evaluation, tmp_path: Path) -> None:
    result = evaluated.results["unisandbox"]
    assert result.questions == NANO and {table.questions for table in result.tables} == {NANO}
    buffer = io.StringIO()
    show(evaluated, ConsoleProgress(Console(file=buffer, width=160)))
    assert " ".join(buffer.getvalue().split()).count(NANO) == 2  # both tables that the terminal shows
    page = report_of(evaluated).read_text(encoding="utf-8")
    assert page.count("<table") == len(result.tables) + 2 and unnamed(page) == []  # causes and outcomes too
    board = leaderboard([f"a={evaluated.folder}"])
    page = write_leaderboard(tmp_path / "board", board).read_text(encoding="utf-8")
    assert len(unnamed(page)) == 2 and f"unisandbox: {NANO}." in page  # of all benchmarks, and about the evaluations
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
    run = MagicMock(step=0)
    tracking.log_evaluation(run, evaluated, None, n_images=0)
    logged = {key: value for call in run.log.call_args_list for key, value in call.args[0].items()}
    tables = [value for key, value in logged.items() if "/tables/" in key]
    assert {"unisandbox": NANO} in [call.args[0].get("questions") for call in run.config.update.call_args_list]
    assert tables and all(columns[-1] == "questions" and data[0][-1] == NANO for columns, data in tables)


def test_a_run_says_it_too_and_the_papers_numbers_are_of_other_questions(run_dir: Path) -> None:
    assert summary.read(run_dir)["questions"] == NANO
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert page.count("<table") == 7 and unnamed(page) == [] and NANO.capitalize() in page  # each table, and the head
    assert "<p>BAGEL-7B, other questions <b>0.64</b></p>" in page and ">paper <b>" not in page
    assert "The paper&#39;s model is BAGEL-7B, on other questions" in page


def test_questions_of_every_task_have_a_name() -> None:
    maths = item_case(get_task("maths").generate(1, 1, "test", 0)[0])
    for name in (name for name in TASKS.names() if TASKS.get(name).sets):
        kind = get_task(name)
        levels = set(kind.sets) & set(getattr(kind, "possible_levels", kind.levels))
        cases = [item_case(item) for level in levels for item in kind.generate(2, level, "test", 0)]
        assert worlds_of(cases) in ("nano", name)
        assert worlds_of([*cases, maths]) in ("nano", "+".join(sorted((name, "nano"))))


def test_a_task_without_worlds_is_not_called_one() -> None:
    assert generated_questions("nano+sudoku") == ("generated questions of the nano world and sudoku, not the benchmark")


def rows(name: str, ids: Iterable[Any], **changes: Any) -> list[dict[str, Any]]:
    return [row(name, id=one, **changes) for one in ids]


def unisandbox(folder: Path, n: int, first: int = 1) -> Benchmark:
    """Each has a wrong label, and so two cases of one drawing."""
    asked = rows("unisandbox", map(str, range(first, first + n)), Answer="3 chairs")
    return opened("unisandbox", Source(data=write(folder, "unisandbox", *asked)), labels="both")


def people(folder: Path, name: str, ids: Iterable[int] = (1, 11, 21)) -> Benchmark:
    asked = [{"ID": i, "Question": f"Draw {name}'s favorite fruit.", "Answer": "apples"} for i in ids]
    return opened("unisandbox", Source(data=write(folder, "unisandbox", *asked, file=f"test_knowledge/{name}.jsonl")))


def ureason(folder: Path, n: int, first: int = 101) -> Benchmark:
    asked = rows("ureason", range(first, first + n), category="code")
    return opened("ureason", Source(data=write(folder, "ureason", *asked, file="code.jsonl")))


def ueval(folder: Path, n: int, sets: tuple[str, ...] | None = None, first: int = 1) -> Benchmark:
    ids = range(first, first + n)
    asked = [*rows("ueval", ids[::2], task="art"), *rows("ueval", ids[1::2], task="life")]
    return opened("ueval", Source(data=write(folder, "ueval", *asked), sets=sets))


def ufo(folder: Path) -> Benchmark:
    return opened("ufo", Source(data=write(folder, "ufo", *rows("ufo", range(3)))))


def vigor(folder: Path, sets: tuple[str, ...] | None = None) -> Benchmark:
    return opened("vigor", Source(data=write_vigor(folder, *generated(Source(world="everyday", n=3))), sets=sets))


def wise(folder: Path, without: int = 0, first: int = 1) -> Benchmark:
    """As many of each category as WISE_Verified has; `without` so many of the first."""
    names = [name for name, n in zip(CATEGORIES, VERIFIED.sizes, strict=True) for _ in range(n)]
    asked = [row("wise", prompt_id=i, Category=one) for i, one in enumerate(names[without:], first)]
    return opened("wise", Source(data=write(folder, "wise", *asked)))


def shades(folder: Path, n: int, sets: tuple[str, ...] | None = None, first: int = 1) -> Benchmark:
    """The example of a plug-in, in this process."""
    sys.path.append(str(EXAMPLE))
    from shades.naming import ShadeNaming

    BENCHMARKS._entries.pop("shade_naming", None)  # other tests do not see it
    asked = [{"id": i, "set": ("named", "mixed")[i % 2], "prompt": "?", "tenths": 3} for i in range(first, first + n)]
    folder.mkdir(exist_ok=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    return ShadeNaming(Source(data=folder, sets=sets))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("files", "share"),
    [
        (lambda at: unisandbox(at, 100), "100 of 950 cases"), (lambda at: unisandbox(at, 99), ""),
        (lambda at: unisandbox(at, 100, first=40), ""), (lambda at: people(at, "Lysendria"), "3 of 950 cases"),
        (lambda at: people(at, "Nobody"), ""), (lambda at: people(at, "Lysendria", (1, 11)), ""),
        (lambda at: people(at, "Lysendria", (1, 2, 3)), ""), (lambda at: people(at, "Nobody", range(1, 101)), ""),
        (lambda at: ureason(at, 100), "100 of 500 cases"), (lambda at: ureason(at, 4), ""),
        (lambda at: ureason(at, 100, first=1), ""), (lambda at: ureason(at, 300, 301), "300 of 1,500 cases"),
        (lambda at: ueval(at, 1000), "1,000 of 1,000 cases"), (lambda at: ueval(at, 4), ""),
        (lambda at: ueval(at, 1000, first=0), "1,000 of 1,000 cases"), (lambda at: ueval(at, 1000, first=5000), ""),
        (lambda at: ueval(at, 1000, ("art",)), "500 of 1,000 cases"),
        (lambda at: ueval(at / "datasets--zlab-princeton--UEval/snapshots/0abc", 4), "4 of 4 cases"),
        (ufo, ""), (lambda at: ufo(at / "datasets--other--UFO/snapshots/0abc"), ""),
        (lambda at: ufo(at / "datasets--yzzyu--UFO/snapshots/0abc"), "3 of 3 cases"), (vigor, ""),
        (lambda at: vigor(at / "datasets--VincentHancoder--ViGoR-Bench/snapshots/0abc"), "3 of 3 cases"),
        (lambda at: vigor(at / "datasets--VincentHancoder--ViGoR-Bench/snapshots/0abc", ("maze_navigation",)),
         "3 cases of maze_navigation"),
        (wise, "1,000 of 1,000 cases"), (lambda at: wise(at, 1), ""), (lambda at: wise(at, first=2), ""),
        (lambda at: shades(at, 200), "200 of 200 cases"), (lambda at: shades(at, 200, ("named",)), "100 of 200 cases"),
        (lambda at: shades(at, 20), ""), (lambda at: shades(at, 200, first=7), ""),
    ],
)  # fmt: skip
def test_published_is_what_has_the_published_number_and_ids_or_is_of_the_hub(
    tmp_path: Path, files: Callable[[Path], Benchmark], share: str
) -> None:
    """Everybody else's files are called so, and no paper's rows stand below their scores."""
    benchmark = files(tmp_path)
    n = len({case.facts.get("drawn_as", case.id) for case in benchmark.cases()})
    published = f"published files, revision {benchmark.revision}, {share}"
    assert benchmark.questions() == (published if share else f"files of yours, {n:,} cases")
    scored = [Scored(Sample(Ask(case, benchmark.settings[0], 0, 0))) for case in benchmark.cases()[:2]]
    tables = benchmark.tables(scored)
    theirs = [row for table in tables for row in [*table.rows, *zip(table.columns, strict=True)] if printed(row)]
    assert bool(theirs) == bool(share)


def test_sets_that_a_subset_leaves_out_are_named(tmp_path: Path) -> None:
    benchmark = opened("ureason", Source(n=3, world="everyday"))
    asked = cases_of(benchmark, subset=4)
    (left,) = {*benchmark.sets} - {case.set for case in asked}
    assert benchmark.questions(asked) == f"{generated_questions('everyday')}; none of {left}"
    assert benchmark.questions() == generated_questions("everyday")
    own = sample_evaluation(tmp_path / "sums", 2)  # a benchmark without a paper
    assert own.results["unisandbox"].questions == ""  # of an earlier version: nothing is claimed
