"""UFO (anonymous, under review): does a model that draws and reads use its own cues as evidence?

A question about a future state is answered in two steps, first a cue, then the answer with it. The four schedules:
*direct* (no cue), *textual* (a sentence or two), *visual* (an image) and *joint* (both, each made from the question
alone). Cues of a case are made once, and all schedules share its noise.

Further settings: `textual_cue` and `visual_cue` score the cue itself (Table 5), `cue_dimensions` grades the visual one
(Table 8). Ours: `blind` asks without images (contamination), and the swaps answer with another cue than the model's
own: the published one ("true"), that of the next case of the set ("other"), or an empty one ("blank"). `interleaved`
asks for the answer at once, in which the model may write and draw in turns (`compose`); the last text answers.

A visual cue that could not be drawn is `compat`. "paper": the sample is generation_failed. "official", as the released
code: it is answered directly, and counted as visual.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.core.errors import UsageError
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval import reading
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    JudgeAsk,
    Option,
    Sample,
    Scored,
    Source,
    Step,
    benchmark,
    expect_known,
    failed,
    note_of,
    revision_of,
    verdict_of,
    with_image,
    with_parts,
)
from uni_train.eval.benchmarks.ufo import counting, prompts, rubric
from uni_train.eval.benchmarks.ufo.cases import HUB, read_folder
from uni_train.eval.benchmarks.ufo.generated import generated
from uni_train.eval.benchmarks.ufo.names import (
    ANSWERS,
    BLIND,
    CUES,
    DIMENSIONS,
    EXTRA,
    IMAGE_CUE,
    IMAGE_TAKING,
    INTERLEAVED,
    KINDS,
    SCHEDULES,
    SETS,
    SETTINGS,
    SWAPS,
    TEXT_CUE,
    TEXT_TAKING,
    TEXTUAL,
    kind_of_set,
    task_of_set,
)
from uni_train.eval.images import Image, StoredImage, bytes_of, pixels
from uni_train.eval.paper import TableSpec
from uni_train.eval.prompts import filled
from uni_train.eval.results import Metric, Results, Unit
from uni_train.models.pictures import decode_picture, encode_png

if TYPE_CHECKING:
    from uni_train.models.base import Request

PROTOCOL = "ufo/1"  # what is asked; a change makes another revision
# Section 4.2 decodes with top-k 1, which is greedy (`sampling.temperature=0`), in 100 steps, guided by text at 7.5.


@benchmark("ufo")
class Ufo(Benchmark):
    """UFO: two-step reasoning with textual and visual cues.

    source.data: a folder with the published files; None for `n` questions a task of our own, from `world` and `split`.
    source.sets: tasks, "_open" behind those without choices. extra: of "blind", "dimensions", "swap" and "interleaved",
    what is asked beside the schedules and cue accuracy. verifier: "judge" leaves open answers and cues of our own to
    the judge too.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name, title, hub = "ufo", "UFO", HUB
    known_sets = SETS
    headline = SCHEDULES
    overall = counting.AVERAGES["mean of regimes"]
    options = (Option("extra", (), "also ask some of blind, dimensions, swap, interleaved"),)

    def __init__(self, source: Source, *, extra: Sequence[str] = ()) -> None:
        expect_known("UFO", "extra", extra, tuple(EXTRA))
        every = generated(source) if source.data is None else read_folder(source.data)
        cases = [case for case in every if source.sets is None or case.set in source.sets]
        self._others = _others(cases)
        asked = {*ANSWERS, TEXT_CUE, IMAGE_CUE, *(setting for each in extra for setting in EXTRA[each])}
        super().__init__(source, cases, settings=[setting for setting in SETTINGS if setting in asked])
        self.total_cases = len(every)

    def content_hash(self, asked: Sequence[Any]) -> str:
        """Each case is hashed beside its images, so that no two layouts of the same bytes are one."""
        words = [PROTOCOL, self.compat, self.verifier, prompts.TEXTUAL_CUE, prompts.VISUAL_CUE, prompts.ANSWER_CHOICE]
        words += [prompts.ANSWER_OPEN, prompts.GIVEN_TEXT, prompts.GIVEN_IMAGE]
        return revision_of(*words, more=self._content())

    def _content(self) -> Iterator[bytes]:
        for case, row in zip(self._cases, self.hashed_rows(), strict=True):
            yield json.dumps(row, sort_keys=True, ensure_ascii=False).encode()
            for image in map(bytes_of, (*case.images, *(case.references or (b"",)))):
                yield len(image).to_bytes(8, "big") + image

    def reference(self, case: Case) -> bytes | None:
        """The published visual cue, as PNG."""
        return encode_png(_decoded(case.references[0])) if case.references else None

    def reference_answer(self, ask: Ask) -> Mapping[str, Any]:
        """The right answer, and the published cues."""
        facts = ask.case.facts
        return {"text": f"Answer: {facts['answer']}", "thought": facts["text_cue"], "images": ask.case.references}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """Cues once for all settings that share them. Judged are cues of published cases, and their open answers."""
        texts, images = (
            {_place(ask) for ask in asks if ask.setting in taking} for taking in (TEXT_TAKING, IMAGE_TAKING)
        )
        nano = {_place(ask) for ask in asks if _is_nano(ask.case)}
        composed = sum(ask.setting == INTERLEAVED for ask in asks)
        answers = sum(ask.setting not in CUES for ask in asks) - composed
        judged = sum(
            ask.setting == DIMENSIONS
            or ((ask.setting in CUES or kind_of_set(ask.case.set) == "open") and not self._by_program(ask.case))
            for ask in asks
        )
        calls = {
            "think": len(texts & nano), "draw": len(images), "answer": answers + len(texts - nano), "judge": judged,
        }  # fmt: skip
        return {**calls, "compose": composed} if composed else calls

    # --- asking --------------------------------------------------------------------------------------------------

    def begin(self, ask: Ask) -> Sample:
        """With the cue of a swap, where the data have it."""
        schedule, _, source = ask.setting.partition("_")
        if source == "blank":
            return Sample(ask, thought="") if schedule == TEXTUAL else with_image(Sample(ask), _blank(ask.case))
        if ask.setting not in SWAPS:
            return Sample(ask)
        owner = ask.case if source == "true" else self._others.get(ask.case.id)
        if owner is not None and schedule == TEXTUAL and owner.facts["text_cue"]:
            return Sample(ask, thought=str(owner.facts["text_cue"]))
        if owner is not None and schedule != TEXTUAL and owner.references:
            return with_image(Sample(ask), _decoded(owner.references[0]))
        return Sample(ask, "cue_missing", "the data have no such cue")

    def steps(self) -> Iterable[Step]:
        """Make the cues that are needed, then answer with them."""

        def textual(nano: bool) -> Callable[[Sample], bool]:
            return lambda sample: sample.ask.setting in TEXT_TAKING and _is_nano(sample.ask.case) is nano

        def visual(sample: Sample) -> bool:
            return sample.ask.setting in IMAGE_TAKING

        def answers(sample: Sample) -> bool:
            return sample.ask.setting not in (*CUES, INTERLEAVED) and not self._fails(sample)

        def at_once(sample: Sample) -> bool:
            return sample.ask.setting == INTERLEAVED

        say, draw = partial(_cue_request, prompts.TEXTUAL_CUE, "say"), partial(_cue_request, prompts.VISUAL_CUE, "draw")
        yield Step("answer", textual(False), say, _with_text_cue, _without_cue, once=True, makes="thought")
        yield Step("think", textual(True), say, _with_text_cue, _without_cue, once=True)
        yield Step("draw", visual, draw, with_image, _without_cue, once=True)
        yield Step("answer", answers, _answering, _answered, _answered)
        yield Step("compose", at_once, _answering, _composed)

    def _fails(self, sample: Sample) -> bool:
        """Whether a part of its cue could not be made, without which nothing is answered."""
        return "cue_failed" in sample.facts and self.compat == "paper"

    def finish(self, sample: Sample) -> Sample:
        if not self._fails(sample):
            return sample
        note = f"no cue: {sample.facts['cue_failed']}"
        return Sample(sample.ask, "generation_failed", note, thought=sample.thought)

    # --- scoring -------------------------------------------------------------------------------------------------

    def _by_program(self, case: Case) -> bool:
        return _is_nano(case) and self.verifier == "program"

    def check(self, sample: Sample) -> Verdict | None:
        """Choices, and open answers that are the reference word for word. Of nano: its open answers and cues too."""
        case, nano = sample.ask.case, self._by_program(sample.ask.case)
        if sample.ask.setting == DIMENSIONS:
            return None
        if _is_image_cue(sample):
            return _drawn(case, sample.drawn[-1]) if nano else None
        if sample.ask.setting == TEXT_CUE:
            return verdict_of("cue", _concludes(sample.thought or "", case), "the cue ends elsewhere") if nano else None
        answer = str(case.facts["answer"])
        if kind_of_set(case.set) == "mcq":
            chosen = sample.facts.get("choice")
            return verdict_of("answer", chosen == answer, f"chose {chosen}, right is {answer}")
        said = _reply(sample)
        same = reading.same(said, answer)
        if nano or (same and self.verifier == "program"):
            return verdict_of("answer", same, f"said {said!r}, right is {answer!r}")
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Cue accuracy, the five dimensions, and open answers that are not the reference word for word."""
        from uni_train.eval.judges.ways import dialect, tagged_yes_no

        if dialect(ask) == "nano":
            raise UsageError("nano cannot judge cues and answers of UFO", "Choose another judge.")
        case = sample.ask.case
        answer = str(case.facts["right"] or case.facts["answer"])
        if sample.ask.setting == DIMENSIONS:
            prompt = prompts.dimensions_prompt(case.prompt, answer)
            reply = await ask(prompt, sample.images, parse=reading.JsonReader(rubric.SCHEMA), schema=rubric.SCHEMA)
            return rubric.verdict_of(reply)
        reference = f"Reference cue: {case.facts['text_cue']}\n" if case.facts["text_cue"] else ""
        images: tuple[bytes, ...] = ()
        check, words = "cue", sample.thought or ""
        if _is_image_cue(sample):
            template, reason = prompts.JUDGE_IMAGE_CUE, "the judge does not accept the visual cue"
            images = (*map(bytes_of, case.references), *sample.images)
            reference += "The first image is the reference cue.\n" if case.references else ""
        elif sample.ask.setting == TEXT_CUE:
            template, reason = prompts.JUDGE_TEXT_CUE, "the judge does not accept the textual cue"
        else:
            check, template, words = "answer", prompts.JUDGE_OPEN, reading.open_answer(_reply(sample))
            reason = f"said {words!r}, right is {answer!r}"
        prompt = filled(template, question=case.prompt, answer=answer, reference=reference, cue=words, reply=words)
        return verdict_of(check, await ask(prompt, images, parse=tagged_yes_no), reason)

    def attribute(self, scored: Scored) -> str:
        """Of a visual cue that the rubric grades low, the failure mode that the judge names."""
        graded = scored.sample.ask.setting == DIMENSIONS and scored.outcome == "fail" and scored.verdict is not None
        mode = rubric.failure_mode(scored.verdict) if graded and scored.verdict is not None else None
        return mode or super().attribute(scored)

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The level of our own maths and mapping."""
        level = case.facts.get("level")
        return None if level is None else (f"level of {task_of_set(case.set)}", float(level))

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        return list(counting.units(scored))

    @classmethod
    def metrics(cls) -> Mapping[str, Metric]:
        """Tables 3 and 4."""
        return {
            counting.HEADS[kind]: Metric([name for name in SETS if kind_of_set(name) == kind], None) for kind in KINDS
        }

    def details(self, results: Results) -> Mapping[str, Any]:
        return counting.details(counting.Count(results))

    def specs(self, results: Results) -> Iterable[TableSpec]:
        return counting.specs(counting.Count(results), self.paper)


def _place(ask: Ask) -> tuple[str, int]:
    """Case (or what its cues are drawn as) and draw: who shares cues."""
    return str(ask.case.facts.get("drawn_as", ask.case.id)), ask.k


def _is_image_cue(sample: Sample) -> bool:
    """Also an image alone in whatever setting: a reference by which a judge is calibrated."""
    return sample.ask.setting == IMAGE_CUE or (sample.text is None and bool(sample.drawn))


def _request(ask: Ask, prompt: str, images: Iterable[np.ndarray]) -> Request:
    from uni_train.models.base import Request

    return Request("#".join(map(str, _place(ask))), prompt, tuple(images), seed=ask.seed)


def _cue_request(template: str, key: str, sample: Sample) -> Request:
    """The first step, about the question without its choices; nano is asked it as it stands, or as facts[key] says."""
    case = sample.ask.case
    nano = _is_nano(case)
    prompt = str(case.facts.get(key, case.prompt)) if nano else filled(template, Question=case.prompt)
    return _request(sample.ask, prompt, map(_decoded, case.images[: case.facts["inputs"]]))


def _answering(sample: Sample) -> Request:
    """The second step, with the visual cue behind the images of the question."""
    shown = [] if sample.ask.setting == BLIND else [_decoded(image) for image in sample.ask.case.images]
    return _request(sample.ask, _answer_prompt(sample), [*shown, *map(pixels, sample.drawn)])


def _with_text_cue(sample: Sample, cue: str) -> Sample:
    return replace(sample, thought=cue, parts=(cue,) if sample.ask.setting in CUES else sample.parts)


def _without_cue(sample: Sample, error: Exception) -> Sample:
    if sample.ask.setting in CUES:
        return failed(sample, error, "no cue: ")
    why = "; ".join(filter(None, (sample.facts.get("cue_failed"), note_of(error))))
    return replace(sample, facts={**sample.facts, "cue_failed": why})


def _answered(sample: Sample, reply: str | Exception) -> Sample:
    """With the reply as the last part, behind the cue image, and the letter that it chooses."""
    sample = replace(sample, prompt=_answer_prompt(sample))
    if isinstance(reply, Exception):
        return failed(sample, reply, "no answer: ")
    return _chosen(replace(sample, parts=(*sample.parts, reply)), reply)


def _composed(sample: Sample, parts: Sequence[str | np.ndarray | StoredImage]) -> Sample:
    """With texts and images in their order; the last text is the reply."""
    sample = replace(with_parts(sample, parts), prompt=_answer_prompt(sample))
    if not parts or not isinstance(parts[-1], str):
        return replace(sample, status="not_extracted", note="the answer does not end with a text")
    return _chosen(sample, parts[-1])


def _reply(sample: Sample) -> str:
    """What answers: of an interleaved answer its last text."""
    last = sample.parts[-1:] if sample.ask.setting == INTERLEAVED else ()
    return str(last[0]) if last else sample.text or ""


def _chosen(sample: Sample, reply: str) -> Sample:
    """With the letter that a reply chooses."""
    if kind_of_set(sample.ask.case.set) == "open":
        return sample
    letter = reading.choice(reply, sample.ask.case.facts["choices"])
    if letter is None:
        return replace(sample, status="not_extracted", note="the reply chooses none of the options, or several")
    return replace(sample, facts={**sample.facts, "choice": letter})


def _answer_prompt(sample: Sample) -> str:
    """nano is asked the question alone, behind the textual cue."""
    case, facts, cue = sample.ask.case, sample.ask.case.facts, sample.thought
    if _is_nano(case):
        return f"{cue or ''} {case.prompt}".strip()
    lines = [case.prompt]
    for letter, text in facts["choices"].items():
        shown = "an image" if sample.ask.setting == BLIND else f"image {int(facts['choice_images'].get(letter, 0)) + 1}"
        lines.append(f"{letter}: {shown if text is None else text}")
    if cue is not None:
        lines.append(filled(prompts.GIVEN_TEXT, cue=cue))
    if sample.drawn:
        lines.append(prompts.GIVEN_IMAGE)
    lines.append(prompts.ANSWER_CHOICE if facts["choices"] else prompts.ANSWER_OPEN)
    return "\n".join(lines)


def _others(cases: Sequence[Case]) -> dict[str, Case]:
    """Case -> the next case of its set with another answer, whose cue is the wrong one for it."""
    others: dict[str, Case] = {}
    by_set: dict[str, list[Case]] = {}
    for case in cases:
        by_set.setdefault(case.set, []).append(case)
    for some in by_set.values():
        for at, case in enumerate(some):
            other = next((each for each in (*some[at + 1 :], *some[:at]) if _right(each) != _right(case)), None)
            if other is not None:
                others[case.id] = other
    return others


def _right(case: Case) -> str:
    return reading.normalised(str(case.facts["right"] or case.id))


def _is_nano(case: Case) -> bool:
    return bool(case.facts["world"] == NANO.name)


def _decoded(image: Image) -> np.ndarray:
    return decode_picture(bytes_of(image), "an image of UFO")


def _blank(case: Case) -> np.ndarray:
    return np.full(_decoded(case.references[0]).shape if case.references else (512, 512, 3), 255, dtype=np.uint8)


def _drawn(case: Case, image: Image) -> Verdict:
    """Whether an image of the nano world shows the object of the answer, as often as it says."""
    scene = sprites.read(pixels(image))
    if not scene.readable:
        return Verdict((Check("cue", "unreadable", scene.reason),))
    right = (scene.name, scene.count) == (case.facts["object"], case.facts["count"])
    return verdict_of("cue", right, f"the cue shows {scene.count} {scene.name}, right is {case.facts['right']}")


def _concludes(cue: str, case: Case) -> bool:
    _, conclusion, rest = cue.rpartition("So draw")
    return bool(conclusion) and reading.normalised(rest) == reading.normalised(str(case.facts["right"]))
