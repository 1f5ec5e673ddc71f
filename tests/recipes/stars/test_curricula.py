"""Schedules, teachers, candidates and filters: each runs end to end and does what its name says."""

from __future__ import annotations

import json
import os
import random
import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.eval.judges.server import JudgeServer
from tests.processes import python
from tests.tiny import MODEL, QUICK, finish, fit, keeping_steps, save_talker
from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.eval.scored import read_folder
from uni_train.models.nano import language
from uni_train.models.nano.family import ASSETS
from uni_train.models.pictures import decode_png
from uni_train.recipes.stars import finetune
from uni_train.recipes.stars.anchors import chosen
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.filtering import accepted
from uni_train.recipes.stars.rounds import most_updates
from uni_train.training.checkpoint_io import latest_checkpoint, load_folder
from uni_train.training.curriculum import Constant, Curriculum, Ramp, Threshold
from uni_train.training.data import items
from uni_train.training.metric_log import read_metrics

SETS = ("mapping1", "mapping2", "mapping3")


def stars(recipe: str = "stars_curriculum", *overrides: str) -> StarsConfig:
    config = compose(recipe, overrides)
    assert isinstance(config, StarsConfig)
    # The recipes' share of pretraining rows is tuned now and then; these tests are about what is made of it.
    return replace(config, rounds=tuple(replace(one, replay=one.replay | {"pretrain": 0.1}) for one in config.rounds))


def samples(run: Path, stage: str) -> list[Scored]:
    folder = run / "stages" / stage
    return list(read_folder(folder / ("scored" if "evaluate" in stage else "shards")))


def pixels(found: list[Scored]) -> np.ndarray:
    return np.stack([decode_png(one.sample.image or b"") for one in found]).astype(int)


def rounds_of(run: Path) -> list[dict[str, Any]]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))["rounds"]


# --- which mixture when ---------------------------------------------------------------------------------------------


def curriculum(config: StarsConfig, *rounds: int) -> Curriculum:
    return finetune.curriculum(config, rounds, most_updates(config, rounds))


def mixture(schedule: Curriculum, step: int) -> dict[str, float]:
    return pytest.approx({name: share for name, share in schedule.mixture(step).items() if share})


def test_a_sequential_round_is_its_own_set_and_its_replay() -> None:
    schedule = curriculum(stars(), 2)
    assert isinstance(schedule, Constant)
    assert mixture(schedule, 0) == {"mapping3": 0.55, "mapping2": 0.2, "mapping1": 0.15, "pretrain": 0.1}


def test_mixed_takes_all_levels_evenly_from_the_start() -> None:
    config = stars("stars_mixed")
    assert mixture(curriculum(config, 0, 1, 2), 0) == dict.fromkeys(SETS, 0.3) | {"pretrain": 0.1}
    bare = replace(config, rounds=tuple(replace(one, replay={}) for one in config.rounds))
    # Not even a share of 0: there would be no source to draw it from.
    assert curriculum(bare, 0, 1, 2).mixture(0).keys() == set(SETS)


def test_a_ramp_moves_from_the_first_rounds_mixture_to_the_last_ones() -> None:
    config = stars("stars_curriculum", "schedule.kind=ramp")
    schedule = curriculum(config, 0, 1, 2)
    assert isinstance(schedule, Ramp)
    updates = sum(most_updates(config, (0, 1, 2)))
    assert mixture(schedule, 0) == {"mapping1": 0.9, "pretrain": 0.1}
    assert mixture(schedule, updates - 1) == curriculum(stars(), 2).mixture(0)
    assert schedule.mixture(updates // 2)["mapping2"] > 0.5


def test_a_threshold_waits_for_each_rounds_own_accuracy() -> None:
    config = stars("stars_curriculum", "schedule.kind=threshold", "schedule.threshold=0.7", "schedule.check_every=5")
    schedule = curriculum(config, 0, 1, 2)
    assert isinstance(schedule, Threshold) and schedule.check_every == 5
    levels = [(level.metric, level.threshold, level.max_updates) for level in schedule.levels]
    assert levels == [(one.set_name, 0.7, one.updates) for one in config.rounds]


# --- schedules end to end -------------------------------------------------------------------------------------------


THRESHOLD = [f"schedule.{key}" for key in ("kind=threshold", "threshold=1.0", "check_every=1", "check_prompts=2")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [("stars_mixed", ["rounds.0.replay={pretrain:0.1,thoughts:0.2}"]), ("stars_curriculum", THRESHOLD)],
)
def test_schedules_over_all_levels_train_once(tmp_path: Path, recipe: str, overrides: list[str]) -> None:
    with keeping_steps():
        run = finish(tmp_path, *QUICK, *overrides, recipe=recipe)
    (entry,) = rounds_of(run)
    assert (entry["level"], entry["sampled"], entry["kept"], entry["updates"]) == ("1+2+3", 24, 24, 9)
    (stage,) = (run / "stages").glob("*-finetune-*")
    newest = latest_checkpoint(stage / "checkpoints")
    assert newest is not None
    if overrides is THRESHOLD:
        callbacks = load_folder(newest)["callbacks"]
        assert next(value["starts"] for value in callbacks.values() if "starts" in value) == [0, 3, 6]
        assert any("mapping1" in line for line in read_metrics(stage / "metrics.jsonl"))


# --- who samples ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_current_teacher_draws_otherwise_than_the_base_once_it_has_learnt(finished: Path, tmp_path: Path) -> None:
    run = finish(tmp_path, *QUICK, "teacher=current", "optimizer.lr=0.03")
    assert samples(run, "01-sample-mapping1") == samples(finished, "01-sample-mapping1")
    changed, base = samples(run, "04-sample-mapping2"), samples(finished, "04-sample-mapping2")
    assert [one.sample.ask for one in changed] == [one.sample.ask for one in base]
    assert np.abs(pixels(changed) - pixels(base)).max() > 3


@pytest.mark.slow
def test_an_evaluation_between_the_rounds_changes_no_weight(finished: Path, tmp_path: Path) -> None:
    run = finish(tmp_path, *QUICK, "evaluation.every_round=true")
    weights = [
        load_file(next((folder / "stages").glob("*-finetune-mapping3")) / "model/model.safetensors")
        for folder in (run, finished)
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_seed_and_candidates_change_prompts_and_noise_of_a_run_and_not_those_of_its_evaluation(
    finished: Path, tmp_path: Path
) -> None:
    run = finish(tmp_path, *QUICK, "seed=1", "candidates=2", "temperature=1.0", "level=1", recipe="stars_mapping")
    drawn = samples(run, "01-sample-mapping1")
    asks = [one.sample.ask for one in drawn]
    assert len(drawn) == rounds_of(run)[0]["sampled"] == 16 and [ask.k for ask in asks] == [0, 1] * 8
    assert len({one.sample.identity for one in drawn}) == len({ask.seed for ask in asks}) == 16
    first, second = drawn[::2], drawn[1::2]
    assert [one.sample.ask.case for one in first] == [one.sample.ask.case for one in second]
    assert sum(a.sample.thought != b.sample.thought for a, b in zip(first, second, strict=True)) >= 6
    assert all((a != b).any() for a, b in zip(pixels(first), pixels(second), strict=True))

    other = samples(finished, "01-sample-mapping1")
    assert not {ask.case.id for ask in asks} & {one.sample.ask.case.id for one in other}
    evaluated = [one.sample.ask for one in samples(run, "00-evaluate-before")]
    before = [one.sample.ask for one in samples(finished, "00-evaluate-before")]
    assert evaluated == [ask for ask in before if ask.setting == "normal" and ask.case.set == "mapping1"]


# --- filters --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("who", ["self", "judge"])
def test_what_a_model_approves_of_is_kept(tmp_path: Path, who: str) -> None:
    folder = save_talker(tmp_path / "yes", "Final Answer: YES")
    with JudgeServer(lambda asked: "Final Answer: YES") as server:
        judge = ["judge.dialect=nano", f"judge.model='{server.url}#judge'"]
        asked = [f"model.checkpoint={folder}"] if who == "self" else judge
        seen = ["evaluation.sets=[mapping2]", "evaluation.modes=[normal]", "level=2"]
        run = finish(tmp_path, *QUICK, f"filter={who}", *asked, *seen, recipe="stars_mapping")
    judged = samples(run, "02-filter-mapping2")
    assert len(judged) == 8
    for sample in judged:
        assert sample.filter_verdict is not None and sample.filter_verdict.passed
        assert sample.verdict is not None and not sample.verdict.passed  # the verifier is not so easily pleased
        if who == "self":
            assert sample.filter_verdict.checks[0].reason == sample.sample.thought == "Final Answer: YES"
    (entry,) = rounds_of(run)
    assert (entry["kept"], entry["precision"], entry["recall"], entry["filter"]) == (8, 0.0, None, who)
    wrong = [answer for answer in samples(run, "00-evaluate-before") if answer.sample.ask.case.set == "mapping2"]
    assert entry["anchors"] == {"wrong": {"refused": 0, "n": len(wrong)}}
    assert f"filter={who} refused 0 of {len(wrong)} wrong ones" in (run / "report.html").read_text(encoding="utf-8")
    if who == "judge":
        assert len(server.asked) == 1 + len(wrong) + 8  # whether it answers, then once an image
        assert {asked.words for asked in server.asked[1:]} == {
            language.VERIFY_PROMPT.format(question=answer.sample.ask.case.prompt) for answer in wrong + judged
        }


def test_anchors_are_right_wrong_and_right_beside_another_question() -> None:
    def scored(name: str, answer: str, passed: bool, set_: str = "mapping1") -> Scored:
        case = Case(name, set_, f"Draw {name} .", facts={"answer": answer})
        sample = Sample(Ask(case, "normal", 0, 0), prompt=case.prompt, parts=(name.encode(),))
        return Scored(sample, Verdict((Check("count", "pass" if passed else "fail"),)), by="program")

    known = [scored("A", "1 apple", True), scored("B", "1 ball", False), scored("C", "1 apple", False)]
    known += [scored("D", "1 ball", True, "mapping2")]
    found = [(kind, one.sample.ask.case.id, one.sample.image, one.passed) for kind, one in chosen(known, {"mapping1"})]
    assert sorted(found) == [
        ("right", "A", b"A", True),
        ("shuffled", "B", b"A", False),
        ("wrong", "B", b"B", False),
        ("wrong", "C", b"C", False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("word", "images", "judgements"), [("YES", 1, 1), ("NO", 3, 2)])
def test_a_teacher_redraws_what_it_rejects(tmp_path: Path, word: str, images: int, judgements: int) -> None:
    talker = save_talker(tmp_path / "talker", f"Final Answer: {word}")
    chosen = [*QUICK, f"model.checkpoint={talker}", "mode=normal", "redraw=3", "evaluation.redraw=2", "level=1"]
    run = finish(tmp_path, *chosen, recipe="stars_mapping")
    sampled = samples(run, "01-sample-mapping1")
    assert len(sampled) == 8 and {one.sample.facts["images_drawn"] for one in sampled} == {images}
    calls = rounds_of(run)[0]["calls"]
    assert (calls["images"], calls["answers"], calls["thoughts"]) == (8 * images, 8 * judgements, 0)
    config = stars("stars_mapping", *chosen)
    assert calls["velocities"] == calls["images"] * config.model.sampling.steps
    (planned,) = (stage for stage in stage_list(config) if stage.kind == "sample")
    assert planned.images == 24 and "up to 3 times until it accepts its image" in planned.summary
    evaluated = samples(run, "00-evaluate-before")
    assert {one.sample.facts["images_drawn"] for one in evaluated} == {min(images, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(("reply", "status"), [("Draw 1 apple", "unreadable"), (None, None)])
def test_a_filter_that_keeps_nothing_says_so_and_loses_nothing(
    tmp_path: Path, reply: str | None, status: str | None
) -> None:
    """By a judge's reply that is no verdict, by the verifier (reply None: random weights draw nothing)."""
    with JudgeServer(lambda asked: reply or "") as server:
        judge = ["filter=judge", "judge.dialect=nano", f"judge.model='{server.url}#judge'"]
        chosen = ["filter=verifier"] if reply is None else judge
        for _ in range(1 if reply is None else 2):  # the second start has only the same to say
            result = fit(tmp_path, *QUICK, *chosen, "level=1", recipe="stars_mapping")
            assert result.exit_code == 1 and "Traceback" not in result.output
            assert "kept none of the samples of mapping1" in result.output
            assert "filter=verifier or filter=none" in " ".join(result.output.split())
    run = tmp_path / "stars_mapping/level1-seed0"
    assert len(samples(run, "01-sample-mapping1")) == 8 and not (run / "summary.json").exists()
    for sample in samples(run, "02-filter-mapping1"):
        assert sample.filter_verdict is not None and not sample.filter_verdict.passed
        assert sample.filter_verdict.status == (status or sample.outcome)


@pytest.mark.slow
@pytest.mark.skipif(not (ASSETS / "model.safetensors").is_file(), reason="the shipped checkpoint is not there yet")
def test_a_checkpoint_that_judges_is_served_by_the_run_and_ends_with_it(tmp_path: Path) -> None:
    """In a process of its own, for the server must be gone when the run is. A proxy stands before other machines."""
    small = ["evaluation.n=1", "evaluation.sets=[mapping1]", "evaluation.modes=[normal]", "model.threads=1"]
    small += ["budget={mapping1:{prompts:8,updates:1}}", "batch.prompts=8", "level=1"]
    asked = [*small, "filter=judge", "judge={checkpoint:shipped,dialect:nano}", f"out={tmp_path}"]
    place = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    place |= {"http_proxy": "http://127.0.0.1:9"}
    done = python("-m", "uni_train", "fit", "--recipe", "stars_mapping", *asked, env=place)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "stars_mapping/level1-seed0"
    verdicts = [one.filter_verdict for one in samples(run, "02-filter-mapping1")]
    statuses = [verdict.status for verdict in verdicts if verdict is not None]
    assert len(statuses) == 8 and statuses.count("pass") == rounds_of(run)[0]["kept"] > 0
    assert rounds_of(run)[0]["precision"] > 0.5
    record = json.loads((run / "stages/02-filter-mapping1/judge/record.json").read_text(encoding="utf-8"))
    assert record["judge"]["revision"], "replies are those of these weights, at whatever port"
    served = re.search(r"ready: (\S+)", (run / "judge.log").read_text(encoding="utf-8"))
    assert served is not None
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{served[1]}/models", timeout=5)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("stars_math", ["schedule.kind=threshold", "schedule.check_prompts=1000"], "1000 is too many for math1"),
        ("stars_mapping", ["filter=judge", "judge.checkpoint=nowhere"], "there is nothing at nowhere"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_drawn(
    recipe: str, overrides: list[str], message: str, tmp_path: Path
) -> None:
    refused = fit(tmp_path, *QUICK, *overrides, "level=1", recipe=recipe)
    assert refused.exit_code == 1 and message in " ".join(refused.output.split())
    assert not list(tmp_path.rglob("*.parquet"))


def test_only_accepted_samples_with_an_image_are_learned_from(finished: Path) -> None:
    sample = samples(finished, "02-filter-mapping1")[0]
    unsure = replace(sample, filter_verdict=Verdict((Check("self_check", "unreadable"),)))
    refused = replace(sample, filter_verdict=Verdict((Check("self_check", "fail"),)))
    imageless = replace(sample, sample=replace(sample.sample, status="generation_failed", parts=()))
    thoughtless = replace(sample, sample=replace(sample.sample, thought=""))  # high temperatures sample such ones
    others = [unsure, refused, imageless, thoughtless, replace(sample, filter_verdict=None)]
    assert accepted([sample, *others]) == [sample]


def test_what_is_learned_is_prompt_to_image_without_the_thought(finished: Path) -> None:
    sample = samples(finished, "02-filter-mapping1")[0]
    kept = finetune.kept_samples(finished / "stages/02-filter-mapping1/shards", [0])
    rows = items.images_of(kept, noise_draws=4)
    example = rows.draw(0, random.Random(0))
    assert (example.prompt, example.noise_draws) == (sample.sample.ask.case.prompt, 4)
    assert example.thought is None and example.answer is None and example.images == ()
    assert example.target is not None and (example.target == decode_png(sample.sample.image or b"")).all()
    with_thought = items.images_of(kept, noise_draws=4, thoughts=True).draw(0, random.Random(0))
    assert with_thought.thought == sample.sample.thought and with_thought.target is not None


# --- pretraining, and the shipped checkpoint ------------------------------------------------------------------------


@pytest.mark.slow
def test_pretraining_makes_a_checkpoint_that_stars_can_start_from(tmp_path: Path) -> None:
    rows = {name: part.mixture.rows for name, part in compose("nano_pretrain").parts.items()}  # type: ignore[attr-defined]
    command = [*MODEL, "vae.updates=3", "vae.batch=8", "checkpoint_every=1"]
    command += ["evaluation.n=2", "evaluation.sets=[mapping1]", "evaluation.modes=[normal]"]
    command += [f"parts.{part}.mixture.{kind}=1" for part, kinds in rows.items() for kind in kinds]
    command += [f"parts.{part}.updates=2" for part in rows]
    run = finish(tmp_path, *command, recipe="nano_pretrain")
    parts = [f"{number:02d}-pretrain-{part}" for number, part in enumerate(rows, 1)]
    stages = ["00-vae", *parts, f"{len(rows) + 1:02d}-evaluate-after"]
    assert [path.name for path in sorted((run / "stages").iterdir())] == stages
    facts = json.loads((run / "stages/00-vae/manifest.json").read_text(encoding="utf-8"))["result"]
    assert facts["scale"] > 0 and facts["mse"] > 0
    made = run / "stages" / parts[-1] / "model"
    assert fit(tmp_path, *QUICK, f"model.checkpoint={made}", "level=1", recipe="stars_mapping").exit_code == 0
    again = fit(tmp_path, *command, recipe="nano_pretrain")
    assert again.exit_code == 0 and " ".join(again.output.split()).count("(already done)") == len(stages)


@pytest.mark.slow
@pytest.mark.skipif(not (ASSETS / "model.safetensors").is_file(), reason="the shipped checkpoint is not there yet")
def test_the_shipped_model_thinks_draws_and_judges_itself(tmp_path: Path) -> None:
    """The figures that the main job starts from, with wide margins for n = 20 pairs."""
    evaluated = ["evaluation.n=20", "evaluation.sets=[mapping1]", "model.threads=1"]
    budget = "budget={mapping1:{prompts:24,updates:1}}"
    run = finish(tmp_path, *evaluated, budget, "level=1", "batch.prompts=8", recipe="stars_mapping")
    before = json.loads((run / "summary.json").read_text(encoding="utf-8"))["scores"]["before"]
    assert before["cot"]["mapping1"]["value"] > 0.45
    assert before["normal"]["mapping1"]["value"] < 0.3
    (entry,) = rounds_of(run)
    assert entry["precision"] > 0.9 and entry["recall"] > 0.6
