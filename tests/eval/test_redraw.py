"""A model that judges its own images: which image counts, what it takes, and that nothing else decides it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import uni_train
from uni_train.cli.evaluation.options import config_of
from uni_train.config.schema import EvalConfig
from uni_train.core.errors import SkillMissing, UsageError, UserError
from uni_train.data_gen.registry import get_task
from uni_train.eval.benchmark import Sample, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.budget import budget
from uni_train.eval.compare import compare
from uni_train.eval.evaluation import Evaluation, EvaluationPlan, run
from uni_train.eval.images import pixels
from uni_train.eval.redraw import IMAGES, JUDGEMENTS, Redrawing, seed_of
from uni_train.eval.report.evaluation import header_of
from uni_train.eval.task_benchmark import TaskBenchmark, verification_request
from uni_train.models.base import Request

MOST = 4
WANTED: Sequence[int | None] = (0, 2, 3, None, 1)
"""Of each prompt the attempt that the model accepts; None: none."""
COSTS = ((1, 1), (3, 3), (4, 3), (4, 3), (2, 2))
"""Its images and judgements: the fourth image is not judged."""


class Picky:
    """It draws the number of the attempt, by its seed, and accepts the one that is wanted. A thought says its seed."""

    name = "picky"

    def __init__(self, wanted: dict[str, int | None], seeds: dict[str, int], unsure: str = "Final Answer: NO") -> None:
        self.wanted, self.unsure = wanted, unsure
        self.attempts = {seed_of(seed, k): k for seed in seeds.values() for k in range(MOST)}
        self.questions: list[Request] = []

    def think(self, requests: Sequence[Request], **_: Any) -> list[str]:
        return [f"seed {request.seed}" for request in requests]

    def draw(self, requests: Sequence[Request], **_: Any) -> list[np.ndarray]:
        assert all(request.thought in (None, f"seed {request.seed}") for request in requests)
        return [np.full((4, 4, 3), self.attempts[request.seed], np.uint8) for request in requests]

    def think_and_draw(
        self, requests: Sequence[Request], temperature: float | None = None, on_step: Any = None
    ) -> tuple[list[str], list[np.ndarray]]:
        thoughts = self.think(requests)
        pairs = zip(requests, thoughts, strict=True)
        return thoughts, self.draw([replace(request, thought=thought) for request, thought in pairs])

    def answer(self, requests: Sequence[Request], **_: Any) -> list[str]:
        self.questions += requests
        right = [request.images[-1].max() == self.wanted.get(request.id) for request in requests]
        return ["Final Answer: YES" if one else self.unsure for one in right]


@pytest.mark.parametrize("unsure", ["Final Answer: NO", "I cannot tell."])
@pytest.mark.parametrize("setting", ["normal", "cot"])
@pytest.mark.parametrize("batch", [1, 2, len(WANTED)])
def test_the_first_accepted_image_counts_else_the_last_in_any_batches(setting: str, unsure: str, batch: int) -> None:
    benchmark = TaskBenchmark.from_items(get_task("maths", "nano").generate(len(WANTED), 1, "test", 0), setting)
    asks = benchmark.asks(3)
    model = Picky(
        dict(zip((ask.case.id for ask in asks), WANTED, strict=True)), {a.case.id: a.seed for a in asks}, unsure
    )
    asked = Redrawing(model, MOST, "nano")
    parts = [asked.respond(benchmark, asks[at : at + batch]) for at in range(0, len(asks), batch)]
    samples = [sample for part in parts for sample in part]
    assert [sample.ask for sample in samples] == asks
    assert [pixels(sample.drawn[0]).max() for sample in samples] == [MOST - 1 if k is None else k for k in WANTED]
    assert [(sample.facts[IMAGES], sample.facts[JUDGEMENTS]) for sample in samples] == [*COSTS]
    assert (asked.images, asked.judgements) == tuple(map(sum, zip(*COSTS, strict=True)))
    counts = [seed_of(ask.seed, images - 1) for ask, (images, _) in zip(asks, COSTS, strict=True)]
    assert [sample.thought for sample in samples] == [f"seed {s}" if setting == "cot" else None for s in counts]
    trial, *questions = model.questions
    assert trial.prompt == questions[0].prompt, "one question about an empty image shows that it can judge"
    first = verification_request("nano", replace(samples[0], ask=asks[0]))
    assert (questions[0].prompt, questions[0].id) == (first.prompt, first.id)
    assert asks[0].case.prompt in first.prompt and len(questions) == sum(judged for _, judged in COSTS)


def test_requests_are_redrawn_as_samples_are() -> None:
    requests = [Request(str(k), f"draw {k}", seed=100 + k) for k in range(len(WANTED))]
    model = Picky({str(k): wanted for k, wanted in enumerate(WANTED)}, {r.id: r.seed for r in requests})
    drawn = Redrawing(model, MOST).draw(requests)
    thoughts, thoughtful = Redrawing(model, MOST).think_and_draw(requests)
    assert [image.max() for image in drawn] == [image.max() for image in thoughtful] == [0, 2, 3, 3, 1]
    assert thoughts == [f"seed {seed_of(100 + k, n - 1)}" for k, (n, _) in enumerate(COSTS)]
    assert "Instruction: draw 3\n" in model.questions[-1].prompt, "no task and no family: the question for any image"


def test_an_attempt_without_an_image_leaves_the_one_before() -> None:
    class Refusing(Picky):
        def draw(self, requests: Sequence[Request], **_: Any) -> list[Any]:
            drawn = super().draw(requests)
            return [UserError("no more") if image.max() == 1 else image for image in drawn]

    benchmark = TaskBenchmark.from_items(get_task("maths", "nano").generate(1, 1, "test", 0), "normal")
    asks = benchmark.asks(0)
    (sample,) = Redrawing(Refusing({}, {"": asks[0].seed}), MOST, "nano").respond(benchmark, asks)
    assert (sample.status, sample.facts) == ("ok", {IMAGES: 2, JUDGEMENTS: 1})


# --- evaluations ----------------------------------------------------------------------------------------------------

SETS = ("math1", "mapping1")


def evaluated(out: Path, redraw: int, **changes: Any) -> Evaluation:
    config = EvalConfig(out=str(out), redraw=redraw, **{"settings": ("normal",), **changes})
    return run(EvaluationPlan(checkpoint="shipped", benchmarks=[UniSandbox(Source(n=4, sets=SETS))], config=config))


def rows(done: Evaluation) -> list[tuple[Sample, str]]:
    return [(answer.sample, answer.outcome) for answer in done.scored("unisandbox")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """One that has been run; read-only."""
    return evaluated(tmp_path_factory.mktemp("evals"), 3)


def test_an_evaluation_says_what_each_sample_took_and_reuses_every_call(finished: Evaluation, tmp_path: Path) -> None:
    facts = [sample.facts for sample, _ in rows(finished)]
    images, judgements = (sum(fact[key] for fact in facts) for key in (IMAGES, JUDGEMENTS))
    calls, n = finished.calls, len(facts)
    assert (calls["draw"]["made"], calls["answer"]["made"]) == (images, judgements + 1) and images > n
    shown = [note for note in header_of(finished).notes if "redraw=3" in note]
    assert shown == [
        f"redraw=3, normal: {images / n:.2f} images and {judgements / n:.2f} judgements of its own a sample"
    ]
    assert any("CPU seconds a sample" in note for note in header_of(finished).notes)
    told = evaluated(tmp_path / "told", 3, settings=("said", "normal"))
    assert [note for note in header_of(told).notes if "redraw=3" in note] == shown, "words take no images"

    out = Path(shutil.copytree(finished.folder.parent, tmp_path / "evals"))
    again = evaluated(out, 3)
    assert again.folder.name == finished.folder.name and rows(again) == rows(finished)
    assert {skill: call["made"] for skill, call in again.calls.items()} == {"think": 0, "draw": 0, "answer": 0}
    once, fewer, more = evaluated(out, 1), evaluated(out, 2), evaluated(out, 4)
    assert len({done.folder for done in (again, once, fewer, more)}) == 4
    assert (once.calls["draw"]["made"], fewer.calls["draw"]["made"]) == (0, 0), "the first images are the same"
    assert "redraw" not in once.asked["options"] and not any(IMAGES in sample.facts for sample, _ in rows(once))
    last = sum(fact[IMAGES] == 3 for fact in facts)
    assert more.calls["answer"]["made"] == last, "the third images that counted unseen are judged now"
    assert "redraw was 1 and 3" in " ".join(compare(once.folder, again.folder).notes)
    with pytest.raises(UserError, match=r"holds another evaluation: options.redraw was 3, now 2"):
        evaluated(out, 2, name=again.folder.name)


def test_a_killed_evaluation_ends_as_one_that_was_not(finished: Evaluation, tmp_path: Path) -> None:
    """Within the attempts of a batch: of its calls some are stored, and the last line is torn."""
    out = Path(shutil.copytree(finished.folder.parent, tmp_path / "evals"))
    shutil.rmtree(out / finished.folder.name)
    (log,) = (out / "store/calls").glob("*/*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(lines) >= 5, "a trial, images, judgements, images, judgements"
    log.write_bytes(b"".join(lines[:3]) + lines[3][: len(lines[3]) // 2])
    continued = evaluated(out, 3)
    assert rows(continued) == rows(finished) and continued.calls["draw"]["stored"] == len(rows(finished))


def test_what_cannot_judge_is_refused_before_it_draws(tmp_path: Path) -> None:
    asked: list[str] = []

    def painter(prompt: str, images: list[Any], seed: int) -> Any:
        asked.append(prompt)
        return Image.new("RGB", (8, 8))

    keys: dict[str, Any] = {"sets": ["math1"], "settings": ["normal"], "n": 2, "out": str(tmp_path)}
    with pytest.raises(UserError, match="redraw=3 has the model judge its own images, and painter cannot write text"):
        uni_train.evaluate(painter, redraw=3, **keys)
    assert len(asked) == 1 and not [*tmp_path.rglob("*.png")]
    with pytest.raises(UserError, match=r"redraw=3 has the model judge its own images, and .* does not know"):
        uni_train.evaluate("shipped", redraw=3, world="everyday", **keys)
    assert not [*tmp_path.rglob("*.png")]
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/manifest.jsonl").write_text(json.dumps({"id": "a", "setting": "normal", "image": "a.png"}))
    with pytest.raises(UsageError, match=r"redraw=3: .*answers holds answers"):
        uni_train.evaluate(str(tmp_path / "answers"), redraw=3, **keys)
    with pytest.raises(UsageError, match="redraw"):
        config_of(["redraw=0"])


def test_a_plan_has_the_most_calls() -> None:
    """An upper bound, which every sample reaches that is never accepted."""
    table, remarks = budget("shipped", EvalConfig(redraw=4, n=2, sets=("math1",), settings=("normal",)))
    shown = {row[0]: row[1] for row in table.rows}
    assert (shown["draw calls"], shown["answer calls"]) == ("8", "7") and any("redraw=4" in one for one in remarks)


class Mute(Picky):
    def answer(self, requests: Sequence[Request], **_: Any) -> list[str]:
        raise SkillMissing("mute", "write text")


def test_a_python_model_that_draws_alone_is_named() -> None:
    request = Request("a", "draw", seed=1)
    with pytest.raises(UserError, match="redraw=2 has the model judge its own images, and mute cannot write text"):
        Redrawing(Mute({}, {"a": 1}), 2).draw([request])
