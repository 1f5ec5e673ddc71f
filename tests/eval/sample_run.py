"""A run folder as `stars_curriculum` leaves it, made in seconds without a model: for tests and work on the report.

Items, pictures and verdicts are real (data_gen); only the "model" is made up: it follows the accuracies below, and
when it fails it draws the other object of the pair, a wrong count, a blend of two objects or nothing at all.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from uni_train.config.schema import LEVELS
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.eval import summary
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.sets import training_run
from uni_train.eval.sets.names import SETS, SETTINGS
from uni_train.eval.task_benchmark import item_of
from uni_train.models.pictures import encode_png

LABELS = ("before", "round1", "round2", "after")
# label -> setting -> the chance that a single image of math1..3 and mapping1..3 is right.
SKILL = {
    "before": {"normal": (0.2, 0.18, 0.17, 0.3, 0.28, 0.27), "cot": (0.9, 0.85, 0.8, 0.95, 0.9, 0.85)},
    "round1": {"normal": (0.22, 0.2, 0.17, 0.9, 0.45, 0.4), "cot": (0.9, 0.85, 0.8, 0.97, 0.85, 0.8)},
    "round2": {"normal": (0.22, 0.2, 0.17, 0.93, 0.8, 0.5), "cot": (0.88, 0.85, 0.8, 0.97, 0.9, 0.82)},
    "after": {"normal": (0.22, 0.2, 0.17, 0.95, 0.83, 0.65), "cot": (0.88, 0.85, 0.8, 0.98, 0.92, 0.86)},
}


def answer(case: Case, label: str, setting: str, seed: int) -> Scored:
    """What the made-up model answers, verified by the real verifier."""
    item = item_of(case)
    task, random = get_task(item.task), rng("sample-run", seed, label, setting, item.id)
    draw_seed = derive_seed(seed, setting, item.id)
    right = random.random() < SKILL[label][setting][SETS.index(case.set)]
    thought = None
    if setting == "cot":
        thought = item.thought if right or random.random() < 0.5 else item.thought.replace(" 1 ", " 4 ")
    if not right and random.random() < 0.02:
        return Scored(Sample(Ask(case, setting, 0, draw_seed), "generation_failed", thought=thought))
    target = sprites.render(item.facts["object"], item.facts["count"], draw_seed)
    other = random.choice([name for name in sprites.SPRITES if name != item.facts["object"]])
    if right:
        image = target
    elif random.random() < 0.35:
        blend = 0.5 * target + 0.5 * sprites.render(other, item.facts["count"], draw_seed + 1)
        image = blend.round().astype(np.uint8)
    elif item.task == "mapping":
        image = sprites.render(other, 1, draw_seed)
    else:
        count = random.choice([n for n in range(1, 7) if n != item.facts["count"]])
        image = sprites.render(item.facts["object"], count, draw_seed)
    noise = np.random.default_rng(draw_seed).normal(0, 3, image.shape)
    image = np.clip(image + noise, 0, 255).astype(np.uint8)
    sample = Sample(Ask(case, setting, 0, draw_seed), prompt=case.prompt, thought=thought, parts=(encode_png(image),))
    return Scored(sample, task.verify(item, image))


def make_run(run_dir: Path, n: int, seed: int = 0) -> Path:
    """Write a whole run folder but for its report, and return it."""
    cases = UniSandbox(Source(n=n), seed=seed).cases()
    evaluations, number = {}, 0
    for label in LABELS:
        number += 1
        if label != "before":
            number += 3
            _write_metrics(run_dir / "stages" / f"{number - 1:02d}-finetune-mapping{LABELS.index(label)}", number)
        stage = run_dir / "stages" / f"{number:02d}-evaluate-{label}"
        evaluations[label] = [answer(case, label, setting, seed) for setting in SETTINGS for case in cases]
        for start in range(0, len(evaluations[label]), 256):
            write_scored(shard_path(stage / "scored", start // 256), evaluations[label][start : start + 256])
        about = {"stage": f"evaluate-{label}", "status": "done", "seconds": 12.5, "outputs": []}
        manifest = about | {"result": {"label": label}}
        (stage / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    rounds = [_round(level, seed) for level in LEVELS]
    about = {"recipe": "stars_curriculum", "model": "nano", "seed": seed}
    cost = {"wall_seconds": 561.2, "peak_rss_bytes": 1_930_000_000}
    summary.write(run_dir, training_run.build(**about, **cost, evaluations=evaluations, rounds=rounds))
    start = {
        "time": "2026-01-15T09:12:44+00:00",
        "command": ["python", "-m", "uni_train", "fit", "--recipe", "stars_curriculum"],
        "git": {"commit": "0123456789abcdef", "changed_files": 2},
        "versions": {"unified-train": "0.1.0", "torch": "2.13.0", "lightning": "2.6.6", "python": "3.11.9"},
    }
    told = {"recipe": "stars_curriculum", "name": "sample", "starts": [start]}
    (run_dir / "run.json").write_text(json.dumps(told), encoding="utf-8")
    return run_dir


def _round(level: int, seed: int) -> summary.Round:
    random = rng("sample-run", "round", seed, level)
    correct = [random.random() < 0.95 - 0.05 * level for _ in range(2048)]
    accepted = [random.random() < (0.94 if ok else 0.01) for ok in correct]
    reliability = summary.filter_reliability(accepted, correct)
    return summary.Round(
        "mapping", level, 2048, sum(accepted), 300, 130.0 + 40 * level, reliability, distinct=700 + level
    )


def _write_metrics(stage: Path, number: int, steps: int = 300) -> None:
    stage.mkdir(parents=True)
    random = rng("sample-run", "metrics", number)
    with open(stage / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(0, steps, 2):
            noise = math.exp(random.gauss(0, 0.12))
            mse = (0.02 + 0.12 / (1 + math.exp((step - 120) / 25))) * noise
            ce = 0.05 * noise
            row = {"step": step, "loss": mse + 0.25 * ce, "ce": ce, "mse": mse, "lr": 1e-3 * min(1, step / 30)}
            file.write(json.dumps(row) + "\n")
