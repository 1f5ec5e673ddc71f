"""Validations read back, their rewards counted, and their prompts paired by place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.sample import Ask, Case, Sample, Scored
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.validation import estimates, finished, groups_of, read_validation, results_of


def scored(place: int, right: bool, cluster: str) -> Scored:
    """A prompt of level 2, the same name in no two validations."""
    case = Case(f"{cluster} {place}", "level 2", "draw", cluster=cluster)
    return Scored(Sample(Ask(case, "normal", 0, 0)), Verdict((Check("count", "pass" if right else "fail"),)))


def test_levels_are_counted_with_prompts_of_a_pair_as_one_and_paired_by_place(tmp_path: Path) -> None:
    alone = [scored(i, i % 2 == 1, f"alone {i}") for i in range(40)]
    pairs = [scored(i, i % 2 == 1, f"pair {i // 4}") for i in range(40)]
    for step, samples in enumerate((alone, pairs, [*alone[:39], alone[1]]), 1):
        write_scored(shard_path(tmp_path / f"step={step}", 0), samples)
    (tmp_path / "step=4").mkdir()
    assert finished(tmp_path) == [tmp_path / f"step={step}" for step in (1, 2, 3)]
    found, clustered = (estimates(read_validation(one))["level 2"] for one in finished(tmp_path)[:2])
    assert found.value == clustered.value == 0.5 and (found.distinct, clustered.distinct) == (None, 10)
    change = results_of(read_validation(tmp_path / "step=3", images=False)).minus(results_of(pairs))
    assert change is not None and (change.both, change.only_first, change.neither) == (20, 0, 20)


def test_means_of_rewards_leave_out_images_to_which_one_does_not_apply() -> None:
    given = {"solved": [0.5, 2.5, None], "judge": [None, 1.0, 3.0]}
    samples = [
        Scored(replace(scored(i, True, "a").sample, facts={"rewards": [(name, of[i]) for name, of in given.items()]}))
        for i in range(3)
    ]
    found = {name: (one.value, one.n) for name, one in estimates(samples).items()}
    assert found == {"solved": (1.5, 2), "judge": (2.0, 2)}
    rollouts = [replace(one, sample=replace(one.sample, ask=replace(one.sample.ask, k=k)))
                for one in samples[:2] for k in range(3)]  # fmt: skip
    assert [len(group) for group in groups_of(rollouts)] == [3, 3]
