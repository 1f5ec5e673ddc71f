"""The four error types, contexts by length, and the published prompt with strict extraction."""

from __future__ import annotations

import asyncio

import pytest

from tests.eval.benchmarks.doubles import Judge
from uni_train.core.errors import UserError
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.outcomes import Sprites
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.ureason import UReason, errors, lengths
from uni_train.eval.benchmarks.ureason.counting import Count
from uni_train.eval.benchmarks.ureason.settings import BARE, GUIDED
from uni_train.eval.results import Results
from uni_train.models.pictures import encode_png


def answered(benchmark: UReason, case: Case, drawn: Sprites, thought: str, setting: str = GUIDED) -> Scored:
    sample = Sample(Ask(case, setting, 0, 1), prompt=case.prompt, thought=thought, parts=(encode_png(drawn.render(1)),))
    return Scored(sample, benchmark.check(sample))


@pytest.fixture(scope="module")
def nano() -> UReason:
    return UReason(Source(n=4, sets=("arithmetic",)), levels=(1,))


def test_a_program_tells_them_apart_in_nano_s_world(nano: UReason) -> None:
    case = nano.cases()[0]
    ((name, count),) = case.facts["outcome"]["groups"]
    right = f"So draw {Sprites(((name, count),))} ."
    other = next(one for one in ("moon", "cup", "key") if one not in case.prompt and one != name)
    same, more = Sprites(((name, count),)), Sprites(((name, count + 1),))
    found = [
        answered(nano, case, same, right), answered(nano, case, more, right),
        answered(nano, case, Sprites(((other, count),)), right), answered(nano, case, more, "So draw 9 moons ."),
        answered(nano, case, more, right, BARE),
    ]  # fmt: skip
    kinds = [errors.type_of(one, nano.right(one)) for one in found]
    assert kinds == [None, errors.TASK, errors.HALLUCINATION, errors.REASONING_ERROR, None]
    shares = Count(nano, Results(nano.units(found, ""))).errors()
    third = dict.fromkeys((errors.REASONING_ERROR, errors.HALLUCINATION, errors.TASK), pytest.approx(1 / 3))
    assert {kind: one.value for kind, one in shares.items()} == {**third, errors.MISREAD: 0.0}
    assert any(table.title.startswith("Error types") for table in nano.tables(found))


def test_a_judge_is_asked_of_a_wrong_image_whose_thought_is_right() -> None:
    benchmark = UReason(Source(world="everyday", n=1, sets=("text",)), levels=(1,), errors="judge")
    (case,) = benchmark.cases()
    judge = Judge(lambda prompt, _: "<answer>2</answer>" if "Error types" in prompt else
                  "<answer>Yes</answer>" if "Thought Process" in prompt else "<answer>No</answer>")  # fmt: skip
    sample = Sample(Ask(case, GUIDED, 0, 1), thought="It is hard to say.", parts=(b"image",))
    verdict = asyncio.run(benchmark.judge(sample, judge))
    assert verdict.status == "fail" and verdict.checks[-1] == Check("error", "fail", errors.HALLUCINATION)
    *_, (asked, _) = judge.asked
    assert len(judge.asked) == 3 and case.prompt in asked and str(case.facts["criterion"]) in asked
    assert errors.type_of(Scored(sample, verdict, "judge"), None) == errors.HALLUCINATION
    untold = Verdict((Check("criterion", "fail"),))
    assert errors.type_of(Scored(sample, untold, "judge"), True) == errors.UNKNOWN
    with pytest.raises(ValueError, match="it must give"):
        errors._number("<answer>1</answer> or <answer>2</answer>")


def test_contexts_are_measured_and_cut_into_thirds(nano: UReason) -> None:
    asks = [Ask(Case(f"c{i}", "text", "one two"), GUIDED, 0, i) for i in range(9)]
    scored = [Scored(Sample(ask, prompt="one two", thought="w " * i)) for i, ask in enumerate(asks)]
    size, unit = lengths.measure("")
    assert unit == "words" and lengths.mean_and_spread([size(one.sample) for one in scored]) == "6.0 (2.6)"
    thirds = lengths.thirds(scored, size)
    assert [(name, len(some)) for name, some in thirds] == [("2 to 4", 3), ("5 to 7", 3), ("8 to 10", 3)]
    assert lengths.thirds(scored[:8], size) == []
    with pytest.raises(UserError, match="no tokenizer that can be read"):
        lengths.measure("nowhere")[0](scored[0].sample)
