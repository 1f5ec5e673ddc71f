"""The filters of STARS by the name that a recipe gives them (`filter: self`): ours, and those of plug-ins.

    @filter("bright")
    def bright(samples, asking):
        "Keep bright images."
        return [accept("bright") if mean(sample) > 128 else reject("bright", "too dark") for sample in samples]

A filter is told samples, and says of each whether it is trained on. The first line of its docstring is what
`fit --dry-run` says of it. Whatever filters, precision and recall are reported against the verifier or the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uni_train.core.registry import Registry
from uni_train.data_gen.task import Check, Status, Verdict

if TYPE_CHECKING:
    from uni_train.config.schema import RunConfig
    from uni_train.eval.benchmark import Scored
    from uni_train.models.base import UnifiedModel


@dataclass(frozen=True)
class Asking:
    """What a filter may use.

    Attributes:
        config: of the recipe.
        teacher: loads the model that sampled.
    """

    config: RunConfig
    teacher: Callable[[], UnifiedModel]


Filter = Callable[["Sequence[Scored]", Asking], "Sequence[Verdict | None]"]
"""A verdict for each sample, in order; None: the run's judge says it, asked once the samples are stored."""

FILTERS = Registry[Filter]("filter", dict.fromkeys(("self", "judge", "verifier", "none"), __name__), ("__call__",))
filter = FILTERS.register


def accept(name: str) -> Verdict:
    """The verdict of the filter `name` on what it keeps."""
    return Verdict((Check(name, "pass"),))


def reject(name: str, reason: str) -> Verdict:
    return Verdict((Check(name, "fail", reason),))


def label(config: RunConfig) -> str:
    """The filter as reports name it: "self", or "self+early_rejection" where it is asked half-way, too."""
    early = getattr(config, "early_rejection", None) == "image"
    return f"{config.filter}+early_rejection" if early else config.filter  # type: ignore[attr-defined, no-any-return]


def about(name: str) -> str:
    """What a filter keeps, in words."""
    words = (FILTERS.get(name).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return words[:1].lower() + words[1:] if words else f"keep what {name} accepts"


@filter("self")
def self_check(samples: Sequence[Scored], asking: Asking) -> list[Verdict]:
    """Keep what the model's own understanding accepts."""
    from uni_train.eval.task_benchmark import verification_request
    from uni_train.models.base import TextGenerator, expect_skill
    from uni_train.models.batches import fitting
    from uni_train.stages.work import in_batches

    model = expect_skill(asking.teacher(), TextGenerator)
    requests = [verification_request(model.family, sample.sample) for sample in samples]
    batches = in_batches(requests, asking.config.model.think_batch)
    return [_verdict(reply) for _, batch in batches for reply in fitting(model.answer, batch)]


@filter("judge")
def judge(samples: Sequence[Scored], asking: Asking) -> list[None]:
    """Keep what the judge accepts."""
    return [None] * len(samples)


@filter("verifier")
def verifier(samples: Sequence[Scored], asking: Asking) -> list[Verdict | None]:
    """Keep what the exact verifier accepts."""
    return [sample.verdict for sample in samples]


@filter("none")
def none(samples: Sequence[Scored], asking: Asking) -> list[Verdict]:
    """Keep what there is: everything."""
    return [accept("no_filter") for _ in samples]


def _verdict(reply: str) -> Verdict:
    from uni_train.eval.reading import yes_no

    status: dict[bool | None, Status] = {True: "pass", False: "fail", None: "unreadable"}
    return Verdict((Check("self_check", status[yes_no(reply)], reply),))
