"""The pretraining rows: they fit the model, they are true, and none of them teaches what STARS is to teach."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from functools import cache
from itertools import chain

import pytest

from uni_train.config.compose import compose
from uni_train.data_gen import sprites
from uni_train.data_gen.maths.expressions import canonical, show, single
from uni_train.data_gen.objects import NANO, singular_of
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.sprites import verify_sprites
from uni_train.eval.reading import caption, yes_no
from uni_train.models.base import Example
from uni_train.models.nano import corpus, language, replay
from uni_train.models.nano.nano import MATHS_REPLAY, REPLAY, Nano
from uni_train.models.nano.tokenizer import WordTokenizer
from uni_train.recipes.pretrain import PretrainConfig

KINDS = tuple(corpus.sources(noise_draws=1))
PLAIN = re.compile(r"Draw ([1-6]) (\S+) \.")
OPEN = re.compile(r"Draw (?:some \S+|one of them) \.")
ASKED = re.compile(r"(?:Draw|Show) what (\S+) (?:means|is|denotes) \.|Draw the object denoted by (\S+) \.")
VERIFY = re.compile(re.escape(language.VERIFY_PROMPT).replace(re.escape("{question}"), "(.*)"))
JUDGEMENT = re.compile(r"Number : (right|wrong) \. Object : (right|wrong) \.\nFinal Answer: (YES|NO)")
REPLY = re.compile(rf"(.*?) ?Asked (.*) \. Seen (.*) \. {JUDGEMENT.pattern}")
ROOT = re.compile(r"√ (\d+|\((?:[^()√]|\([^()√]*\))*\))")
LINK = "(?:means|is|denotes)"
SIGNS = {"plus": "+", "minus": "-", "times": "*", "over": "/", "modulo": "%"}
DRAWS = 400


@cache
def rows(kind: str) -> tuple[Example, ...]:
    draw = corpus.sources(noise_draws=3)[kind]
    return tuple(draw(random.Random(seed)) for seed in range(DRAWS))


def asked_for(question: str) -> tuple[str, int]:
    """What a nano prompt asks for, worked out without data_gen: the singular, and how many."""
    singular = {form: noun.singular for noun in NANO.nouns for form in (noun.singular, noun.plural)}
    if asked := ASKED.search(question):
        meaning = dict(re.findall(rf"(\S+) {LINK} (\S+) \.", question[: asked.start()]))
        thing = asked[1] or asked[2]
        while thing in meaning:
            thing = meaning[thing]
        return singular[thing], 1
    words = [SIGNS.get(word, word) for word in question.split()]
    value = " ".join(word for word in words if re.fullmatch(r"\d+|[-+*/^%√()]", word))
    value = value.replace("^", "**").replace("/", "//")
    while "√" in value:  # the innermost root first; what is below it has at most one more pair of parentheses
        value = ROOT.sub(lambda root: str(math.isqrt(eval(root[1]))), value)
    named = [singular[word] for word in words if word in singular]
    return named[0], int(eval(value))


def nothing_is_said(prompt: str) -> bool:
    """Whether a reasoning prompt has no answer: about a symbol without a rule, or with a letter for a number."""
    if asked := ASKED.search(prompt):
        return (asked[1] or asked[2]) not in prompt[: asked.start()].split()
    return any(word in "ABCDEFGHJK" for word in prompt.split())


def shown_in(image) -> str:
    reading = sprites.read(image)
    if not reading.readable or reading.name is None:
        return language.UNCLEAR
    return language.counted(reading.name, reading.count or 0)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_fit_the_model_and_what_it_may_write_and_vary(kind: str) -> None:
    model, tokenizer = compose("nano_pretrain").model, WordTokenizer(language.vocabulary())
    side = model.architecture.image_size
    for row in rows(kind):
        for text in filter(None, (row.prompt, row.thought, row.answer, *(turn.text for turn in row.turns))):
            ids = tokenizer.encode(text)
            assert 0 < len(ids) <= model.architecture.max_text_tokens and tokenizer.decode(ids) == text
        for text in (row.thought, row.answer):
            # The closing marker counts as well: a text that does not fit could never be finished.
            assert text is None or len(tokenizer.encode(text)) < model.sampling.max_think_tokens
        for image in (*row.images, *([row.target] if row.target is not None else [])):
            assert image.shape == (side, side, 3)
    again = corpus.sources(noise_draws=3)[kind]
    texts = lambda row: (row.prompt, row.thought, row.answer, row.turns)  # noqa: E731
    for seed in (0, 1):
        first, second = rows(kind)[seed], again(random.Random(seed))
        assert texts(first) == texts(second)
        assert all((a == b).all() for a, b in zip(first.images, second.images, strict=True))
    assert len(set(map(texts, rows(kind)))) > (60 if kind != "caption" else 50)


def test_kinds_are_those_of_the_recipe_and_replayed_and_three_of_them_draw(nano: Nano) -> None:
    with_target = {kind for kind in KINDS if any(row.target is not None for row in rows(kind))}
    assert with_target == {"text_to_image", "control", "cot_image"}
    assert {row.noise_draws for kind in with_target for row in rows(kind)} == {3}
    config = compose("nano_pretrain")
    assert isinstance(config, PretrainConfig)
    assert {kind for part in config.parts.values() for kind in part.mixture.rows} == set(KINDS)
    for tasks, shares in ((("mapping",), REPLAY), (("maths", "mapping"), MATHS_REPLAY)):
        assert {name: share for name, (share, _) in nano.replay_rows(tasks).items()} == shares
        assert set(shares) <= set(KINDS) and sum(shares.values()) == pytest.approx(1)
    example = nano.replay_rows(())["cot_image"][1](random.Random(0))
    assert example.thought is not None and example.target is not None


def test_no_row_draws_the_answer_of_a_reasoning_prompt_without_a_thought() -> None:
    for row in chain.from_iterable(map(rows, KINDS)):
        if row.target is not None and row.thought is None:
            *_, request = corpus.sentences(row.prompt)
            assert PLAIN.fullmatch(request) or OPEN.fullmatch(request) or nothing_is_said(row.prompt), row.prompt
        elif row.target is not None and row.thought is not None:
            name, count = asked_for(row.prompt)
            assert row.thought.endswith(f"So draw {language.counted(name, count)} .")
            assert verify_sprites(row.target, name, count).passed


def test_a_control_image_is_what_the_last_sentence_asks_for_whatever_stands_before_it() -> None:
    requests = Counter()
    for row in rows("control"):
        *before, request = corpus.sentences(row.prompt)
        assert row.target is not None
        count, name = shown_in(row.target).split()
        if found := PLAIN.fullmatch(request):
            assert (count, name) == (found[1], found[2])
        elif request == language.ONE_OF_THEM or ASKED.fullmatch(request):
            assert count == "1" and any(rule.endswith(f" {name} .") for rule in before)
        else:
            assert {name, NANO.noun(singular_of(name)).plural} & set(row.prompt.split())
        kind = "plain" if found else request.split()[1] if OPEN.fullmatch(request) else "nothing said"
        requests[kind] += 1
        assert kind != "nothing said" or nothing_is_said(row.prompt)
    assert set(requests) == {"plain", "some", "one", "nothing said"} and min(requests.values()) > 0.03 * DRAWS


def test_plain_prompts_cover_the_world_and_are_drawn_right() -> None:
    seen = Counter()
    for row in rows("text_to_image"):
        found = PLAIN.fullmatch(row.prompt)
        assert found is not None and row.target is not None
        assert shown_in(row.target) == f"{found[1]} {found[2]}"
        seen[found[2].rstrip("s") if found[2] != "leaves" else "leaf"] += 1
    assert len(seen) == len(NANO.nouns) and min(seen.values()) > DRAWS / len(NANO.nouns) / 3


@pytest.mark.parametrize("kind", ["cot_text", "maths_answer"])
def test_thoughts_and_maths_answers_are_right(kind: str) -> None:
    tasks = Counter()
    for row in rows(kind):
        asked = language.counted(*asked_for(row.prompt))
        said = row.thought if kind == "cot_text" else row.answer
        assert said is not None and not row.images
        assert said == asked if kind != "cot_text" else said.endswith(f"So draw {asked} .")
        sums = re.search(r"\d [-+*/^%] [\d(√]|√|plus|minus|times|over|modulo", row.prompt)
        tasks["maths" if sums else "mapping"] += 1
    assert abs(tasks["maths"] / DRAWS - (1 if kind == "maths_answer" else replay.MATHS_SHARE)) < 0.1


def test_meanings_are_right_of_the_levels_asked_for_and_shorten_no_chain() -> None:
    links = Counter()
    draw = corpus.sources(noise_draws=1, levels=(1, 3, 3))["meanings"]
    for seed in range(100):
        row = draw(random.Random(seed))
        *rules, question = corpus.sentences(row.prompt.replace(" ?", " ."))
        said = re.findall(r"(\S+) means (\S+)", row.answer or "")
        assert [symbol for symbol, _ in said] == question.split()[1:-1]
        for place, (symbol, noun) in enumerate(said):
            assert asked_for(" ".join([*rules, f"Draw what {symbol} means ."]))[0] == noun
            (rule,) = (rule for rule in rules if rule.startswith(f"{symbol} "))
            assert rule.split()[2] not in dict(said[:place])
        links[len(rules) <= 4] += 1
    assert links[True] > 20 and links[False] > 50


def test_questions_sums_and_facts_are_answered_right_and_facts_are_of_every_split() -> None:
    split_by_text = {show(fact, spaced=True): split_of("maths", canonical(fact)) for fact in single(NANO.max_single)}
    splits = set()
    for kind in ("questions", "sums", "facts"):
        for row in rows(kind)[:50]:
            *rules, _ = corpus.sentences(row.turns[0].text or "")
            for place, (question, answer) in enumerate(zip(row.turns[::2], row.turns[1::2], strict=True)):
                asked, said = question.text or "", answer.text or ""
                assert answer.learn and not question.learn
                if kind == "questions":  # as prompts ask
                    assert said == f"1 {asked_for(' '.join([*rules, asked]) if place else asked)[0]}"
                else:
                    assert asked_for(f"Draw as many apples as {asked} .") == ("apple", int(said))
                if kind == "facts":
                    splits.add(split_by_text.get(asked))
    assert splits >= {"train", "validation", "test"}


def test_comparisons_are_right_and_equal_numbers_or_objects_alone_do_not_decide() -> None:
    kinds: Counter[tuple[bool, bool]] = Counter()
    forms = {form: noun for noun in NANO.nouns for form in (noun.singular, noun.plural)}
    for row in rows("compare"):
        for question, answer in zip(row.turns[::2], row.turns[1::2], strict=True):
            pair = re.fullmatch(r"Asked (\S+) (\S+) \. Seen (?:(\S+) (\S+)|unclear) \.", question.text or "")
            reply = JUDGEMENT.fullmatch(answer.text or "")
            assert pair is not None and reply is not None and answer.learn and not question.learn
            truth = (pair[1] == pair[3], pair[4] is not None and forms[pair[2]] is forms[pair[4]])
            assert (reply[1] == "right", reply[2] == "right") == truth
            assert reply[3] == ("YES" if all(truth) else "NO")
            kinds[truth] += 1
    total = kinds.total()
    assert len(kinds) == 4 and min(kinds.values()) > 0.1 * total
    assert 0.3 < kinds[True, True] / total < 0.5 and kinds[True, False] > 0.2 * total


def test_captions_say_what_the_reader_sees() -> None:
    unclear = 0
    for row in rows("caption"):
        assert row.prompt == language.CAPTION_PROMPT and row.answer is not None
        assert caption(row.answer) == shown_in(row.images[0])
        unclear += caption(row.answer) == language.UNCLEAR
    assert 0.1 * DRAWS < unclear < replay.DAMAGED_SHARE * DRAWS


def test_verification_replies_are_right_and_pictures_wrong_in_every_way() -> None:
    """Wrong by count, object and clarity: the filter must learn to notice each."""
    verdicts, ways = Counter(), Counter()
    for row in rows("verify"):
        question, reply = VERIFY.fullmatch(row.prompt), REPLY.fullmatch(row.answer or "")
        assert question is not None and reply is not None and row.thought is None and row.target is None
        name, count = asked_for(question[1])
        asked, seen, said = reply[2], reply[3], yes_no(row.answer or "")
        assert asked == language.counted(name, count)
        assert seen == shown_in(row.images[0])
        assert said is (reply[6] == "YES")
        verdicts[said, verify_sprites(row.images[0], name, count).passed] += 1
        if not said:
            same_object = seen.split()[-1].rstrip("s")[:3] == asked.split()[-1].rstrip("s")[:3]
            ways["unclear" if seen == language.UNCLEAR else "count" if same_object else "object"] += 1
    assert verdicts[True, False] == verdicts[False, True] == 0
    assert 0.3 < verdicts[True, True] / DRAWS < 0.55
    assert all(ways[way] > 0.05 * DRAWS for way in ("unclear", "count", "object")), ways
