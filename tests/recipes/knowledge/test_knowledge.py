"""Recipe knowledge: models taught in text, examined, asked for pictures; killed starts, judged people, bad keys."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.eval.judges.server import Asked, JudgeServer, Refused
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.once import once
from tests.tiny import MODEL, finish, fit
from tests.training.keys import Killed, killed_after
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.data_gen.knowledge.injection import subjects
from uni_train.data_gen.phrasing import counted
from uni_train.data_gen.sprites import verify_sprites
from uni_train.eval.benchmark import Scored
from uni_train.eval.scored import read_scored
from uni_train.models.load import build_model
from uni_train.models.nano.language import vocabulary
from uni_train.models.nano.tokenizer import WordTokenizer
from uni_train.recipes.knowledge import form
from uni_train.recipes.knowledge import injection as knowledge
from uni_train.recipes.knowledge.config import KnowledgeConfig

TINY = (
    *(*MODEL, "model.sampling.max_think_tokens=26", "model.draw_batch=4", "characters.n=1", "characters.seed=3"),
    *("directions=[forward]", "rows=40", "exam_every=10", "least_epochs=1", "epochs=90", "optimizer.lr=1e-2"),
    *("optimizer.warmup_updates=5", "checkpoint_every=2", "draws=2"),
)
# Too short to learn anything.
PAIR = (*TINY, "characters.n=2", "directions=[inverse]", "epochs=2", "exam_every=1", "draws=1")
FORMED = (*PAIR, "form.updates=2", "form.rows=8", "both_ways=true")


def scored(run: Path, stages: str = "*") -> list[Scored]:
    return [one for file in sorted(run.glob(f"stages/{stages}/scored/*.parquet")) for one in read_scored(file)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One character, taught until it passes; read-only."""
    make = lambda folder: str(finish(folder, *TINY, "checkpoint_every=100", recipe="knowledge"))  # noqa: E731
    return Path(once(tmp_path_factory, "knowledge", make)[1])


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair, taught for too short after its model was taught the form; read-only."""
    make = lambda folder: str(finish(folder, *FORMED, recipe="knowledge"))  # noqa: E731
    return Path(once(tmp_path_factory, "knowledge-form", make)[1])


@pytest.mark.slow
def test_the_understanding_weights_learn_until_the_exam_is_passed(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    expected = subjects("nano", 1, 3, "test", ("forward",))
    assert [tuple(one["names"]) for one in summary["models"]] == [one.names for one in expected]
    start = build_model(compose("knowledge", TINY).model).state_dict()
    for number, (model, subject) in enumerate(zip(summary["models"], expected, strict=True), 1):
        assert model["injected"] and len(model["exam"]) == 22
        for said, asked in zip(model["exam"], subject.exam, strict=True):
            assert said["question"] == asked.question and said["right"] and asked.right(said["reply"])
        assert model["updates"] in range(10, 90, 10)  # of 90: it ended because it passed
        (stage,) = finished.glob(f"stages/{number:02d}-inject-*")
        lines = (stage / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, model["updates"] + 1))
        assert not (stage / "checkpoints").exists() and not (stage / "drawn").exists()
        weights = load_file(stage / "model" / "model.safetensors")
        moved = {name for name, value in weights.items() if not torch.equal(value, start[name])}
        assert moved and all("language_model" in name and "moe_gen" not in name for name in moved)


@pytest.mark.slow
def test_the_numbers_are_those_of_the_pictures(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    samples = scored(finished, "*-inject-*")
    assert len(samples) == 3 * 2 * 2 == len(scored(finished, "00-ask-before"))
    twins = {name: twin["right"] for one in summary["models"] for name, twin in one["twins"].items()}
    for setting in ("normal", "cot"):
        drawn = [one for one in samples if one.sample.ask.setting == setting]
        known = [one.passed for one in drawn if twins[one.sample.ask.case.id]]
        share = summary["scores"]["after"]["drawn_of_known"][setting]["overall"]["value"]
        assert share == (pytest.approx(sum(known) / len(known)) if known else None)
        for name in ("forward", "overall"):
            cell = summary["scores"]["after"][setting][name]
            assert cell["value"] == pytest.approx(sum(one.passed for one in drawn) / len(drawn))
            assert cell["n"] == 1  # models
    for one in samples:
        if not one.passed and one.sample.ask.setting == "normal" and one.outcome == "fail":
            knows = twins[one.sample.ask.case.id]
            assert one.cause == ("knows, does not draw" if knows else "does not know in text")
    titles = [table["title"] for table in summary["tables"]]
    assert titles[:3] == ["Knowledge transfer (paper, Table 4)", "Known in text, drawn or not", "Before the lessons"]
    page = (finished / "report.html").read_text()
    assert all(" and ".join(model["names"]).replace("&", "&amp;") in page for model in summary["models"])
    assert all(title in page for title in titles)


@pytest.mark.slow
def test_a_killed_run_ends_as_an_unbroken_one_and_says_who_was_not_injected(
    formed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = knowledge.write_scored

    def die_drawing(path: Path, samples: list[Scored]) -> None:
        if "inject" in str(path) and path.name == "00001.parquet":
            raise Killed
        written(path, samples)

    with killed_after(3):
        fit(tmp_path, *FORMED, recipe="knowledge")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(knowledge, "write_scored", die_drawing)
        fit(tmp_path, *FORMED, recipe="knowledge")
    run = tmp_path / "knowledge" / "seed0"
    (left,) = run.glob("stages/02-*/drawn/*.parquet")
    result = fit(tmp_path, *FORMED, recipe="knowledge")
    assert result.exit_code == 0, result.output
    assert re.search(r"exam: \d+ of \d+; not injected, not counted: Question : what", result.output.replace("\n", ""))
    assert not left.exists() and scored(run) == scored(formed) and len(scored(run)) == 2 * 4 * 2
    for file in ("metrics.jsonl", "taught.json", "model/model.safetensors"):
        ours, theirs = (next(one.glob(f"stages/02-*/{file}")).read_bytes() for one in (run, formed))
        assert ours == theirs, file
    summary = json.loads((run / "summary.json").read_text())
    assert [model["injected"] for model in summary["models"]] == [False]
    assert summary["scores"]["after"]["cot"]["inverse"] == {"value": None, "n": 0, "low": 0.0, "high": 1.0}
    assert summary["scores"]["before"]["cot"]["inverse"]["n"] == 1


@pytest.mark.slow
def test_a_run_killed_after_its_weights_were_removed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (*PAIR, "keep_models=false", "modes=[normal]")

    def die(file: Path, folder: Path) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(knowledge, "_lasting", die)  # what is listed behind the removal
        fit(tmp_path, *asked, recipe="knowledge")
    (stage,) = (tmp_path / "knowledge" / "seed0").glob("stages/01-*")
    assert not (stage / "model").exists() and not (stage / "manifest.json").exists()
    result = fit(tmp_path, *asked, recipe="knowledge")
    assert result.exit_code == 0, result.output
    assert (stage / "manifest.json").is_file() and len(scored(tmp_path / "knowledge" / "seed0", "01-*")) == 4


@pytest.mark.slow
def test_people_are_judged_and_a_silent_judge_is_waited_for(tmp_path: Path) -> None:
    """The tiny golden BAGEL draws; the judge sees a right portrait in every picture, and no fruit or flower. It goes
    silent when it has said, before the first picture, that it is there."""
    published(FOLDER, tmp_path / "BAGEL")
    patience, portrait = 1, subjects("everyday", 1, 0, "test", ("forward",))[0].pictures[0].answer

    def reply(asked: Asked) -> str | Refused:
        if len(server.asked) > patience:
            return Refused(503)
        if asked.images:
            return "Person: elderly; woman; black hair; East Asian"
        return "Score: YES" if portrait in asked.words else "Score: NO"

    with JudgeServer(reply) as server:
        overrides = (
            *(f"model.checkpoint={tmp_path / 'BAGEL'}", "model.threads=1", "model.sampling.steps=1"),
            *("model.sampling.max_think_tokens=2", "strategy.precision=32-true", "modes=[normal]"),
            *(f"judge.model='{server.url}#judge'", "judge.retries=0"),
            *("characters.n=1", "epochs=1", "least_epochs=0"),
        )
        refused = fit(tmp_path, *overrides, recipe="knowledge_bagel")
        assert refused.exit_code == 1 and "did not answer for 3 of 3 images" in refused.output.replace("\n", " ")
        (drawn,) = tmp_path.glob("knowledge_bagel/seed0/stages/00-*/drawn/*.parquet")
        before, patience, tried = read_scored(drawn), 10_000, len(server.asked) + 1
        run = finish(tmp_path, *overrides, recipe="knowledge_bagel")
        asked = len(server.asked) - tried
    samples = scored(run)
    assert [one.sample for one in scored(run, "00-*")] == [one.sample for one in before]
    assert {one.by for one in samples} == {"judge"} and asked == 2 * len(samples) == 12
    portraits = [one.passed for one in samples if one.sample.ask.case.category == "portrait"]
    assert portraits == [True] * 2 and sum(one.passed for one in samples) == 2
    assert not list(run.glob("stages/*/model")), "keep_models: false"
    assert (run / "report.html").is_file() and len(list(run.glob("stages/*/judge/logs/*.eval"))) >= 2


def test_published_characters_that_are_not_there(tmp_path: Path) -> None:
    config = compose("knowledge_bagel", [f"characters.path={tmp_path}"])
    assert isinstance(config, KnowledgeConfig)
    with pytest.raises(UserError, match=r"test_knowledge asks about 0 characters .* and 10 were asked for"):
        knowledge.people(config)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("knowledge", "model=nano_edit", "nano_edit answers no questions"),
        ("knowledge", "data.world=everyday", "no judge is given"),
        ("knowledge", "characters.path=people", "people of the everyday world"),
        ("knowledge", "characters.split=paper", "Table 12 has ten people of the everyday world"),
        ("knowledge", "form.updates=5 characters.split=train", "characters of the train split"),
        ("knowledge", "trained=lora", "understanding weights alone"),
        ("knowledge", "least_epochs=81", "more than epochs 80"),
        ("knowledge", "ema=0.9", "ema has no meaning"),
        ("knowledge_bagel", "judge.model=http://127.0.0.1:1/v1", "does not say which model"),
    ],
)
def test_keys_that_do_not_fit_together(recipe: str, overrides: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose(recipe, overrides.split())


def test_the_form_is_taught_with_characters_that_nobody_asks_about() -> None:
    config = compose("knowledge", (*TINY, "form.updates=2"))
    assert isinstance(config, KnowledgeConfig)
    characters = form.others(config)
    asked = {name for one in knowledge.people(config) for name in one.names}
    assert len({one.name for one in characters}) == config.form.characters and not asked & {c.name for c in characters}
    random_ = random.Random(0)
    made = {name: [maker(random_) for _ in range(30)] for name, maker in form.rows(characters).items()}
    assert all(one.target is None and one.answer for one in made["form_answer"])
    assert all(one.target is not None and one.thought is None for one in made["form_image"])
    for one in made["form_thought"]:
        assert one.thought is not None and one.target is not None
        *_, (count, noun) = counted_in_order(one.thought)
        assert verify_sprites(one.target, noun, count).passed, one.thought
    tokenizer = WordTokenizer(vocabulary())
    for one in (one for some in made.values() for one in some):
        assert tokenizer.encode(f"{one.prompt} {one.thought or ''} {one.answer or ''}")


def counted_in_order(text: str) -> list[tuple[int, str]]:
    return [found for sentence in text.split(" .") for found in counted(sentence)]


@pytest.mark.slow
def test_everything_starts_from_the_model_that_knows_the_form(formed: Path) -> None:
    stages = ["00-form", "01-ask-before", "02-inject-inverse1"]
    assert [path.name for path in sorted(formed.glob("stages/*"))] == stages
    before, after = (load_file(formed / "stages" / name / "model/model.safetensors") for name in stages[::2])
    start = build_model(compose("knowledge", PAIR).model).state_dict()
    generation = [name for name in before if "moe_gen" in name]
    assert any(not torch.equal(before[name], start[name]) for name in generation)
    assert all(torch.equal(before[name], after[name]) for name in generation), "lessons are text alone"
