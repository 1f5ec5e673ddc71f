"""Evaluations in the formats of others: lighteval, a model card on the Hub, Every Eval Ever."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from huggingface_hub import EvalResultEntry
from huggingface_hub._eval_results import parse_eval_result_entries
from pyarrow import parquet

from tests.eval.sample_evaluation import sample_evaluation
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import Evaluation
from uni_train.eval.export import export
from uni_train.eval.leaderboard import leaderboard

JUDGE = {
    "name": "a-judge", "way": "published", "samples": 6, "by": {"a-judge": 6}, "calibration": None,
    "scores": {"scores": [{"setting": "cot", "set": "math1", "raw": {}, "corrected": None}]},
}  # fmt: skip


@pytest.fixture
def done(tmp_path: Path) -> Evaluation:
    return sample_evaluation(tmp_path / "evaluation", 6)


@pytest.fixture
def published(done: Evaluation, monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    """The same, as if its questions were a paper's."""
    monkeypatch.setattr(UniSandbox, "hub", "org/sums")
    result = replace(done.results["unisandbox"], questions="published files, revision 1, 12 of 12 cases", judge=JUDGE)
    return replace(done, results={"unisandbox": result})


def test_lighteval_has_the_leaderboard_s_numbers_and_every_sample(done: Evaluation, tmp_path: Path) -> None:
    (results, *details) = export(done, "lighteval", tmp_path / "out")
    document = json.loads(results.read_text())
    assert document["config_general"]["model_name"] == "sketcher"
    (board,) = (cell.estimate for key, cell in leaderboard([done.folder]).cells.items() if key[1].setting == "cot")
    found = document["results"]["unisandbox:cot:_average|0"]
    assert (found["score"], found["score_low"], found["score_n"]) == (board.value, board.low, board.n)
    assert found["score_stderr"] == pytest.approx((board.high - board.low) / 3.92, rel=1e-3)
    tables = {file.name: parquet.read_table(file).to_pylist() for file in details}
    assert sum(map(len, tables.values())) == done.results["unisandbox"].n
    assert all({"doc", "metric", "model_response"} <= row.keys() for rows in tables.values() for row in rows)
    cot = [row for name, rows in tables.items() if "cot:math1" in name for row in rows]
    mean = sum(row["metric"]["score"] for row in cot) / len(cot)
    assert mean == pytest.approx(document["results"]["unisandbox:cot:math1|0"]["score"])


def test_a_model_card_takes_published_questions_alone(done: Evaluation, published: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Generated questions are not the benchmark"):
        list(export(done, "model_card", tmp_path))
    files = list(export(published, "model_card", tmp_path))
    assert files == [tmp_path / ".eval_results" / f"unisandbox_{setting}.yaml" for setting in ("normal", "cot")]
    (entry,) = parse_eval_result_entries(yaml.safe_load(files[1].read_text()))
    assert isinstance(entry, EvalResultEntry) and (entry.dataset_id, entry.value) == ("org/sums", 91.67)
    assert entry.date == "2026-01-01T00:00:00+00:00"
    assert entry.notes is not None and "95 % interval [64.8, 99.6], n 12, judge a-judge" in entry.notes


def test_every_eval_ever_has_intervals_and_judges(published: Evaluation, tmp_path: Path) -> None:
    (file,) = export(published, "every_eval_ever", tmp_path, "a lab")
    document = json.loads(file.read_text())
    assert file.parent == tmp_path / "data/unisandbox/unknown/sketcher"
    assert document["source_metadata"]["source_organization_name"] == "a lab"
    found = {one["evaluation_name"]: one for one in document["evaluation_results"]}
    assert set(found) == {f"unisandbox.{s}{of}" for s in ("normal", "cot") for of in ("", ".math1", ".math2")}
    one = found["unisandbox.cot.math1"]
    assert one["source_data"]["hf_repo"] == "org/sums"
    interval = one["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < one["score_details"]["score"] < interval["upper"]
    assert one["metric_config"]["llm_scoring"]["judges"][0]["model_info"]["name"] == "a-judge"
    judged = {name for name, one in found.items() if "llm_scoring" in one["metric_config"]}
    assert judged == {"unisandbox.cot", "unisandbox.cot.math1"}
    assert [*export(published, "every_eval_ever", tmp_path, "a lab")] == [file], "one file for one evaluation"


def test_the_command_writes_below_the_evaluation(done: Evaluation) -> None:
    with pytest.raises(UserError, match="no published questions"):
        list(export(done, "model_card", done.folder))
    told = CliRunner().invoke(uni_train, ["eval", "export", str(done.folder), "--to", "lighteval"], terminal_width=200)
    assert told.exit_code == 0 and list((done.folder / "export" / "lighteval").rglob("results_*.json"))
