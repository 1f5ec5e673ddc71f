"""Which sets a run asks: the six, and those beside them that `evaluation.sets` names."""

from __future__ import annotations

import json
from pathlib import Path

from eval.benchmarks import unisandbox
from eval.store import read_shards
from tests.stages.tiny import MODEL, TINY, fit
from uni_train.config.schema import SIX_SETS

EXTRA = ("math1_seen", "mapping2_chain")


def test_every_name_that_may_be_typed_has_a_source() -> None:
    assert SIX_SETS == unisandbox.SETS
    assert {*SIX_SETS, *EXTRA} < set(unisandbox.sources())
    for name, source in unisandbox.sources().items():
        assert unisandbox.set_name(source.task, source.level, source.variant) == name


def test_sets_beside_the_six_have_their_own_scores_and_tables(tmp_path: Path) -> None:
    sets = ("math1", "mapping2", *EXTRA)
    overrides = (*TINY, f"evaluation.sets=[{','.join(sets)}]", "evaluation.modes=[normal]", "evaluation.n=3")
    result = fit(tmp_path, *overrides)
    assert result.exit_code == 0, result.output
    (run,) = (tmp_path / "stars_curriculum").iterdir()
    found = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert set(found["scores"]["after"]["normal"]) == set(found["strategies"]) == set(sets)
    assert all(one["n"] == 3 and "distinct" not in one for one in found["scores"]["after"]["normal"].values())
    assert set(found["average"]["before"]) == {"maths", "mapping", "maths_seen", "mapping_chain"}

    samples = list(read_shards(run / "stages" / "00-evaluate-before" / "shards", images=False))
    assert len({sample.item.id for sample in samples}) == len(samples) == 3 + 6 + 3 + 6
    chain = [sample.item for sample in samples if unisandbox.set_of(sample.item) == "mapping2_chain"]
    for item in chain:
        (a, b), (c, noun) = item.facts["rules"][:2] if item.id.endswith("/A") else item.facts["rules"][2:]
        assert (item.facts["symbol"], b, item.facts["object"]) == (a, c, noun)
    by_name = {one["name"]: one["value"] for one in found["strategies"]["mapping2_chain"]}
    assert by_name["first noun after the symbol"] == 1.0
    assert {one.item.split for one in samples if unisandbox.set_of(one.item) == "math1_seen"} == {"seen"}

    shown = " ".join(result.output.split())
    for title in ("new objects, seen expressions", "rules in chain order", "n / distinct", "best trivial strategy"):
        assert title in shown
    page = (run / "report.html").read_text(encoding="utf-8")
    assert 'id="maths-seen"' in page and 'id="mapping-chain"' in page and "mapping2_chain, Normal" in page


def test_a_set_that_is_too_small_is_said_before_anything_is_done(tmp_path: Path) -> None:
    for recipe, extra in (("stars_curriculum", TINY), ("nano_pretrain", MODEL[1:])):
        result = fit(tmp_path / recipe, *extra, "evaluation.n=3000", "evaluation.sets=[math1]", recipe=recipe)
        assert result.exit_code == 1 and "Traceback" not in result.output
        message = " ".join(result.output.split())
        assert "evaluation.n 3000 is too many for math1: found only" in message and "Lower evaluation.n" in message
        assert not list((tmp_path / recipe).rglob("stages/*"))


def test_an_unknown_set_is_named(tmp_path: Path) -> None:
    result = fit(tmp_path, *TINY, "evaluation.sets=[mapping1_chains]")
    assert result.exit_code == 2 and "mapping1_chain" in result.output
