"""What somebody is asked is what a model is asked, and what he answers is read as a model's replies are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Model
from tests.eval.benchmarks.published import opened, row, write
from uni_train.core.seeds import derive_seed
from uni_train.eval.answers import FolderAnswers
from uni_train.eval.benchmark import Benchmark, Sample, Source
from uni_train.eval.generation import asks_of
from uni_train.eval.passage import Passage, questions_of
from uni_train.eval.submission import write_submission
from uni_train.models.base import Request
from uni_train.models.pictures import decode_picture, encode_png

SYSTEM = "Think first."
Call = tuple[Any, ...]


def drawn(request: Request) -> np.ndarray:
    """Another image for each request, of one size."""
    colour = derive_seed(request.prompt, request.thought or "", request.seed) % 256
    return np.full((24, 24, 3), colour, np.uint8)


def said(request: Request) -> str:
    """A thought with a refined prompt (but of one question in three), a plan, and the letter of a choice."""
    word = f"cup {derive_seed(request.prompt, request.seed) % 1000}"
    refined = f"<refined_prompt>{word}</refined_prompt>" if request.seed % 3 else ""
    return f"So draw {word} . {refined}\n1. Draw {word}.\n2. Draw two.\n\nAnswer: {'ABCD'[request.seed % 4]}"


def composed(request: Request) -> list[Any]:
    return ["First this, then that.", drawn(request), 255 - drawn(request)]


def recording() -> Model:
    return Model(think=said, answer=said, draw=drawn, compose=composed)


def call_of(skill: str, request: Request) -> Call:
    shown = [image.tobytes() for image in request.images]
    return skill, request.prompt, request.thought, request.seed, *shown


def asked_of(question: Mapping[str, Any], folder: Path) -> tuple[Request, Call]:
    images = tuple(decode_picture((folder / name).read_bytes(), name) for name in question["images"])
    assert question.get("system") == (SYSTEM if question["skill"] == "think" else None)
    request = Request("", question["prompt"], images, thought=question.get("thought"), seed=question["seed"])
    return request, call_of(question["skill"], request)


def answer_to(question: Mapping[str, Any], request: Request, folder: Path, number: int) -> dict[str, Any]:
    """A row of the manifest, by what the question says of itself."""
    reply = {"think": said, "answer": said, "draw": drawn, "compose": composed}[question["skill"]](request)
    answer = dict(question)  # with the images that it shows, which are no answer
    names = []
    for image in [one for one in (reply if isinstance(reply, list) else [reply]) if not isinstance(one, str)]:
        names.append(f"mine/{number}-{len(names)}.png")
        (folder / "mine").mkdir(exist_ok=True)
        (folder / names[-1]).write_bytes(encode_png(image))
    if question["reply"] == "parts":
        return answer | {"text": reply[0], "images": names}
    return answer | {question["reply"]: names[0] if question["reply"] == "image" else reply}


def source(world: str = "nano", data: Path | None = None) -> Source:
    return Source(data=data, world=world, n=2, open_model=lambda name: Model(answer=said, think=said))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("name", "world", "options"),
    [
        ("unisandbox", "nano", {"settings": ("normal", "cot", "said")}),
        ("unisandbox", "published", {"labels": "both"}),
        ("ureason", "nano", {}), ("ureason", "everyday", {"prompt_model": "other"}), ("ureason", "published", {}),
        ("ueval", "nano", {"passes": "all", "trace_model": "other"}), ("ueval", "published", {"passes": "all"}),
        ("ufo", "nano", {"extra": ("blind", "dimensions", "swap")}),
        ("ufo", "everyday", {"extra": ("blind", "dimensions", "swap")}), ("ufo", "published", {}),
        ("vigor", "nano", {"planner": "other"}), ("vigor", "everyday", {"interleaved": "yes"}),
        ("vigor", "published", {"planner": "other"}), ("wise", "nano", {}), ("wise", "published", {}),
    ],
)  # fmt: skip
def test_the_rounds_of_questions_are_the_requests_of_a_model_and_their_answers_its_samples(
    name: str, world: str, options: dict[str, Any], tmp_path: Path
) -> None:
    changes = {"Answer": "3 chairs"} if name == "unisandbox" else {}  # a wrong label: two cases of one drawing
    data = write(tmp_path / "data", name, row(name, **changes)) if world == "published" else None
    benchmark: Benchmark = opened(name, source("everyday" if data else world, data), **options)
    asks, model = asks_of(benchmark.cases(), benchmark.settings, k=2), recording()
    samples = benchmark.respond(model, asks)
    folder = tmp_path / "answers" / name
    waiting = Passage(benchmark, asks, {}, folder).waiting
    answers, calls = [], []
    for _ in range(10):
        write_submission(folder, questions_of(waiting, SYSTEM))
        questions = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
        if not questions:
            break
        for question in questions:
            request, call = asked_of(question, folder)
            calls.append(call)
            answers.append(answer_to(question, request, folder, len(answers)))
        (folder / "manifest.jsonl").write_text("".join(json.dumps(one) + "\n" for one in answers))
        waiting = FolderAnswers(folder.parent).waiting(benchmark, asks)
    assert {*calls} == {call_of(*one) for one in model.asked}
    assert len({json.dumps([one[key] for key in ("id", "setting", "k", "step")]) for one in answers}) <= len(calls)
    read = FolderAnswers(folder.parent).respond(benchmark, asks)
    assert [shown(one) for one in read] == [shown(one) for one in samples]


def shown(sample: Sample) -> dict[str, Any]:
    return {
        name: getattr(sample, name) for name in ("identity", "status", "note", "prompt", "thought", "parts", "facts")
    }
