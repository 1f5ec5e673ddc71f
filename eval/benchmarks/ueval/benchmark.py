"""UEval as a Benchmark: a question is answered with text and images, and its rubrics are judged one by one.

    two_passes: answer(prompt) and draw(prompt), as the paper asks models that cannot do both at once (section 3.1)
    think_first: think(prompt) is the text, draw(prompt, thought) the image (ours)
    one_pass: compose(prompt), text and images at once, as the paper asks all others
    traced: the same with another model's reasoning trace at the end of the prompt (section 3.3), of a model or a file

Rubrics of our own questions are decided by program in nano's world (`cases`), all others by a judge: in the words of
Figure 9, or with compat=official in those of the released code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError, UsageError
from uni_train.data_gen.task import Check, Verdict
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
    Unparseable,
    benchmark,
    described,
    expect_known,
    note_of,
    request_of,
    revision_of,
    with_image,
    with_parts,
)
from uni_train.eval.benchmarks.ueval import counting
from uni_train.eval.benchmarks.ueval.cases import (
    GENERATED,
    HUB,
    KINDS,
    PARTS,
    QUESTIONS,
    SETS,
    TASKS,
    generated,
    read_folder,
    read_references,
    read_traces,
    rubric_check,
    rubrics_of,
)
from uni_train.eval.benchmarks.ueval.prompts import JUDGE, OFFICIAL_REPLY, REPLY, judge_prompt, met, read_official
from uni_train.eval.images import Image
from uni_train.eval.paper import TableSpec
from uni_train.eval.results import Results, unit_of
from uni_train.eval.submission import file_name, first_draws

if TYPE_CHECKING:
    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import Request

ONE_PASS, TWO_PASSES, THINK_FIRST, TRACED = "one_pass", "two_passes", "think_first", "traced"
PASSES = {"two": (TWO_PASSES, THINK_FIRST), "one": (ONE_PASS,), "all": (ONE_PASS, TWO_PASSES, THINK_FIRST)}
PROTOCOL = "ueval/1"  # what is asked; a change makes another revision


@benchmark("ueval")
class UEval(Benchmark):
    """The benchmark over the published files in `source.data`, or over questions of our own.

    passes: "two" (two_passes and think_first), "one" (one_pass) or "all". trace_model: whose reasoning traces `traced`
    gives the model; traces: a file that holds them. code: the clone of the released code that compat=official judges
    as.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name, title, hub = "ueval", "UEval", HUB
    known_sets = SETS
    hashed = ("id", "set", "prompt", "facts")
    groups = KINDS
    radar = True  # Figure 6
    options = (
        Option("passes", "two", "text and image asked for in two passes, in one, or both ways", tuple(PASSES)),
        Option("trace_model", "", "also ask with the reasoning traces of this model behind the questions"),
        Option("traces", "", "the same with the traces of a file: JSON lines with id and trace"),
        Option("code", "", "a clone of the released code, for the judge's prompts of compat=official"),
    )

    def __init__(
        self, source: Source, *, passes: str = "two", trace_model: str = "", traces: str = "", code: str = ""
    ) -> None:
        expect_known("UEval", "set", source.sets or (), GENERATED if source.data is None else TASKS)
        if source.compat == "official" and not code:
            raise UsageError(
                "UEval's compat=official asks the judge in the words of the released code, which is not shipped",
                "git clone https://github.com/zlab-princeton/UEval, then options.ueval.code=UEval.",
            )
        if trace_model and traces:
            hint = "Leave one of them out, and evaluate again with the other."
            raise UsageError("ueval.trace_model and ueval.traces both give the traces of `traced`", hint)
        cases = generated(source) if source.data is None else read_folder(source.data, source.sets)
        self.official = read_official(Path(code)) if source.compat == "official" else None
        self.tracer, self._traced_at_once = source.other(trace_model), passes == "one"
        self.traces = read_traces(Path(traces)) if traces else {}
        settings = (*PASSES[passes], TRACED) if self.tracer or traces else PASSES[passes]
        asked = ("official", *self.official.all) if self.official else ("paper", JUDGE)
        traced = [revision_of(self.traces)] if self.traces else []  # other traces, other prompts
        super().__init__(source, cases, settings=settings, asked=(PROTOCOL, *asked, *traced))
        every = read_folder(source.data) if source.data is not None and source.sets else cases
        self.total_cases = len(every)
        self.set_origin(source.data, (case.id for case in every), *QUESTIONS)
        self.unknown_traces = sorted(self.traces.keys() - {case.id for case in every})
        if traces and len(self.unknown_traces) == len(self.traces):
            raise DataError(f"{traces}: no question has one of its ids, such as {self.unknown_traces[0]}")

    def reference(self, case: Case) -> None:
        """None: a right image alone answers no question here."""

    def reference_answer(self, ask: Ask) -> Mapping[str, Any]:
        """The reference text and images (Tables 3 and 4, row Reference); of our own questions the image is drawn."""
        drawn = super().reference(ask.case) if self.source.data is None else None
        images = self._reference_images.get(ask.case.id, list)() if drawn is None else [drawn]
        return {"text": ask.case.facts["text_ref"], "images": images}

    @cached_property
    def _reference_images(self) -> Mapping[str, Callable[[], list[Image]]]:
        return {} if self.source.data is None else read_references(self.source.data)

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.tracer is None else {"think": self.tracer}

    def recorded_options(self) -> Mapping[str, Any]:
        """Whose traces were given, or which."""
        traces = {"traces": revision_of(self.traces)} if self.traces else {}
        return traces if self.tracer is None else {"trace_model": described(self.tracer)}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """A judge is asked about each rubric by itself."""
        asks = [ask for ask in asks if self.begin(ask).status == "ok"]
        composed = sum(self._at_once(ask) for ask in asks)
        thought_first = sum(ask.setting == THINK_FIRST for ask in asks)
        traces = sum(ask.setting == TRACED for ask in asks) if self.tracer else 0
        judged = (ask.case for ask in asks if self.verifier == "judge" or "program" not in ask.case.facts)
        calls = {
            "think": thought_first + traces,
            "answer": len(asks) - composed - thought_first,
            "draw": len(asks) - composed,
            "compose": composed,
        }
        rubrics = sum(len(rubrics_of(case)) for case in judged)
        return {**{kind: n for kind, n in calls.items() if n}, "judge": rubrics}

    # --- asking --------------------------------------------------------------------------------------------------

    def begin(self, ask: Ask) -> Sample:
        """With its trace, where they are of a file."""
        sample = super().begin(ask)
        if ask.setting != TRACED or not self.traces:
            return sample
        trace = self.traces.get(ask.case.id)
        return _with_trace(sample, trace) if trace else replace(sample, status="cue_missing", note="it has no trace")

    def steps(self) -> Iterable[Step]:
        """A part that fails leaves the other: its rubrics are then not satisfied."""

        def request(sample: Sample) -> Request:
            return request_of(sample.ask, sample.prompt)

        def drawing(sample: Sample) -> Request:
            """By the thought before, where there is one."""
            return request_of(sample.ask, sample.prompt, sample.thought if sample.ask.setting == THINK_FIRST else None)

        def at_once(sample: Sample) -> bool:
            return self._at_once(sample.ask)

        def thinks(sample: Sample) -> bool:
            return sample.ask.setting == THINK_FIRST

        if self.tracer is not None:
            yield Step("think", lambda sample: sample.ask.setting == TRACED, request, _with_trace, model=self.tracer)
        yield Step("answer", lambda sample: not at_once(sample) and not thinks(sample), request, _with_text, _without)
        yield Step("think", thinks, request, lambda sample, x: replace(_with_text(sample, x), thought=x), makes="text")
        yield Step("draw", lambda sample: not at_once(sample), drawing, with_image, _without)
        yield Step("compose", at_once, request, with_parts)

    def finish(self, sample: Sample) -> Sample:
        return sample if sample.parts or sample.status != "ok" else replace(sample, status="generation_failed")

    def _at_once(self, ask: Ask) -> bool:
        return ask.setting == ONE_PASS or (ask.setting == TRACED and self._traced_at_once)

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """Where a program can decide every rubric: in nano's world, and where there is nothing to judge."""
        checks = [self._by_program(sample, part, number) for part, number, _ in rubrics_of(sample.ask.case)]
        known = [check for check in checks if check is not None]
        return Verdict(tuple(known)) if len(known) == len(checks) else None

    def _by_program(self, sample: Sample, part: str, number: int) -> Check | None:
        """None: the judge's. The released code asks it about a part that is missing too."""
        there = sample.drawn if part == "image" else (sample.text or "").strip()
        if not there and self.official is None:
            return Check(f"{part} {number + 1}", "fail", f"there is no {part}", 0.0)
        if self.verifier == "judge":
            return None
        image = sample.drawn[-1] if sample.drawn else None
        return rubric_check(sample.ask.case, part, number, sample.text or "", image)

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """One question a rubric. One without a reply that can be read is unreadable, and the others stand; raises
        Unparseable where none can be read."""
        from uni_train.eval.judges import NoReply, Stopped, dialect, filled_in

        if dialect(ask) == "nano":
            raise UsageError("nano cannot judge rubrics", "Leave its own world to the program, or use another judge.")
        checks: list[Check] = []
        failures: list[Exception] = []
        asked = 0
        for part, number, rubric in rubrics_of(sample.ask.case):
            check = self._by_program(sample, part, number)
            if check is None:
                asked += 1
                name = f"{part} {number + 1}"
                prompt, images = self._question(sample, part, rubric)
                try:
                    reply = await filled_in(ask, prompt, OFFICIAL_REPLY if self.official else REPLY, images)
                    right = met(reply)
                    why = "" if right else f"{rubric} {_why(reply)}"
                    check = Check(name, "pass" if right else "fail", why, float(right))
                except Stopped:
                    raise
                except (Unparseable, NoReply) as error:
                    failures.append(error)
                    check = Check(name, "unreadable", f"{rubric} (the judge: {error})", 0.0)
            checks.append(check)
        if asked and len(failures) == asked:
            raise failures[0]
        return Verdict(tuple(checks))

    def _question(self, sample: Sample, part: str, rubric: str) -> tuple[str, tuple[bytes, ...]]:
        """What the judge is asked about one rubric. The released code shows it no image beside a rubric for text."""
        case, text = sample.ask.case, sample.text or ""
        if self.official is None:
            return judge_prompt(case.prompt, text, len(sample.drawn), rubric), sample.images
        prompt = self.official.prompt(part, case.category, case.prompt, text, rubric)
        return prompt, sample.images if part == "image" else ()

    def attribute(self, scored: Scored) -> str:
        """Which part does not satisfy all of its rubrics."""
        if scored.passed or scored.verdict is None or scored.sample.status != "ok":
            return super().attribute(scored)
        wanting = [part for part in PARTS if any(c.status != "pass" for c in counting.rubrics(scored, part))]
        return f"{' and '.join(wanting)} wanting"

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """SETTING.json as the released `ueval_eval.py --model_output_path` reads it, and the images that it names."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for draw in first_draws(scored):
            ask = draw.sample.ask
            if draw.sample.status == "cue_missing":  # without a trace it was not asked
                continue
            names = [f"images/{ask.setting}/{file_name(ask.case.id)}_{i}.png" for i in range(len(draw.sample.drawn))]
            yield from zip(names, draw.sample.images, strict=True)
            answer = {"id": ask.case.id, "text_answer": draw.sample.text or "", "image_answer": names}
            rows.setdefault(ask.setting, []).append(answer)
        for setting, answers in rows.items():
            yield f"{setting}.json", json.dumps(answers, indent=1, ensure_ascii=False).encode()

    def details(self, results: Results) -> Mapping[str, Any]:
        return counting.details(counting.Count(self, results))

    def specs(self, results: Results) -> Iterable[TableSpec]:
        return counting.specs(counting.Count(self, results))

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """Questions, by the mean of their image and text score; not asked are those that a file has no trace of."""
        asked = (answer for answer in scored if answer.outcome != "cue_missing")
        return [unit_of(answer, counting.satisfied(answer, "score")) for answer in asked]


def _with_trace(sample: Sample, trace: str) -> Sample:
    """With a trace at the question's end, as the paper appends it; nano's words stand on one line."""
    between = " " if "program" in sample.ask.case.facts else "\n\n"
    return replace(sample, prompt=f"{sample.prompt}{between}{trace}", thought=trace)


def _with_text(sample: Sample, text: str) -> Sample:
    return replace(sample, parts=(text,))


def _without(sample: Sample, error: Exception) -> Sample:
    return replace(sample, note="; ".join(filter(None, (sample.note, note_of(error)))))


def _why(reply: Mapping[str, Any]) -> str:
    unsure = "(not sure) " if reply["criteria_met"] is not False else ""
    return f"{unsure}{' '.join(str(reply.get('explanation', '')).split())[:300]}"
