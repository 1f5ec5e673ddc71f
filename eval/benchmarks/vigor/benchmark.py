"""ViGoR-Bench as a Benchmark (Han et al. 2026, section 3.2): four dimensions of the result, and four of the process.

    direct       draw(instruction, image)                                   result of the one image
    cot          draw(instruction, image, think(instruction, image))        the same
    planned      plan = planner(instruction, image); draw(step, last image) result of the last image
    interleaved  compose(instruction, image): text and images at once       the same
    process      the same images as `planned` or `interleaved`              process of all of them

`planned` needs a planner, `interleaved` a model that answers with several images; they are asked one at a time. A judge
fills in the paper's templates. A program decides where it can (`programs`), and then a judge may still be asked for
visual quality.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.data_gen.task import Check, Item, Verdict
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
    Unit,
    benchmark,
    expect_known,
    note_of,
)
from uni_train.eval.benchmarks.vigor import counting, planning, programs, truths
from uni_train.eval.benchmarks.vigor.files import HUB, Record, digest, read_folder
from uni_train.eval.benchmarks.vigor.tasks import TASKS, family_of, title
from uni_train.eval.benchmarks.vigor.templates import (
    BACKGROUND,
    DIMENSIONS,
    PROCESS,
    QUALITY,
    REASONING,
    RESULT,
    RULE,
    Marks,
    filled,
    read_marks,
)
from uni_train.eval.images import Image, StoredImage, bytes_of, encoded, of_file, pixels
from uni_train.eval.results import unit_of
from uni_train.models.pictures import decode_picture, encode_png

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import OnStep, Request

PROTOCOL = "vigor/1"  # what is asked; a change makes another revision
DIRECT, COT, PLANNED, INTERLEAVED = "direct", "cot", "planned", "interleaved"
GOOD = 0.68  # of a process mark: section 3.3 calls 68 to 100 good
_CAUSES = {
    REASONING: "reasoning wrong", RULE: "rule broken", BACKGROUND: "background changed", QUALITY: "visual quality",
}  # fmt: skip


@benchmark("vigor")
class Vigor(Benchmark):
    """The benchmark over the published files in `source.data`, or over records of our own (`programs.own_records`).

    ground_truth: "hidden" shows the judge neither the answer image nor the answer (Table 2). visual_quality: "judge"
    asks one for it where a program decides the rest. planner: writes the steps of `planned`, at most `steps`.
    interleaved: the model's own answer has the frames. fields: roles of fields in records.json that are not known
    (`files.ROLES`).

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name = "vigor"
    hub = HUB
    published: bool
    known_sets = TASKS
    headline = (DIRECT, COT, PLANNED, INTERLEAVED)
    headlines: ClassVar = {"": Headline(over=None)}  # Table 3
    options = (
        Option("ground_truth", "shown", "whether the judge sees the answer", ("shown", "hidden")),
        Option("visual_quality", "program", "who judges it where a program decides the rest", ("program", "judge")),
        Option("planner", "", "also draw step by step, by the plan of this model"),
        Option("steps", 6, "most steps of a plan"),
        Option("interleaved", "no", "also have the model answer with all frames at once", ("no", "yes")),
        Option("fields", (), "NAME=ROLE of unknown fields in records.json"),
    )

    @classmethod
    def open(
        cls,
        source: Source,
        *,
        planner: str,
        ground_truth: str,
        visual_quality: str,
        steps: int,
        interleaved: str,
        fields: Sequence[str],
    ) -> Vigor:
        writer = source.open_model(planner) if planner and source.open_model is not None else None
        told = {"ground_truth": ground_truth, "visual_quality": visual_quality, "steps": steps, "fields": fields}
        return cls(source, planner=writer, interleaved=interleaved == "yes", **told)  # type: ignore[arg-type]

    def __init__(
        self,
        source: Source,
        *,
        seed: int = 0,
        ground_truth: str = "shown",
        visual_quality: str = "program",
        planner: StoredModel | None = None,
        interleaved: bool = False,
        steps: int = 6,
        fields: Sequence[str] = (),
    ) -> None:
        expect_known("ViGoR-Bench", "set", source.sets or (), TASKS)
        if steps < 1:
            raise UsageError(f"steps={steps}: a plan has at least one", "Write vigor.steps=6, say.")
        if planner is not None and interleaved:
            raise UsageError(
                "vigor.planner and vigor.interleaved both give the frames of `process`",
                "Leave one of them out, and evaluate again with the other.",
            )
        self.whose(source.data)
        self.world = source.world
        self.fields: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
        if source.data is not None:
            found = read_folder(source.data, source.sets, fields)
            records, self.fields = found.records, found.fields
        else:
            records = tuple(programs.own_records(source.world, source.n, source.split, seed, source.sets))
        self.whole = len(records) if source.sets is None else None
        self._records = {record.id: record for record in records}
        self._items = _items(records) if source.verifier == "program" else {}
        self._truths = _truths(records) if source.verifier == "program" else {}
        self.ground_truth, self.visual_quality, self.steps = ground_truth, visual_quality, steps
        self.planner = planner
        self._cases = tuple(_case(record, self._items.get(record.id)) for record in records)
        self.sets = tuple(task for task in TASKS if any(case.set == task for case in self._cases))
        frames = () if planner is None and not interleaved else (INTERLEAVED if interleaved else PLANNED, PROCESS)
        self.interleaved, self.settings = interleaved, (DIRECT, COT, *frames)
        self.revision = self._revision()

    def cases(self) -> Sequence[Case]:
        return self._cases

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.planner is None else {"answer": self.planner}

    def told(self) -> Mapping[str, Any]:
        """Who decides by what, and what the planner is."""
        told: dict[str, Any] = {"ground_truth": self.ground_truth, "visual_quality": self.visual_quality}
        if self.planner is not None:
            identity = self.planner.identity
            told["planner"] = {"content": identity.content, "settings": dict(identity.settings), "steps": self.steps}
        return told

    def reference(self, case: Case) -> bytes | None:
        """The image ground truth, or the one that a program draws, as PNG."""
        if case.references:
            return encode_png(decode_picture(bytes_of(case.references[0]), f"the ground truth of {case.id}"))
        record = self._records[case.id]
        return None if record.item is None else programs.answer_image(record.item)

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """At most: a plan may have fewer steps. `planned` and `process` share theirs."""
        sequences = {(ask.case.id, ask.k) for ask in asks if _stepwise(ask)}
        single = sum(not _stepwise(ask) for ask in asks)
        thoughts = sum(ask.setting == COT for ask in asks)
        judged = sum(self._judged(ask) for ask in asks)
        if self.interleaved:
            return {"think": thoughts, "draw": single, "compose": len(sequences), "judge": judged}
        calls = {"think": thoughts, "draw": single + self.steps * len(sequences), "judge": judged}
        return calls if not sequences else {**calls, "answer": len(sequences)}

    def _judged(self, ask: Ask) -> bool:
        """Whether a judge may be asked."""
        known = self._item(ask) is not None or (ask.case.id in self._truths and ask.setting != PROCESS)
        return not known or self.visual_quality == "judge"

    def _item(self, ask: Ask) -> Item | None:
        """What a program decides by; of sprites it knows nothing of a process."""
        item = self._items.get(ask.case.id)
        return None if item is not None and ask.setting == PROCESS and item.task != "maze" else item

    def _revision(self) -> str:
        rows = [[case.id, case.set, case.prompt, case.category, dict(case.facts)] for case in self._cases]
        images = [[digest(image) for image in case.images] for case in self._cases]
        text = json.dumps([PROTOCOL, planning.PROMPT, rows, images], sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    # --- asking --------------------------------------------------------------------------------------------------

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """One image, or those of a plan; equal requests of two settings are one stored call."""
        samples = [Sample(ask, prompt=ask.case.prompt) for ask in asks]
        thoughtful = [row for row, ask in enumerate(asks) if ask.setting == COT]
        asked = [_request(asks[row], asks[row].case.prompt) for row in thoughtful]
        for row, thought in zip(thoughtful, model.think(asked, on_step=on_step) if asked else (), strict=True):
            if isinstance(thought, Exception):
                note = f"no thought: {note_of(thought)}"
                samples[row] = replace(samples[row], status="generation_failed", note=note)
            else:
                samples[row] = replace(samples[row], thought=thought)
        single = [row for row, one in enumerate(samples) if one.status == "ok" and not _stepwise(one.ask)]
        drawn = [replace(_request(asks[row], asks[row].case.prompt), thought=samples[row].thought) for row in single]
        for row, image in zip(single, model.draw(drawn, on_step=on_step) if drawn else (), strict=True):
            samples[row] = _with(samples[row], image)
        stepwise = [row for row, ask in enumerate(asks) if _stepwise(ask)]
        if stepwise and self.interleaved:
            asked = [_request(asks[row], asks[row].case.prompt) for row in stepwise]
            for row, answer in zip(stepwise, model.compose(asked, on_step=on_step), strict=True):
                samples[row] = _composed(samples[row], answer)
        elif stepwise:
            self._draw_steps(model, samples, stepwise, on_step)
        for row in stepwise:
            if samples[row].ask.setting == PROCESS and samples[row].status == "ok":
                samples[row] = _of_one_size(samples[row])
        return samples

    def _draw_steps(
        self, model: Respondent, samples: list[Sample], rows: Sequence[int], on_step: OnStep | None
    ) -> None:
        """Fill in the samples of `planned` and `process`, all first steps before all second ones."""
        assert self.planner is not None, "the settings are not offered without a planner"
        asked = [_request(samples[row].ask, planning.prompt(samples[row].ask.case.prompt, self.steps)) for row in rows]
        plans: dict[int, list[str]] = {}
        for row, plan in zip(rows, self.planner.answer(asked, on_step=on_step), strict=True):
            if isinstance(plan, Exception):
                samples[row] = replace(samples[row], status="generation_failed", note=f"no plan: {note_of(plan)}")
                continue
            plans[row] = planning.steps_of(plan, self.steps)
            samples[row] = replace(samples[row], thought=plan)
            if not plans[row]:
                samples[row] = replace(samples[row], status="not_extracted", note="the plan has no numbered steps")
        for number in range(self.steps):
            due = [row for row in rows if samples[row].status == "ok" and number < len(plans[row])]
            if not due:
                break
            requests = [_request(samples[row].ask, plans[row][number], _last(samples[row]), number) for row in due]
            for row, image in zip(due, model.draw(requests, on_step=on_step), strict=True):
                samples[row] = _with(samples[row], image, plans[row][number])

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """All that a program decides; None where a judge is asked for anything."""
        item = self._item(sample.ask)
        if self.visual_quality == "judge" and (item is None or item.task == "maze"):
            return None
        return self._read(sample) if item is None else _program(item, sample)

    def _read(self, sample: Sample) -> Verdict | None:
        """What a program reads off the final image of a published jigsaw, sudoku or plot."""
        truth = self._truths.get(sample.ask.case.id)
        if truth is None or sample.ask.setting == PROCESS:
            return None
        return truth.verdict(pixels(sample.drawn[-1]))

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """The paper's template; where a program decides, the judge's visual quality beside the program's checks."""
        from uni_train.eval.judges.questions import dialect

        if dialect(ask) == "nano":
            raise UsageError("nano cannot fill in ViGoR's templates", "Choose another judge.")
        case, kind = sample.ask.case, PROCESS if sample.ask.setting == PROCESS else RESULT
        shown = self.ground_truth == "shown"
        answer = str(case.facts["answer"]) if shown else ""
        reference = self.reference(case) if shown else None
        output = sample.images if kind == PROCESS else sample.images[-1:]
        images = (*map(bytes_of, case.images), *output, *(() if reference is None else (reference,)))
        prompt = filled(family_of(case.set), kind, case.prompt, answer)
        marks: Marks = await ask(prompt, images, parse=lambda text: read_marks(text, kind))
        judged = _verdict(marks.values, marks.reasons, kind)
        item = self._item(sample.ask)
        own = self._read(sample) if item is None else _program(item, sample)
        if own is None:
            return judged
        quality = next(check for check in judged.checks if check.name == QUALITY)
        return replace(own, checks=(*(check for check in own.checks if check.name != QUALITY), quality))

    def attribute(self, scored: Scored) -> str:
        """The first dimension that fails, the task itself before its looks."""
        if scored.passed or scored.outcome != "fail" or scored.verdict is None:
            return super().attribute(scored)
        failed = {check.name for check in scored.verdict.checks if check.status != "pass"}
        return next(cause for name, cause in _CAUSES.items() if name in failed)

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """A case is right if its task is solved (reasoning success); of a process the mean of four counts."""
        return [
            replace(
                unit_of(one, counting.mean(one) if one.sample.ask.setting == PROCESS else None),
                right=counting.reasoning(one) >= (GOOD if one.sample.ask.setting == PROCESS else 1),
            )
            for one in scored
        ]

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The longer side of the grid (Figure 5)."""
        if not case.category:
            return None
        return f"size of {title(case.set).lower()}", float(max(int(side) for side in case.category.split("x")))

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return counting.scores(scored)

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        copied = programs.copied(self._records, self._items)
        found = counting.tables(scored, published=self.published, copied=copied)
        return [*found, *([counting.fields_found(self.fields)] if self.fields else [])]


def _items(records: Iterable[Record]) -> dict[str, Item]:
    """Record id -> what a program checks it by."""
    found = {record.id: record.item or programs.read_maze(record) for record in records}
    return {name: item for name, item in found.items() if item is not None}


def _truths(records: Iterable[Record]) -> dict[str, truths.Truth]:
    """Record id -> the program that compares an output with its ground truth."""
    found = {record.id: truths.read_truth(record) for record in records}
    return {name: truth for name, truth in found.items() if truth is not None}


def _case(record: Record, item: Item | None) -> Case:
    truth = () if record.answer_image is None else (of_file(record.answer_image),)
    return Case(
        id=record.id,
        set=record.task,
        prompt=record.instruction,
        images=() if record.image is None else (record.image,),
        category=record.size,
        facts={
            "answer": record.answer,
            "answer_image": digest(truth[0]) if truth else None,
            "item": None if record.item is None else record.item.to_dict(),
            "dimensions": list(DIMENSIONS if item is None else programs.dimensions(item)),
        },
        references=truth,
    )


def _stepwise(ask: Ask) -> bool:
    """Whether several images are asked for."""
    return ask.setting in (PLANNED, INTERLEAVED, PROCESS)


def _request(ask: Ask, prompt: str, image: Image | None = None, step: int | None = None) -> Request:
    """The id names case, draw and step, not the setting: equal calls of two settings are then one stored call."""
    from uni_train.models.base import Request

    shown = ask.case.images if image is None else (image,)
    name = f"{ask.case.id}#{ask.k}" + ("" if step is None else f"/{step}")
    images = tuple(decode_picture(bytes_of(one), f"the image of {ask.case.id}") for one in shown)
    return Request(name, prompt, images, seed=ask.seed)


def _last(sample: Sample) -> Image | None:
    return sample.drawn[-1] if sample.drawn else None


def _with(sample: Sample, image: np.ndarray | StoredImage | Exception, step: str | None = None) -> Sample:
    if isinstance(image, Exception):
        return replace(sample, status="generation_failed", note=note_of(image))
    said = () if step is None else (step,)
    return replace(sample, parts=(*sample.parts, *said, encoded(image)))


def _composed(sample: Sample, answer: Sequence[str | np.ndarray | StoredImage] | Exception) -> Sample:
    """With the texts and images of one answer, in order."""
    if isinstance(answer, Exception):
        return replace(sample, status="generation_failed", note=note_of(answer))
    sample = replace(sample, parts=tuple(part if isinstance(part, str) else encoded(part) for part in answer))
    return sample if sample.drawn else replace(sample, status="not_extracted", note="the answer has no image")


def _of_one_size(sample: Sample) -> Sample:
    """A judge compares frames: those of different sizes are no sequence."""
    from PIL import Image as PIL

    sizes = []
    for frame in sample.images:
        with PIL.open(io.BytesIO(frame)) as image:
            sizes.append(image.size)
    if len(set(sizes)) == 1:
        return sample
    said = ", ".join(f"{width} x {height}" for width, height in dict.fromkeys(sizes))
    return replace(sample, status="generation_failed", note=f"frames of different sizes: {said}")


def _program(item: Item, sample: Sample) -> Verdict:
    frames = [pixels(frame) for frame in sample.drawn]
    if sample.ask.setting != PROCESS:
        return programs.result_of(item, frames[-1])
    return _verdict(programs.process_of(item, frames), {}, PROCESS)


def _verdict(values: Mapping[str, float], reasons: Mapping[str, str], kind: str) -> Verdict:
    """Of a result pass or fail; of a process graded, and passed where it is good."""
    return Verdict(
        tuple(
            Check(
                name,
                "pass" if values[name] >= (GOOD if kind == PROCESS else 1) else "fail",
                reasons.get(name, ""),
                values[name] if kind == PROCESS else None,
            )
            for name in DIMENSIONS
        )
    )
