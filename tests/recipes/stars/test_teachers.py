"""STARS with another model as the teacher: it samples, and the run's own model filters and learns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_run_stages import assert_clear
from tests.tiny import QUICK, finish, fit, save_drawer, save_talker
from uni_train.eval.scored import read_folder

ROUND = "rounds=[{task:mapping,level:1,prompts:8,updates:2}]"


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), ("mode=normal", "redraw=2")])
def test_the_other_model_samples_and_the_runs_own_model_filters(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    student = save_talker(tmp_path / "student", "Final Answer: YES")
    teacher = save_talker(tmp_path / "teacher", "So draw 3 apples .")
    run = finish(
        tmp_path, *QUICK, ROUND, f"model.checkpoint={student}", f"teacher={teacher}", "filter=self", *overrides
    )
    (stage,) = run.glob("stages/*-filter-mapping1")
    samples = list(read_folder(stage / "shards", images=False))
    assert {answer.sample.thought for answer in samples} == {None if overrides else "So draw 3 apples ."}
    assert all(answer.filter_verdict and answer.filter_verdict.passed for answer in samples), "the student says YES"
    (entry,) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]
    assert (entry["teachers"]["teacher"]["name"], entry["kept"], entry["calls"]["images"]) == (
        "teacher", 8, 16 if overrides else 8
    )  # fmt: skip
    manifest = json.loads(next(run.glob("stages/*-sample-mapping1/manifest.json")).read_text())
    assert manifest["result"]["teachers"] == entry["teachers"]


@pytest.mark.slow
def test_a_teacher_of_another_family_and_latent_space_makes_images_to_learn(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    from tests.models.diffusers.tiny import pipeline

    pipeline("flux").save_pretrained(tmp_path / "flux")
    given = (*QUICK, ROUND, f"model.checkpoint={save_drawer(tmp_path / 'student')}", f"teacher={tmp_path / 'flux'}")
    run = finish(tmp_path, *given, "mode=normal")
    (entry,) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]
    assert (entry["teachers"]["teacher"]["name"], entry["updates"]) == ("flux", 2)
    assert_clear(fit(tmp_path, *given, "name=cot"), "teacher: mode=cot needs thoughts, and model=diffusers")
    assert_clear(fit(tmp_path, *given, "mode=normal", "redraw=2", "name=redraw"), "teacher: redraw=2 needs thoughts")
