"""The nouns of scoring a checkpoint: what is asked, what came back, what it is worth.

A `Benchmark` owns its cases, how a setting turns a case into calls of a model, its program checks, its judge, and the
tables of its paper. It owns no storage, no concurrency and no statistics: those are the engine's, and the same for all.

    cases -> respond (calls of a model, each stored once) -> Sample -> check | judge -> Scored -> tables

A benchmark is a module or folder of `uni_train.eval.benchmarks`, or a plug-in's, that makes itself known:

    @benchmark("ufo")
    class Ufo(Benchmark): ...
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from uni_train.data_gen.errors import DataError
from uni_train.data_gen.registry import Registry, task_of
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.task import Item, Verdict
from uni_train.errors import UsageError, did_you_mean
from uni_train.eval.results import Table, Unit, unit_of

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.calls import StoredModel
    from uni_train.eval.images import Image, StoredImage
    from uni_train.models.base import OnStep, Request

# What became of a sample before anybody scored it. Everything but "ok" counts as not right and stays in the
# denominator, under its own name.
GENERATED = ("ok", "generation_failed", "no_skill", "not_extracted", "cue_missing")
# What became of a sample after scoring, in the order in which it is shown. Only "unjudged" (no program can tell, and no
# judge was asked) is no result: a set that holds such samples has no score.
OUTCOMES = ("pass", "fail", "unreadable", *GENERATED[1:], "judge_failed", "unparseable", "missing", "unjudged")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a benchmark asks, whatever the setting.

    id: unique within the benchmark. set: under which headline it counts ("math1", "spatial"). prompt: as published.
    images: encoded files (PNG, JPEG) shown with the prompt, here or in a store. cluster: cases that count together
    share it (the two of a pair); None: a case of its own. category: for breakdowns ("" where there is none). facts:
    JSON-able, all that scoring needs (answers, criteria, a data_gen item as `Item.to_dict`). references: encoded files
    that the data give as right (a ground truth, a cue); a model is not shown them.
    """

    id: str
    set: str
    prompt: str
    images: tuple[Image, ...] = ()
    cluster: str | None = None
    category: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[Image, ...] = ()

    @property
    def cluster_id(self) -> str:
        """What dependent cases share: their cluster, of a case without one its own id."""
        return self.cluster or self.id


@dataclass(frozen=True, slots=True)
class Ask:
    """A case to be asked in one setting, the k-th time; the seed follows from (run seed, case id, k) alone.

    Settings of a case share the seed, so that they are compared on the same noise.
    """

    case: Case
    setting: str
    k: int
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a model made of an Ask.

    status: one of GENERATED; note: why it is not "ok". prompt: what the image was drawn from (a refined prompt, where
    the setting extracts one). thought: the reasoning before. parts: what came back, in order: texts, and images as PNG
    bytes (frames, interleaved answers), or where such a file lies (`uni_train.eval.images`). facts: JSON-able
    remarks of the benchmark (how the prompt was extracted).
    """

    ask: Ask
    status: str = "ok"
    note: str = ""
    prompt: str = ""
    thought: str | None = None
    parts: tuple[str | Image, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """All texts, a line each; None where there is none."""
        texts = [part for part in self.parts if isinstance(part, str)]
        return "\n".join(texts) if texts else None

    @property
    def drawn(self) -> tuple[Image, ...]:
        """All images, in order, those of a store unread."""
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def images(self) -> tuple[bytes, ...]:
        """The files of all images, in order, read."""
        from uni_train.eval.images import bytes_of

        return tuple(map(bytes_of, self.drawn))

    @property
    def image(self) -> bytes | None:
        """The last image, which is the answer where there are steps before it, read; None where there is none."""
        from uni_train.eval.images import bytes_of

        return bytes_of(self.drawn[-1]) if self.drawn else None

    @property
    def identity(self) -> tuple[str, str, int]:
        """Case, setting and draw: unique within an evaluation, and equal in two that asked the same."""
        return self.ask.case.id, self.ask.setting, self.ask.k

    @property
    def key(self) -> str:
        """Content hash of everything that can be scored: equal samples are judged once."""
        from uni_train.eval.images import digest_of

        case = self.ask.case
        words = [case.id, case.set, case.prompt, dict(case.facts), self.ask.setting, self.ask.k, self.status]
        words += [self.prompt, self.thought, dict(self.facts)]
        words += [part if isinstance(part, str) else None for part in self.parts]
        digest = hashlib.blake2b(json.dumps(words, sort_keys=True, ensure_ascii=False).encode(), digest_size=16)
        for image in (*case.images, *self.drawn):
            digest.update(digest_of(image).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Scored:
    """A sample and what it is worth.

    verdict: of the program or the judge; None where there is none, and then `failure` says why: "judge_failed" (no
    reply came), "unparseable" (a reply that does not answer), "unjudged" (nobody was asked), or "" (the sample's own
    status says it).
    by: "program" or the judge's name. replies: the judge's words, in order. cause: the benchmark's attribution of a
    sample that is not right ("reasoning wrong", "not extracted", "drawn wrong", ...).
    filter_verdict: whether a filter keeps it for training (STARS, UniSandbox section 3.4); None where none was asked.
    """

    sample: Sample
    verdict: Verdict | None = None
    by: str = "program"
    failure: str = ""
    replies: tuple[str, ...] = ()
    cause: str = ""
    filter_verdict: Verdict | None = None

    @property
    def outcome(self) -> str:
        """One of OUTCOMES."""
        if self.sample.status != "ok":
            return self.sample.status
        return self.verdict.status if self.verdict is not None else (self.failure or "missing")

    @property
    def passed(self) -> bool:
        return self.outcome == "pass"

    @property
    def value(self) -> float:
        """In [0, 1]: how much of it is right, where the verdict is graded; else 1 for a pass and 0 for all others."""
        return self.verdict.value if self.sample.status == "ok" and self.verdict is not None else 0.0


class Respondent(Protocol):
    """Whatever can be asked: a `UnifiedModel`, a remote one, or either behind the store of finished calls.

    As `UnifiedModel`; a model without a skill raises SkillMissing. A request that fails alone (a refusal of a remote
    model, an image that is none) is an exception in the list in its place; the others are answered.
    """

    name: str

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> Sequence[str | Exception]: ...

    def draw(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> Sequence[np.ndarray | StoredImage | Exception]: ...

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> Sequence[str | Exception]: ...

    def compose(
        self, requests: Sequence[Request], *, on_step: OnStep | None = None
    ) -> Sequence[Sequence[str | np.ndarray | StoredImage] | Exception]: ...


def think_and_draw(
    model: Respondent, requests: Sequence[Request], on_step: OnStep | None = None
) -> tuple[list[str | Exception], list[np.ndarray | StoredImage | Exception]]:
    """Thoughts and the images drawn by them; a model that has a `think_and_draw` of its own reads each request once."""
    own = getattr(model, "think_and_draw", None)
    return think_then_draw(model, requests, on_step) if own is None else own(requests, on_step=on_step)


def think_then_draw(
    model: Respondent, requests: Sequence[Request], on_step: OnStep | None = None
) -> tuple[list[str | Exception], list[np.ndarray | StoredImage | Exception]]:
    """In two steps. Where there is no thought, its exception stands in the place of the image too."""
    thoughts = list(model.think(requests, on_step=on_step)) if requests else []
    pairs = zip(requests, thoughts, strict=True)
    thoughtful = [replace(request, thought=text) for request, text in pairs if isinstance(text, str)]
    drawn = iter(model.draw(thoughtful, on_step=on_step) if thoughtful else [])
    images: list[Any] = [next(drawn) if isinstance(text, str) else text for text in thoughts]
    return thoughts, images


def expect_known(title: str, noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raises UsageError for what the benchmark called `title` does not have: "UReason has no setting cot"."""
    for name in given:
        if name not in known:
            raise UsageError(f"{title} has no {noun} {name}", did_you_mean(name, known, f"values of {noun}"))


def note_of(error: Exception) -> str:
    """Why a call of a model brought nothing, on one line, for `Sample.note`."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


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
    """The judge replied, but never with an answer; the last reply is the argument."""


@dataclass(frozen=True, slots=True)
class Option:
    """Something that one benchmark can be told: `eval options.NAME.key=value`.

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
    which of `known_sets`; None: all that there are. compat: "paper" or "official" (code), where the two differ.
    verifier: "judge" leaves to the judge too what a program could tell. open_model: another model, by what is typed.
    """

    data: Path | None = None
    world: str = "nano"
    n: int = 100
    split: str = "test"
    sets: tuple[str, ...] | None = None
    compat: str = "paper"
    verifier: str = "program"
    open_model: Callable[[str], StoredModel] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """All but the folder and the other models, as keywords."""
        names = ("world", "n", "split", "sets", "compat", "verifier")
        return {name: getattr(self, name) for name in names}


def generated_questions(world: str) -> str:
    """What is said of scores on questions that are not the paper's."""
    return f"generated questions of the {world} world, not the benchmark"


class Benchmark(ABC):
    """One benchmark. `revision` is a content hash of its data and of what is asked, part of every result.

    known_sets: what `sets` may name. options: keys of `options.NAME`. open(source, **options): makes it from these;
    who is registered has these three. headline: the settings that a leaderboard shows; empty: all. published: whether
    its questions are its paper's; None: it has no paper. world: of generated questions.
    """

    name: str
    known_sets: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    headline: ClassVar[tuple[str, ...]] = ()
    open: ClassVar[Callable[..., Benchmark]]
    revision: str
    settings: tuple[str, ...]
    sets: tuple[str, ...]
    published: bool | None = None
    world: str = ""

    @abstractmethod
    def cases(self) -> Sequence[Case]:
        """All cases, in a fixed order."""

    def questions(self, n: int | None = None) -> str:
        """What is asked, for every table and page; n: how many of the cases, None: all."""
        if self.published is False:
            return generated_questions(self.world)
        whole = len(self.cases())
        files = "published files" if self.published else f"questions of {self.name}"
        return f"{files}, revision {self.revision}, {whole if n is None else n:,} of {whole:,} cases"

    @abstractmethod
    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        """Ask the model. Any number of asks of any settings; every call is stored, so a restart repeats none."""

    @abstractmethod
    def check(self, sample: Sample) -> Verdict | None:
        """What a program can prove of a sample with status "ok"; None where only a judge can tell."""

    async def judge(self, sample: Sample, ask: JudgeAsk) -> Verdict:
        """What the judge says of a sample that no program can check. Raises Unparseable."""
        raise NotImplementedError(f"{self.name} is scored by programs alone")

    def attribute(self, scored: Scored) -> str:
        """Why a sample is not right: "" for one that is."""
        return "" if scored.passed else scored.outcome.replace("_", " ")

    @abstractmethod
    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        """JSON-able: setting -> set -> Estimate.to_dict(), and whatever else the tables show."""

    @abstractmethod
    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """The paper's tables, filled in."""

    @classmethod
    def labels(cls, scores: Mapping[str, Any]) -> Sequence[str]:
        """Under which labels `scores` were counted, the first of them first; "" where there is one kind."""
        return [""]

    @classmethod
    def units(cls, scored: Iterable[Scored], label: str) -> list[Unit]:
        """What counts once, under one label: here each sample by itself."""
        return [unit_of(one, one.value) for one in scored]

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

    def helpers(self) -> Mapping[str, StoredModel]:
        """Kind of call -> the model that is asked for it in the place of the evaluated one."""
        return {}

    def told(self) -> Mapping[str, Any]:
        """Which of its options decide numbers without being in its revision: JSON-able, recorded and compared."""
        return {}

    def calls(self, asks: Sequence[Ask]) -> dict[str, int]:
        """How many calls of each kind ("think", "draw", "answer", "judge") it takes, for a plan."""
        return {"draw": len(asks), "judge": len(asks)}


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    "uni_train.eval.benchmarks.*",
    required=("name", "known_sets", "open", "respond", "check", "scores", "tables"),
)
benchmark = BENCHMARKS.register
"""Makes a benchmark known under a name, which is that of its module in `eval.benchmarks`, or in a plug-in any."""
