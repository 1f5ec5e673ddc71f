"""Evaluations and runs in seconds, without a model: for tests and work on summaries and pages.

Items, images and verdicts are real (data_gen); only the "model" is made up: how often it is right is given below.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.config.schema import LEVELS
from uni_train.core.files import atomic_write_json
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.eval import summary
from uni_train.eval.benchmark import Ask, Benchmark, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import ASKED, FORMAT, SCORED, SCORES, Evaluation, Result, load
from uni_train.eval.report.samples import Part
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.sets import training_run
from uni_train.eval.task_benchmark import item_of
from uni_train.models.pictures import encode_png

SKILL = {"normal": 0.3, "cot": 0.8}
"""Setting -> the chance that an image is right."""
RUN = {"before": {"normal": 0.2, "cot": 0.9}, "round1": {"normal": 0.5, "cot": 0.9},
       "round2": {"normal": 0.6, "cot": 0.9}, "after": {"normal": 0.7, "cot": 0.9}}  # fmt: skip


def answer(case: Case, setting: str, skill: float, moment: str) -> Scored:
    """Wrong images show another object or a blend of two, and wrong thoughts conclude 6 keys; some draw nothing."""
    item, random = item_of(case), rng("sample", moment, setting, case.id)
    right, refused, blended, misled = (random.random() < chance for chance in (skill, 0.03, 0.3, 0.5))
    other = random.choice([name for name in sprites.SPRITES if name != item.facts["object"]])
    seed = derive_seed("sample", setting, case.id)
    thought = None
    if setting == "cot":
        thought = "So draw 6 keys ." if misled and not right else item.thought
    sample = Sample(Ask(case, setting, 0, seed), prompt=case.prompt, thought=thought)
    if refused:
        return Scored(replace(sample, status="generation_failed", note="the endpoint refused: content filter"))
    image = sprites.render(item.facts["object"], item.facts["count"], seed)
    if not right:
        wrong = sprites.render(other, item.facts["count"], seed)
        image = (0.5 * image + 0.5 * wrong).round().astype(np.uint8) if blended else wrong
    return Scored(replace(sample, parts=(encode_png(image),)), get_task(item.task).verify(item, image))


def answers(benchmark: UniSandbox, skill: Mapping[str, float], moment: str = "") -> list[Scored]:
    found = [answer(case, setting, skill[setting], moment) for setting in skill for case in benchmark.cases()]
    return [replace(one, cause=benchmark.attribute(one)) for one in found]


def maths(n: int) -> UniSandbox:
    """`n` prompts of each of two levels."""
    return UniSandbox(Source(n=n, sets=("math1", "math2")))


def evaluated(benchmark: UniSandbox, skill: Mapping[str, float]) -> list[Scored]:
    """Of some images a judge was asked, in vain."""
    found = answers(benchmark, skill)
    for place, failure in zip(range(7, len(found), 31), ("judge_failed", "unparseable") * len(found), strict=False):
        if found[place].sample.status == "ok":
            asked = Scored(found[place].sample, None, "openai/judge", failure, ("I am sorry, but",))
            found[place] = replace(asked, cause=benchmark.attribute(asked))
    return found


def result_of(benchmark: Benchmark, settings: Sequence[str], scored: Sequence[Scored]) -> Result:
    outcomes: dict[str, Any] = {}
    for one in scored:
        ask = one.sample.ask
        counts = outcomes.setdefault(ask.setting, {}).setdefault(ask.case.set, {})
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    return Result(
        benchmark.name, benchmark.revision, tuple(settings), benchmark.sets, len(scored), outcomes, {},
        benchmark.scores(scored), tuple(benchmark.tables(scored)), (), (f"{benchmark.name}.parquet",),
    )  # fmt: skip


def sample_part(n: int, skill: Mapping[str, float] = SKILL) -> Part:
    """A page's part of maths, asked in both settings."""
    benchmark = maths(n)
    scored = evaluated(benchmark, skill)
    return Part.from_result(result_of(benchmark, tuple(skill), scored), {"": scored})


def sample_evaluation(folder: Path, n: int, skill: Mapping[str, float] = SKILL) -> Evaluation:
    """The same as the folder that `uni_train eval` would have left."""
    model = {"name": "sketcher", "source": "made up", "content": "0" * 32, "settings": {}}
    asked = {"checkpoint": "sketcher", "command": ["uni_train", "eval"], "started": "2026-01-01T00:00:00+0000"}
    write_evaluation(folder, [(maths(n), tuple(skill), evaluated(maths(n), skill))], model=model, **asked)
    return load(folder)


def write_evaluation(
    folder: Path, parts: Sequence[tuple[Benchmark, Sequence[str], Sequence[Scored]]], **asked: Any
) -> None:
    """A finished evaluation: benchmarks, their settings and samples. asked: what is no default."""
    results = []
    for benchmark, settings, scored in parts:
        write_scored(folder / SCORED / f"{benchmark.name}.parquet", scored)
        results.append(result_of(benchmark, settings, scored).to_dict())
    model = {"name": folder.name, "content": folder.name, "settings": {}}
    default = {"format": FORMAT, "model": model, "benchmarks": {}, "subset": None, "seed": 0, "k": 1, "judge": None,
               "options": {}, "command": [], "started": ""}  # fmt: skip
    atomic_write_json(folder / ASKED, default | asked)
    atomic_write_json(folder / SCORES, {"format": FORMAT, "results": results, "calls": {}, "seconds": {}})


def make_run(folder: Path, n: int) -> Path:
    """A run as `stars_curriculum` leaves it but for its report: `n` prompts a set, evaluated four times."""
    evaluations = {}
    for round_, (moment, skill) in enumerate(RUN.items()):
        evaluations[moment] = answers(UniSandbox(Source(n=n)), skill, moment)
        stage = folder / "stages" / f"{1 + 4 * round_:02d}-evaluate-{moment}"
        write_scored(shard_path(stage / "scored", 0), evaluations[moment])
        manifest = {"stage": f"evaluate-{moment}", "status": "done", "seconds": 12.5, "result": {"label": moment}}
        (stage / "manifest.json").write_text(json.dumps(manifest | {"outputs": []}))
        if round_ > 0:
            _write_metrics(folder / "stages" / f"{4 * round_:02d}-finetune-mapping{round_}")
    about = {"recipe": "stars_curriculum", "model": "nano", "seed": 0, "wall_seconds": 561.2, "peak_rss_bytes": 2e9}
    rounds = [_round(level) for level in LEVELS]
    summary.write(folder, training_run.build(**about, evaluations=evaluations, rounds=rounds))
    start = {
        "time": "2026-01-15T09:12:44+00:00", "command": ["python", "-m", "uni_train", "fit"],
        "git": {"commit": "0123456789abcdef", "changed_files": 2}, "versions": {"torch": "2.13.0", "python": "3.11.9"},
    }  # fmt: skip
    (folder / "config.yaml").write_text("recipe: stars_curriculum\nseed: 0\nmodel: {name: nano}\n")
    (folder / "run.json").write_text(json.dumps({"recipe": "stars_curriculum", "name": "sample", "starts": [start]}))
    return folder


def _round(level: int) -> summary.Round:
    """Of 2,048 samples most are right and accepted."""
    correct = [i % 8 != 0 for i in range(2048)]
    accepted = [(right and i % 16 != 1) or i % 64 == 0 for i, right in enumerate(correct)]
    reliability = summary.filter_reliability(accepted, correct)
    return summary.Round("mapping", level, 2048, sum(accepted), 300, 130.0, reliability, distinct=700 + level)


def _write_metrics(stage: Path) -> None:
    stage.mkdir(parents=True)
    losses = [(step, 0.02 + 0.12 / (1 + math.exp((step - 120) / 25))) for step in range(0, 300, 2)]
    rows = [{"step": step, "loss": mse + 0.01, "ce": 0.04, "mse": mse, "lr": 1e-3} for step, mse in losses]
    (stage / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
