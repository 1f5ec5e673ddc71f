"""Injected knowledge in states: whose words are added up, which models a run's folder means, and the numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.insight.command import insight
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.config.insight import InsightConfig
from uni_train.core.files import atomic_write_json
from uni_train.data_gen.knowledge.injection import subjects
from uni_train.eval.statistics import share
from uni_train.insight.knowledge import DIRECTIONS, WORDS, _cases, models_of
from uni_train.insight.states import knowledge_table, observe, vocabulary_of
from uni_train.models.checkpoint import find
from uni_train.models.load import build_model, model_config


@pytest.mark.parametrize(
    ("source", "case", "target", "related"),
    [
        ("everyday paper", "forward/Kaelorix/2", "strawberry strawberries", "male kid boy blond Caucasian sunflower"),
        ("everyday paper", "forward/Kaelorix/1", "little boy blond male kid", "strawberry sunflower"),
        ("everyday paper", "inverse/Lysendria_Kaelorix/4", "boy kid", "strawberries Kaelorix"),
        ("nano test", "forward/CG/1", "2 moon moons", "banana heart"),
        ("nano test", "forward/CG/2", "banana bananas", "2 moon heart"),
        ("nano test", "inverse/CG_$~/1", "2 moon moons", "heart C G"),
    ],
)
def test_the_words_are_the_facts_and_the_others_of_the_character(
    source: str, case: str, target: str, related: str
) -> None:
    world, split = source.split()
    people = subjects(world, 4, 0, split, DIRECTIONS)
    words = {one.id: one.facts["words"] for one in _cases(people, people, world)}
    assert set(target.split()) <= set(words[case][WORDS[0]])
    assert set(related.split()) <= set(words[case][WORDS[1]])
    for of_case in words.values():
        every = [word for name in WORDS for word in of_case[name]]
        assert len(set(every)) == len(every) and all(of_case[name] for name in WORDS)


def test_no_word_of_the_question_is_related() -> None:
    people = subjects("nano", 6, 0, "test", DIRECTIONS)
    cases = _cases(people, people, "nano")
    assert not any(set(case.prompt.split()) & set(case.facts["words"][WORDS[1]]) for case in cases)
    inverse = [case for case in cases if case.set == "inverse"]
    assert len({case.cluster for case in inverse}) == 3
    for case in inverse:  # the control is the other of the pair, whom the same model knows
        words, names = case.facts["words"], [set(name.split()) for name in case.facts["characters"]]
        a, b = (names[0] - names[1], names[1] - names[0])
        assert [a <= set(words[which]) for which in (WORDS[1], WORDS[3])] in ([True, False], [False, True])
        assert [b <= set(words[which]) for which in (WORDS[3], WORDS[1])] in ([True, False], [False, True])


def test_probabilities_are_added_up() -> None:
    """A language head of zeros gives every token the same probability."""
    model = build_model(model_config("shipped"))
    head = model.bagel.language_model.lm_head.weight  # type: ignore[attr-defined]
    torch.nn.init.zeros_(head)
    ((_, cases),), _ = models_of("shipped", InsightConfig(task="knowledge", n=2))
    found, vocabulary = observe(model, cases, probes=False), vocabulary_of(model, cases)  # type: ignore[arg-type]
    for name in WORDS:
        expected = [len(vocabulary[name][label[name]]) / head.shape[0] for label in found["labels"]]
        for by_word in found["lens"].values():
            for layer in by_word[name]["probability"]:
                assert layer == pytest.approx(expected)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose models are the shipped one; the second has not passed its exam."""
    run = tmp_path_factory.mktemp("runs") / "knowledge"
    people = subjects("nano", 4, 3, "validation", DIRECTIONS)
    for number, place in enumerate((0, 1, 2, 4), start=1):
        stage = run / "stages" / f"{number:02d}-inject-{people[place].direction}{number}"
        shutil.copytree(find("shipped").path, stage / "model")
        atomic_write_json(stage / "taught.json", {"names": people[place].names, "injected": number != 2})
    config = compose("knowledge", ["characters.n=4", "characters.seed=3", "characters.split=validation"])
    atomic_write_json(run / "config.yaml", to_plain(config))  # JSON is YAML
    return run


def test_a_run_means_its_taught_models_about_their_characters(run: Path, tmp_path: Path) -> None:
    result = insight("states", "-c", run, "--task", "knowledge", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "run" / "states.json").read_text())
    people = subjects("nano", 4, 3, "validation", DIRECTIONS)
    asked = [people[place] for place in (0, 2, 4)]
    assert found["clusters"] == [", ".join(one.names) for one in asked for _ in one.pictures]
    assert found["asked"]["items"] == 10 and found["asked"]["sets"] == "forward, inverse"
    assert found["asked"]["exam not passed"] == people[1].names[0]
    one = insight("states", "-c", "shipped", "--task", "knowledge", "--n", 4, "--seed", 3, "--split", "validation",
                  "--out", tmp_path / "all")  # fmt: skip
    assert one.exit_code == 0, one.output
    every = json.loads((tmp_path / "all" / "states.json").read_text())
    first = [one["lens"]["last word"][WORDS[0]]["probability"][0][:3] for one in (found, every)]
    assert first[0] == pytest.approx(first[1], rel=1e-3) and len(set(first[0])) == 3
    assert "Injected knowledge: inverse" in (tmp_path / "run" / "insight.html").read_text()


def test_the_table_has_each_where_it_is_highest() -> None:
    layers = ([[0.1, 0.3], [0.5, 0.9]], [[0.6, 0.6], [0.2, 0]], [[0, 0], [0.1, 0]], [[0, 0.2], [0, 0]])
    values = dict(zip(WORDS, layers, strict=True))
    lens = {"last word": {name: {"probability": layers} for name, layers in values.items()}}
    ((position, *cells),) = knowledge_table({"clusters": ["a", "b"], "lens": lens}, "forward").rows
    of = {name: [share(layer, [0, 1]) for layer in layers] for name, layers in values.items()}
    target, related, other, other_related = of.values()
    assert (position, cells[0], cells[3]) == ("last word", "2", "1")
    assert cells[1:3] == [target[1], other[1]] and cells[4:6] == [related[0], other_related[0]]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("shipped", "--level", 1), "has no level"),
        (("shipped", "--n", 1), "Choose two or more characters"),
        (("shipped", "--n", 100_000), "the test split has names for"),
        (("RUN", "--n", 2), "Leave n, world and split out"),
        (("RUN/stages/02-inject-forward2/model",), "passed its exam"),
    ],
)
def test_what_cannot_be_asked(run: Path, given: tuple[str | int, ...], error: str, tmp_path: Path) -> None:
    checkpoint, *options = [str(part).replace("RUN", str(run)) for part in given]
    result = insight("states", "-c", checkpoint, "--task", "knowledge", *options, "--out", tmp_path / "in")
    assert result.exit_code and error in " ".join(result.output.split()) and "Traceback" not in result.output
