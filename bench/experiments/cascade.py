"""What a cascade of judges saves, and by how much it is off, on samples of which the truth is known.

    python bench/experiment.py cascade              # scripted judges of known error, 1,000 samples: minutes
    python bench/experiment.py cascade -o nano=1    # nano, served, as the small judge of its own references

Scripted judges answer over HTTP on 127.0.0.1. Each errs by a hash of (its name, the sample, the draw), so that the same
command gives the same figures. A quarter of the samples is hard for all of them. `independent`: a small judge errs on
3 % and, of hard ones, 10 %, alike on right and wrong. `lenient`: it errs on twice as many, and only by passing what is
wrong. The large one errs on 1 % and 4 %. One half of all samples is right.
"""

from __future__ import annotations

import base64
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.experiment import Lab
from bench.markdown import interval, row, table
from tests.eval.judges.criteria import Criteria
from tests.eval.judges.server import Asked, JudgeServer
from tests.served import served
from uni_train.config.schema import JudgeConfig
from uni_train.core.seeds import derive_seed
from uni_train.eval.judges.calibrate import Anchor, anchors_from_references, calibrate
from uni_train.eval.statistics import Estimate

ERRORS = {"independent": (0.03, 0.10), "lenient": (0.06, 0.20), "large": (0.01, 0.04)}
HARD = 0.25
FEWER, POINTS = 5.0, 2.0
"""What is asked of a cascade: so many times fewer calls of the large judge, at a bias of at most so many points."""


def chance(*names: object) -> float:
    return random.Random(derive_seed("cascade", *names)).random()


def is_right(number: int) -> bool:
    return chance("right", number) < 0.5


def scripted() -> Callable[[Asked], str]:
    """Judges by name: "large", "independent-a", "lenient-b", ..."""
    draws: Counter[tuple[str, ...]] = Counter()

    def reply(asked: Asked) -> str:
        found = re.search(r"shows (\d+)", asked.words)
        assert found is not None
        number, name = int(found[1]), str(asked.body["model"])
        sampled = asked.body["temperature"] > 0
        question = (name, asked.words) if sampled else ()
        draws[question] += 1
        draw = draws[question] if sampled else 0
        kind = name.partition("-")[0]
        errs = chance(name, number) < ERRORS[kind][chance("hard", number) < HARD]
        if draw:  # of what a judge gets wrong at temperature 0, it draws the right answer in a third of the cases
            errs = chance(name, number, draw) < 2 / 3 if errs else chance(name, number, draw) < 0.01
        if kind == "lenient" and is_right(number):
            errs = False
        answer = f"<answer>{'Yes' if is_right(number) != errs else 'No'}</answer>"
        if "Confidence" not in asked.last:
            return answer
        doubt = chance("doubt", name, number) < (0.7 if errs else 0.08)  # it doubts most of its mistakes
        return f"{answer}\nConfidence: {55 if doubt else 95}"

    return reply


def measured(n: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(small judges, way, what the cascade's calibration says)."""
    benchmark = Criteria(n)
    anchors = [Anchor(sample, is_right(i), "program") for i, sample in enumerate(benchmark.samples())]
    with JudgeServer(scripted()) as server, tempfile.TemporaryDirectory() as name:
        for kind in ("independent", "lenient"):
            first, second = (JudgeConfig(model=f"{server.url}#{kind}-{one}", revision="bench") for one in "ab")
            ways = {
                "two judges": (first, second),
                "three draws of one": (replace(first, way="majority", draws=3, temperature=0.7),),
                "confidence of one": (replace(first, way="confidence", draws=1),),
            }
            for way, small in ways.items():
                yield kind, way, _cascade(anchors, benchmark, small, server.url, "paper", Path(name))


def by_nano(n: int, temperature: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """nano by three draws on references of its own world, and shuffled ones; the large judge is scripted."""
    from uni_train.eval.benchmark import Source
    from uni_train.eval.benchmarks.unisandbox import UniSandbox

    benchmark = UniSandbox(Source(world="nano", n=n, sets=("math1", "math2", "mapping1"), verifier="judge"))
    anchors = anchors_from_references(benchmark, benchmark.cases(), benchmark.reference)
    shown = {}
    for case in benchmark.cases():
        item = case.facts["item"]["facts"]
        shown[base64.b64encode(benchmark.reference(case) or b"").decode()] = f"{item['count']} {item['object']}"

    def reply(asked: Asked) -> str:
        (image,) = asked.images
        right = chance("large", image) >= ERRORS["large"][1]
        return f"Caption: {shown[image.partition('base64,')[2]] if right else 'unclear'}"

    with (
        JudgeServer(reply) as server,
        tempfile.TemporaryDirectory() as name,
        served(Path(name) / "log") as (url, _),
    ):
        asking = {"dialect": "nano", "temperature": temperature, "way": "majority", "draws": 3}
        small = JudgeConfig(model=f"{url}#nano", revision="shipped", **asking)  # type: ignore[arg-type]
        found = _cascade(anchors, benchmark, (small,), server.url, "nano", Path(name))
        yield "nano", f"three draws at {temperature:g}, {len(anchors)} images", found


def _cascade(
    anchors: Sequence[Anchor], benchmark: Any, small: tuple[JudgeConfig, ...], url: str, dialect: str, folder: Path
) -> dict[str, Any]:
    large = JudgeConfig(model=f"{url}#large", revision="bench", dialect=dialect, small=small)
    found = calibrate(anchors, benchmark, large, folder / small[0].model, store=folder / "store")
    assert found.cascade is not None
    return dict(found.cascade)


def cascade(lab: Lab, n: int = 0, nano: bool = False, temperature: float = 0.7) -> Iterator[str]:
    """n: samples, 1000 unless told (of nano in each set: 40). nano: as the small judge. temperature: of its draws."""
    heads = ("small", "settled by", "large asked about", "fewer calls", "bias, points", "error, points")
    yield from table(*heads, "of the large alone", "reached")
    for small, way, found in by_nano(n or 40, temperature) if nano else measured(n or 1000):
        fewer, bias = found["saving"], found["bias"]["value"]
        reached = (fewer is None or fewer >= FEWER) and abs(100 * bias) <= POINTS
        asked, times = f"{100 * found['asked']['value']:.1f} %", "none left" if fewer is None else f"{fewer:.1f} x"
        errors = (Estimate.from_dict(found[name]) for name in ("bias", "error", "large_error"))
        points = (interval(error, "+.1f", scale=100) for error in errors)
        yield row(small, way, asked, times, *points, "yes" if reached else "no")
