"""ViGoR-Bench as a Benchmark (Han et al. 2026, section 3.2): four dimensions of the result, and four of the process.

    direct       draw(instruction, image)                                   result of the one image
    cot          draw(instruction, image, think(instruction, image))        the same
    planned      plan = planner(instruction, image); draw(step, last image) result of the last image
    interleaved  compose(instruction, image): text and images at once       the same
    video        compose(instruction, image): the frames of a video         the same
    process      the images of `planned`, `interleaved` or `video`          process of all of them

`planned` needs a planner, `interleaved` and `video` a model that answers with several images; one of them is asked. A
judge fills in the paper's templates. A program decides where it can (`programs`), and then a judge may still be asked
for visual quality.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Verdict
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
    Unit,
    benchmark,
    described,
    failed,
    request_of,
    revision_of,
    with_image,
    with_parts,
)
from uni_train.eval.benchmarks.vigor import counting, prompts
from uni_train.eval.benchmarks.vigor.cases import (
    DOMAINS,
    HUB,
    MAZE,
    TASKS,
    Fields,
    digest,
    generated,
    read_folder,
    title,
)
from uni_train.eval.benchmarks.vigor.programs import Program, program_of
from uni_train.eval.benchmarks.vigor.prompts import (
    BACKGROUND,
    DIMENSIONS,
    GOOD,
    PROCESS,
    QUALITY,
    REASONING,
    RESULT,
    RULE,
)
from uni_train.eval.images import Image, StoredImage, bytes_of, pixels
from uni_train.eval.paper import TableSpec
from uni_train.eval.prompts import filled
from uni_train.eval.results import Metric, Results, unit_of
from uni_train.models.pictures import decode_picture, encode_png

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import Request

PROTOCOL = "vigor/1"  # what is asked; a change makes another revision
DIRECT, COT, PLANNED, INTERLEAVED, VIDEO = "direct", "cot", "planned", "interleaved", "video"
STEPWISE = (PLANNED, INTERLEAVED, VIDEO, PROCESS)  # settings that ask for several images
_CAUSES = {
    REASONING: "reasoning wrong", RULE: "rule broken", BACKGROUND: "background changed", QUALITY: "visual quality",
}  # fmt: skip


@benchmark("vigor")
class Vigor(Benchmark):
    """The benchmark over the published files in `source.data`, or over questions of our own (`cases.generated`).

    ground_truth: "hidden" shows the judge neither the answer image nor the answer (Table 2). visual_quality: "judge"
    asks one for it where a program decides the rest. planner: writes the steps of `planned`, at most `steps`.
    interleaved: the model's own answer has the frames. video: it is a video, and `direct` and `cot` are not asked.
    fields: roles of fields in records.json that are not known (`cases.ROLES`).

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name, title, hub = "vigor", "ViGoR-Bench", HUB
    known_sets = TASKS
    hashed = ("id", "set", "prompt", "category", "facts")
    headline = (DIRECT, COT, PLANNED, INTERLEAVED, VIDEO)
    overall, groups = Metric(over=None), DOMAINS  # Table 3
    options = (
        Option("ground_truth", "shown", "whether the judge sees the answer", ("shown", "hidden")),
        Option("visual_quality", "program", "who judges it where a program decides the rest", ("program", "judge")),
        Option("planner", "", "also draw step by step, by the plan of this model"),
        Option("steps", 6, "most steps of a plan"),
        Option("interleaved", "no", "also have the model answer with all frames at once", ("no", "yes")),
        Option("video", "no", "the model answers with a video, or its frames: ask that alone", ("no", "yes")),
        Option("fields", (), "NAME=ROLE of unknown fields in records.json"),
    )

    def __init__(
        self,
        source: Source,
        *,
        ground_truth: str = "shown",
        visual_quality: str = "program",
        planner: str = "",
        steps: int = 6,
        interleaved: str = "no",
        video: str = "no",
        fields: Sequence[str] = (),
    ) -> None:
        if steps < 1:
            raise UsageError(f"steps={steps}: a plan has at least one", "Write vigor.steps=6, say.")
        own = [name for name, given in ((INTERLEAVED, interleaved), (VIDEO, video)) if given == "yes"]
        sources = [*(["planner"] if planner else []), *own]
        if len(sources) > 1:
            raise UsageError(
                f"vigor.{sources[0]} and vigor.{sources[1]} both give the frames of `process`",
                "Leave one of them out, and evaluate again with the other.",
            )
        self.composed = next(iter(own), None)
        self.ground_truth, self.visual_quality, self.most_steps = ground_truth, visual_quality, steps
        self.planner = source.other(planner)
        self.fields: Fields = {}
        if source.data is None:
            cases = generated(source)
        else:
            cases, self.fields = read_folder(source.data, source.sets, fields)
        known = {case.id: program_of(case) for case in cases} if source.verifier == "program" else {}
        self._programs: dict[str, Program] = {id_: program for id_, program in known.items() if program is not None}
        settings = [] if self.composed == VIDEO else [DIRECT, COT]
        if self.composed or self.planner is not None:
            settings += [self.composed or PLANNED, PROCESS]
        cases = [self._with_dimensions(case) for case in cases]
        super().__init__(source, cases, settings=settings, asked=(PROTOCOL, prompts.PLAN))

    def _with_dimensions(self, case: Case) -> Case:
        program = self._programs.get(case.id)
        names = DIMENSIONS if program is None else program.dimensions
        return replace(case, facts={**case.facts, "dimensions": list(names)})

    def content_hash(self, asked: Sequence[Any]) -> str:
        """Images are hashed beside the cases."""
        images = [[digest(image) for image in case.images] for case in self._cases]
        return revision_of(*asked, self.hashed_rows(), images)

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.planner is None else {"answer": self.planner}

    def recorded_options(self) -> Mapping[str, Any]:
        """Who decides by what, and what the planner is."""
        planner = {} if self.planner is None else {"planner": {**described(self.planner), "steps": self.most_steps}}
        return {"ground_truth": self.ground_truth, "visual_quality": self.visual_quality, **planner}

    def reference(self, case: Case) -> bytes | None:
        """The image ground truth, or the one that a program draws, as PNG."""
        if case.references:
            return encode_png(decode_picture(bytes_of(case.references[0]), f"the ground truth of {case.id}"))
        if case.facts["item"] is None:
            return None
        item = Item.from_dict(case.facts["item"])
        return encode_png(task_of(item).render(item, derive_seed(0, "reference", item.id)))

    def reference_answer(self, ask: Ask) -> Mapping[str, Any]:
        """Of one image: the ground truth has no frames."""
        return super().reference_answer(ask) if ask.setting in (DIRECT, COT) else {}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """At most: a plan may have fewer steps. `planned` and `process` share theirs."""
        sequences = len({(ask.case.id, ask.k) for ask in asks if ask.setting in STEPWISE})
        single = sum(ask.setting not in STEPWISE for ask in asks)
        thoughts = sum(ask.setting == COT for ask in asks)
        judged = sum(self.visual_quality == "judge" or not self._decides(ask) for ask in asks)
        if self.composed:
            return {"think": thoughts, "draw": single, "compose": sequences, "judge": judged}
        calls = {"think": thoughts, "draw": single + self.most_steps * sequences, "judge": judged}
        return {**calls, "answer": sequences} if sequences else calls

    def _decides(self, ask: Ask) -> bool:
        program = self._programs.get(ask.case.id)
        return program is not None and (ask.setting != PROCESS or program.process is not None)

    # --- asking --------------------------------------------------------------------------------------------------

    def steps(self) -> Iterable[Step]:
        """One image, or those of a plan; equal requests of two settings are one stored call."""

        def drawing(sample: Sample) -> Request:
            return replace(_request(sample), thought=sample.thought)

        thinks, stepwise = _asked_in(COT), _asked_in(*STEPWISE)
        yield Step("think", thinks, _request, _with_thought, partial(failed, lacking="no thought: "))
        yield Step("draw", _asked_in(DIRECT, COT), drawing, with_image)
        if self.composed:
            yield Step("compose", stepwise, _request, _with_frames, once=True)
        elif self.planner is not None:
            failing = partial(failed, lacking="no plan: ")
            yield Step(
                "answer", stepwise, self._plan_request, self._with_plan, failing, model=self.planner, makes="thought"
            )
            for number in range(self.most_steps):  # all first steps before all second ones
                request, put = partial(self._step_request, number), partial(self._with_step, number)
                yield Step("draw", partial(self._has_step, number), request, put, makes="frame")

    def finish(self, sample: Sample) -> Sample:
        return _of_one_size(sample) if sample.ask.setting == PROCESS and sample.status == "ok" else sample

    def _plan_request(self, sample: Sample) -> Request:
        return _request(sample, filled(prompts.PLAN, instruction=sample.ask.case.prompt, steps=str(self.most_steps)))

    def _with_plan(self, sample: Sample, plan: str) -> Sample:
        sample = replace(sample, thought=plan)
        if self._plan(sample):
            return sample
        return replace(sample, status="not_extracted", note="the plan has no numbered steps")

    def _plan(self, sample: Sample) -> list[str]:
        return prompts.steps_of(sample.thought or "", self.most_steps)

    def _has_step(self, number: int, sample: Sample) -> bool:
        return sample.ask.setting in STEPWISE and number < len(self._plan(sample))

    def _step_request(self, number: int, sample: Sample) -> Request:
        return _request(sample, self._plan(sample)[number], sample.drawn[-1:], f"/{number}")

    def _with_step(self, number: int, sample: Sample, image: np.ndarray | StoredImage) -> Sample:
        return with_image(replace(sample, parts=(*sample.parts, self._plan(sample)[number])), image)

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """All that a program decides; None where a judge is asked for anything."""
        if self.visual_quality == "judge" and QUALITY in sample.ask.case.facts["dimensions"]:
            return None
        return self._by_program(sample)

    def _by_program(self, sample: Sample) -> Verdict | None:
        program = self._programs.get(sample.ask.case.id)
        if program is None:
            return None
        if sample.ask.setting != PROCESS:
            return program.result(pixels(sample.drawn[-1]))
        return None if program.process is None else program.process([pixels(frame) for frame in sample.drawn])

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """The paper's template; where a program decides, the judge's visual quality beside the program's checks."""
        from uni_train.eval.judges import dialect

        if dialect(ask) == "nano":
            raise UsageError("nano cannot fill in ViGoR's templates", "Choose another judge.")
        case, kind = sample.ask.case, PROCESS if sample.ask.setting == PROCESS else RESULT
        shown = self.ground_truth == "shown"
        answer = str(case.facts["answer"]) if shown else ""
        reference = self.reference(case) if shown else None
        output = sample.images if kind == PROCESS else sample.images[-1:]
        images = (*map(bytes_of, case.images), *output, *(() if reference is None else (reference,)))
        prompt = prompts.judge_prompt(prompts.family_of(case.set), kind, case.prompt, answer)
        judged: Verdict = await ask(prompt, images, parse=lambda text: prompts.read_marks(text, kind))
        known = self._by_program(sample)
        if known is None:
            return judged
        quality = next(check for check in judged.checks if check.name == QUALITY)
        return replace(known, checks=(*(check for check in known.checks if check.name != QUALITY), quality))

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
                unit_of(answer, counting.mean(answer) if answer.sample.ask.setting == PROCESS else None),
                right=counting.reasoning(answer) >= (GOOD if answer.sample.ask.setting == PROCESS else 1),
            )
            for answer in scored
        ]

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """The longer side of the grid (Figure 5); of puzzles of our own the level."""
        if not case.category:
            return None
        if "x" not in case.category:
            return f"level of {title(case.set).lower()}", float(case.category)
        return f"size of {title(case.set).lower()}", float(max(int(side) for side in case.category.split("x")))

    def details(self, results: Results) -> Mapping[str, Any]:
        return counting.details(results)

    def specs(self, results: Results) -> Iterable[TableSpec]:
        return counting.specs(results, self.paper, self._copies(), self.fields)

    def _copies(self) -> list[Verdict]:
        """What a model that copies its input is worth on the mazes, by the program."""
        mazes = ((self._programs.get(case.id), case) for case in self._cases if case.images)
        verdicts = (
            program.result(decode_picture(bytes_of(case.images[0]), case.id))
            for program, case in mazes
            if program is not None and case.set == MAZE
        )
        return [verdict for verdict in verdicts if verdict is not None]


def _request(sample: Sample, prompt: str = "", images: Sequence[Image] = (), step: str = "") -> Request:
    """The question, or another prompt or other images in its place."""
    case = sample.ask.case
    shown = (decode_picture(bytes_of(image), f"the image of {case.id}") for image in images or case.images)
    return request_of(sample.ask, prompt or case.prompt, images=shown, step=step)


def _asked_in(*settings: str) -> Callable[[Sample], bool]:
    return lambda sample: sample.ask.setting in settings


def _with_thought(sample: Sample, thought: str) -> Sample:
    return replace(sample, thought=thought)


def _with_frames(sample: Sample, parts: Sequence[str | np.ndarray | StoredImage]) -> Sample:
    sample = with_parts(sample, parts)
    return sample if sample.drawn else replace(sample, status="not_extracted", note="the answer has no image")


def _of_one_size(sample: Sample) -> Sample:
    """A judge compares frames: those of different sizes are no sequence."""
    from PIL import Image as PIL

    sizes = []
    for frame in sample.images:
        with PIL.open(io.BytesIO(frame)) as image:
            sizes.append("{} x {}".format(*image.size))
    different = list(dict.fromkeys(sizes))
    if len(different) == 1:
        return sample
    return replace(sample, status="generation_failed", note=f"frames of different sizes: {', '.join(different)}")
