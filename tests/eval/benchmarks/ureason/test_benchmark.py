"""UReason: refined prompts, what each setting asks, gains, causes, the judge's questions; nano for real."""

import asyncio
import json
from dataclasses import replace

import pytest

from uni_train.config.schema import EvalConfig
from uni_train.data_gen.errors import DataError
from uni_train.data_gen.objects import EVERYDAY, NANO
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.files import write_folder
from uni_train.data_gen.ureason.outcomes import Sprites, outcome_from
from uni_train.data_gen.ureason.task import UReason as Task
from uni_train.errors import UsageError
from uni_train.eval.benchmark import Ask, Scored, Table, Unparseable
from uni_train.eval.benchmarks.ureason import UReason, counting
from uni_train.eval.benchmarks.ureason.extraction import Refined, extract
from uni_train.eval.benchmarks.ureason.settings import BARE, CHAIN, DIRECT, EXTERNAL, GUIDED, SETTINGS
from uni_train.eval.evaluation import EvaluationPlan, run
from uni_train.eval.prompts import ureason as prompts


@pytest.mark.parametrize(
    ("thought", "paper", "official"),
    [
        ("So. refined prompt: {Two apples.}", ("Two apples.", "label"), ("{Two apples.}", "last match")),
        ("**Refined prompt:** a mug", ("a mug", "label"), ("a mug", "last match")),
        ("Final Scene Prompt: an empty desk </think>", ("an empty desk", "label"), ("an empty desk", "last match")),
        ("The refined prompt is: a fork", ("a fork", "label"), ("a fork", "last match")),
        ("refined prompt: one\nNo. refined prompt: two", ("two", "label"), ("two", "last match")),
        ("refined prompt: a sign, prompt service", ("a sign, prompt service", "label"), ("service", "last match")),
        ("It is prompt work", ("", "none"), ("work", "last match")),
        ("Two apples are left.", ("", "none"), ("Two apples are left.", "whole thought")),
        ("<refined_prompt>a cup</refined_prompt>", ("a cup", "tag"),
         ("<refined_prompt>a cup</refined_prompt>", "whole thought")),
        ("refined prompt: <refined_prompt>a cup</refined_prompt>", ("a cup", "tag"),
         ("<refined_prompt>a cup</refined_prompt>", "last match")),
        ('refined prompt: "a sign"', ("a sign", "label"), ('"a sign"', "last match")),
        ('refined prompt: a sign that says "FIRE"', ('a sign that says "FIRE"', "label"),
         ('a sign that says "FIRE"', "last match")),
        ("refined prompt: {Your Visual Description Here}", ("", "none"),
         ("{Your Visual Description Here}", "last match")),
        ("I add the final prompt:", ("", "none"), ("", "none")),
        ("", ("", "none"), ("", "none")),
    ],
)  # fmt: skip
def test_refined_prompts_are_found_as_the_paper_and_as_the_released_code_do(thought, paper, official):
    found = extract(thought, "paper")
    assert (found.text, found.how) == paper
    found = extract(thought, "official")
    assert (found.text, found.how) == official


def test_nano_says_its_refined_prompt_in_its_own_words():
    thought = "3 + 2 = 5 . So draw 5 apples ."
    assert extract(thought, "paper", "nano") == Refined("Draw 5 apples .", "label")
    assert extract(thought, "official", "nano") == Refined(thought, "whole thought")
    assert extract("3 + 2 = 5 .", "paper", "nano").how == extract("So draw .", "paper", "nano").how == "none"


class Painter:
    """Thinks what it was told to think of a case, and draws nano's pictures by what it is asked or thinks."""

    def __init__(self, benchmark, thoughts, draws=None):
        self.name = "painter"
        self.cases = {case.id: case for case in benchmark.cases()}
        self.thoughts, self.draws = thoughts, draws or {}
        self.asked = []

    def think(self, requests, *, on_step=None):
        self.asked += [("think", request) for request in requests]
        return [self.thoughts[self.case_of(request)] for request in requests]

    def draw(self, requests, *, on_step=None):
        self.asked += [("draw", request) for request in requests]
        return [self.picture(request) for request in requests]

    def answer(self, requests, *, on_step=None):
        self.asked += [("answer", request) for request in requests]
        return ["<refined_prompt>as I see it</refined_prompt>" for _ in requests]

    def case_of(self, request):
        return request.id.rpartition("#")[0]

    def picture(self, request):
        if self.case_of(request) in self.draws:
            return self.draws[self.case_of(request)]
        case = self.cases[self.case_of(request)]
        if request.thought is None and request.prompt == case.facts["direct"]:
            return Sprites((("moon", 6),)).render(0)
        outcome = outcome_from(case.facts["outcome"])
        right = outcome.find(
            extract(request.thought or request.prompt.replace("Draw", "So draw", 1), "paper", "nano").text
        )
        return (outcome if right else Sprites((("moon", 6),))).render(request.seed)


def asks_of(benchmark, settings, k=1):
    return [Ask(case, setting, i, 10 + i) for setting in settings for case in benchmark.cases() for i in range(k)]


def scored_by_program(benchmark, model, settings, k=1):
    samples = benchmark.respond(model, asks_of(benchmark, settings, k))
    scored = [Scored(sample, benchmark.check(sample) if sample.status == "ok" else None) for sample in samples]
    return [replace(one, cause=benchmark.attribute(one)) for one in scored]


@pytest.fixture(scope="module")
def nano():
    return UReason(n=4, sets=("arithmetic",), levels=(2,))


def conclusion(case):
    return f"1 + 1 = 2 . So draw {outcome_from(case.facts['outcome'])} ."


def test_all_settings_share_a_thought_and_their_noise(nano):
    model = Painter(nano, {case.id: conclusion(case) for case in nano.cases()})
    asks = asks_of(nano, nano.settings, k=2)
    samples = nano.respond(model, asks)
    assert [sample.ask for sample in samples] == asks and {sample.status for sample in samples} == {"ok"}
    thinks = [request for kind, request in model.asked if kind == "think"]
    draws = [request for kind, request in model.asked if kind == "draw"]
    assert len(thinks) == 4 * 2 == len(set(thinks)) and len(draws) == 4 * 2 * 5
    assert {(r.id, r.seed) for r in thinks} == {(r.id, r.seed) for r in draws}
    assert nano.calls(asks) == {"think": 8, "draw": 40, "answer": 0, "judge": 0}
    by_setting = {sample.ask.setting: sample for sample in samples if sample.ask.case.id == nano.cases()[0].id}
    case = nano.cases()[0]
    assert by_setting[DIRECT].prompt == case.facts["direct"] and by_setting[DIRECT].thought is None
    assert by_setting[GUIDED].prompt == case.prompt and by_setting[GUIDED].thought == conclusion(case)
    refined = f"Draw {outcome_from(case.facts['outcome'])} ."
    assert by_setting[BARE].prompt == refined
    assert by_setting["decontextualized_4x"].prompt == " ".join([refined] * 4)
    assert by_setting["decontextualized_8x"].prompt == " ".join([refined] * 8)
    assert by_setting[CHAIN].image is None
    with_thought = [request.thought is not None for request in draws]
    assert sum(with_thought) == 8  # setting 2 alone draws in the context of the thought


def test_gains_are_paired_and_causes_tell_reasoning_from_drawing(nano):
    one, two, three, four = nano.cases()
    thoughts = {one.id: conclusion(one), two.id: "1 + 1 = 2 . So draw 6 moons .", three.id: "1 + 1 = 2 .",
                four.id: conclusion(four)}  # fmt: skip
    model = Painter(nano, thoughts, {four.id: Sprites((("moon", 5),)).render(0)})
    scored = scored_by_program(nano, model, (DIRECT, GUIDED, BARE, CHAIN))
    causes = {(s.sample.ask.setting, s.sample.ask.case.id): s.cause for s in scored}
    assert [causes[DIRECT, case.id] for case in nano.cases()] == ["wrong, no thought"] * 4
    assert [causes[GUIDED, case.id] for case in nano.cases()] == [
        "",
        "reasoning wrong",
        "reasoning wrong",
        "drawn wrong",
    ]
    assert [causes[BARE, case.id] for case in nano.cases()] == ["", "reasoning wrong", "not extracted", "drawn wrong"]
    assert [causes[CHAIN, case.id] for case in nano.cases()] == ["", "reasoning wrong", "reasoning wrong", ""]
    scores = nano.scores(scored)
    assert json.loads(json.dumps(scores)) == scores
    assert scores[DIRECT]["overall"]["value"] == 0 and scores[GUIDED]["arithmetic"]["value"] == 0.25
    assert scores[CHAIN]["arithmetic"]["value"] == 0.5 and scores[BARE]["arithmetic"]["n"] == 4
    gain = scores["gains"]["reasoning"]["arithmetic"]
    assert (gain["only_second"], gain["neither"], gain["difference"]["value"]) == (1, 3, 0.25)
    assert scores["gains"]["interference"]["overall"]["difference"]["value"] == 0
    given = scores["of_right_thoughts"]  # the first case is drawn right, the last is not
    assert {name: (given[name]["arithmetic"]["value"], given[name]["overall"]["n"]) for name in given} == {
        GUIDED: (0.5, 2), BARE: (0.5, 2)
    }  # fmt: skip
    assert scores["extraction"] == {
        "label": scores["extraction"]["label"], "none": scores["extraction"]["none"],
    } and scores["extraction"]["label"]["value"] == 0.75  # fmt: skip
    assert scores["outcomes"][BARE]["not_extracted"]["value"] == 0.25  # and it is in the denominator
    titles = [table.title for table in nano.tables(scored)]
    assert titles[:2] == ["Visual verification accuracy (Table 2)", "Quality of the reasoning chain (Table 3)"]
    for table in nano.tables(scored):
        assert Table.from_dict(table.to_dict()) == table and {len(row) for row in table.rows} == {len(table.columns)}
        assert all(table.columns), table.title


def test_a_thought_or_picture_that_fails_alone_is_a_status(nano):
    broken, silent, *_ = nano.cases()
    thoughts = {case.id: conclusion(case) for case in nano.cases()}
    thoughts[broken.id] = ValueError("refused")
    model = Painter(nano, thoughts, {silent.id: RuntimeError("no picture\nat all")})
    scored = {(s.sample.ask.setting, s.sample.ask.case.id): s for s in scored_by_program(nano, model, (GUIDED, BARE))}
    failed = scored[GUIDED, broken.id]
    assert (failed.outcome, failed.sample.note) == ("generation_failed", "no thought: ValueError: refused")
    assert scored[BARE, silent.id].sample.note == "RuntimeError: no picture"
    assert scored[BARE, silent.id].cause == "generation failed"


def test_several_draws_are_clustered_by_case(nano):
    model = Painter(nano, {case.id: conclusion(case) for case in nano.cases()})
    scored = scored_by_program(nano, model, (DIRECT, GUIDED), k=3)
    scores = nano.scores(scored)
    assert scores[GUIDED]["arithmetic"]["n"] == 4 and scores["gains"]["reasoning"]["overall"]["difference"]["n"] == 4
    assert scores["outcomes"][GUIDED]["pass"]["distinct"] == 4


def test_an_external_model_writes_the_prompts_that_are_drawn(nano):
    writer = Painter(nano, {})
    benchmark = UReason(n=4, sets=("arithmetic",), levels=(2,), external=writer)
    assert benchmark.settings == SETTINGS and benchmark.revision != nano.revision
    painter = Painter(nano, {}, {case.id: Sprites((("moon", 1),)).render(0) for case in nano.cases()})
    world_of_words = UReason(world="everyday", n=2, sets=("text",), external=writer, settings=(EXTERNAL,))
    painter.draws |= {case.id: Sprites((("moon", 1),)).render(0) for case in world_of_words.cases()}
    samples = world_of_words.respond(painter, asks_of(world_of_words, (EXTERNAL,)))
    assert [sample.prompt for sample in samples] == ["as I see it"] * 2
    (kind, request), *_ = writer.asked
    case = world_of_words.cases()[0]
    assert kind == "answer" and request.prompt == prompts.external_prompt(case.facts["direct"])
    assert [kind for kind, _ in painter.asked] == ["draw"] * 2


# --- everyday: a judge is asked ------------------------------------------------------------------------------------


class Judge:
    """Says yes or no to Figure 25 and to Figure 26."""

    dialect = "paper"

    def __init__(self, picture, thought):
        self.says = {"image": picture, "reading": thought}
        self.questions = []

    async def __call__(self, prompt, images=(), *, parse=None, attempts=3, schema=None):
        kind = "image" if images else "reading"
        self.questions.append((kind, prompt))
        if self.says[kind] is None:
            raise Unparseable("Perhaps.")
        return parse(f"I look. <answer>{self.says[kind]}</answer>")


@pytest.fixture(scope="module")
def everyday():
    return UReason(world="everyday", n=5, sets=("attribute", "text"), levels=(2,))


def everyday_samples(benchmark, setting, thought):
    picture = Sprites((("moon", 1),)).render(0)
    cases = benchmark.cases()
    model = Painter(benchmark, {case.id: thought for case in cases}, {case.id: picture for case in cases})
    return benchmark.respond(model, asks_of(benchmark, (setting,)))


@pytest.mark.parametrize(
    ("picture", "thought", "asked", "cause"),
    [
        ("Yes", "No", ["image"], ""),
        ("No", "Yes", ["image", "reading"], "drawn wrong"),
        ("No", "No", ["image", "reading"], "reasoning wrong"),
        ("No", None, ["image", "reading"], "wrong, reasoning not judged"),
    ],
)
def test_the_judge_sees_the_picture_first_and_of_wrong_ones_reads_the_thought(everyday, picture, thought, asked, cause):
    sample = next(
        s for s in everyday_samples(everyday, GUIDED, "refined prompt: a kite") if s.ask.case.set == "attribute"
    )
    assert everyday.check(sample) is None
    judge = Judge(picture, thought)
    verdict = asyncio.run(everyday.judge(sample, judge))
    assert [kind for kind, _ in judge.questions] == asked and verdict.passed == (picture == "Yes")
    case = sample.ask.case
    assert judge.questions[0][1] == prompts.verify_image_prompt(case.facts["criterion"])
    if len(asked) > 1:
        question = prompts.verify_reasoning_prompt(case.prompt, sample.thought, case.facts["criterion"])
        assert judge.questions[1][1] == question
    assert everyday.attribute(Scored(sample, verdict, "judge")) == cause


def test_a_picture_whose_judge_never_answers_is_unparseable(everyday):
    sample = everyday_samples(everyday, GUIDED, "refined prompt: a kite")[0]
    with pytest.raises(Unparseable):
        asyncio.run(everyday.judge(sample, Judge(None, "Yes")))
    assert everyday.attribute(Scored(sample, None, "judge", "unparseable")) == "judge unreadable"
    assert everyday.attribute(Scored(sample, None, "judge", "judge_failed")) == "judge failed"


def test_thoughts_are_checked_by_program_where_they_are_plain_and_judged_elsewhere(everyday):
    texts = [case for case in everyday.cases() if case.set == "text"]
    answer = texts[0].facts["outcome"]["text"]
    samples = everyday_samples(everyday, CHAIN, f'It follows. refined prompt: a sign that reads "{answer}"')
    verdicts = {sample.ask.case.id: everyday.check(sample) for sample in samples}
    assert verdicts[texts[0].id].passed
    assert all(verdicts[case.id].status == "fail" for case in texts[1:] if case.facts["outcome"]["text"] != answer)
    open_ = next(sample for sample in samples if sample.ask.case.set == "attribute")
    assert verdicts[open_.ask.case.id] is None
    judge = Judge("No", "Yes")
    assert asyncio.run(everyday.judge(open_, judge)).passed and [kind for kind, _ in judge.questions] == ["reading"]
    vague = everyday_samples(everyday, CHAIN, "Something is written there.")
    assert {everyday.check(sample) for sample in vague} == {None}


def test_prompts_ask_for_a_tag_unless_the_released_code_is_followed(everyday):
    official = UReason(world="everyday", n=5, sets=("attribute", "text"), levels=(2,), compat="official")
    assert [case.prompt for case in official.cases()] == [case.prompt for case in everyday.cases()]
    asked = {}
    for benchmark in (everyday, official):
        sample = everyday_samples(benchmark, GUIDED, "a kite")[0]
        asked[benchmark.compat] = sample.prompt.removeprefix(sample.ask.case.prompt)
    assert asked == {"paper": "\n" + prompts.ASK_FOR_REFINED_PROMPT, "official": ""}
    assert {s.status for s in everyday_samples(everyday, BARE, "a kite")} == {"not_extracted"}
    whole = everyday_samples(official, BARE, "a kite")
    assert {(s.status, s.prompt, s.facts["extraction"]) for s in whole} == {("ok", "a kite", "whole thought")}
    assert official.revision != everyday.revision


def test_nano_judges_nano_by_caption_and_nobody_else(nano, everyday):
    case = next(case for case in nano.cases() if len(case.facts["outcome"]["groups"]) == 1)
    judged = UReason(n=4, sets=("arithmetic",), levels=(2,), verifier="judge")
    model = Painter(judged, {c.id: conclusion(c) for c in judged.cases()})
    samples = {s.ask.case.id: s for s in judged.respond(model, asks_of(judged, (GUIDED,)))}
    assert nano.check(samples[case.id]).passed and judged.check(samples[case.id]) is None

    class Nano:
        dialect = "nano"

        async def __call__(self, prompt, images=(), *, parse=None, attempts=3, schema=None):
            assert prompt == "Caption :" and len(images) == 1
            return parse(f"Caption: {outcome_from(case.facts['outcome'])}")

    assert asyncio.run(judged.judge(samples[case.id], Nano())).passed
    two = next(c for c in nano.cases() if len(c.facts["outcome"]["groups"]) == 2)
    assert asyncio.run(judged.judge(samples[two.id], Nano())).status == "unreadable"
    picture = everyday_samples(everyday, GUIDED, "a kite")[0]
    with pytest.raises(UsageError, match="images but those of its own world"):
        asyncio.run(everyday.judge(picture, Nano()))


# --- the published files -------------------------------------------------------------------------------------------


def test_a_folder_of_our_own_is_the_same_benchmark(tmp_path):
    items = Task(EVERYDAY, ("spatial", "text")).generate(10, 1, "test", 0)
    write_folder(tmp_path, items)
    benchmark = UReason(tmp_path)
    assert benchmark.sets == ("spatial", "text") and len(benchmark.cases()) == 10 and not benchmark.published
    assert {case.category for case in benchmark.cases()} == {item.facts["subcategory"] for item in items}
    assert [case.id for case in UReason(tmp_path, sets=("text",)).cases()] == [
        item.id for item in items if item.facts["task"] == "text"
    ]
    with pytest.raises(DataError, match=r"has no arithmetic\.jsonl"):
        UReason(tmp_path, sets=("arithmetic",))


def test_published_rows_are_judged_and_stand_beside_the_paper_s(tmp_path):
    for task, first in (("code", 101), ("spatial", 301)):
        for prefix in ("", "direct_"):
            rows = [{"id": first + i, "prompt": f"{prefix}Task {i}", "expect_en": f"A {task} {i}.", "category": task}
                    for i in range(2)]  # fmt: skip
            (tmp_path / f"{prefix}{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = UReason(tmp_path)
    assert benchmark.yours and [case.id for case in benchmark.cases()] == ["101", "102", "301", "302"]
    benchmark.published = True  # as if they were the published ones
    picture = Sprites((("moon", 1),)).render(0)
    model = Painter(benchmark, {c.id: "refined prompt: x" for c in benchmark.cases()},
                    {c.id: picture for c in benchmark.cases()})  # fmt: skip
    samples = benchmark.respond(model, asks_of(benchmark, (DIRECT, GUIDED, BARE, CHAIN)))
    assert [benchmark.check(sample) for sample in samples] == [None] * 16
    verdict = Verdict((Check("criterion", "pass"),))
    tables = benchmark.tables([Scored(sample, verdict, "judge") for sample in samples])
    cells = {row[0]: row for row in tables[0].rows}
    assert cells["Bagel in the paper, 1 Direct"][1:] == ("0.10", None, "0.03", None, "–", None)
    assert tables[1].rows[1] == ("Bagel in the paper", "0.93", "0.88", "–")


def test_what_cannot_be_meant_is_named(tmp_path):
    with pytest.raises(UsageError, match="UReason has no compat papers"):
        UReason(n=1, compat="papers")
    with pytest.raises(UsageError, match="has no setting cot"):
        UReason(n=1, settings=("cot",))
    with pytest.raises(UsageError, match="needs a model that writes the refined prompts"):
        UReason(n=1, settings=(EXTERNAL,))
    with pytest.raises(UsageError, match="the nano world has no text"):
        UReason(n=1, sets=("text",))
    with pytest.raises(DataError, match="is no folder"):
        UReason(tmp_path / "nowhere")


# --- nano for real -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nano_is_scored_in_every_setting_and_asked_once(tmp_path):
    def plan(settings):
        benchmark = UReason(n=3, levels=(1,), settings=settings)
        return EvaluationPlan(checkpoint="shipped", benchmarks=[benchmark], config=EvalConfig(out=str(tmp_path)))

    first = run(plan(None))
    result = first.results["ureason"]
    assert result.settings == tuple(name for name in SETTINGS if name != EXTERNAL) and result.n == 6 * 6
    undrawn = sum(one.outcome == "not_extracted" for one in first.scored("ureason"))
    assert first.calls["think"]["made"] == 6 and first.calls["draw"]["made"] == 6 * 5 - undrawn
    assert not result.unjudged and list(result.scores["gains"]) == [g for g in counting.GAINS if g != "external"]
    again = run(plan((GUIDED, BARE)))
    assert {counts["made"] for counts in again.calls.values()} == {0}
    assert again.results["ureason"].scores[BARE] == result.scores[BARE]
    for one in first.scored("ureason"):
        assert one.by == "program" and one.outcome in ("pass", "fail", "unreadable", "not_extracted")
        assert bool(one.cause) != one.passed


def test_nano_world_cases_are_the_task_s_items():
    ids = [case.id for case in UReason(n=6).cases()]
    items = [item for task in ("code", "arithmetic") for level in (1, 2, 3)
             for item in Task(NANO, (task,)).generate(2, level, "test", 0)]  # fmt: skip
    assert ids == [item.id for item in items]
