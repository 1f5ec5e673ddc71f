"""Which link breaks: exact counts for a respondent that breaks one, and the shipped nano through the command."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import uni_train as uni_train_api
from tests.insight.respondent import Scripted
from tests.models.test_remote import Reply, drawn, endpoint, models, refused, says
from uni_train.cli.main import uni_train
from uni_train.eval.benchmark import Scored
from uni_train.eval.evaluation import load
from uni_train.eval.generation import asks_of
from uni_train.eval.report.flow_chart import flow
from uni_train.eval.task_benchmark import cases_of_task, item_of
from uni_train.insight.links import BREAKS, TITLES, Links, Unit, break_of, breaks_of, links_of, units_of


def units(task: str, right: set[str]) -> tuple[list[Unit], Scripted]:
    cases = cases_of_task(task, n=4, world="nano")
    links = Links(cases)
    model = Scripted([item_of(case) for case in cases], right)
    samples = links.respond(model, asks_of(cases, links.settings))
    return units_of(Scored(one, links.check(one)) for one in samples), model


@pytest.mark.parametrize("task", ["maths", "mapping", "maze"])
@pytest.mark.parametrize(
    ("right", "breaks"),
    [
        ("said thought told normal cot", BREAKS[0]), ("said thought cot", BREAKS[1]),
        ("said thought told cot", BREAKS[2]), ("thought told cot", BREAKS[3]),
        ("thought told", BREAKS[4]), ("told", BREAKS[5]),
    ],
)  # fmt: skip
def test_the_link_that_is_broken_is_named_for_every_item_of_any_task(task: str, right: str, breaks: str) -> None:
    found, _ = units(task, set(right.split()))
    assert all({name for name, ok in one.right.items() if ok} == set(right.split()) for one in found)
    shares = breaks_of(found)
    assert {name: one.value for name, one in shares.items()} == {name: float(name == breaks) for name in BREAKS}
    holds = {name: one.value for name, one in links_of(found).items()}
    assert holds["know -> draw"] == (float("normal" in right) if "said" in right else None)
    assert holds["plan -> draw"] == (float("cot" in right) if "thought" in right else None)


def test_a_thought_is_asked_for_once_and_drawn_by_in_cot_alone() -> None:
    found, model = units("mapping", {"thought", "cot"})
    assert Counter(skill for skill, _ in model.asked) == {"think": 8, "answer": 8, "draw": 24}
    drawn = [one for skill, one in model.asked if skill == "draw"]
    assert sum(one.thought is not None for one in drawn) == 8
    assert len({(one.id, one.seed) for one in drawn}) == 8, "settings of an item share their noise"
    assert len(found) == 8 and len({one.cluster for one in found}) == 4, "the two of a pair are one cluster"


def test_every_combination_breaks_somewhere_and_none_without_all_questions() -> None:
    for values in itertools.product((True, False), repeat=5):
        assert break_of(dict(zip(TITLES, values, strict=True))) in BREAKS
    assert break_of({"said": True, "normal": False}) is None
    assert breaks_of([Unit("a", "s", {"said": True})]) == {}


def test_a_flow_keeps_every_unit_in_every_column() -> None:
    rows = [("a", "x"), ("a", "y"), ("b", "y"), ("b", "y")]
    made = flow("T", [("First", ("a", "b")), ("Second", ("x", "y"))], rows)
    by_x = {x: sum(box.height for box in made.boxes if box.x == x) for x in {box.x for box in made.boxes}}
    assert len(by_x) == 2 and max(by_x.values()) - min(by_x.values()) < 0.2
    assert sorted(band.tip[-1] for band in made.bands) == ["1", "1", "2"]
    with pytest.raises(ValueError, match="no state 'z'"):
        flow("T", [("First", ("a",))], [("z",)])


def test_the_command_writes_its_page_and_asks_nothing_twice(tmp_path: Path) -> None:
    command = ["insight", "links", "-c", "shipped", "--task", "mapping", "--n", "2", "--out", str(tmp_path / "in")]
    first = CliRunner().invoke(uni_train, command, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    found = json.loads((tmp_path / "in" / "links.json").read_text())
    assert len(found["units"]) == 4 and all(set(right) == set(TITLES) for _, _, right in found["units"])
    page = (tmp_path / "in" / "insight.html").read_text()
    assert "What breaks first" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    uni_train_api.analyse("links", "shipped", task="mapping", n=2, out=str(tmp_path / "in"))
    (folder,) = (tmp_path / "in" / "evals").glob("*links*")
    assert {skill: calls["made"] for skill, calls in load(folder).calls.items()} == {"think": 0, "draw": 0, "answer": 0}


@pytest.mark.slow
def test_an_endpoint_is_asked_for_what_it_can(tmp_path: Path) -> None:
    """One that draws and has no chat, then one that also writes; the key comes from the environment."""
    chats = False

    def reply(path: str, body: bytes) -> Reply:
        if path.endswith("/models"):
            return models(path, body)
        if "images" in path:
            return drawn()
        return says("3 apples") if chats else refused(404, "Not Found")

    def asked(url: str, out: Path) -> tuple[str, dict[str, Any]]:
        command = ["insight", "links", "-c", f"{url}#painter", "--task", "mapping", "--world", "nano", "--n", "2"]
        result = CliRunner().invoke(
            uni_train, [*command, "remote.key_env=PAINTER_KEY", "--out", str(out)], env={"PAINTER_KEY": "secret"}
        )
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split()), json.loads((out / "links.json").read_text())

    with endpoint(reply) as one:
        said, found = asked(one.url, tmp_path / "drawing")
        assert "no such skill: painter cannot be asked by chat/completions" in said
        assert all(right == {"told": False, "normal": False} for _, _, right in found["units"])
        chats = True
        said, found = asked(one.url, tmp_path / "both")
        assert "no such skill" not in said and len(found["units"]) == 4
        assert all(set(right) == set(TITLES) for _, _, right in found["units"])
        assert {key for path, _, key in one.asked} == {"Bearer secret"}
