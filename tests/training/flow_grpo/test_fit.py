"""Reinforcement: every variant learns, a run killed anywhere ends in the same numbers, gate and alarms stop it."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.flow_grpo.toy import PROMPTS, SOLVED, ToyFlow, bright
from tests.training.keys import changed, killed_after
from tests.training.toy_model import assert_same_weights
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.distributed import preemption
from uni_train.flow.window import epoch_window
from uni_train.rewards.contract import Reward
from uni_train.training.checkpoint_io import list_checkpoints
from uni_train.training.fit import FitResult
from uni_train.training.flow_grpo import trainer as fitting
from uni_train.training.flow_grpo.config import AlarmsConfig, GrpoConfig, SolvedRowsConfig
from uni_train.training.flow_grpo.rollout import Sampling, sample_epoch
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.flow_grpo.variants import VARIANTS, GrpoVariant
from uni_train.training.lora import adapted
from uni_train.training.metric_log import read_metrics
from uni_train.training.supervised import FitOptions

GRPO = changed(TOY, ema=0.5)
REWARDS = [Reward("bright", bright)]
SFT = SolvedRowsConfig(path="rows.jsonl", rows=4, weight=0.5)


def fit(folder: Path, grpo: GrpoConfig = GRPO, **options: Any) -> tuple[ToyFlow, FitResult]:
    model = options.pop("model", None) or ToyFlow()
    own = {name: options.pop(name) for name in ("draw_rows", "on_images") if name in options}
    sampling = Sampling(PROMPTS, options.pop("rewards", REWARDS), **own)
    given: dict[str, Any] = {"stage": "grpo", "progress": False, "keep": 9, "log_every": 2}
    given |= {name: options.pop(name) for name in FitOptions.__dataclass_fields__ if name in options}
    return model, fit_flow_grpo(model, sampling, grpo, folder, FitOptions(**given), **{"sft_rows": SOLVED} | options)


def updates(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder / "metrics.jsonl")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_raises_the_reward(variant: Any, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"epochs": 8, "updates_per_epoch": 1, "group_size": 8, "checkpoint_every": 100, "lr": 2e-2}
    grpo = changed(TOY, variant=variant, clip_low=0.2, clip_high=0.2, **keys)
    assert tuple(VARIANTS) == get_args(GrpoVariant)
    if variant == "diffusion_nft":
        grpo = changed(grpo, advantage_clip=1.0, nft_decay=0.5)
    fit(tmp_path, grpo, log_every=100)
    rewards = [line["reward"] for line in read_metrics(tmp_path / "rollouts.jsonl")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.05, rewards
    line = updates(tmp_path)[0]
    assert {"loss", "policy_loss", "approx_kl", "grad_norm", "reward", "reward_std"} <= line.keys()
    if variant != "diffusion_nft":
        assert line["log_ratio_max"] < 1e-5 and line["ratio"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("variant", "update", "sft"),
    [("flow_grpo", 1, SFT), ("fast", 2, None), ("guard", 3, None), ("diffusion_nft", 5, SFT)],
)
def test_a_run_killed_anywhere_ends_in_the_same_numbers(variant: Any, update: int, sft: Any, tmp_path: Path) -> None:
    grpo, looks = changed(GRPO, variant=variant, kl=0.01, sft=sft), lambda step: {"held_out": 0.5}
    whole, _ = fit(tmp_path / "whole", grpo, evaluate=looks, evaluate_every=1)
    with killed_after(update):
        fit(tmp_path / "cut", grpo, evaluate=looks, evaluate_every=1)
    resumed, result = fit(tmp_path / "cut", grpo, evaluate=looks, evaluate_every=1)
    assert result.resumed_from == update // 2 * 2, "at the end of an epoch"
    assert_same_weights(whole, resumed)
    for file in ("metrics.jsonl", "held_out.jsonl"):
        assert (tmp_path / "whole" / file).read_text() == (tmp_path / "cut" / file).read_text()
    epochs = [read_metrics(tmp_path / run / "rollouts.jsonl") for run in ("whole", "cut")]
    for one, other in zip(*epochs, strict=True):
        assert one | {"seconds": other["seconds"]} == other
    again, nothing = fit(tmp_path / "cut", grpo, evaluate=looks, evaluate_every=1)
    assert nothing.resumed_from == 6
    assert_same_weights(again, whole)


def test_a_signal_inside_an_epoch_ends_the_run_after_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as during, pytest.raises(preemption.Preempted):
        during.setattr(preemption, "agreed", lambda: True)
        fit(tmp_path, changed(GRPO, checkpoint_every=100))
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == ["step=00000002"]
    with pytest.raises(UserError, match="the checkpoint of update 2 is inside an epoch"):
        fit(tmp_path, changed(GRPO, updates_per_epoch=4))


def still(prompts: Any, completions: Any, **_: Any) -> list[float]:
    return [1.0] * len(completions)


def test_rows_with_images_are_learned_beside_rewards_by_their_weight(tmp_path: Path) -> None:
    flat = changed(GRPO, epochs=20, lr=1e-2, sft=SFT, alarms=AlarmsConfig(zero_std_epochs=None), ema=None)
    fit(tmp_path / "rows", flat, rewards=[Reward("still", still)], log_every=1)
    lines = updates(tmp_path / "rows")
    assert all(line["loss"] == pytest.approx(SFT.weight * line["sft"]) for line in lines), "no image teaches anything"
    assert sum(line["sft"] for line in lines[-4:]) < 0.8 * sum(line["sft"] for line in lines[:4])
    both, _ = fit(tmp_path / "both", changed(GRPO, epochs=1, sft=SFT), log_every=1)
    cut, _ = fit(tmp_path / "cut", changed(GRPO, epochs=1, sft=SFT, rows=3), log_every=1, draw_rows=5)
    assert torch.allclose(both.body.weight, cut.body.weight, atol=1e-5), "micro-batches change nothing"
    line = updates(tmp_path / "both")[0]
    assert line["loss"] == pytest.approx(line["policy_loss"] + SFT.weight * line["sft"])


def test_by_the_baseline_of_the_batch_groups_of_equal_rewards_teach(tmp_path: Path) -> None:
    def by_prompt(prompts: Any, completions: Any, id: Any, **_: Any) -> list[float]:
        return [float(name in ("p0", "p1", "p2")) for name in id]

    for baseline, learns in (("group", False), ("batch", True)):
        grpo = changed(GRPO, epochs=1, baseline=baseline, scale_rewards="none")
        with nullcontext() if learns else pytest.raises(UserError, match="nothing was learned"):
            fit(tmp_path / baseline, grpo, rewards=[Reward("by_prompt", by_prompt)])
        lines = updates(tmp_path / baseline)
        assert all((line["grad_norm"] > 0) == learns for line in lines)
        assert lines[0]["frac_reward_zero_std"] == 1
    flat = changed(GRPO, baseline="batch", scale_rewards="none", alarms=AlarmsConfig(zero_std_epochs=2, log_ratio=None))
    fit(tmp_path / "teaches", flat, rewards=[Reward("by_prompt", by_prompt)])
    with pytest.raises(UserError, match="stopped after update 4: in 2 epochs no two images"):
        fit(tmp_path / "flat", flat, rewards=[Reward("still", still)])


def test_images_that_are_neither_good_nor_bad_are_not_learned_by_positives_alone(tmp_path: Path) -> None:
    grpo = changed(GRPO, epochs=1, variant="diffusion_nft", nft_negative=0.0, kl=0.1)
    with pytest.raises(UserError, match="nothing was learned: the gradient of all 2 updates is 0"):
        fit(tmp_path, grpo, rewards=[Reward("still", still)])


def test_conditions_are_read_once_a_group_and_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = fit(tmp_path / "trained", GRPO)
    assert model.read_times == 3 * 2  # once with the drawing, once for the second update of each epoch
    monkeypatch.setattr(ToyFlow, "encoder_trained", False)
    model, _ = fit(tmp_path / "frozen", GRPO)
    assert model.read_times == 3


@pytest.mark.parametrize(
    ("prompts", "ranks", "says", "hint"),
    [
        (5, 2, "prompts_per_epoch=5 cannot be divided among 2 devices", "prompts_per_epoch=4 or 6"),
        (3, 4, "prompts_per_epoch=3 cannot be divided among 4 devices", "prompts_per_epoch=4."),
        (8, 8, r"sft\.rows=4 are fewer than the 8 devices", ""),
    ],
)
def test_groups_that_ranks_cannot_share_are_refused_with_the_nearest_that_they_can(
    prompts: int, ranks: int, says: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=says) as error:
        changed(GRPO, prompts_per_epoch=prompts, sft=SFT).check_ranks(ranks)
    assert hint in (error.value.hint or "")


def test_windows_follow_from_seed_and_epoch() -> None:
    fast = changed(GRPO, variant="fast", steps=12, window=2, first_step=1, last_step=8)
    assert [fast.window(e) for e in range(20)] == [epoch_window(0, e, 2, (1, 8)) for e in range(20)]
    assert len({fast.window(e).start for e in range(20)}) > 3  # type: ignore[union-attr]
    mix = changed(GRPO, variant="mix", steps=12, window=3, first_step=1, last_step=8, window_every=2)
    assert [mix.window(e).start for e in range(12)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5]  # type: ignore[union-attr]


def test_the_reference_is_the_start_with_adapters_and_without(tmp_path: Path) -> None:
    grpo = changed(GRPO, kl=0.1, epochs=2, updates_per_epoch=1)
    fit(tmp_path / "full", grpo)
    model = ToyFlow()
    before = model.body.weight.detach().clone()
    with adapted(model, LoraConfig(rank=2, targets="re:body"), 0):
        fit(tmp_path / "lora", changed(grpo, ema=None), model=model, trained="lora")
        assert torch.equal(model.body.get_base_layer().weight, before)
    for name in ("full", "lora"):
        lines = updates(tmp_path / name)
        assert lines[0]["kl"] == 0 and lines[1]["kl"] > 0


def test_what_was_drawn_is_scored_again_by_training_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(model: ToyFlow, *args: Any) -> Any:
        found = sample_epoch(model, *args)
        found[0].log_probs.add_(0.1)  # as if it had been drawn in another precision
        return found

    exact, _ = fit(tmp_path / "exact", changed(GRPO, epochs=1))
    fit(tmp_path / "half", changed(GRPO, latents="bfloat16", epochs=1))
    assert updates(tmp_path / "half")[0]["log_ratio_max"] < 1e-5, "latents are scored as they are stored"
    monkeypatch.setattr(fitting, "sample_epoch", off)
    with pytest.raises(UserError, match=r"on-policy check: before update 1 .* log ratio"):
        fit(tmp_path / "check", changed(GRPO, epochs=1))
    again, _ = fit(tmp_path / "recompute", changed(GRPO, epochs=1, on_policy="recompute"))
    assert updates(tmp_path / "recompute")[0]["log_ratio_max"] == 0
    assert torch.allclose(again.body.weight, exact.body.weight, atol=1e-6)
    flat = [Reward("still", still)]  # padding alone, which is not scored again: the check must not see it
    with pytest.raises(UserError, match="nothing was learned"):
        fit(tmp_path / "flat", changed(GRPO, epochs=1, on_policy="recompute"), rewards=flat)
    fit(tmp_path / "trust", changed(GRPO, epochs=1, on_policy="trust"))
    assert updates(tmp_path / "trust")[0]["log_ratio_max"] == pytest.approx(0.1, abs=1e-4)


def test_a_second_pass_over_the_images_is_clipped(tmp_path: Path) -> None:
    grpo = changed(GRPO, epochs=1, updates_per_epoch=4, passes=2, rows=100)
    fit(tmp_path / "two", changed(grpo, lr=1e-2))
    lines = updates(tmp_path / "two")
    assert lines[0]["clip_ratio/high_mean"] == lines[0]["clip_ratio/low_mean"] == 0
    assert all(line["clip_ratio/high_mean"] + line["clip_ratio/low_mean"] > 0.2 for line in lines[2:])
    assert {line["tokens"] for line in lines} == {2 * 4 * 4 * 4}, "each pass is all images, in two updates"


def test_collapse_flat_rewards_and_falling_held_out_scores_are_alarms(tmp_path: Path) -> None:
    flat = changed(GRPO, alarms=AlarmsConfig(zero_std_epochs=2))
    with pytest.raises(UserError, match="stopped after update 4: in 2 epochs no group"):
        fit(tmp_path / "flat", flat, rewards=[Reward("still", still)])
    with pytest.raises(UserError, match="grey levels"):
        fit(tmp_path / "same", changed(GRPO, epochs=9, alarms=AlarmsConfig(diversity=0.999, log_ratio=None)))
    epochs = itertools.count()

    def fading(prompts: Any, completions: Any, **_: Any) -> list[float]:
        level = 1.0 if next(epochs) < 10 else 0.1
        return [level + 0.01 * i / len(completions) for i in range(len(completions))]

    fades = changed(GRPO, epochs=20, alarms=AlarmsConfig(diversity=None, log_ratio=None))
    with pytest.raises(UserError, match="stopped after update 32: the mean reward of 10 epochs has fallen"):
        fit(tmp_path / "fades", fades, rewards=[Reward("fading", fading)])
    scores = {0: 0.9, 2: 0.95, 4: 0.5, 6: 0.5}
    watch = changed(GRPO, alarms=AlarmsConfig(held_out=0.3))
    with pytest.raises(UserError, match=r"stopped after update 4: the held-out score has fallen from 0.950 to 0.500"):
        fit(tmp_path / "fooled", watch, evaluate=lambda step: {"held_out": scores[step]}, evaluate_every=1)


def test_the_epoch_log_tells_rewards_and_where_time_goes(tmp_path: Path) -> None:
    seen: list[int] = []
    fit(tmp_path, on_images=lambda epoch, drawn: seen.append(len(drawn.images)))
    lines = read_metrics(tmp_path / "rollouts.jsonl")
    assert seen == [16] * 3 and [line["step"] for line in lines] == [2, 4, 6]
    for line in lines:
        assert line["reward_p10"] <= line["reward_p50"] <= line["reward_p90"] <= 1
        assert set(line["seconds"]) == {"rollout", "reward", "update"} and line["window"] == [0, 4]
