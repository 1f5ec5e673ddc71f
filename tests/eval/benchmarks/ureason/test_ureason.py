"""UReason: refined prompts, what each setting asks, gains, causes, types of errors, the judge's questions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.eval.benchmarks.doubles import Judge, Model, checked
from tests.eval.benchmarks.published import row, write
from tests.models.test_remote import Reply, refused, says, serving
from uni_train.cli.main import uni_train
from uni_train.core.errors import UsageError, UserError
from uni_train.data_gen.objects import EVERYDAY, NANO
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.files import write_folder
from uni_train.data_gen.ureason.outcomes import Sprites, outcome_from
from uni_train.data_gen.ureason.task import UReason as Task
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source, Unparseable
from uni_train.eval.benchmarks.ureason import UReason, errors, lengths
from uni_train.eval.benchmarks.ureason.counting import Count
from uni_train.eval.benchmarks.ureason.settings import BARE, CHAIN, DIRECT, EXTERNAL, GUIDED, SETTINGS
from uni_train.eval.extraction import Refined, extract
from uni_train.eval.generation import asks_of
from uni_train.eval.prompts import ureason as prompts
from uni_train.eval.results import Results
from uni_train.models.pictures import encode_png

WORDS = {"world": "everyday", "n": 5, "sets": ("attribute", "text")}
MOON = Sprites((("moon", 1),)).render(0)


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
        ("<refined_prompt>a</refined_prompt> no: <refined_prompt>b\n</refined_prompt>", ("b", "tag"),
         ("<refined_prompt>a</refined_prompt> no: <refined_prompt>b\n</refined_prompt>", "whole thought")),
        ("<refined_prompt> </refined_prompt>", ("", "none"), ("<refined_prompt> </refined_prompt>", "whole thought")),
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


def painter(benchmark, thoughts, draws=None):
    """thoughts, draws: of each case's id; without an entry it draws nano's image of what it says or is asked."""
    cases = {case.id: case for case in benchmark.cases()}

    def draw(request):
        case = cases[request.id.rpartition("#")[0]]
        if draws and case.id in draws:
            return draws[case.id]
        if request.thought is None and request.prompt == case.facts["direct"]:
            return Sprites((("moon", 6),)).render(0)
        outcome = outcome_from(case.facts["outcome"])
        said = request.thought or request.prompt.replace("Draw", "So draw", 1)
        right = outcome.find(extract(said, "paper", "nano").text)
        return (outcome if right else Sprites((("moon", 6),))).render(request.seed)

    return Model(think=lambda request: thoughts[request.id.rpartition("#")[0]], draw=draw)


def drawing_moons(benchmark, thought="?"):
    ids = [case.id for case in benchmark.cases()]
    return painter(benchmark, dict.fromkeys(ids, thought), dict.fromkeys(ids, MOON))


@pytest.fixture(scope="module")
def nano():
    return UReason(Source(n=4, sets=("arithmetic",)), levels=(2,))


def conclusion(case):
    return f"1 + 1 = 2 . So draw {outcome_from(case.facts['outcome'])} ."


def conclusions(benchmark):
    return {case.id: conclusion(case) for case in benchmark.cases()}


def test_all_settings_share_a_thought_and_their_noise(nano):
    model = painter(nano, conclusions(nano))
    asks = asks_of(nano.cases(), nano.settings, k=2)
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
    assert sum(request.thought is not None for request in draws) == 8  # setting 2 alone draws in its context
    scores = nano.scores(checked(nano, samples))  # several draws are clustered by case
    assert scores[GUIDED]["arithmetic"]["n"] == scores["gains"]["reasoning"]["overall"]["difference"]["n"] == 4
    assert scores["outcomes"][GUIDED]["pass"]["distinct"] == 4


def test_gains_are_paired_and_causes_tell_reasoning_from_drawing(nano):
    _, two, three, four = nano.cases()
    wrong = {two.id: "1 + 1 = 2 . So draw 6 moons .", three.id: "1 + 1 = 2 ."}
    model = painter(nano, conclusions(nano) | wrong, {four.id: Sprites((("moon", 5),)).render(0)})
    scored = checked(nano, nano.respond(model, asks_of(nano.cases(), (DIRECT, GUIDED, BARE, CHAIN))))
    causes = {(s.sample.ask.setting, s.sample.ask.case.id): s.cause for s in scored}
    for setting, said in {
        DIRECT: ["wrong, no thought"] * 4,
        GUIDED: ["", "reasoning wrong", "reasoning wrong", "drawn wrong"],
        BARE: ["", "reasoning wrong", "not extracted", "drawn wrong"],
        CHAIN: ["", "reasoning wrong", "reasoning wrong", ""],
    }.items():
        assert [causes[setting, case.id] for case in nano.cases()] == said, setting
    scores = nano.scores(scored)
    assert scores[DIRECT]["overall"]["value"] == 0 and scores[GUIDED]["arithmetic"]["value"] == 0.25
    assert scores[CHAIN]["arithmetic"]["value"] == 0.5 and scores[BARE]["arithmetic"]["n"] == 4
    gain = scores["gains"]["reasoning"]["arithmetic"]
    assert (gain["only_second"], gain["neither"], gain["difference"]["value"]) == (1, 3, 0.25)
    assert scores["gains"]["interference"]["overall"]["difference"]["value"] == 0
    given = scores["of_right_thoughts"]  # the first case is drawn right, the last is not
    assert {name: (given[name]["arithmetic"]["value"], given[name]["overall"]["n"]) for name in given} == {
        GUIDED: (0.5, 2), BARE: (0.5, 2)
    }  # fmt: skip
    assert {how: one["value"] for how, one in scores["extraction"].items()} == {"label": 0.75, "none": 0.25}
    assert scores["outcomes"][BARE]["not_extracted"]["value"] == 0.25  # and it is in the denominator
    titles = [table.title for table in nano.tables(scored)]
    assert titles[:2] == ["Visual verification accuracy (Table 2)", "Quality of the reasoning chain (Table 3)"]


def test_a_thought_or_picture_that_fails_alone_is_a_status(nano):
    broken, silent, *_ = nano.cases()
    thoughts = conclusions(nano) | {broken.id: ValueError("refused")}
    model = painter(nano, thoughts, {silent.id: RuntimeError("no picture\nat all")})
    samples = nano.respond(model, asks_of(nano.cases(), (GUIDED, BARE)))
    scored = {(one.sample.ask.setting, one.sample.ask.case.id): one for one in checked(nano, samples)}
    failed = scored[GUIDED, broken.id]
    assert (failed.outcome, failed.sample.note) == ("generation_failed", "no thought: ValueError: refused")
    assert scored[BARE, silent.id].sample.note == "RuntimeError: no picture"
    assert scored[BARE, silent.id].cause == "generation failed"


def written_by(writer, **source):
    return Source(open_model=lambda name: writer, **source)


def test_an_external_model_writes_the_prompts_that_are_drawn(nano):
    writer = Model(answer="<refined_prompt>as I see it</refined_prompt>")
    benchmark = UReason(written_by(writer, n=4, sets=("arithmetic",)), prompt_model="writer", levels=(2,))
    assert benchmark.settings == SETTINGS and benchmark.revision != nano.revision
    world_of_words = UReason(written_by(writer, world="everyday", n=2, sets=("text",)), prompt_model="writer")
    model = drawing_moons(world_of_words)
    samples = world_of_words.respond(model, asks_of(world_of_words.cases(), (EXTERNAL,)))
    assert [sample.prompt for sample in samples] == ["as I see it"] * 2
    (_, request), _ = writer.asked
    assert request.prompt == prompts.external_prompt(world_of_words.cases()[0].facts["direct"])
    assert [kind for kind, _ in model.asked] == ["draw"] * 2
    assert EXTERNAL not in nano.settings


def judge_that_says(picture, thought):
    """Yes, no or nothing readable to Figure 25 (an image) and to Figure 26 (a thought)."""

    def reply(prompt, images):
        said = picture if images else thought
        return f"I look. <answer>{said}</answer>" if said else "Perhaps."

    return Judge(reply)


@pytest.fixture(scope="module")
def everyday():
    return UReason(Source(**WORDS), levels=(2,))


def everyday_samples(benchmark, setting, thought):
    return benchmark.respond(drawing_moons(benchmark, thought), asks_of(benchmark.cases(), (setting,)))


@pytest.mark.parametrize(
    ("picture", "thought", "asked", "cause"),
    [
        ("Yes", "No", 1, ""),
        ("No", "Yes", 2, "drawn wrong"),
        ("No", "No", 2, "reasoning wrong"),
        ("No", None, 2, "wrong, reasoning not judged"),
    ],
)
def test_the_judge_sees_the_picture_first_and_of_wrong_ones_reads_the_thought(everyday, picture, thought, asked, cause):
    samples = everyday_samples(everyday, GUIDED, "refined prompt: a kite")
    sample = next(one for one in samples if one.ask.case.set == "attribute")
    assert everyday.check(sample) is None
    judge = judge_that_says(picture, thought)
    verdict = asyncio.run(everyday.judge(sample, judge))
    case = sample.ask.case
    questions = [prompts.verify_image_prompt(case.facts["criterion"]),
                 prompts.verify_reasoning_prompt(case.prompt, sample.thought, case.facts["criterion"])]  # fmt: skip
    assert [(prompt, len(images)) for prompt, images in judge.asked] == [*zip(questions, (1, 0), strict=True)][:asked]
    assert verdict.passed == (picture == "Yes") and everyday.attribute(Scored(sample, verdict, "judge")) == cause


def test_a_picture_whose_judge_never_answers_is_unparseable(everyday):
    sample = everyday_samples(everyday, GUIDED, "refined prompt: a kite")[0]
    with pytest.raises(Unparseable):
        asyncio.run(everyday.judge(sample, judge_that_says(None, "Yes")))
    assert everyday.attribute(Scored(sample, None, "judge", "unparseable")) == "judge unparseable"
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
    judge = judge_that_says("No", "Yes")
    assert asyncio.run(everyday.judge(open_, judge)).passed and [len(images) for _, images in judge.asked] == [0]
    vague = everyday_samples(everyday, CHAIN, "Something is written there.")
    assert {everyday.check(sample) for sample in vague} == {None}


@pytest.mark.parametrize(("settings", "lacking"), [("[reasoning_chain]", 0), ("[]", 5)])
def test_a_model_that_cannot_draw_is_scored_by_its_thoughts(settings: str, lacking: int, tmp_path: Path) -> None:
    """One thought of each instance and one judgement of it, and no image that is scored."""
    rows = [row("ureason", id=number, prompt=f"Why {number}?") for number in (1, 2, 3)]
    data = f"data.ureason={write(tmp_path / 'data', 'ureason', *rows)}"

    def reply(path: str, body: bytes) -> Reply:
        if "images" in path:
            return refused(404, "Not Found")
        return says("<answer>Yes</answer>" if b"<answer>" in body else "It is a pen.\nRefined prompt: a pen")

    with serving(reply) as one:
        address = f"{one.url}#painter"
        words = ["eval", address, "-b", "ureason", data, f"settings={settings}", f"judge.model={address}"]
        done = CliRunner().invoke(uni_train, [*words, f"out={tmp_path}", "name=it", "remote.retries=0"])
    assert done.exit_code == 0, done.output
    chats = [body for path, body, _ in one.asked if path.endswith("/chat/completions")]
    assert Counter(b"<answer>" in body for body in chats) == {False: 3, True: 3}
    assert lacking or not any("images" in path for path, _, _ in one.asked)
    (scores,) = json.loads((tmp_path / "it/scores.json").read_text())["results"]
    assert scores["outcomes"]["reasoning_chain"] == {"spatial": {"pass": 3}}
    assert len(scores["no_skill"]) == lacking and not scores["not_scored"] and not scores["unjudged"]


def test_prompts_are_those_published_and_ask_for_a_tag_where_that_is_wanted(everyday):
    """The extraction is strict unless the released code is followed."""
    official = UReason(Source(**WORDS, compat="official"), levels=(2,))
    tagged = UReason(Source(**WORDS), prompt="tagged", levels=(2,))
    assert len({everyday.revision, official.revision, tagged.revision}) == 3
    tag = "\n" + prompts.ASK_FOR_REFINED_PROMPT
    for benchmark, asked, bare in (
        (everyday, "", ("not_extracted", "")),
        (tagged, tag, ("not_extracted", "")),
        (official, "", ("ok", "a kite")),
    ):
        sample = everyday_samples(benchmark, GUIDED, "a kite")[0]
        assert sample.prompt == sample.ask.case.prompt + asked
        assert {(one.status, one.prompt) for one in everyday_samples(benchmark, BARE, "a kite")} == {bare}


def test_nano_judges_nano_by_caption_and_nobody_else(nano, everyday):
    case = next(case for case in nano.cases() if len(case.facts["outcome"]["groups"]) == 1)
    judged = UReason(Source(n=4, sets=("arithmetic",), verifier="judge"), levels=(2,))
    samples = {
        s.ask.case.id: s
        for s in judged.respond(painter(judged, conclusions(judged)), asks_of(judged.cases(), (GUIDED,)))
    }
    assert nano.check(samples[case.id]).passed and judged.check(samples[case.id]) is None
    nanos = Judge(lambda *_: f"Caption: {outcome_from(case.facts['outcome'])}", dialect="nano")
    assert asyncio.run(judged.judge(samples[case.id], nanos)).passed
    assert [(prompt, len(images)) for prompt, images in nanos.asked] == [("Caption :", 1)]
    two = next(c for c in nano.cases() if len(c.facts["outcome"]["groups"]) == 2)
    assert asyncio.run(judged.judge(samples[two.id], nanos)).status == "unreadable"
    picture = everyday_samples(everyday, GUIDED, "a kite")[0]
    with pytest.raises(UsageError, match="images but those of its own world"):
        asyncio.run(everyday.judge(picture, nanos))


def test_a_folder_of_our_own_is_the_same_benchmark(tmp_path):
    items = Task(EVERYDAY, ("spatial", "text")).generate(10, 1, "test", 0)
    write_folder(tmp_path, items)
    benchmark = UReason(Source(data=tmp_path))
    assert {case.category for case in benchmark.cases()} == {item.facts["subcategory"] for item in items}
    texts = [item.id for item in items if item.facts["task"] == "text"]
    assert [case.id for case in UReason(Source(data=tmp_path, sets=("text",))).cases()] == texts and len(
        benchmark.cases()
    ) == 10


def answered(benchmark: UReason, case: Case, drawn: Sprites, thought: str, setting: str = GUIDED) -> Scored:
    sample = Sample(Ask(case, setting, 0, 1), prompt=case.prompt, thought=thought, parts=(encode_png(drawn.render(1)),))
    return Scored(sample, benchmark.check(sample))


@pytest.fixture(scope="module")
def easy() -> UReason:
    return UReason(Source(n=4, sets=("arithmetic",)), levels=(1,))


def test_a_program_tells_them_apart_in_nano_s_world(easy: UReason) -> None:
    case = easy.cases()[0]
    ((name, count),) = case.facts["outcome"]["groups"]
    right = f"So draw {Sprites(((name, count),))} ."
    other = next(one for one in ("moon", "cup", "key") if one not in case.prompt and one != name)
    same, more = Sprites(((name, count),)), Sprites(((name, count + 1),))
    found = [
        answered(easy, case, same, right), answered(easy, case, more, right),
        answered(easy, case, Sprites(((other, count),)), right), answered(easy, case, more, "So draw 9 moons ."),
        answered(easy, case, more, right, BARE),
    ]  # fmt: skip
    kinds = [errors.type_of(one, easy.right(one)) for one in found]
    assert kinds == [None, errors.TASK, errors.HALLUCINATION, errors.REASONING_ERROR, None]
    shares = Count(easy, Results(easy.units(found, ""))).errors()
    third = dict.fromkeys((errors.REASONING_ERROR, errors.HALLUCINATION, errors.TASK), pytest.approx(1 / 3))
    assert {kind: one.value for kind, one in shares.items()} == {**third, errors.MISREAD: 0.0}
    assert any(table.title.startswith("Error types") for table in easy.tables(found))


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


def test_contexts_are_measured_and_cut_into_thirds(easy: UReason) -> None:
    asks = [Ask(Case(f"c{i}", "text", "one two"), GUIDED, 0, i) for i in range(9)]
    scored = [Scored(Sample(ask, prompt="one two", thought="w " * i)) for i, ask in enumerate(asks)]
    size, unit = lengths.measure("")
    assert unit == "words" and lengths.mean_and_spread([size(one.sample) for one in scored]) == "6.0 (2.6)"
    thirds = lengths.thirds(scored, size)
    assert [(name, len(some)) for name, some in thirds] == [("2 to 4", 3), ("5 to 7", 3), ("8 to 10", 3)]
    assert lengths.thirds(scored[:8], size) == []
    with pytest.raises(UserError, match="no tokenizer that can be read"):
        lengths.measure("nowhere")[0](scored[0].sample)


def test_nano_world_cases_are_the_task_s_items():
    items = [item for task in ("code", "arithmetic") for level in (1, 2, 3)
             for item in Task(NANO, (task,)).generate(2, level, "test", 0)]  # fmt: skip
    assert [case.id for case in UReason(Source(n=6)).cases()] == [item.id for item in items]
