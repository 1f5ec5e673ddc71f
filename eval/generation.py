"""From a benchmark's cases to its samples: which are asked, in which settings, with which seeds, a chunk at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from uni_train.core.errors import DataError, SkillMissing, UsageError, UserError, did_you_mean
from uni_train.core.seeds import derive_seed
from uni_train.eval.benchmark import BENCHMARKS, GENERATED, Ask, Benchmark, Case, Respondent, Sample, Source, request_of
from uni_train.eval.images import pixels

if TYPE_CHECKING:
    from uni_train.eval.answers import FolderAnswers
    from uni_train.models.base import OnStep


def cases_of(benchmark: Benchmark, *, subset: int | None = None, seed: int = 0) -> list[Case]:
    """The cases that are asked, in the benchmark's order.

    Args:
        subset: about so many cases, drawn from `seed`: each set its share, clusters whole; None: all.

    Raises:
        UserError: two cases share an id, or there are none.
    """
    cases = list(benchmark.cases())
    twice = [name for name, n in Counter(case.id for case in cases).items() if n > 1]
    if twice:
        shown = ", ".join(map(repr, twice[:3])) + (f" and {len(twice) - 3} more" if len(twice) > 3 else "")
        raise UserError(f"{benchmark.name} has several cases with the id {shown}", "Ids must be unique in its files.")
    if not cases:
        raise UserError(f"{benchmark.name} has no cases to ask", "Check its data folder, or ask for other sets.")
    if subset is None:
        return cases
    from uni_train.eval.statistics import draw_subset

    return draw_subset(cases, subset, seed)


def settings_of(benchmark: Benchmark, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Those of the benchmark's settings that are wanted (None: all), in its order.

    Raises:
        UsageError: it has none of them.
    """
    settings = tuple(name for name in benchmark.settings if wanted is None or name in wanted)
    if not settings:
        raise UsageError(
            f"{benchmark.name} has no setting {', '.join(wanted or [])}",
            did_you_mean((wanted or [""])[0], benchmark.settings, f"settings of {benchmark.name}"),
        )
    return settings


def asks_of(cases: Sequence[Case], settings: Sequence[str], *, k: int = 1, seed: int = 0) -> list[Ask]:
    """Every case in every setting, `k` times: setting by setting, so that a chunk is of one kind.

    A seed has 31 bits (remote models take no longer ones) and follows from (seed, case id, k) alone; cases that share
    one drawing under two labels name its id in facts["drawn_as"].
    """
    drawn_as = {case.id: str(case.facts.get("drawn_as", case.id)) for case in cases}
    seeds = {(name, i): derive_seed("ask", seed, drawn, i) >> 32 for name, drawn in drawn_as.items() for i in range(k)}
    return [Ask(case, setting, i, seeds[case.id, i]) for setting in settings for case in cases for i in range(k)]


def chunks(asks: Sequence[Ask], size: int) -> Iterator[Sequence[Ask]]:
    """Chunks of at most `size` asks, always cut alike: the other requests of a batch change an image by rounding."""
    for start in range(0, len(asks), size):
        yield asks[start : start + size]


def generate(
    benchmark: Benchmark,
    model: Respondent | FolderAnswers,
    parts: Iterable[Sequence[Ask]],
    on_step: OnStep | None = None,
) -> Iterator[Sequence[Sample]]:
    """The samples of each part, in order, each as its benchmark makes it.

    Raises:
        ValueError: the benchmark broke its word (another number or order of samples, an unknown status).
        UserError: the model cannot be loaded or reached.
    """
    for part in parts:
        samples = _responses(benchmark, model, part, on_step)
        if [sample.ask for sample in samples] != list(part):
            raise ValueError(f"{benchmark.name} made {len(samples)} samples of {len(part)} asks, or in another order")
        for sample in samples:
            if sample.status not in GENERATED:
                raise ValueError(f"{benchmark.name} gave {sample.ask.case.id} the unknown status {sample.status!r}")
        yield samples


def _responses(
    benchmark: Benchmark, model: Respondent | FolderAnswers, part: Sequence[Ask], on_step: OnStep | None
) -> Sequence[Sample]:
    """A part's samples. Where a skill is missing, halves are asked until the asks that need it are alone."""
    own = getattr(model, "respond", None)  # of answers that are there already, or of a model that redraws
    try:
        return own(benchmark, part, on_step) if own else benchmark.respond(cast(Respondent, model), part, on_step)
    except SkillMissing as error:
        if len(part) == 1:
            return [Sample(part[0], "no_skill", error.note)]
        half = len(part) // 2
        return [row for some in (part[:half], part[half:]) for row in _responses(benchmark, model, some, on_step)]


def expect_skills(model: Respondent, asked: Mapping[Benchmark, Sequence[Ask]], lacking: Sample) -> None:
    """Raises UserError, with the benchmarks that fit, where the model can be asked in no setting.

    asked: what each benchmark asks. lacking: a sample with "no_skill". The model is tried on a question with images and
    on one without.
    """
    tried: dict[bool, set[str]] = {}

    def suits(benchmark: Benchmark, asks: Iterable[Ask]) -> bool:
        for ask in {(ask.setting, bool(ask.case.images)): ask for ask in asks}.values():
            shown = bool(ask.case.images)
            if shown not in tried:
                tried[shown] = _skills(model, ask)
            if benchmark.skills(ask) <= tried[shown]:
                return True
        return False

    if any(suits(benchmark, asks) for benchmark, asks in asked.items()):
        return
    names = ", ".join(benchmark.title or benchmark.name for benchmark in asked)
    known, world = {benchmark.name for benchmark in asked}, next(iter(asked)).source.world
    others = ((name, _generated(name, world)) for name in BENCHMARKS.names() if name not in known)
    fitting = [name for name, other in others if other and suits(other, asks_of(other.cases(), other.settings))]
    hint = f"Benchmarks with settings that fit: -b {','.join(fitting)}" if fitting else "No benchmark here fits it."
    raise UserError(f"{lacking.note}, and all settings asked of {names} need more", hint)


def _skills(model: Respondent, ask: Ask) -> set[str]:
    """Those that the model has, tried on a question."""
    skills, images = set(), tuple(map(pixels, ask.case.images))
    for skill in ("think", "draw", "answer", "compose"):
        with suppress(SkillMissing):
            getattr(model, skill)([request_of(ask, ask.case.prompt, images=images)])
            skills.add(skill)
    return skills


def _generated(name: str, world: str) -> Benchmark | None:
    """A benchmark with generated questions; None where it has none in this world."""
    kind = BENCHMARKS.get(name)
    with suppress(UserError, DataError):
        return kind.open(Source(world=world, n=1), **{option.key: option.default for option in kind.options})
    return None
