"""The experiment on what self-training learns from: its arms compose, and its judges are wrong as often as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import experiment
from bench.experiments.self_training import FLIPS
from tests.tiny import MODEL, save_talker
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.data_gen.registry import get_task
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.task_benchmark import TaskBenchmark
from uni_train.models.load import build_model
from uni_train.models.pictures import encode_png
from uni_train.recipes.stars.filters import FILTERS, Asking


def test_every_arm_composes_and_a_wrong_one_names_them() -> None:
    words = ["thought_or_judgement", "judge_noise", "--seeds", "0"]
    assert len(experiment.pages(experiment.parser().parse_args(words))) == 2
    words = ["thought_or_judgement", "-o", "task=maths", "--only", "thought"]
    with pytest.raises(UserError, match=r"judgement \(a quarter of the prompts\).*thoughts \(none replayed\)"):
        experiment.pages(experiment.parser().parse_args(words))


def test_a_flipped_judge_is_wrong_in_its_share_of_the_cases(tmp_path: Path) -> None:
    """A model that accepts everything; the more is flipped, the more is refused, and nothing is accepted again."""
    talker = save_talker(tmp_path, "Final Answer: YES")
    config = compose("stars_mapping", ["level=1", *MODEL, f"model.checkpoint={talker}"])
    model = build_model(config.model)
    case = TaskBenchmark.from_items(get_task("mapping", "nano").generate(1, 1, "train", 0)).cases()[0]
    image = encode_png(np.zeros((32, 32, 3), np.uint8))
    samples = [Scored(Sample(Ask(case, "normal", k, k), parts=(image,)), None) for k in range(400)]
    refused = []
    for percent in FLIPS:
        verdicts = FILTERS.get(f"flip{percent}")(samples, Asking(config, lambda: model))
        refused.append({k for k, verdict in enumerate(verdicts) if verdict is not None and not verdict.passed})
    assert refused[0] < refused[1] < refused[2]
    assert [len(some) / len(samples) for some in refused] == pytest.approx([p / 100 for p in FLIPS], abs=0.06)
