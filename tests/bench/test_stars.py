"""Tables over seeds from made-up summaries whose means and differences are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import stars
from uni_train.errors import UsageError, UserError
from uni_train.eval import summary as run_summary

SETS = ("mapping1", "mapping2", "mapping3")


def write_run(folder: Path, recipe: str, seed: int, normal: Sequence[float], updates: int = 1000) -> Path:
    def scored(values: Sequence[float]) -> dict[str, Any]:
        return {
            name: {"value": v, "n": 256, "low": max(v - 0.1, 0.0), "high": min(v + 0.1, 1.0)}
            for name, v in zip(SETS, values, strict=True)
        }

    folder.mkdir(parents=True)
    summary = {
        "recipe": recipe,
        "model": "nano",
        "seed": seed,
        "wall_seconds": 300.0,
        "peak_rss_bytes": 10**9,
        "scores": {
            "before": {"normal": scored([0.1, 0.0, 0.0]), "cot": scored([0.9, 0.8, 0.7])},
            "after": {"normal": scored(normal), "cot": scored([0.9, 0.8, 0.7])},
        },
        "rounds": [
            {"task": "mapping", "level": 1, "sampled": 100, "kept": 75, "precision": 1.0, "recall": 0.9,
             "updates": updates, "seconds": 100.0},
            {"task": "mapping", "level": 2, "sampled": 100, "kept": 25, "precision": 0.8, "recall": 0.9,
             "updates": 0, "seconds": 100.0},
        ],
    }  # fmt: skip
    run_summary.write(folder, summary)
    return folder


def test_means_and_paired_differences_over_seeds(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / recipe / f"seed{seed}", recipe, seed, [base + 0.1 * seed, 0.5, 0.3], updates)
        for recipe, base, updates in (("stars_curriculum", 0.7, 1000), ("stars_mixed", 0.2, 900))
        for seed in (0, 1, 2)
    ]
    groups = stars.read_groups(folders)
    assert [(g.label, list(g.runs), g.updates) for g in groups] == [
        ("stars_curriculum", [0, 1, 2], (1000,)),
        ("stars_mixed", [0, 1, 2], (900,)),
    ]
    text = "\n".join(stars.tables(groups))
    # 0.7, 0.8, 0.9: mean 0.8, t(2) = 4.303, half width 4.303 * 0.1 / sqrt(3) = 0.248; with questions' 0.1: 0.268.
    # Seeds that agree leave the questions' interval.
    assert "| stars_curriculum | 3 | 1000 | 0.80 [0.53, 1.00] | 0.50 [0.40, 0.60] |" in text
    # The seeds move together, so the paired difference is sharp where the means are not.
    assert "| stars_mixed (unequal updates) | 3 | +0.50 [+0.50, +0.50] | +0.00 [+0.00, +0.00] |" in text
    assert text.count("before (interval over prompts)") == 1
    assert "| stars_mixed | 3 | 0.50 [0.50, 0.50] | 0.950 [0.950, 0.950] | 5.0 [5.0, 5.0] | 1.00 |" in text


def test_one_seed_claims_no_interval_and_variants_stay_apart(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, "stars_mapping", 0, [0.4, 0.2, 0.1])
        for name in ("level3-seed0", "updates1000-seed0")
    ]
    groups = stars.read_groups(folders)
    assert [g.label for g in groups] == ["stars_mapping level3", "stars_mapping updates1000"]
    assert "| stars_mapping level3 | 1 | 1000 | 0.40 [0.00, 1.00] |" in "\n".join(stars.tables(groups))
    with pytest.raises(UserError, match="second run of stars_mapping level3"):
        stars.read_groups([folders[0], folders[0]])


def test_plan_names_each_seed_and_refuses_typos_before_anything_runs() -> None:
    one, other = stars.plan("stars_mapping level=3 budget.mapping3.updates=900 name=long", [0, 7])
    assert (str(one.folder), str(other.folder)) == ("runs/stars_mapping/long-seed0", "runs/stars_mapping/long-seed7")
    assert one.arguments[-2:] == ("name=long-seed0", "seed=0")
    with pytest.raises(UsageError, match="unknown recipe"):
        stars.plan("stars_mixd", [0])


def test_counts_of_a_file_get_intervals_over_seeds_and_questions() -> None:
    page = Path(__file__).parents[2] / "docs/results/nano_curriculum.md"
    text = "\n".join(stars.counted(page.parent / "data/nano_curriculum.csv"))
    assert "| 0.71 [0.61, 0.79] |" in text and "0.71 [0.61, 0.79]" in page.read_text(encoding="utf-8")
