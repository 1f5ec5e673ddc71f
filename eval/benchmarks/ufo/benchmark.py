"""UFO (anonymous, under review): does a model that draws and reads use its own cues as evidence?

A question about a future state is answered in two steps, first a cue, then the answer with it. The four schedules:
*direct* (no cue), *textual* (a sentence or two), *visual* (an image) and *joint* (both, each made from the question
alone). Cues of a case are made once, and all schedules share its noise.

Further settings: `textual_cue` and `visual_cue` score the cue itself (Table 5), `cue_dimensions` grades the visual one
(Table 8). Ours: `blind` asks without images (contamination), and the swaps answer with another cue than the model's
own: the published one ("true"), that of the next case of the set ("other"), or an empty one ("blank").

A visual cue that could not be drawn is `compat`. "paper": the sample is generation_failed. "official", as the released
code: it is answered directly, and counted as visual.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    Headline,
    JudgeAsk,
    Option,
    Respondent,
    Sample,
    Scored,
    Source,
    Table,
    benchmark,
    expect_known,
    note_of,
)
from uni_train.eval.benchmarks.ufo import counting, own, prompts, replies, rubric
from uni_train.eval.benchmarks.ufo.files import HUB, Row, read_folder
from uni_train.eval.benchmarks.ufo.names import (
    ANSWERS,
    BLIND,
    DIMENSIONS,
    EXTRA,
    IMAGE_CUE,
    JOINT,
    KINDS,
    SETS,
    SETTINGS,
    TEXT_CUE,
    TEXTUAL,
    VISUAL,
    kind_of_set,
    regime_of,
    set_of,
    task_of_set,
)
from uni_train.eval.images import Image, StoredImage, bytes_of, encoded, pixels
from uni_train.eval.results import Unit
from uni_train.models.pictures import decode_picture, encode_png

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request

COMPATS = ("paper", "official")
VERIFIERS = ("program", "judge")
PROTOCOL = "ufo/1"  # what is asked; a change makes another revision
# Section 4.2 decodes with top-k 1, which is greedy (`sampling.temperature=0`), in 100 steps, guided by text at 7.5.

Made = str | np.ndarray | StoredImage | Exception


@dataclass(frozen=True, slots=True)
class Cue:
    """What the second step is given. failed: why a part of the model's own could not be made."""

    text: str | None = None
    image: np.ndarray | StoredImage | None = None
    failed: str = ""


@benchmark("ufo")
class Ufo(Benchmark):
    """UFO: two-step reasoning with textual and visual cues.

    data: a folder with the published files; None for `n` questions a task of our own, from `world` and `split`. sets:
    tasks, "_open" behind those without choices; None: all there are. extra: of "blind", "dimensions" and "swap", what
    is asked beside the schedules and cue accuracy. verifier: "judge" leaves open answers and cues of our own to the
    judge too.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name = "ufo"
    hub = HUB
    published: bool
    known_sets = SETS
    headline = ANSWERS
    headlines: ClassVar = {counting.HEADS[one]: Headline(counting.of_kind(one), None) for one in KINDS}  # Tables 3, 4
    options = (Option("extra", (), "also ask some of blind, dimensions, swap"),)

    @classmethod
    def open(cls, source: Source, *, extra: tuple[str, ...]) -> Ufo:
        return cls(source.data, extra=extra, **source.arguments)

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        world: str = NANO.name,
        n: int = 100,
        split: str = "test",
        sets: Sequence[str] | None = None,
        compat: str = "paper",
        verifier: str = "program",
        extra: Sequence[str] = (),
    ) -> None:
        for noun, given, known in (
            ("set", sets or (), SETS), ("compat", (compat,), COMPATS), ("verifier", (verifier,), VERIFIERS),
            ("extra", extra, tuple(EXTRA)),
        ):  # fmt: skip
            expect_known("UFO", noun, given, known)
        if data is None:
            wanted = own.tasks_of(world) if sets is None else tuple(dict.fromkeys(map(task_of_set, sets)))
            lacking = [task for task in wanted if task not in own.tasks_of(world)]
            if lacking:
                raise UsageError(
                    f"UFO has no questions of our own for {lacking[0]} in the {world} world",
                    f"There are {', '.join(own.tasks_of(world))}; name the published files with data.ufo=FOLDER.",
                )
            kinds = KINDS if sets is None else tuple(k for k in KINDS if k in {kind_of_set(one) for one in sets})
            rows = own.rows_of(world, n, split, wanted, kinds)
        else:
            rows = read_folder(Path(data))
        self.whole = len(rows)
        rows = [row for row in rows if sets is None or set_of(row.task, row.kind) in sets]
        self.compat, self.verifier = compat, verifier
        self.whose(data)
        self.world = world
        self._cases = tuple(_case(row) for row in rows)
        self._cues = {case.id: case.references[0] for case in self._cases if case.references}
        self._by_id = {case.id: case for case in self._cases}
        self._others = _others(self._cases)
        self.sets = tuple(name for name in SETS if any(case.set == name for case in self._cases))
        asked = {*ANSWERS, TEXT_CUE, IMAGE_CUE, *(setting for one in extra for setting in EXTRA[one])}
        self.settings = tuple(setting for setting in SETTINGS if setting in asked)
        self.revision = _revision(self._cases, self._cues, compat, verifier)

    def cases(self) -> Sequence[Case]:
        return self._cases

    def reference(self, case: Case) -> bytes | None:
        """The published visual cue, as PNG."""
        cue = self._cues.get(case.id)
        return None if cue is None else encode_png(_decoded(cue))

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """Cues once for all settings that share them. Judged are cues of published cases, and their open answers."""
        texts = {_place(one) for one in asks if _needs(one.setting)[0]}
        images = {_place(one) for one in asks if _needs(one.setting)[1]}
        nano = {_place(one) for one in asks if _world(one.case) == NANO.name}
        answers = sum(_answers(one.setting) for one in asks)
        judged = sum(
            one.setting == DIMENSIONS
            or (one.setting in (TEXT_CUE, IMAGE_CUE) and not self._by_program(one.case))
            or (_answers(one.setting) and kind_of_set(one.case.set) == "open" and not self._by_program(one.case))
            for one in asks
        )
        return {
            "think": len(texts & nano), "draw": len(images), "answer": answers + len(texts - nano), "judge": judged,
        }  # fmt: skip

    # --- asking --------------------------------------------------------------------------------------------------

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """Make the cues that are needed, then answer with them."""
        texts, images = self._made(model, asks, on_step)
        samples: dict[int, Sample] = {}
        requests: dict[int, Request] = {}
        for row, ask in enumerate(asks):
            place = _place(ask)
            if ask.setting in (TEXT_CUE, IMAGE_CUE, DIMENSIONS):
                made = texts[place] if ask.setting == TEXT_CUE else images[place]
                samples[row] = _cue_sample(ask, made)
                continue
            cue = self._cue(ask, texts.get(place), images.get(place))
            if cue is None:
                samples[row] = Sample(ask, "cue_missing", "the data have no such cue")
            elif cue.failed and self.compat == "paper":
                samples[row] = Sample(ask, "generation_failed", f"no cue: {cue.failed}", thought=cue.text)
            else:
                requests[row] = self._answering(ask, cue)
                shown = () if cue.image is None else (encoded(cue.image),)
                facts = {"cue_failed": cue.failed} if cue.failed else {}
                samples[row] = Sample(ask, prompt=requests[row].prompt, thought=cue.text, parts=shown, facts=facts)
        said = model.answer(list(requests.values()), on_step=on_step) if requests else []
        for row, reply in zip(requests, said, strict=True):
            samples[row] = _answered(samples[row], reply)
        return [samples[row] for row in range(len(asks))]

    def _made(
        self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None
    ) -> tuple[dict[tuple[str, int], Made], dict[tuple[str, int], Made]]:
        """(case id, k) -> the model's own textual cue, and its own visual one."""
        spoken: dict[tuple[str, int], Ask] = {}
        thought: dict[tuple[str, int], Ask] = {}
        drawn: dict[tuple[str, int], Ask] = {}
        for ask in asks:
            text, image = _needs(ask.setting)
            if text:
                (thought if _world(ask.case) == NANO.name else spoken)[_place(ask)] = ask
            if image:
                drawn[_place(ask)] = ask
        texts: dict[tuple[str, int], Made] = {}
        images: dict[tuple[str, int], Made] = {}
        if spoken:
            asked = [_cue_request(ask, prompts.TEXTUAL_CUE, "say") for ask in spoken.values()]
            texts |= zip(spoken, model.answer(asked, on_step=on_step), strict=True)
        if thought:
            asked = [_cue_request(ask, prompts.TEXTUAL_CUE, "say") for ask in thought.values()]
            texts |= zip(thought, model.think(asked, on_step=on_step), strict=True)
        if drawn:
            asked = [_cue_request(ask, prompts.VISUAL_CUE, "draw") for ask in drawn.values()]
            images |= zip(drawn, model.draw(asked, on_step=on_step), strict=True)
        return texts, images

    def _cue(self, ask: Ask, text: Made | None, image: Made | None) -> Cue | None:
        """What the second step of a setting is given; None where the data have no such cue."""
        schedule, _, source = ask.setting.partition("_")
        if not source:
            failed = "; ".join(note_of(made) for made in (text, image) if isinstance(made, Exception))
            return Cue(
                text if isinstance(text, str) else None,
                image if isinstance(image, np.ndarray | StoredImage) else None,
                failed,
            )
        if source == "blank":
            return Cue(text="") if schedule == TEXTUAL else Cue(image=_blank(self._cues.get(ask.case.id)))
        owner = ask.case.id if source == "true" else self._others.get(ask.case.id, "")
        if schedule == TEXTUAL:
            said = str(self._by_id[owner].facts["text_cue"]) if owner else ""
            return Cue(text=said) if said else None
        return Cue(image=_decoded(self._cues[owner])) if owner in self._cues else None

    def _answering(self, ask: Ask, cue: Cue) -> Request:
        """The second step. nano is asked the question alone, behind the textual cue."""
        from uni_train.models.base import Request

        case = ask.case
        shown = [] if ask.setting == BLIND else [_decoded(image) for image in case.images]
        if cue.image is not None:
            shown.append(pixels(cue.image))
        if _world(case) == NANO.name:
            prompt = f"{cue.text or ''} {case.prompt}".strip()
        else:
            prompt = _answer_prompt(case, cue, blind=ask.setting == BLIND)
        return Request("#".join(map(str, _place(ask))), prompt, tuple(shown), seed=ask.seed)

    # --- scoring -------------------------------------------------------------------------------------------------

    def _by_program(self, case: Case) -> bool:
        return _world(case) == NANO.name and self.verifier == "program"

    def check(self, sample: Sample) -> Verdict | None:
        """Choices, and open answers that are the reference word for word. Of nano: its open answers and cues too."""
        case, nano = sample.ask.case, self._by_program(sample.ask.case)
        if sample.ask.setting == DIMENSIONS:
            return None
        if _is_image_cue(sample):
            return _drawn(case, sample.drawn[-1]) if nano else None
        if sample.ask.setting == TEXT_CUE:
            return _verdict("cue", _concludes(sample.thought or "", case), "the cue ends elsewhere") if nano else None
        answer = str(case.facts["answer"])
        if kind_of_set(case.set) == "mcq":
            chosen = sample.facts.get("choice")
            return _verdict("answer", chosen == answer, f"chose {chosen}, right is {answer}")
        same = replies.same(sample.text or "", answer)
        if nano or (same and self.verifier == "program"):
            return _verdict("answer", same, f"said {sample.text!r}, right is {answer!r}")
        return None

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """Cue accuracy, the five dimensions, and open answers that are not the reference word for word."""
        from uni_train.eval.judges.questions import dialect

        if dialect(ask) == "nano":
            raise UsageError("nano cannot judge cues and answers of UFO", "Choose another judge.")
        facts = sample.ask.case.facts
        question, answer = sample.ask.case.prompt, str(facts["right"] or facts["answer"])
        values = {"question": question, "answer": answer, "reference": ""}
        if facts["text_cue"]:
            values["reference"] = f"Reference cue: {facts['text_cue']}\n"
        if sample.ask.setting == DIMENSIONS:
            reader = _rubric_reader()
            found = await ask(
                prompts.dimensions_prompt(question, answer), sample.images, parse=reader, schema=rubric.SCHEMA
            )
            return rubric.verdict_of(found)
        if _is_image_cue(sample):
            true = self._cues.get(sample.ask.case.id)
            shown = () if true is None else (bytes_of(true),)
            if shown:
                values["reference"] += "The first image is the reference cue.\n"
            asked = prompts.filled(prompts.JUDGE_IMAGE_CUE, values)
            right = await ask(asked, (*shown, *sample.images), parse=prompts.read_yes_no)
            return _verdict("cue", right, "the judge does not accept the visual cue")
        if sample.ask.setting == TEXT_CUE:
            asked = prompts.filled(prompts.JUDGE_TEXT_CUE, {**values, "cue": sample.thought or ""})
            right = await ask(asked, parse=prompts.read_yes_no)
            return _verdict("cue", right, "the judge does not accept the textual cue")
        said = replies.open_answer(sample.text or "")
        asked = prompts.filled(prompts.JUDGE_OPEN, {**values, "reply": said})
        right = await ask(asked, parse=prompts.read_yes_no)
        return _verdict("answer", right, f"said {said!r}, right is {answer!r}")

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

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return counting.scores(counting.Count(scored))

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        return counting.tables(counting.Count(scored), published=self.published)


def _needs(setting: str) -> tuple[bool, bool]:
    """Whether it takes the model's own textual cue, and its own visual one."""
    return setting in (TEXTUAL, JOINT, TEXT_CUE), setting in (VISUAL, JOINT, IMAGE_CUE, DIMENSIONS)


def _place(ask: Ask) -> tuple[str, int]:
    """Who shares cues."""
    return str(ask.case.facts.get("drawn_as", ask.case.id)), ask.k


def _answers(setting: str) -> bool:
    return setting not in (TEXT_CUE, IMAGE_CUE, DIMENSIONS)


def _is_image_cue(sample: Sample) -> bool:
    """Also an image alone in whatever setting: a reference by which a judge is calibrated."""
    return sample.ask.setting == IMAGE_CUE or (sample.text is None and bool(sample.drawn))


def _cue_request(ask: Ask, template: str, told: str) -> Request:
    """The first step, about the question without its choices; nano is asked it as it stands, or as facts[told] says."""
    from uni_train.models.base import Request

    case = ask.case
    inputs = case.images[: case.facts["inputs"]]
    if _world(case) == NANO.name:
        prompt = str(case.facts.get(told, case.prompt))
    else:
        prompt = template.replace("{Question}", case.prompt)
    return Request("#".join(map(str, _place(ask))), prompt, tuple(_decoded(image) for image in inputs), seed=ask.seed)


def _cue_sample(ask: Ask, made: Made) -> Sample:
    if isinstance(made, Exception):
        return Sample(ask, "generation_failed", f"no cue: {note_of(made)}")
    if isinstance(made, str):
        return Sample(ask, thought=made, parts=(made,))
    return Sample(ask, parts=(encoded(made),))


def _answered(sample: Sample, reply: str | Exception) -> Sample:
    """With the reply as the last part, behind the cue image, and the letter that it chooses."""
    if isinstance(reply, Exception):
        return replace(sample, status="generation_failed", note=f"no answer: {note_of(reply)}")
    sample = replace(sample, parts=(*sample.parts, reply))
    if kind_of_set(sample.ask.case.set) == "open":
        return sample
    letter = replies.choice(reply, sample.ask.case.facts["choices"])
    if letter is None:
        return replace(sample, status="not_extracted", note="the reply chooses none of the options, or several")
    return replace(sample, facts={**sample.facts, "choice": letter})


def _answer_prompt(case: Case, cue: Cue, *, blind: bool) -> str:
    facts = case.facts
    lines = [case.prompt]
    for letter, text in facts["choices"].items():
        place = int(facts["choice_images"].get(letter, 0)) + 1
        lines.append(
            f"{letter}: {text}" if text is not None else f"{letter}: {'an image' if blind else f'image {place}'}"
        )
    if cue.text is not None:
        lines.append(prompts.GIVEN_TEXT.replace("{cue}", cue.text))
    if cue.image is not None:
        lines.append(prompts.GIVEN_IMAGE)
    lines.append(prompts.ANSWER_CHOICE if facts["choices"] else prompts.ANSWER_OPEN)
    return "\n".join(lines)


def _case(row: Row) -> Case:
    """Choices that are images are shown behind the images of the question."""
    images, choices, places = list(row.images), dict[str, str | None](), dict[str, int]()
    for letter, one in row.choices.items():
        if not isinstance(one, str):
            places[letter] = len(images)
            images.append(one)
        choices[letter] = one if isinstance(one, str) else None
    facts = {
        "world": "", **row.facts, "answer": row.answer, "choices": choices, "choice_images": places,
        "inputs": len(row.images), "text_cue": row.text_cue, "solution": row.solution,
        "right": choices.get(row.answer) or ("" if row.kind == "mcq" else row.answer), "part": row.part,
    }  # fmt: skip
    name = set_of(row.task, row.kind)
    if row.facts:  # of our own: the same question with choices and open, which share their cues
        facts["drawn_as"] = f"own/{row.id}"
    cue = () if row.cue_image is None else (row.cue_image,)
    category = row.part or regime_of(name)
    return Case(_id(row), name, row.question, tuple(images), category=category, facts=facts, references=cue)


def _id(row: Row) -> str:
    return f"{row.kind}/{row.id}"


def _others(cases: Sequence[Case]) -> dict[str, str]:
    """Case -> the next case of its set with another answer, whose cue is the wrong one for it."""
    found: dict[str, str] = {}
    by_set: dict[str, list[Case]] = {}
    for case in cases:
        by_set.setdefault(case.set, []).append(case)
    for some in by_set.values():
        for at, case in enumerate(some):
            around = (*some[at + 1 :], *some[:at])
            other = next((one.id for one in around if _right(one) != _right(case)), "")
            found[case.id] = other
    return found


def _right(case: Case) -> str:
    return replies.normalised(str(case.facts["right"] or case.id))


def _world(case: Case) -> str:
    return str(case.facts["world"])


def _decoded(image: Image) -> np.ndarray:
    return decode_picture(bytes_of(image), "an image of UFO")


def _blank(like: Image | None) -> np.ndarray:
    """White, of the size of the true cue, or 512 x 512."""
    return np.full((512, 512, 3) if like is None else _decoded(like).shape, 255, dtype=np.uint8)


def _drawn(case: Case, image: Image) -> Verdict:
    """Whether an image of the nano world shows the object of the answer, as often as it says."""
    found = sprites.read(pixels(image))
    if not found.readable:
        return Verdict((Check("cue", "unreadable", found.reason),))
    right = (found.name, found.count) == (case.facts["object"], case.facts["count"])
    return _verdict("cue", right, f"the cue shows {found.count} {found.name}, right is {case.facts['right']}")


def _concludes(cue: str, case: Case) -> bool:
    """Whether nano's words end with "So draw" and the answer."""
    _, said, rest = cue.rpartition("So draw")
    return bool(said) and replies.normalised(rest) == replies.normalised(str(case.facts["right"]))


def _verdict(name: str, right: bool, reason: str) -> Verdict:
    return Verdict((Check(name, "pass" if right else "fail", "" if right else reason),))


@cache
def _rubric_reader() -> Any:
    from uni_train.eval.judges.reading import JsonReader

    return JsonReader(rubric.SCHEMA)


def _revision(cases: Sequence[Case], cues: Mapping[str, Image], compat: str, verifier: str) -> str:
    words = [PROTOCOL, compat, verifier]
    words += [prompts.TEXTUAL_CUE, prompts.VISUAL_CUE, prompts.ANSWER_CHOICE, prompts.ANSWER_OPEN]
    words += [prompts.GIVEN_TEXT, prompts.GIVEN_IMAGE]
    digest = hashlib.blake2b(json.dumps(words).encode(), digest_size=8)
    for case in cases:
        row = [case.id, case.set, case.prompt, case.cluster, case.category, dict(case.facts)]
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode())
        for image in map(bytes_of, (*case.images, cues.get(case.id, b""))):
            digest.update(len(image).to_bytes(8, "big") + image)
    return digest.hexdigest()
