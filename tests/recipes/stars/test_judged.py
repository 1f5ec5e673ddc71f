"""STARS in the everyday world, whose images a judge reads: a tiny published BAGEL, a judge over HTTP, killed starts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.recipes.stars.test_curricula import samples
from tests.test_run_stages import assert_clear
from tests.tiny import QUICK, finish, fit
from tests.training.keys import Killed, killed_after
from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list
from uni_train.core.errors import UsageError
from uni_train.eval.benchmark import Scored
from uni_train.models.weights import Weights
from uni_train.recipes.stars.config import StarsConfig
from uni_train.stages import shards as sharded
from uni_train.training.metric_log import read_metrics

ROUND = "{prompts:40,kept:6,epochs:2}"  # more than the first batch of four
SMALL = ("model=bagel_7b", "model.architecture.image_size=32", "model.sampling.steps=1", "model.threads=1")
SMALL += ("model.sampling.max_think_tokens=2", "model.draw_batch=4", "batch.prompts=4", "batch.accumulate=2")
SMALL += ("filter=judge", "judge.retries=0", "evaluation.n=1", "evaluation.sets=[math1,mapping1]", "data.distractors=0")
SMALL += ("rounds=[{task:mapping,level:1},{task:mapping,level:2,replay:{mapping1:0.25}}]", "checkpoint_every=1")
SMALL += (f"budget={{mapping1:{ROUND},mapping2:{ROUND}}}", "strategy.precision=32-true")


def opinion(asked: Asked) -> str:
    """Everything is captioned as one cat. Three of four images are accepted and half of the comparisons succeed, by the
    hash of what is asked."""
    chance = int(hashlib.sha256(f"{asked.words}{asked.images}".encode()).hexdigest(), 16)
    if "Final Answer" in asked.words:
        return f"Final Answer: {'YES' if chance % 4 else 'NO'}"
    return "Caption: 1 cat" if asked.images else f"Score: {'YES' if chance % 2 else 'NO'}"


@pytest.fixture(scope="module")
def bagel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(FOLDER, tmp_path_factory.mktemp("published") / "BAGEL")


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(opinion) as running:
        yield running


def asked_of(bagel: Path, server: JudgeServer) -> tuple[str, ...]:
    return (*SMALL, f"model.checkpoint={bagel}", f"judge.model='{server.url}#judge'")


@pytest.fixture(scope="module")
def unbroken(bagel: Path, server: JudgeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody killed; read-only."""
    return finish(tmp_path_factory.mktemp("runs"), *asked_of(bagel, server))


def manifest(run: Path, stage: str) -> dict[str, Any]:
    return json.loads((run / "stages" / stage / "manifest.json").read_text(encoding="utf-8"))["result"]


def scores(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))["scores"]


def used(run: Path, stage: str, most: int = 6) -> list[Scored]:
    """What a round trains on, found here another way: the first whole pairs of which both samples are accepted."""
    accepted = [s for s in samples(run, stage) if s.filter_verdict is not None and s.filter_verdict.passed]
    pairs = [s.sample.ask.case.cluster for s in accepted]
    whole = [s for s in accepted if pairs.count(s.sample.ask.case.cluster) == 2]
    return whole[:most]


@pytest.mark.slow
def test_a_judge_gives_every_image_its_verdict_and_the_filter_its_precision(unbroken: Path) -> None:
    found = json.loads((unbroken / "summary.json").read_text(encoding="utf-8"))
    names = ["evaluate-before", *(f"{kind}-mapping{n}" for n in (1, 2) for kind in ("sample", "finetune"))]
    stages = [f"{i:02d}-{name}" for i, name in enumerate([*names, "evaluate-after"])]
    assert sorted(path.name for path in (unbroken / "stages").iterdir()) == stages
    for stage in (stages[0], stages[-1]):
        verdicts = [sample.verdict for sample in samples(unbroken, stage)]
        assert len(verdicts) == 2 * (1 + 2)
        assert all(verdict is not None and verdict.checks[0].name == "caption" for verdict in verdicts)
        assert not (unbroken / "stages" / stage / "drawn").exists()
        assert list((unbroken / "stages" / stage).glob("judge/logs/*.eval"))
    for one, stage in zip(found["rounds"], (stages[1], stages[3]), strict=True):
        all_ = samples(unbroken, stage)
        kept = [s for s in all_ if s.filter_verdict is not None and s.filter_verdict.passed]
        assert (one["sampled"], one["kept"]) == (len(all_), len(kept)) and 6 <= len(all_) <= 40
        assert one["precision"] == pytest.approx(sum(s.passed for s in kept) / len(kept))
        assert one["recall"] == pytest.approx(sum(s.passed for s in kept) / sum(s.passed for s in all_))
        assert {s.verdict.status for s in all_ if s.verdict is not None} == {"pass", "fail"}
    page = (unbroken / "report.html").read_text(encoding="utf-8")
    assert "Table 3" in page and page.count("data:image/png;base64,") > 4


@pytest.mark.slow
def test_whole_pairs_are_kept_until_there_are_enough_and_trained_on_for_epochs(unbroken: Path) -> None:
    for number, share in ((1, 1.0), (2, 0.75)):
        stage = f"{2 * number - 1:02d}-sample-mapping{number}"
        trained, facts = used(unbroken, stage), manifest(unbroken, stage)
        assert len(trained) == facts["used"] == 6 and len({s.sample.ask.case.cluster for s in trained}) == 3
        assert len(used(unbroken, stage, 99)) >= 6 and facts["kept"] >= facts["used"]
        fitted = manifest(unbroken, f"{2 * number:02d}-finetune-mapping{number}")
        assert fitted["examples"] == dict.fromkeys([f"mapping{n}" for n in range(1, number + 1)], 6)
        assert fitted["updates"] == 2 * 6 / 4 / share
    # Batches without which enough would have been kept are not drawn.
    assert len(samples(unbroken, "01-sample-mapping1")) < 40


@pytest.mark.slow
def test_killed_while_drawing_judging_and_training_it_ends_as_the_unbroken_one(
    bagel: Path, server: JudgeServer, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = asked_of(bagel, server)
    write = sharded.write_scored
    for place, index in (("01-sample-mapping1/drawn", 1), ("01-sample-mapping1/shards", 1)):

        def die(path: Path, written: list[Scored], place: str = place, index: int = index) -> None:
            if place in str(path) and path.stem == f"{index:05d}":
                raise Killed
            write(path, written)

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(sharded, "write_scored", die)
            fit(tmp_path, *overrides)
    with killed_after(2):
        fit(tmp_path, *overrides)
    before = len(server.asked)
    run = finish(tmp_path, *overrides)
    assert len(server.asked) > before
    for stage in sorted((unbroken / "stages").iterdir()):
        assert samples(run, stage.name) == samples(unbroken, stage.name)
        for file in ("model/ema.safetensors", "metrics.jsonl"):
            if (stage / file).is_file():
                assert (run / "stages" / stage.name / file).read_bytes() == (stage / file).read_bytes()
    assert scores(run) == scores(unbroken)
    asked = len(server.asked)
    again = fit(tmp_path, *overrides)
    assert again.exit_code == 0 and again.output.count("(already done)") == 6
    assert len(server.asked) == asked, "a finished run needs no judge"


@pytest.mark.slow
def test_a_threshold_waits_for_what_the_judge_says(bagel: Path, tmp_path: Path) -> None:
    def pleased(asked: Asked) -> str:
        if "Final Answer" in asked.words:
            return "Final Answer: YES"
        return "Caption: 1 cat" if asked.images else "Score: YES"

    keys = ("schedule.kind=threshold", "schedule.check_every=1", "schedule.check_prompts=1")
    with JudgeServer(pleased) as server:
        run = finish(tmp_path, *asked_of(bagel, server), *keys, "evaluation.modes=[normal]")
    (stage,) = run.glob("stages/*-finetune-threshold")
    lines = read_metrics(stage / "metrics.jsonl")
    assert any(line.get("mapping1") == 1.0 for line in lines) and not list((stage / "checks").rglob("*.parquet"))


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_judge_that_does_not_answer_is_refused_before_an_image_is_drawn(bagel: Path, tmp_path: Path) -> None:
    with JudgeServer(lambda asked: Refused(503, "still loading")) as server:
        overrides = asked_of(bagel, server)
        assert_clear(fit(tmp_path, *overrides), f"judge at {server.url} does not answer (503: still loading)", "same")
        assert len(server.asked) == 1
    assert_clear(fit(tmp_path, *overrides), f"judge at {server.url} does not answer")
    assert not list(tmp_path.rglob("*.parquet"))


NAMED = [
    ("nano_pretrain", "vae=null", "vae is null, and no model"),
    ("stars_math", "model=bagel_7b teacher=reference", "no program can draw the solutions of the everyday world"),
    ("stars_curriculum", "model=bagel_7b judge=null", "no judge is given"),
    ("stars_curriculum", "data.world=everyday", "no judge is given"),
    ("stars_curriculum", "model=bagel_7b filter=verifier", "filter=verifier: no program can read images"),
    ("stars_curriculum", "model=bagel_7b judge.checkpoint=folder", "judge needs one of model and checkpoint"),
    ("stars_curriculum", "model=bagel_7b judge.model=http://127.0.0.1:1/v1", "does not say which model"),
    ("stars_curriculum", "model=bagel_7b judge.question=Nice?", "judge.question has no meaning here"),
    ("stars_curriculum", "model=qwen_image_edit", "takes no model=qwen_image_edit"),
    ("stars_curriculum", "filter=judge", "who judges"),
    ("stars_curriculum", "rounds.0.kept=1025", "rounds.0.kept 1025 is more than 1024 prompts x 1 candidates"),
    ("stars_curriculum", "whole_pairs=true rounds.1.kept=51", "rounds.1.kept 51 is odd"),
    ("stars_curriculum", "redraw=0", "redraw must be at least 1, not 0"),
    ("stars_curriculum", "redraw=2 teacher=reference", "and teacher=reference asks none"),
    ("stars_maze", "redraw=2 model=nano_edit", "and model=nano_edit writes none"),
    ("stars_curriculum", "budget.mapping1.epochs=2", "rounds.0 (mapping1) needs one of updates and epochs"),
]


@pytest.mark.parametrize(("recipe", "overrides", "message"), NAMED)
def test_keys_that_do_not_fit_together_are_named(recipe: str, overrides: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(recipe, overrides.split())
    assert message in caught.value.message


def test_a_round_may_keep_in_the_nano_world_too(tmp_path: Path) -> None:
    """Six of at most 16: without a filter two batches of four are drawn, and the first six are trained on."""
    run = finish(tmp_path, *QUICK, "rounds=[{task:mapping,level:1,prompts:16,kept:6,epochs:2.5}]")
    assert len(samples(run, "01-sample-mapping1")) == 8
    assert manifest(run, "01-sample-mapping1")["used"] == 6
    fitted = manifest(run, "02-finetune-mapping1")
    assert (fitted["examples"], fitted["updates"]) == ({"mapping1": 6}, 2)  # 2.5 x 6 / 8, rounded up


def test_the_stages_of_bagel_say_the_most_that_may_happen() -> None:
    config = compose("stars_math", ["model=bagel_7b"])
    assert isinstance(config, StarsConfig)
    sample, finetune = stage_list(config)[1:3]
    assert "at most 20000 prompts" in sample.summary and "until 5000 samples are kept" in sample.summary
    assert finetune.summary.startswith("at most 235 updates (6 epochs)")  # 6 x 5,000 / 128
    assert (config.timestep_shift, config.text_dropout, config.whole_pairs) == (4.0, 0.1, True)
    mixed = compose("stars_mixed", ["model=bagel_7b", "schedule.kind=mixed", "rounds.0.kept=5000"])
    trained = next(stage for stage in stage_list(mixed) if stage.kind == "finetune")
    assert trained.summary.startswith("at most 1173 updates (6 epochs)")  # 235 + 2 x 469


@pytest.mark.slow
def test_adapters_learn_samples_that_quantised_weights_drew(bagel: Path, server: JudgeServer, tmp_path: Path) -> None:
    """The second round samples with the first one's model, quantised again; what is left has plain weights."""
    pytest.importorskip("torchao")
    keys = ("trained=lora", "lora.rank=2", "model.weights=int8", "ema=null", "evaluation.sets=[mapping1]")
    run = finish(tmp_path, *asked_of(bagel, server), *keys, "evaluation.modes=[normal]")
    first, second = (run / "stages" / f"0{n}-finetune-mapping{n // 2}" for n in (2, 4))
    names = set(Weights([bagel / "ema.safetensors"]))
    for stage in (first, second):
        assert set(Weights([stage / "model" / "ema.safetensors"])) == names
        assert (stage / "adapter").is_dir()
        losses = [line["loss"] for line in read_metrics(stage / "metrics.jsonl")]
        assert losses and all(map(math.isfinite, losses))
    weights = [Weights([stage / "model" / "ema.safetensors"]) for stage in (first, second)]
    layer = next(name for name in sorted(names) if name.endswith("q_proj_moe_gen.weight"))
    assert not torch.equal(weights[0].read(layer), weights[1].read(layer))
