"""The nouns of scoring a model: a case, an ask, a sample, what it is worth, and who can be asked.

Case -> Ask (in one setting, the k-th time) -> Sample (what came back) -> Scored (with its verdict)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from uni_train.data_gen.task import Verdict

if TYPE_CHECKING:
    import numpy as np

    from uni_train.eval.images import Image, StoredImage
    from uni_train.models.base import OnStep, Request

# What became of a sample before anybody scored it. Everything but "ok" counts as not right and stays in the
# denominator, under its own name.
GENERATED = ("ok", "generation_failed", "no_skill", "not_extracted", "cue_missing")
# What became of a sample after scoring, in the order in which it is shown. Only "unjudged" (no program can tell, and no
# judge was asked) is no result: a set that holds such samples has no score.
NO_ANSWER = ("judge_blank", "judge_refused", "judge_filtered", "unparseable")  # of a judge that replied
OUTCOMES = ("pass", "fail", "unreadable", *GENERATED[1:], "judge_failed", *NO_ANSWER, "missing", "unjudged")


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
        """What dependent cases share: the canonical form of an item; else the cluster, or the case's own id."""
        item = self.facts.get("item") or {}
        return str(item.get("facts", {}).get("canonical") or self.cluster or self.id)


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

    verdict: of the program or the judge; None where there is none. failure: then says why: "judge_failed" (no reply
    came), one of NO_ANSWER (none that answers), "unjudged" (nobody was asked). "" where the sample's status says it.
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


def mostly_failed(scored: Sequence[Scored]) -> str:
    """Why more than half of the samples that a judge was asked about have no verdict: "judge failed 4 of 4 (HTTP 500)".

    "" where at least half have one: then those without stay in the denominator, and their rate is shown.
    """
    by_judge = [answer for answer in scored if answer.by not in ("", "program")]
    failed = [answer for answer in by_judge if answer.failure in ("judge_failed", *NO_ANSWER)]
    if 2 * len(failed) <= len(by_judge):
        return ""
    parts = []
    for failure, n in Counter(answer.failure for answer in failed).most_common():
        ((why, _),) = Counter(_why(answer) for answer in failed if answer.failure == failure).most_common(1)
        parts.append(f"judge {failure.removeprefix('judge_')} {n} of {len(by_judge)}" + (f" ({why})" if why else ""))
    return ", ".join(parts)


def _why(scored: Scored) -> str:
    """What its last reply notes of it: no reply came, or which cannot be read."""
    last = scored.replies[-1] if scored.replies else ""
    match = re.fullmatch(r"\[(?:no reply|unparseable): (?:(\d{3}): .*|(.*))\]", last, re.DOTALL)
    return "" if match is None else f"HTTP {match[1]}" if match[1] else match[2]


class Respondent(Protocol):
    """Whatever can be asked: a `UnifiedModel`, a remote one, or either behind the store of finished calls.

    As the skills of `uni_train.models.base`; a model without one raises SkillMissing. Where one request fails (a remote
    model refuses, an image is none), an exception stands in its place. The others are answered.
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
