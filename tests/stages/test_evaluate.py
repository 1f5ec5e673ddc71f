"""Which sets a run asks: the six, and those beside them that `evaluation.sets` names."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.tiny import TINY, fit
from uni_train.config.compose import compose
from uni_train.config.schema import SIX_SETS, EvalConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.registry import get_task, set_name, sources
from uni_train.eval.benchmark import Sample, Scored
from uni_train.eval.compare import compare
from uni_train.eval.configured import plan_of
from uni_train.eval.evaluation import load, run
from uni_train.eval.scored import read_folder
from uni_train.eval.sets.counting import accuracy_rows
from uni_train.eval.task_benchmark import TaskBenchmark, item_of
from uni_train.stages import evaluate

EXTRA = ("math1_seen", "mapping2_chain")


def test_every_name_that_may_be_typed_has_a_source() -> None:
    assert {*SIX_SETS, *EXTRA} < set(sources())
    for name, source in sources().items():
        assert set_name(source.task, source.level, source.variant) == name
    with pytest.raises(UsageError, match="mapping1_chain"):
        compose("stars_curriculum", ["evaluation.sets=[mapping1_chains]"])


def test_a_judge_that_gives_no_verdict_is_no_accuracy_of_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = get_task("maths", "everyday").generate(2, 1, "test", 0)
    silent = [
        Scored(Sample(ask), None, "toy", "unparseable", ("Hm.", "[unparseable: 'Hm.': it must give one]"))
        for ask in TaskBenchmark.from_items(items, "normal").asks(0)
    ]
    work = MagicMock(**{"config.seed": 0, "config.model.draw_batch": 2, "ranks.from_main": lambda ask: ask()})
    for name, instead in (("reads_images", True), ("watched", items), ("make_shards", None), ("read_folder", silent)):
        monkeypatch.setattr(evaluate, name, lambda *_, instead=instead, **__: instead)
    with pytest.raises(
        UserError, match=r"math1 cannot be scored: judge unparseable 2 of 2 \('Hm.': it must give one\)"
    ):
        evaluate.normal_accuracy(MagicMock(), work, "math1", tmp_path / "watched")


@pytest.mark.slow
def test_sets_beside_the_six_have_their_own_scores_and_tables(tmp_path: Path) -> None:
    sets = ("math1", "mapping2", *EXTRA)
    overrides = (*TINY, f"evaluation.sets=[{','.join(sets)}]", "evaluation.modes=[normal]", "evaluation.n=3")
    overrides += ("rounds=[{task: mapping, level: 1}]", "budget={mapping1: {prompts: 8, updates: 1}}")
    result = fit(tmp_path, *overrides)
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "stars_curriculum").iterdir()
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert set(found["scores"]["after"]["normal"]) == set(found["strategies"]) == set(sets)
    assert all(one["n"] == 3 and "distinct" not in one for one in found["scores"]["after"]["normal"].values())
    assert set(found["average"]["before"]) == {"maths", "mapping", "maths_seen", "mapping_chain"}

    scored = read_folder(folder / "stages" / "00-evaluate-before" / "scored", images=False)
    cases = [one.sample.ask.case for one in scored]
    assert len({case.id for case in cases}) == len(cases) == 3 + 6 + 3 + 6
    chain = [item_of(case) for case in cases if case.set == "mapping2_chain"]
    for item in chain:
        (a, b), (c, noun) = item.facts["rules"][:2] if item.id.endswith("/A") else item.facts["rules"][2:]
        assert (item.facts["symbol"], b, item.facts["object"]) == (a, c, noun)
    by_name = {one["name"]: one["value"] for one in found["strategies"]["mapping2_chain"]}
    assert by_name["first noun after the symbol"] == 1.0
    assert {item_of(case).split for case in cases if case.set == "math1_seen"} == {"seen"}

    shown = " ".join(result.output.split())
    for title in ("new objects, seen expressions", "rules in chain order", "distinct", "best trivial strategy"):
        assert title in shown
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(part in page for part in ("new objects, seen expressions", "mapping2_chain, normal"))


def test_a_set_without_trivial_strategies_has_its_row() -> None:
    scores = {"normal": {"math1": {"value": 0.5, "n": 4, "low": 0.1, "high": 0.9, "distinct": 3}}}
    columns, rows = accuracy_rows(scores, {})
    assert columns[:2] == ["set", "normal"] and rows == [["math1", "0.50", "-", "0.17", "4 / 3"]]


@pytest.mark.parametrize("settings", [("normal", "cot"), ("said",)])
def test_eval_makes_the_samples_that_the_run_has_made(
    finished: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    options = {"sampling": {"steps": 2, "max_think_tokens": 8}, "batch": 4, "out": str(tmp_path)}
    config = EvalConfig(n=2, settings=settings, **options)  # type: ignore[arg-type]
    ours = run(plan_of(str(finished / "stages/09-finetune-mapping3/model"), config))
    theirs = load(finished / "stages/10-evaluate-after")
    samples = list(ours.scored("unisandbox"))
    assert len(samples) == len(settings) * (3 * 2 + 3 * 2 * 2)
    assert samples == [one for one in theirs.scored("unisandbox") if one.sample.ask.setting in settings]
    scores, run_scores = (one.results["unisandbox"].scores for one in (ours, theirs))
    assert all(scores[setting] == run_scores[setting] for setting in settings)


def test_runs_are_compared_in_words_too(finished: Path) -> None:
    comparison = compare(finished / "stages/00-evaluate-before", finished / "stages/10-evaluate-after")
    assert {(row.setting, row.n) for row in comparison.rows} == {("normal", 2), ("cot", 2), ("said", 2)}
