"""Thoughts that were tampered with: what is left of them, and what a respondent that obeys them draws."""

from __future__ import annotations

import numpy as np

from tests.insight.respondent import Scripted
from uni_train.data_gen.registry import task_of
from uni_train.eval.benchmark import Scored
from uni_train.eval.generation import asks_of
from uni_train.eval.statistics import PairedComparison
from uni_train.eval.task_benchmark import cases_of_task, item_of
from uni_train.insight.interventions import Interventions, refined_start, tampered
from uni_train.models.base import Request

THOUGHT = "A means B . B is cup . So draw 1 cup ."


class Obedient(Scripted):
    """Draws what the thought concludes, whatever it was asked."""

    def draw(self, requests, **_):  # type: ignore[no-untyped-def]
        found = []
        for one in requests:
            ending = (one.thought or "").rpartition("So draw ")[2]
            item = next((i for i in self.items.values() if ending and i.thought.endswith(ending)), None)
            grey = np.full((24, 24, 3), 127, np.uint8)
            found.append(grey if item is None else task_of(item).render(item, one.seed))
        return found


def test_what_is_left_of_a_thought() -> None:
    left = {name: tampered(name, THOUGHT, "nano", "item") for name in Interventions.offered[:7]}
    words = THOUGHT.split()
    assert left["cot"] == THOUGHT and left["drop"] == "" and left["repeat"] == f"{THOUGHT} {THOUGHT}"
    assert left["shuffle"] != THOUGHT and sorted(str(left["shuffle"]).split()) == sorted(words)
    assert left["shuffle"] == tampered("shuffle", THOUGHT, "nano", "item") != tampered("shuffle", THOUGHT, "nano", "b")
    assert str(left["blank"]).split() == ["."] * len(words)
    assert f"{left['trace']} {left['refined']}" == THOUGHT and left["refined"] == "So draw 1 cup ."
    assert tampered("refined", "I do not know", "nano", "item") is None


def test_the_refined_prompt_is_found_in_everyday_words() -> None:
    for before, refined in (
        ("First ... <refined_prompt>", "two cups</refined_prompt>"),
        ("It is 4. refined prompt: ", "four red cups"),
        ("1 + 1 = 2. ", "So draw 2 cups."),
    ):
        assert refined_start(before + refined, "everyday") == len(before)
    assert refined_start("nothing of the kind", "everyday") is None


def test_a_model_that_obeys_its_thought_loses_what_was_taken_and_follows_the_others() -> None:
    cases = cases_of_task("mapping", n=5)
    model = Obedient([item_of(case) for case in cases], {"thought"})
    asked = Interventions(cases)
    samples = asked.respond(model, asks_of(cases, asked.settings))
    scored = [Scored(one, asked.check(one)) for one in samples]
    values = {name: by_set["overall"]["value"] for name, by_set in asked.scores(scored).items()}
    expected = {"cot": 1.0, "drop": 0.0, "repeat": 1.0, "blank": 0.0, "trace": 0.0, "refined": 1.0}
    assert values.items() >= expected.items()
    assert values["other"] == 0.0 and values["other_followed"] == 1.0
    effects = {row[0]: row[1] for row in asked.effects(scored).rows}
    dropped = effects["Dropped (empty)"]
    assert isinstance(dropped, PairedComparison) and dropped.difference.value == -1.0
    assert "As it is" not in effects and len(effects) == len(asked.settings) - 2
    assert sum(skill == "think" for skill, _ in model.asked) == len(cases), "one thought an item"


def test_a_partner_of_a_pair_is_no_donor_and_one_item_has_none() -> None:
    cases = cases_of_task("mapping", n=3)
    asked = Interventions(cases)
    for case in cases:
        donor = asked.donor(case)
        assert donor is not None and donor.cluster != case.cluster
        assert donor.facts["answer"] != case.facts["answer"]
    alone = Interventions(cases[:1])
    assert alone.donor(alone.cases()[0]) is None
    (sample,) = alone.respond(Obedient([item_of(cases[0])], ()), asks_of(cases[:1], ["other"]))
    assert sample.status == "cue_missing"


def test_a_failed_thought_is_a_failure_of_its_own() -> None:
    class Mute(Obedient):
        def think(self, requests: list[Request], **_: object) -> list[str | Exception]:
            return [ValueError("out of words")] * len(requests)

    cases = cases_of_task("maths", n=2)
    samples = Interventions(cases).respond(Mute([], ()), asks_of(cases, ["cot"]))
    assert {one.status for one in samples} == {"generation_failed"} and "out of words" in samples[0].note
    assert samples[0].parts == ()
