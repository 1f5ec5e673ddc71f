"""An evaluation in seconds, without a model: for tests and work on its pages.

Items, pictures and verdicts are real (data_gen); only the "model" is made up: how often it thinks, draws and is judged
rightly is given below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.core.files import atomic_write_json
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item, Verdict
from uni_train.eval.benchmark import Ask, Benchmark, Case, Respondent, Sample, Scored, Source, Table, benchmark
from uni_train.eval.evaluation import ASKED, FORMAT, SCORED, SCORES, Evaluation, Result, load
from uni_train.eval.images import encoded
from uni_train.eval.report.samples import Part
from uni_train.eval.scored import write_scored
from uni_train.eval.statistics import paired, proportion
from uni_train.models.base import OnStep, Request
from uni_train.models.pictures import decode_png

SKILL = {"normal": 0.3, "cot": 0.8}


@benchmark("sums")
class Sums(Benchmark):
    """Maths prompts of UniSandbox's nano world, asked with and without a thought."""

    name = "sums"
    revision = "sums-1"
    settings = ("normal", "cot")
    sets = known_sets = ("math1", "math2")

    @classmethod
    def open(cls, source: Source) -> Sums:
        return cls(source.n)

    def __init__(self, n: int) -> None:
        self.task = get_task("maths")
        self.items = {
            item.id: item for level in (1, 2) for item in self.task.generate(n, level, "test", derive_seed("sums"))
        }

    def cases(self) -> list[Case]:
        return [
            Case(i.id, f"math{i.level}", i.prompt, category=i.facts["object"], facts={"answer": i.answer})
            for i in self.items.values()
        ]

    def respond(self, model: Respondent, asks: Sequence[Ask], on_step: OnStep | None = None) -> list[Sample]:
        requests = [Request(one.case.id, one.case.prompt, seed=one.seed) for one in asks]
        thinking = [i for i, one in enumerate(asks) if one.setting == "cot"]
        thoughts: dict[int, Any] = dict(zip(thinking, model.think([requests[i] for i in thinking]), strict=True))
        images = model.draw([replace(one, thought=thoughts.get(i)) for i, one in enumerate(requests)])
        return [
            Sample(one, "generation_failed", str(image), prompt=one.case.prompt, thought=thoughts.get(i))
            if isinstance(image, Exception)
            else Sample(one, prompt=one.case.prompt, thought=thoughts.get(i), parts=(encoded(image),))
            for i, (one, image) in enumerate(zip(asks, images, strict=True))
        ]

    def check(self, sample: Sample) -> Verdict | None:
        assert sample.image is not None
        return self.task.verify(self.items[sample.ask.case.id], decode_png(sample.image))

    def attribute(self, scored: Scored) -> str:
        if scored.passed:
            return ""
        answer = self.items[scored.sample.ask.case.id].answer
        if scored.outcome == "fail" and scored.sample.thought is not None:
            return "drawn wrong" if f"draw {answer}" in scored.sample.thought.lower() else "reasoning wrong"
        return super().attribute(scored)

    def scores(self, scored: Iterable[Scored]) -> dict[str, Any]:
        found = list(scored)
        cells = {setting: {name: self._share(found, setting, name) for name in self.sets} for setting in self.settings}
        return {setting: {name: one.to_dict() for name, one in by_set.items()} for setting, by_set in cells.items()}

    def _share(self, scored: Sequence[Scored], setting: str, name: str) -> Any:
        right = [one.passed for one in scored if (one.sample.ask.setting, one.sample.ask.case.set) == (setting, name)]
        return proportion(sum(right), len(right))

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        found = list(scored)
        rows: list[Any] = [(setting, *(self._share(found, setting, n) for n in self.sets)) for setting in self.settings]
        by_setting = [
            {(o.sample.ask.case.set, o.sample.ask.case.id): o.passed for o in found if o.sample.ask.setting == setting}
            for setting in self.settings
        ]
        gains = [
            paired(*([right for (name, _), right in sorted(one.items()) if name == wanted] for one in by_setting))
            for wanted in self.sets
        ]
        rows.append(("gain", *gains))
        return [Table("Sums", ("setting", *self.sets), tuple(rows), "Made up.")]


class Sketcher:
    """Draws the right sprites as often as its skill says, else a wrong count; now and then nothing at all."""

    name = "sketcher"

    def __init__(self, items: dict[str, Item], skill: Mapping[str, float]) -> None:
        self.items, self.skill = items, skill

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        thoughts = {one.id: self.items[one.id].thought for one in requests}
        return [
            thought if rng("think", id_).random() < 0.9 else thought.rpartition("draw")[0] + "draw 6 keys."
            for id_, thought in thoughts.items()
        ]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[Any]:
        found: list[Any] = []
        for one in requests:
            item, random = self.items[one.id], rng("draw", one.id, one.thought is None)
            setting = "normal" if one.thought is None else "cot"
            if random.random() < 0.03:
                found.append(RuntimeError("the endpoint refused: content filter"))
                continue
            count = item.facts["count"]
            if random.random() > self.skill[setting]:
                count = random.choice([n for n in range(1, 7) if n != count])
            found.append(sprites.render(item.facts["object"], count, one.seed))
        return found

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        raise NotImplementedError

    def compose(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[Any]:
        raise NotImplementedError


def _result(of: Benchmark, settings: Sequence[str], scored: Sequence[Scored]) -> Result:
    outcomes: dict[str, Any] = {}
    for one in scored:
        ask = one.sample.ask
        counts = outcomes.setdefault(ask.setting, {}).setdefault(ask.case.set, {})
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    return Result(
        of.name, of.revision, tuple(settings), of.sets, len(scored), outcomes, {},
        of.scores(scored), tuple(of.tables(scored)), (), (f"{of.name}.parquet",),
    )  # fmt: skip


def sample_part(cases: int, skill: Mapping[str, float] = SKILL) -> Part:
    """`cases` prompts a level, each asked in both settings."""
    benchmark = Sums(cases)
    asks = [
        Ask(case, name, 0, derive_seed("ask", case.id)) for name in benchmark.settings for case in benchmark.cases()
    ]
    scored = []
    for place, sample in enumerate(benchmark.respond(Sketcher(benchmark.items, skill), asks)):
        one = Scored(sample, benchmark.check(sample) if sample.status == "ok" else None)
        if place % 31 == 7 and sample.status == "ok":  # as if a judge had been asked, in vain
            one = Scored(sample, None, "openai/judge", ("judge_failed", "unparseable")[place % 2], ("I am sorry, but",))
        scored.append(replace(one, cause=benchmark.attribute(one)))
    return Part.from_result(_result(benchmark, benchmark.settings, scored), {"": scored})


def sample_evaluation(folder: Path, cases: int, skill: Mapping[str, float] = SKILL) -> Evaluation:
    """The same as the folder that `uni_train eval` would have left."""
    asked = {
        "model": {"name": "sketcher", "source": "made up", "content": "0" * 32, "settings": {}},
        "checkpoint": "sketcher", "benchmarks": {"sums": {}}, "command": ["uni_train", "eval"],
        "started": "2026-01-01T00:00:00+0000",
    }  # fmt: skip
    write_evaluation(folder, [(Sums(cases), Sums.settings, sample_part(cases, skill).moments[""])], **asked)
    return load(folder)


def write_evaluation(
    folder: Path, parts: Sequence[tuple[Benchmark, Sequence[str], Sequence[Scored]]], **asked: Any
) -> None:
    """A finished evaluation: benchmarks, their settings and samples. asked: what is no default."""
    results = []
    for of, settings, scored in parts:
        write_scored(folder / SCORED / f"{of.name}.parquet", scored)
        results.append(_result(of, settings, scored).to_dict())
    model = {"name": folder.name, "content": folder.name, "settings": {}}
    default = {"format": FORMAT, "model": model, "benchmarks": {}, "subset": None, "seed": 0, "k": 1, "judge": None,
               "options": {}, "command": [], "started": ""}  # fmt: skip
    atomic_write_json(folder / ASKED, default | asked)
    atomic_write_json(folder / SCORES, {"format": FORMAT, "results": results, "calls": {}, "seconds": {}})
