"""Advantages and objectives, with gradients, against the stored outputs of Flow-GRPO and Flow-Factory."""

from __future__ import annotations

import pytest
import torch

from uni_train.flow.advantages import (
    FLOW_FACTORY_FLOOR,
    batch_advantages,
    gdpo_advantages,
    group_advantages,
    group_index,
    group_statistics,
    informative,
)
from uni_train.flow.grpo import grpo_loss, guard_loss
from uni_train.flow.schedule import Schedule
from uni_train.flow.steps import FlowSDE


@pytest.mark.golden
@pytest.mark.parametrize("rewards", ["rewards", "rewards_2d"])
def test_flow_grpo_advantages(rewards, golden, close):
    case = golden("advantages")
    groups, values = group_index(case.settings["prompts"]), case[f"in.{rewards}"]
    for number, scale_rewards in enumerate(("group", "batch")):
        close(group_advantages(values, groups, scale_rewards), case[f"out.tracker.global_std_{number}.{rewards}"])
    close(batch_advantages(values), case[f"out.no_tracking.{rewards}"])


@pytest.mark.golden
def test_flow_grpo_statistics_of_groups(golden, close):
    case = golden("advantages")
    groups, rewards = group_index(case.settings["prompts"]), case["in.rewards"]
    statistics = group_statistics(rewards, groups)
    assert len(statistics.size) == int(case["out.tracker.num_prompts"])
    assert float(statistics.size.double().mean()) == float(case["out.tracker.avg_group_size"])
    assert float(statistics.zero_std.double().mean()) == float(case["out.zero_std_ratio"])
    close(statistics.std.mean(), case["out.reward_std_mean"])
    assert informative(rewards, groups).sum() == int(statistics.size[~statistics.zero_std].sum())


@pytest.mark.golden
def test_flow_grpo_advantages_of_flow_factory(golden, close):
    case = golden("advantages")
    names = sorted(case.settings["ff_weights"])
    weights = torch.tensor([case.settings["ff_weights"][name] for name in names])
    rewards = torch.stack([case[f"in.ff_reward_{name}"] for name in names], 1)
    groups = case["in.ff_unique_id"]
    for number, scale_rewards in enumerate(("group", "batch")):
        ours = group_advantages(rewards @ weights, groups, scale_rewards, eps=0.0, floor=FLOW_FACTORY_FLOOR)
        close(ours, case[f"out.flow_factory.sum.global_std_{number}"])
        close(gdpo_advantages(rewards, weights, groups), case[f"out.flow_factory.gdpo.global_std_{number}"])


@pytest.mark.golden
@pytest.mark.parametrize(("trainer", "inputs"), [("qwen", "packed"), ("sd3", "spatial"), ("guard", "spatial")])
def test_flow_grpo_objectives(trainer, inputs, golden, close):
    case = golden("grpo_loss")
    settings, schedule = case.settings, Schedule(case[f"out.{trainer}.sigmas"])
    rule, steps = FlowSDE(settings["noise_level"]), torch.tensor(settings["timestep_index"])
    x = case[f"in.{inputs}.sample"]

    def transition(velocity):
        return rule.transition(x, velocity, schedule, steps)

    old = transition(case[f"in.{inputs}.noise_pred_old"])
    value = old.sample(case[f"in.{inputs}.rollout_noise"])
    old_log_prob = old.log_prob(value) + case["in.old_log_prob_shift"]
    advantage = case["in.advantages"][:, settings["adv_column"]]
    reference = transition(case[f"in.{inputs}.noise_pred_ref"]).mean
    for name, ours in (
        ("next_latents", value),
        ("old_log_prob", old_log_prob),
        ("old_prev_sample_mean", old.mean),
        ("prev_sample_mean_ref", reference),
        ("std_dev_t", old.diffusion),
        ("sqrt_dt", old.std / old.diffusion),
    ):
        close(ours, case[f"out.{trainer}.{name}"], what=name)
    accumulated = settings["gradient_accumulation_steps"] if trainer == "qwen" else 1
    for clip in settings["clip_ranges"]:
        stored = f"out.{trainer}.clip{clip}"
        velocity = case[f"in.{inputs}.noise_pred"].clone().requires_grad_()
        new = transition(velocity)
        limits = {"clip_low": clip, "clip_high": clip, "advantage_clip": settings["adv_clip_max"]}
        if trainer == "guard":
            policy = guard_loss(new, value, old_log_prob, old.mean, advantage, scope="batch", **limits)
        else:
            policy = grpo_loss(new.log_prob(value), old_log_prob, advantage, **limits)
        kl = new.kl(reference).mean()
        loss = (policy.loss + settings["beta"] * kl) / accumulated
        loss.backward()
        close(new.log_prob(value), case[f"out.{trainer}.log_prob"])
        close(new.mean, case[f"out.{trainer}.prev_sample_mean"])
        close(policy.ratio, case[f"{stored}.ratio"])
        close(policy.loss / accumulated, case[f"{stored}.policy_loss"])
        close(kl / accumulated, case[f"{stored}.kl_loss"])
        close(loss, case[f"{stored}.loss"])
        close(policy.approx_kl, case[f"{stored}.approx_kl"])
        assert float(policy.clipped_high) == pytest.approx(float(case[f"{stored}.clipfrac_gt_one"]))
        assert float(policy.clipped_low) == pytest.approx(float(case[f"{stored}.clipfrac_lt_one"]))
        close(velocity.grad, case[f"{stored}.grad_noise_pred"], 1e-4, f"{stored}.grad")
