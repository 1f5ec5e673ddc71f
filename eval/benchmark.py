"""What a benchmark is, and what it is given. The nouns (case, sample, score) are in `eval.sample`.

A `Benchmark` owns its cases, its settings, its program checks, its judge, and the tables of its paper. A setting turns
a case into calls of a model. Storage, concurrency and statistics are the engine's, and the same for all.

    cases -> steps (calls of a model, each stored once) -> Sample -> check | judge -> Scored -> tables

A benchmark is a module or folder of `uni_train.eval.benchmarks`, or a plug-in's, that makes itself known:

    @benchmark("ufo")
    class Ufo(Benchmark): ...
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from uni_train.core.errors import DataError, UsageError, did_you_mean
from uni_train.core.hub import id_of
from uni_train.core.registry import Registry
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.objects import WORLDS
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.images import encoded, pixels
from uni_train.eval.paper import Paper, TableSpec, printed
from uni_train.eval.results import Metric, Results, Table, Unit, plain, unit_of
from uni_train.eval.sample import (  # noqa: F401  # a plug-in's benchmark imports them from here
    GENERATED,
    NO_ANSWER,
    OUTCOMES,
    Ask,
    Case,
    Respondent,
    Sample,
    Scored,
    think_and_draw,
    think_then_draw,
)

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.calls import StoredModel
    from uni_train.eval.images import StoredImage
    from uni_train.models.base import OnStep, Request

COMPATS = ("paper", "official")
VERIFIERS = ("program", "judge")


def expect_known(title: str, noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raises UsageError for what the benchmark called `title` does not have: "UReason has no setting cot"."""
    for name in given:
        if name not in known:
            raise UsageError(f"{title} has no {noun} {name}", did_you_mean(name, known, f"values of {noun}"))


def request_of(
    ask: Ask, prompt: str, thought: str | None = None, images: Iterable[np.ndarray] = (), step: str = ""
) -> Request:
    """A call of the model. Its id names case and draw (and `step`), not the setting: equal calls are stored once."""
    from uni_train.models.base import Request

    return Request(f"{ask.case.id}#{ask.k}{step}", prompt, tuple(images), thought=thought, seed=ask.seed)


def verdict_of(check: str, right: bool, reason: str = "") -> Verdict:
    """A verdict of one check, with the reason where it is not right."""
    return Verdict((Check(check, "pass" if right else "fail", "" if right else reason),))


def are_published(ids: Iterable[str], *numberings: Iterable[int | str]) -> bool:
    """Whether these are the ids of published questions, each once, in one of several numberings."""
    given = sorted(ids)
    return any(given == sorted(map(str, numbers)) for numbers in numberings)


def described(model: StoredModel) -> dict[str, Any]:
    """What a model beside the evaluated one is, whatever it is called: JSON-able, for `Benchmark.recorded_options`."""
    return {"content": model.identity.content, "settings": dict(model.identity.settings)}


def revision_of(*content: Any, more: Iterable[bytes] = ()) -> str:
    """16 hexadecimal digits: the hash of JSON-able content, and of `more` behind it."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for part in more:
        digest.update(part)
    return digest.hexdigest()


def with_part(sample: Sample, part: str | np.ndarray | StoredImage | Exception, noun: str) -> Sample:
    """The sample with what came back as its part; without, "no image: ..." is its note."""
    if isinstance(part, Exception):
        return replace(sample, status="generation_failed", note=f"no {noun}: {part}")
    return replace(sample, parts=(part if isinstance(part, str) else encoded(part),))


def with_image(sample: Sample, image: np.ndarray | StoredImage) -> Sample:
    return replace(sample, parts=(*sample.parts, encoded(image)))


def with_parts(sample: Sample, parts: Sequence[str | np.ndarray | StoredImage]) -> Sample:
    return replace(sample, parts=tuple(part if isinstance(part, str) else encoded(part) for part in parts))


def with_thought_and_image(
    sample: Sample, both: tuple[str | Exception, np.ndarray | StoredImage | Exception]
) -> Sample:
    """The sample with what `think_and_draw` gives."""
    thought, image = both
    if isinstance(thought, Exception):
        return with_part(sample, thought, "thought")
    return with_part(replace(sample, thought=thought), image, "image")


def note_of(error: Exception) -> str:
    """Why a call of a model brought nothing, on one line, for `Sample.note`."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def failed(sample: Sample, error: Exception, lacking: str = "") -> Sample:
    """The sample as one that failed. lacking: before the reason, such as "no thought: "."""
    return replace(sample, status="generation_failed", note=lacking + note_of(error))


@dataclass(frozen=True, slots=True)
class Step:
    """Calls of one skill, and what becomes of the samples that they are made for.

    skill: a method of `Respondent`, or "think_and_draw". due: which samples it is called for; one that has failed is
    never. put: the sample with a reply. failed: the sample with the exception that came instead. once: equal requests
    are one call; their images follow from their ids. model: who is asked, where it is not the evaluated one. makes:
    what a reply is where the skill does not say it: "thought", "text", "image", "parts", or "frame" (one of several).
    """

    skill: str
    due: Callable[[Sample], bool]
    request: Callable[[Sample], Request]
    put: Callable[[Sample, Any], Sample]
    failed: Callable[[Sample, Exception], Sample] = failed
    once: bool = False
    model: Respondent | None = None
    makes: str = ""

    @property
    def reply(self) -> str:
        """What a reply is, of a step of `singly`."""
        return self.makes or {"think": "thought", "answer": "text", "draw": "image", "compose": "parts"}[self.skill]

    def singly(self) -> tuple[Step, ...]:
        """Steps of one reply each: "think_and_draw" is two."""
        if self.skill != "think_and_draw":
            return (self,)
        return (
            replace(self, skill="think", put=lambda sample, thought: replace(sample, thought=thought)),
            replace(
                self, skill="draw", request=lambda sample: replace(self.request(sample), thought=sample.thought),
                put=lambda sample, image: self.put(sample, (sample.thought, image)),
            ),
        )  # fmt: skip

    def take(self, model: Respondent, samples: list[Sample], on_step: OnStep | None) -> None:
        """Put what comes into the samples."""
        rows = [row for row, sample in enumerate(samples) if sample.status == "ok" and self.due(sample)]
        requests = [self.request(samples[row]) for row in rows]
        keys = [(request.id, request.prompt, request.thought, request.seed) if self.once else row
                for row, request in zip(rows, requests, strict=True)]  # fmt: skip
        calls = dict(zip(keys, requests, strict=True))
        replies = dict(zip(calls, self._ask(self.model or model, list(calls.values()), on_step), strict=True))
        for row, key in zip(rows, keys, strict=True):
            put = self.failed if isinstance(replies[key], Exception) else self.put
            samples[row] = put(samples[row], replies[key])

    def _ask(self, model: Respondent, requests: list[Request], on_step: OnStep | None) -> Iterable[Any]:
        if not requests:
            return ()
        if self.skill == "think_and_draw":
            return zip(*think_and_draw(model, requests, on_step), strict=True)
        return getattr(model, self.skill)(requests, on_step=on_step)  # type: ignore[no-any-return]


class JudgeAsk(Protocol):
    """Asks the judge model once: a prompt and encoded images to its words.

    Cached by content, retried, limited in rate and cost by the engine. `parse` turns the words into a value and raises
    ValueError where they do not answer; the judge is then asked again with that remark, `attempts` times in all, before
    Unparseable is raised.
    """

    async def __call__(
        self,
        prompt: str,
        images: Sequence[bytes] = (),
        *,
        parse: Callable[[str], Any] | None = None,
        attempts: int = 3,
        schema: Mapping[str, Any] | None = None,
    ) -> Any: ...


class Unparseable(Exception):
    """The judge replied, but never with an answer; the message quotes the last reply, and says the form expected.

    Attributes:
        outcome: of `sample.NO_ANSWER`: "judge_blank", "judge_refused" (by the model), "judge_filtered" (by its server),
            "unparseable" (other words).
    """

    def __init__(self, reply: str, outcome: str = "unparseable") -> None:
        super().__init__(reply)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one benchmark: `eval options.NAME.key=value`.

    default: says the kind too: a text, a number, or a tuple of names. choices: the values that it may have; empty: any.
    """

    key: str
    default: str | int | float | tuple[str, ...]
    help: str
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """The value that is typed. Raises UsageError, which names the key."""
        if self.choices and text not in self.choices:
            raise UsageError(f"{self.key}={text}: no such value", did_you_mean(text, self.choices, "values"))
        if isinstance(self.default, tuple):
            return tuple(name.strip() for name in text.split(",") if name.strip())
        try:
            return type(self.default)(text)
        except ValueError:
            raise UsageError(f"{self.key}={text}: no number", f"Write {self.key}={self.default}, say.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What `eval` tells every benchmark about its questions.

    data: a folder with its published files; None: questions of our own, `n` of a set, from `world` and `split`. sets:
    which of `known_sets`; None: all that there are. settings: that are named; () means all but the optional ones.
    compat: "paper" or "official" (code), where the two differ. verifier: "judge" leaves to the judge too what a program
    could tell. open_model: another model, by what is typed.
    """

    data: Path | None = None
    world: str = "nano"
    n: int = 100
    split: str = "test"
    sets: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    compat: str = "paper"
    verifier: str = "program"
    open_model: Callable[[str], StoredModel] | None = None

    def other(self, name: str) -> StoredModel | None:
        """The model of this name, behind a store of its calls; None for no name."""
        return self.open_model(name) if name and self.open_model is not None else None


PUBLISHED = "published files"
"""How `Benchmark.questions` begins where the questions are the paper's."""


def generated_questions(world: str) -> str:
    """What is said of scores on questions that are not the paper's; `world` may be several, see `worlds_of`."""
    sources = " and ".join(f"the {name} world" if name in WORLDS else name for name in world.split("+"))
    return f"generated questions of {sources}, not the benchmark"


def worlds_of(cases: Iterable[Case]) -> str:
    """ "maze+nano": the worlds of generated cases; a task that knows no worlds is one of its own."""
    return "+".join(sorted({str(case.facts["world"] or case.facts["task"]) for case in cases}))


class Benchmark(ABC):
    """One benchmark. `revision` is a content hash of its data and of what is asked, part of every result.

    title: its name in messages; "": `name`. known_sets: what `sets` may name. optional_settings: asked where `settings`
    names them. options: keys of `options.NAME`. hashed: what of a case is in the revision. headline: the settings that
    a leaderboard shows; empty: all. radar: whether it draws its sets as one. overall: the score of all sets that are
    asked. groups: name -> sets that are also scored together. hub: the published data set on the Hub, "" where there is
    none. published: whether its questions are its paper's; None: it has no paper. user_files: they are somebody's files
    in its schema. world: of generated questions. total_cases: of the complete benchmark; None: not known.

    A subclass makes its cases and hands them over; `open` has checked what it is told:

        def __init__(self, source: Source, *, steps: int = 6) -> None:
            super().__init__(source, read_folder(source.data), settings=("direct", "cot"), asked=("mine/1", PROMPT))
    """

    name: str
    title: ClassVar[str] = ""
    known_sets: ClassVar[tuple[str, ...]]
    optional_settings: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    hashed: ClassVar[tuple[str, ...]] = ("id", "set", "prompt", "cluster", "category", "facts")
    headline: ClassVar[tuple[str, ...]] = ()
    radar: ClassVar[bool] = False
    overall: ClassVar[Metric] = Metric()
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}
    hub: ClassVar[str] = ""
    revision: str
    settings: tuple[str, ...]
    sets: tuple[str, ...]
    published: bool | None = None
    user_files: bool = False
    world: str = ""
    total_cases: int | None = None

    def __init__(
        self, source: Source, cases: Iterable[Case], *, settings: Sequence[str], asked: Sequence[Any] = ()
    ) -> None:
        """
        Args:
            cases: in a fixed order.
            settings: those that are asked, in the order of tables.
            asked: JSON-able, what is asked beside the cases: a version of the protocol, prompts. A change of it, as of
                the cases, makes another revision.
        """
        self._cases = tuple(cases)
        self.source, self.compat, self.verifier, self.world = source, source.compat, source.verifier, source.world
        self.settings = tuple(settings)
        there = {case.set for case in self._cases}
        self.sets = tuple(name for name in self.known_sets if name in there)
        self.total_cases = len(self._cases) if source.sets is None else None
        self.set_origin(source.data)
        self.revision = self.content_hash(asked)

    @classmethod
    def _opened(cls, source: Source, **options: Any) -> Benchmark:
        title = cls.title or cls.name
        choices = {option.key: option.choices for option in cls.options if option.choices}
        expect_known(title, "set", source.sets or (), cls.known_sets)
        expect_known(title, "compat", (source.compat,), COMPATS)
        expect_known(title, "verifier", (source.verifier,), VERIFIERS)
        for key, value in options.items():
            expect_known(title, key, (value,), choices.get(key, (value,)))
        return cls(source, **options)

    open: ClassVar[Callable[..., Benchmark]] = _opened
    """The benchmark of (source, **options), as `eval` is told of it. Raises UsageError for a name that it lacks."""

    def cases(self) -> Sequence[Case]:
        """All cases, in a fixed order."""
        return self._cases

    def content_hash(self, asked: Sequence[Any]) -> str:
        """The revision, where `asked` is what is asked beside the cases."""
        return revision_of(*asked, self.hashed_rows())

    def hashed_rows(self) -> list[list[Any]]:
        """Of each case what is in the revision."""
        rows = ([getattr(case, name) for name in self.hashed] for case in self._cases)
        return [[dict(cell) if isinstance(cell, Mapping) else cell for cell in row] for row in rows]

    def set_origin(self, data: Path | str | None, ids: Iterable[str] = (), *paper: Iterable[int | str]) -> None:
        """Set `published` and `user_files` by what `data` is: generated (None), somebody's files, or those of the Hub.

        ids: of all questions there. paper: those of the paper, in one or several numberings (`are_published`).
        """
        of_hub = bool(self.hub) and data is not None and (id_of(Path(data)) or "").partition("@")[0] == self.hub
        self.published = data is not None and (are_published(ids, *paper) or of_hub)
        self.user_files = data is not None and not self.published

    def questions(self, asked: Iterable[Case] | None = None) -> str:
        """What is asked, for every table and page; asked: some of the cases, None: all. Sets of which nothing is asked
        are named; two labels of one drawing are one case."""
        every = list(self.cases() if asked is None else asked)
        n, there = len({case.facts.get("drawn_as", case.id) for case in every}), {case.set for case in every}
        left = [name for name in self.sets if name not in there]
        without = f"; none of {', '.join(left)}" if left else ""
        if self.user_files:
            return f"files of yours, {n:,} cases{without}"
        if self.published is False:
            return generated_questions(self.world) + without
        files = PUBLISHED if self.published else f"questions of {self.name}"
        whole = len(self.cases()) if self.published is None else self.total_cases
        share = f"{n:,} cases of {', '.join(self.sets)}" if whole is None else f"{n:,} of {whole:,} cases"
        return f"{files}, revision {self.revision}, {share}{without}"

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """Ask the model. Any number of asks of any settings; every call is stored, so a restart repeats none."""
        samples = [self.begin(ask) for ask in asks]
        for step in self.steps():
            step.take(model, samples, on_step)
        return [self.finish(sample) for sample in samples]

    def skills(self, ask: Ask) -> set[str]:
        """The skills ("think", "draw", "answer", "compose") of the evaluated model that a setting needs."""
        sample = self.begin(ask)
        steps = [step for step in self.steps() if step.model is None and step.due(sample)]
        return {skill for step in steps for skill in step.skill.split("_and_")}

    def begin(self, ask: Ask) -> Sample:
        """The sample before the first step; one that is not "ok" stays as it is."""
        return Sample(ask, prompt=ask.case.prompt)

    def steps(self) -> Iterable[Step]:
        """In which order the model is asked what. Here: an image each, in the setting "cot" drawn by a thought."""

        def request(sample: Sample) -> Request:
            return request_of(sample.ask, sample.prompt, images=map(pixels, sample.ask.case.images))

        image = partial(with_part, noun="image")
        yield Step("draw", lambda sample: sample.ask.setting != "cot", request, image, image)
        yield Step("think_and_draw", lambda sample: sample.ask.setting == "cot", request, with_thought_and_image)

    def finish(self, sample: Sample) -> Sample:
        """The sample after the last step."""
        return sample

    @abstractmethod
    def check(self, sample: Sample) -> Verdict | None:
        """What a program can prove of a sample with status "ok"; None where only a judge can tell."""

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """What the judge says of a sample that no program can check. Raises Unparseable."""
        raise NotImplementedError(f"{self.name} is scored by programs alone")

    def attribute(self, scored: Scored) -> str:
        """Why a sample is not right: "" for one that is."""
        return "" if scored.passed else scored.outcome.replace("_", " ")

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        """JSON-able: setting -> set, group or "overall" -> Estimate.to_dict(), and `details` beside the settings."""
        results = Results(self.units(scored, ""))
        groups = {**{name: (name,) for name in self.sets}, **self.groups}
        by_setting = results.by("setting", self.settings)
        scores = {setting: self.overall.by_set(some, groups) for setting, some in by_setting.items()}
        return plain({**scores, **self.details(results)})  # type: ignore[no-any-return]

    def details(self, results: Results) -> Mapping[str, Any]:
        """Further keys of `scores`: estimates and comparisons in mappings, whatever else the tables show."""
        return {}

    def specs(self, results: Results) -> Iterable[TableSpec]:
        """The paper's tables, declared; `tables` fills them in. results: `units` of all samples."""
        return ()

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The paper's tables, filled in, without those that have no rows."""
        results = Results(self.units(scored, ""))
        made = (spec.table(results, self.paper) for spec in self.specs(results))
        return [table for table in made if table.rows]

    @classmethod
    def metrics(cls) -> Mapping[str, Metric]:
        """The scores that a leaderboard shows of each setting, by name."""
        return {"": cls.overall}

    @property
    def paper(self) -> Paper | None:
        """The numbers of paper.csv beside the benchmark; None where its questions are not asked."""
        return printed(Path(inspect.getfile(type(self)))) if self.published else None

    @classmethod
    def labels(cls, scores: Mapping[str, Any]) -> Sequence[str]:
        """Under which labels `scores` were counted, the first of them first; "" where there is one kind."""
        return [""]

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """What counts once, under one label: here each sample by itself."""
        return [unit_of(answer, answer.value) for answer in scored]

    @classmethod
    def complexity(cls, case: Case) -> tuple[str, float] | None:
        """What grows (levels of a task, the side of a grid) and how far, for scores by complexity; None: nothing."""
        return None

    @classmethod
    def submission(cls, scored: Iterable[Scored]) -> Iterator[tuple[str, bytes]]:
        """Path and content of the files that the benchmark's own code scores; here a layout of ours, for those that
        have published none: every sample in samples.jsonl, its images beside."""
        from uni_train.eval.submission import samples_and_images

        return samples_and_images(scored)

    def reference(self, case: Case) -> bytes | None:
        """An image that is right by construction, as PNG; None where nothing can draw it."""
        from uni_train.models.pictures import encode_png

        if "item" not in case.facts:
            return None
        item = Item.from_dict(case.facts["item"])
        try:
            return encode_png(task_of(item).render(item, derive_seed(0, "reference", case.id)))
        except DataError:  # a world without sprites
            return None

    def reference_answer(self, ask: Ask) -> Mapping[str, Any]:
        """What a reference answer has of "thought", "text" and "images" (encoded); {}: there is none."""
        return {} if (image := self.reference(ask.case)) is None else {"images": [image]}

    def helpers(self) -> Mapping[str, StoredModel]:
        """Kind of call -> the model that is asked for it in the place of the evaluated one."""
        return {}

    def recorded_options(self) -> Mapping[str, Any]:
        """Which of its options decide numbers without being in its revision: JSON-able, recorded and compared."""
        return {}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """How many calls of each kind ("think", "draw", "answer", "judge") it takes, for a plan."""
        thoughts = sum(ask.setting == "cot" for ask in asks)
        return {"think": thoughts, "draw": len(asks), "judge": len(asks)}


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    "uni_train.eval.benchmarks.*",
    required=("name", "known_sets", "check"),
)
benchmark = BENCHMARKS.register
"""Makes a benchmark known under a name, which is that of its module in `eval.benchmarks`, or in a plug-in any."""
