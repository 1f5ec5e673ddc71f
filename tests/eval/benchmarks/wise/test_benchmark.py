"""WISE: what the judges of both editions are asked, the scores that they give, and images named by prompt id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.eval.benchmarks.doubles import Judge
from tests.eval.benchmarks.published import PNG, row, write
from tests.eval.judges.server import Asked, JudgeServer
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.core.errors import UsageError
from uni_train.eval.answers import FolderAnswers
from uni_train.eval.benchmark import Ask, Sample, Scored, Source, Unparseable
from uni_train.eval.benchmarks.wise import Wise
from uni_train.eval.benchmarks.wise.cases import FILES
from uni_train.eval.benchmarks.wise.editions import read_binary, read_three
from uni_train.eval.evaluation import EvaluationPlan, run

ROWS = (
    row("wise"),
    row("wise", prompt_id=402, Prompt="A {prompt}", Explanation="{explanation}"),
    row("wise", prompt_id=521, Category="Space"),
    row("wise", prompt_id=522, Category="Space"),
)


@pytest.fixture
def verified(tmp_path: Path) -> Wise:
    """Files in the folder that a clone has them in."""
    write(tmp_path / "data_verified", "wise", *ROWS)
    return Wise(Source(data=tmp_path))


@pytest.fixture
def original(tmp_path: Path) -> Wise:
    write(tmp_path / "data", "wise", *ROWS, file=f"{FILES[1]}.json")
    return Wise(Source(data=tmp_path))


def drawn(benchmark: Wise, setting: str = "direct") -> list[Sample]:
    return [Sample(Ask(case, setting, 0, 5), parts=(PNG,)) for case in benchmark.cases()]


def test_the_verified_judge_gets_prompt_and_explanation_once_as_they_stand(verified: Wise) -> None:
    judge = Judge(lambda prompt, images: "Score: 1")
    verdicts = [asyncio.run(verified.judge(sample, judge)) for sample in drawn(verified)[:2]]
    assert all(verdict.passed for verdict in verdicts) and [images for _, images in judge.asked] == [(PNG,)] * 2
    (first, _), (second, _) = judge.asked
    assert first.startswith("You are a professional text-to-image quality auditor.")
    assert first.endswith("Return only `Score: 0` or `Score: 1`.") and "If there is serious doubt, return 0." in first
    assert 'PROMPT: "The Sydney Opera House at midnight in London"\nEXPLANATION: "It is daytime."\n' in first
    assert 'PROMPT: "A {prompt}"\nEXPLANATION: "{explanation}"\n' in second


def three(*marks: int) -> str:
    return "\n".join(map("{}: {}".format, ("Consistency", "Realism", "Aesthetic Quality"), marks))


def test_the_original_edition_has_wiscore(original: Wise) -> None:
    for marks, value, status in (((2, 1, 0), 0.8, "pass"), ((1, 2, 2), 0.65, "fail"), ((2, 2, 2), 1.0, "pass")):
        verdict = asyncio.run(original.judge(drawn(original)[0], Judge(lambda *_, marks=marks: three(*marks))))
        assert (verdict.value, verdict.status) == (pytest.approx(value), status)
    assert read_three("**Consistency:** 1\n**Realism:** 1\n**Aesthetic Quality:** 1").value == 0.5
    for reply in ("2\n1\n0", three(2, 1), three(3, 1, 1), f"{three(2, 1, 1)}\nRealism: 2"):
        with pytest.raises(ValueError, match="three lines"):
            read_three(reply)
    (table,) = original.tables([Scored(one, read_three(three(2, 1, 0)), "judge") for one in drawn(original)])
    assert table.title == "WiScore, original edition" and table.rows[0][1].value == 0.8  # type: ignore[union-attr]


def test_overall_is_the_mean_over_questions(verified: Wise) -> None:
    samples = [sample for sample in drawn(verified) if sample.ask.case.id != "522"]
    scored = [Scored(sample, read_binary(f"Score: {int(i == 2)}"), "judge") for i, sample in enumerate(samples)]
    assert verified.scores(scored)["direct"]["overall"]["value"] == pytest.approx(1 / 3)
    (table,) = verified.tables(scored)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert [cells[name].value for name in ("Time", "Space", "Mean of categories")] == [0, 1, 0.5]  # type: ignore[union-attr]


def test_a_judge_that_gives_no_score_is_asked_again_and_then_unparseable(verified: Wise, tmp_path: Path) -> None:
    """Images of one setting in WISE's layout, ID.png, are judged by a server; a missing one counts as not right."""

    def reply(asked: Asked) -> str:
        if "A {prompt}" in asked.words:
            return "It is fine."
        return "Score: 1" if "Answer the same question again" in asked.words else "Fine!"

    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("401", "402", "521"):
        (folder / f"{name}.png").write_bytes(PNG)
    read = FolderAnswers(folder).respond(verified, [Ask(case, "direct", 0, 5) for case in verified.cases()])
    assert [(one.status, one.parts) for one in read[:3]] == [("ok", (PNG,))] * 3
    with JudgeServer(reply) as server:
        judge = JudgeConfig(model=f"{server.url}#judge")
        config = EvalConfig(judge=judge, out=str(tmp_path / "evals"), name="one")
        done = run(EvaluationPlan(checkpoint=str(folder), benchmarks=[verified], config=config))
    result = done.results["wise"]
    assert result.outcomes["direct"] == {
        "time": {"pass": 1, "unparseable": 1}, "space": {"pass": 1, "generation_failed": 1},
    }  # fmt: skip
    assert result.scores["direct"]["overall"]["value"] == 0.5
    assert {setting for setting, _, _ in result.no_skill} == {"cot"}


def test_generated_questions_are_a_program_s_on_nano_and_a_judge_s_elsewhere() -> None:
    nano, everyday = Wise(Source(n=3)), Wise(Source(n=3, world="everyday"))
    right = [Sample(Ask(case, "direct", 0, 5), parts=(nano.reference(case) or b"",)) for case in nano.cases()]
    assert all(verdict is not None and verdict.passed for verdict in map(nano.check, right))
    asks = [Ask(case, setting, 0, 5) for case in everyday.cases() for setting in everyday.settings]
    assert everyday.calls(asks) == {"think": 9, "draw": 18, "judge": 18}
    assert everyday.check(drawn(everyday)[0]) is None
    assert Wise(Source(n=3, verifier="judge")).check(right[0]) is None


def test_nano_judges_its_own_world_alone(verified: Wise) -> None:
    def captions(prompt: str, images: Sequence[bytes]) -> str:
        return f"Caption: {case.facts['answer']}"

    nano, judge = Wise(Source(n=1, sets=("maths",), verifier="judge")), Judge(captions, dialect="nano")
    (case,) = nano.cases()
    assert asyncio.run(nano.judge(drawn(nano)[0], judge)).passed
    with pytest.raises(UsageError, match="Choose another judge"):
        asyncio.run(verified.judge(drawn(verified)[0], judge))
    with pytest.raises(Unparseable):
        asyncio.run(verified.judge(drawn(verified)[0], Judge(lambda *_: "yes")))
