"""UEval as a Benchmark: a question is answered with text and images, and its rubrics are judged one by one.

    two_passes: answer(prompt) and draw(prompt), as the paper asks models that cannot do both at once (section 3.1)
    think_first: think(prompt) is the text, draw(prompt, thought) the image (ours)
    one_pass: compose(prompt), text and images at once, as the paper asks all others
    traced: the same with another model's reasoning trace at the end of the prompt (section 3.3), where one is named

Rubrics of our own questions are decided by program in nano's world (`own`), all others by a judge: in the words of
Figure 9, or with compat=official in those of the released code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import (
    Ask,
    Benchmark,
    Case,
    JudgeAsk,
    Option,
    Respondent,
    Sample,
    Scored,
    Source,
    Table,
    Unit,
    Unparseable,
    benchmark,
    expect_known,
    note_of,
)
from uni_train.eval.benchmarks.ueval import counting, own
from uni_train.eval.benchmarks.ueval.files import HUB, QUESTIONS, read_folder
from uni_train.eval.benchmarks.ueval.prompts import JUDGE, OFFICIAL_REPLY, REPLY, judge_prompt, met, read_official
from uni_train.eval.images import StoredImage, encoded
from uni_train.eval.results import unit_of
from uni_train.eval.submission import file_name, first_draws

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.calls import StoredModel
    from uni_train.models.base import OnStep, Request

ONE_PASS, TWO_PASSES, THINK_FIRST, TRACED = "one_pass", "two_passes", "think_first", "traced"
PASSES = {"two": (TWO_PASSES, THINK_FIRST), "one": (ONE_PASS,), "all": (ONE_PASS, TWO_PASSES, THINK_FIRST)}
COMPATS = ("paper", "official")
VERIFIERS = ("program", "judge")
PROTOCOL = "ueval/1"  # what is asked; a change makes another revision


@benchmark("ueval")
class UEval(Benchmark):
    """The benchmark over the files in `data`, or over questions of our own.

    data: a folder with the published files (see `files.read_folder`); None: `n` questions a set of `world`, from
    `split` and `seed`. sets: which tasks; None: all that there are. passes: "two" (two_passes and think_first), "one"
    (one_pass) or "all". tracer: whose reasoning traces `traced` gives the model. compat: "official" judges as the
    released code, whose clone is `code`. verifier: "judge" leaves to the judge too what a program could tell.

    Raises UsageError for an unknown name, DataError for files that cannot be used.
    """

    name = "ueval"
    hub = HUB
    published: bool
    known_sets = counting.SETS
    options = (
        Option("passes", "two", "text and image asked for in two passes, in one, or both ways", tuple(PASSES)),
        Option("trace_model", "", "also ask with the reasoning traces of this model behind the questions"),
        Option("code", "", "a clone of the released code, for the judge's prompts of compat=official"),
    )

    @classmethod
    def open(cls, source: Source, *, passes: str, trace_model: str, code: str) -> UEval:
        tracer = source.open_model(trace_model) if trace_model and source.open_model is not None else None
        told = {"passes": passes, "tracer": tracer, "code": Path(code) if code else None}
        return cls(source.data, **told, **source.arguments)  # type: ignore[arg-type]

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        world: str = "nano",
        n: int = 100,
        split: str = "test",
        seed: int = 0,
        sets: Sequence[str] | None = None,
        passes: str = "two",
        tracer: StoredModel | None = None,
        compat: str = "paper",
        code: Path | None = None,
        verifier: str = "program",
    ) -> None:
        expect_known("UEval", "set", sets or (), own.SETS if data is None else counting.TASKS)
        expect_known("UEval", "verifier", (verifier,), VERIFIERS)
        expect_known("UEval", "passes", (passes,), tuple(PASSES))
        expect_known("UEval", "compat", (compat,), COMPATS)
        if compat == "official" and code is None:
            raise UsageError(
                "UEval's compat=official asks the judge in the words of the released code, which is not shipped",
                "git clone https://github.com/zlab-princeton/UEval, then options.ueval.code=UEval.",
            )
        made = own.generated(world, n, split, seed, sets or own.SETS) if data is None else read_folder(Path(data), sets)
        self._cases = tuple(made)
        self.whole = len(made) if data is None or sets is None else len(read_folder(Path(data)))
        self.whose(data, published=self.whole == QUESTIONS)
        self.world = world
        self.official = read_official(code) if compat == "official" and code is not None else None
        self.verifier = verifier
        self.tracer, self._traced_at_once = tracer, passes == "one"
        self.settings = PASSES[passes] if tracer is None else (*PASSES[passes], TRACED)
        self.sets = tuple(name for name in counting.SETS if any(case.set == name for case in self._cases))
        self.revision = _revision(self._cases, self.official.all if self.official else ())

    def cases(self) -> Sequence[Case]:
        return self._cases

    def reference(self, case: Case) -> None:
        """None: a right image alone answers no question here."""

    def helpers(self) -> Mapping[str, StoredModel]:
        return {} if self.tracer is None else {"think": self.tracer}

    def told(self) -> Mapping[str, Any]:
        """Whose traces were given."""
        if self.tracer is None:
            return {}
        identity = self.tracer.identity
        return {"trace_model": {"content": identity.content, "settings": dict(identity.settings)}}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """A judge is asked about each rubric by itself."""
        composed = sum(self._at_once(ask) for ask in asks)
        thought_first = sum(ask.setting == THINK_FIRST for ask in asks)
        traces = sum(ask.setting == TRACED for ask in asks)
        judged = [ask.case.facts for ask in asks if self.verifier == "judge" or "program" not in ask.case.facts]
        found = {
            "think": thought_first + traces,
            "answer": len(asks) - composed - thought_first,
            "draw": len(asks) - composed,
            "compose": composed,
        }
        rubrics = sum(len(facts["image_rubrics"]) + len(facts["text_rubrics"]) for facts in judged)
        return {**{kind: n for kind, n in found.items() if n}, "judge": rubrics}

    # --- asking --------------------------------------------------------------------------------------------------

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """A part that fails leaves the other: its rubrics are then not satisfied."""
        traces = self._traces(asks, on_step)
        due = [one for one in asks if not isinstance(traces.get(_key(one)), Exception)]

        def request(ask: Ask, thought: str | None = None) -> Request:
            trace = traces.get(_key(ask))
            return _request(ask, _asked(ask.case, trace) if isinstance(trace, str) else ask.case.prompt, thought)

        said: dict[Any, Any] = {}
        thinking = [one for one in due if one.setting == THINK_FIRST]
        answering = [one for one in due if one.setting != THINK_FIRST and not self._at_once(one)]
        for some, skill in ((answering, model.answer), (thinking, model.think)):
            if some:
                said |= zip(map(_key, some), skill([request(one) for one in some], on_step=on_step), strict=True)
        drawn = [*answering, *(one for one in thinking if not isinstance(said[_key(one)], Exception))]
        requests = [request(one, said[_key(one)] if one.setting == THINK_FIRST else None) for one in drawn]
        images = model.draw(requests, on_step=on_step) if drawn else []
        shown: dict[Any, Any] = dict(zip(map(_key, drawn), images, strict=True))
        at_once = [one for one in due if self._at_once(one)]
        answers = model.compose([request(one) for one in at_once], on_step=on_step) if at_once else []
        composed: dict[Any, Any] = dict(zip(map(_key, at_once), answers, strict=True))
        samples = []
        for one in asks:
            key = _key(one)
            if isinstance(traces.get(key), Exception):
                samples.append(_sample(one, [traces[key]]))
            elif self._at_once(one):
                answer = composed[key]
                samples.append(
                    _sample(one, [answer] if isinstance(answer, Exception) else list(answer), traces.get(key))
                )
            else:
                samples.append(_sample(one, [said[key], *([shown[key]] if key in shown else [])], traces.get(key)))
        return samples

    def _at_once(self, ask: Ask) -> bool:
        """Whether text and images are asked for in one pass."""
        return ask.setting == ONE_PASS or (ask.setting == TRACED and self._traced_at_once)

    def _traces(self, asks: Sequence[Ask], on_step: OnStep | None) -> dict[Any, str | Exception]:
        """What the other model thought about the questions of `traced`."""
        traced = [one for one in asks if one.setting == TRACED]
        if not traced:
            return {}
        assert self.tracer is not None, "the setting is not offered without a model"
        texts = self.tracer.think([_request(one, one.case.prompt) for one in traced], on_step=on_step)
        return dict(zip(map(_key, traced), texts, strict=True))

    # --- scoring -------------------------------------------------------------------------------------------------

    def check(self, sample: Sample) -> Verdict | None:
        """Where a program can decide every rubric: in nano's world, and where there is nothing to judge."""
        checks = [self._decided(sample, part, number) for part, number, _ in _rubrics(sample.ask.case)]
        known = [check for check in checks if check is not None]
        return Verdict(tuple(known)) if len(known) == len(checks) else None

    def _decided(self, sample: Sample, part: str, number: int) -> Check | None:
        """None: the judge's. The released code asks it about a part that is missing too."""
        name = f"{part} {number + 1}"
        there = sample.drawn if part == "image" else (sample.text or "").strip()
        if not there and self.official is None:
            return Check(name, "fail", f"there is no {part}", 0.0)
        if self.verifier == "judge":
            return None
        return own.decided(sample.ask.case, part, number, sample.text or "", sample.drawn[-1] if sample.drawn else None)

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """One question a rubric. One without a reply that can be read is unreadable, and the others stand; raises
        Unparseable where none can be read."""
        from uni_train.eval.judges import filled_in
        from uni_train.eval.judges.asking import NoReply, Stopped
        from uni_train.eval.judges.questions import dialect

        if dialect(ask) == "nano":
            raise UsageError("nano cannot judge rubrics", "Leave its own world to the program, or use another judge.")
        checks: list[Check] = []
        failures: list[Exception] = []
        asked = 0
        for part, number, rubric in _rubrics(sample.ask.case):
            check = self._decided(sample, part, number)
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
                    check = Check(name, "unreadable", f"{rubric} The judge gave no readable reply.", 0.0)
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
        wanting = [part for part in counting.PARTS if any(c.status != "pass" for c in counting.rubrics(scored, part))]
        return f"{' and '.join(wanting)} wanting"

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """SETTING.json as the released `ueval_eval.py --model_output_path` reads it, and the images that it names."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for one in first_draws(scored):
            ask = one.sample.ask
            names = [f"images/{ask.setting}/{file_name(ask.case.id)}_{i}.png" for i in range(len(one.sample.drawn))]
            yield from zip(names, one.sample.images, strict=True)
            answer = {"id": ask.case.id, "text_answer": one.sample.text or "", "image_answer": names}
            rows.setdefault(ask.setting, []).append(answer)
        for setting, answers in rows.items():
            yield f"{setting}.json", json.dumps(answers, indent=1, ensure_ascii=False).encode()

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        return counting.scores(self._count(scored))

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        return counting.tables(self._count(scored), self.published)

    def _count(self, scored: Iterable[Scored]) -> counting.Count:
        return counting.Count(scored, self.settings, self.official is not None)

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """Questions, by the mean of their image and text score."""
        return [unit_of(one, counting.satisfied(one, "score")) for one in scored]


def _rubrics(case: Case) -> list[tuple[str, int, str]]:
    """(part, number from 0, text), images first."""
    return [(part, i, text) for part in counting.PARTS for i, text in enumerate(case.facts[f"{part}_rubrics"])]


def _key(ask: Ask) -> tuple[str, str, int]:
    return ask.case.id, ask.setting, ask.k


def _request(ask: Ask, prompt: str, thought: str | None = None) -> Request:
    from uni_train.models.base import Request

    # The id names the case and the draw, not the setting: equal calls of two settings are then one stored call.
    return Request(f"{ask.case.id}#{ask.k}", prompt, thought=thought, seed=ask.seed)


def _asked(case: Case, trace: str) -> str:
    """The question with a trace at its end, as the paper appends it; nano's words stand on one line."""
    return f"{case.prompt} {trace}" if "program" in case.facts else f"{case.prompt}\n\n{trace}"


def _sample(
    ask: Ask, parts: Sequence[str | np.ndarray | StoredImage | Exception], trace: str | Exception | None = None
) -> Sample:
    """What came, in order; failed only where nothing did."""
    problems = [note_of(one) for one in parts if isinstance(one, Exception)]
    came = tuple(one if isinstance(one, str) else encoded(one) for one in parts if not isinstance(one, Exception))
    status = "ok" if came else "generation_failed"
    thought = came[0] if ask.setting == THINK_FIRST and came and isinstance(came[0], str) else None
    prompt = ask.case.prompt
    if isinstance(trace, str):
        thought, prompt = trace, _asked(ask.case, trace)
    return Sample(ask, status, "; ".join(problems), prompt=prompt, thought=thought, parts=came)


def _why(reply: Mapping[str, Any]) -> str:
    unsure = "(not sure) " if reply["criteria_met"] is not False else ""
    return f"{unsure}{' '.join(str(reply.get('explanation', '')).split())[:300]}"


def _revision(cases: Sequence[Case], official: tuple[str, ...]) -> str:
    rows = [[case.id, case.set, case.prompt, dict(case.facts)] for case in cases]
    words = ["official", *official] if official else ["paper", JUDGE]
    text = json.dumps([PROTOCOL, *words, rows], sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
