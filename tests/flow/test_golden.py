"""Steps, objectives and a whole iteration against the stored outputs of Flow-GRPO, Flow-Factory and DanceGRPO."""

from __future__ import annotations

import random
import re

import pytest
import torch

from tests.models.bagel.conftest import guidance_of
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
from uni_train.flow.guidance import true_cfg
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import DynamicShift, Schedule, bagel_schedule, shift_timestep
from uni_train.flow.steps import DanceSDE, FlowCPS, FlowSDE, step_rule
from uni_train.flow.window import draw_window
from uni_train.models.bagel.generation import Denoiser, guidance_contexts, read_contexts
from uni_train.models.bagel.packing import Text

pytestmark = pytest.mark.golden
KINDS = dict.fromkeys(("sde", "Flow-SDE", "ODE"), FlowSDE) | dict.fromkeys(("cps", "CPS"), FlowCPS)
KINDS |= dict.fromkeys(("Dance-SDE", "DanceGRPO"), DanceSDE)


def dynamic_shift(config):
    assert config["use_dynamic_shifting"] and config["time_shift_type"] == "exponential"
    names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift", "shift_terminal")
    return DynamicShift(*(config[name] for name in names))


def schedule_of(case):
    settings, config = case.settings, case.about["scheduler_config"]
    if isinstance(config, str):
        return bagel_schedule(settings["num_timesteps"], settings["timestep_shift"])
    if config["use_dynamic_shifting"]:
        return dynamic_shift(config).schedule(settings["num_steps"], settings["image_seq_len"])
    # A fixed shift (Stable Diffusion 3) counts twice in diffusers: for the end of the even spacing, and for its levels.
    shift, last = config["shift"], torch.tensor(1 / config["num_train_timesteps"], dtype=torch.double)
    even = torch.linspace(1, float(shift_timestep(last, shift)), settings["num_steps"], dtype=torch.double)
    return Schedule(torch.cat([shift_timestep(even, shift), even.new_zeros(1)]).float())


def stored_steps(case):
    """(name, kind, noise level, step index or list of them) of every stored step."""
    names = {match[0] for key in case.tensors if (match := re.match(r"out\.[\w-]+\.nl[\d.]+\.(i\d+|mixed)", key))}
    for name in sorted(names):
        _, kind, level, index = re.fullmatch(r"(out)\.([\w-]+)\.nl([\d.]+)\.(i\d+|mixed)", name).groups()
        yield name, kind, float(level), case.settings["mixed_batch"] if index == "mixed" else int(index[1:])


@pytest.mark.parametrize("name", ["sde_step_sd3", "sde_step_qwenimage", "sde_step_flow_factory"])
def test_flow_grpo_schedules(name, golden, close):
    case = golden(name)
    schedule = schedule_of(case)
    close(schedule.levels, case["out.sigmas"])
    close(schedule.levels[:-1] * case.about["scheduler_config"]["num_train_timesteps"], case["out.timesteps"])
    if "out.mu" in case:
        shift = dynamic_shift(case.about["scheduler_config"])
        assert shift.mu(case.settings["image_seq_len"]) == pytest.approx(float(case["out.mu"]), rel=1e-6)
    if "out.mu_table" in case:
        for tokens, mu in case["out.mu_table"].tolist():
            assert shift.mu(int(tokens)) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize("name", ["sde_step_sd3", "sde_step_qwenimage", "sde_step_flow_factory", "sde_step_bagel"])
def test_flow_grpo_steps(name, golden, close):
    case = golden(name)
    schedule = schedule_of(case)
    bagel = name == "sde_step_bagel"  # its latents are unbatched, and its log probability is one number
    if bagel:
        close(schedule.levels, case["out.timesteps_full"])
        close(schedule.levels.diff(), case["out.dts"])
    x, v, noise, given = (
        case[key][None] if bagel else case[key]
        for key in ("in.sample", "in.model_output", "in.noise", "out.prev_sample_given_used")
    )
    steps = list(stored_steps(case))
    assert len(steps) >= 2 * len(case.settings["step_indices"])
    for stored, kind, level, index in steps:
        rule = step_rule("bagel", level) if bagel and kind == "sde" else KINDS[kind](level)
        step = index if isinstance(index, int) else torch.tensor(index)
        moved = rule.transition(x, v, schedule, step)
        check_step(stored, case, moved, noise, given, close)
        t, t_next = schedule.step(step)
        for suffix, ours in (("dt", t_next - t), ("sqrt_dt", (t - t_next).sqrt())):
            if f"{stored}.{suffix}" in case:
                close(ours, case[f"{stored}.{suffix}"].flatten(), what=stored)


def check_step(stored, case, moved, noise, given, close):
    close(moved.mean, case[f"{stored}.prev_sample_mean"], what=stored)
    close(moved.sample(noise), case[f"{stored}.prev_sample"], what=stored)
    if f"{stored}.std_dev_t" in case:
        close(moved.diffusion, case[f"{stored}.std_dev_t"], what=stored)
    if moved.density is None:  # theirs is NaN, or 0 in Flow-Factory's ODE
        with pytest.raises(ValueError, match="no density"):
            moved.log_prob(given)
        return
    close(moved.log_prob(moved.sample(noise)), case[f"{stored}.log_prob"], what=stored)
    if f"{stored}.log_prob_given" in case:
        close(moved.log_prob(given), case[f"{stored}.log_prob_given"], what=stored)


def test_flow_grpo_true_cfg_of_qwen_image(golden, close):
    case = golden("qwen_true_cfg")
    for scale in case.settings["true_cfg_scale"]:
        close(true_cfg(case["in.cond"], case["in.uncond"], scale), case[f"out.scale{scale}"])


def test_flow_grpo_window_of_a_process(golden):
    """The published rule: each process seeds Python's generator with its number."""
    case = golden("sde_window")
    for number, about in enumerate(case.settings["cases"]):
        drawn = [random.Random(index) for index in case.settings["process_indices"]]
        windows = [draw_window(about["size"], tuple(about["range"]), one) for one in drawn]
        assert [window.start for window in windows] == case[f"out.start.{number}"].tolist()


@pytest.mark.parametrize("rewards", ["rewards", "rewards_2d"])
def test_flow_grpo_advantages(rewards, golden, close):
    case = golden("advantages")
    groups, values = group_index(case.settings["prompts"]), case[f"in.{rewards}"]
    for number, scale_rewards in enumerate(("group", "batch")):
        close(group_advantages(values, groups, scale_rewards), case[f"out.tracker.global_std_{number}.{rewards}"])
    close(batch_advantages(values), case[f"out.no_tracking.{rewards}"])


def test_flow_grpo_statistics_of_groups(golden, close):
    case = golden("advantages")
    groups, rewards = group_index(case.settings["prompts"]), case["in.rewards"]
    statistics = group_statistics(rewards, groups)
    assert len(statistics.size) == int(case["out.tracker.num_prompts"])
    assert float(statistics.size.double().mean()) == float(case["out.tracker.avg_group_size"])
    assert float(statistics.zero_std.double().mean()) == float(case["out.zero_std_ratio"])
    close(statistics.std.mean(), case["out.reward_std_mean"])
    assert informative(rewards, groups).sum() == int(statistics.size[~statistics.zero_std].sum())


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


def conditions(model, settings):
    """The prompt as `model` has read it."""
    stride = 8 * model.config.latent_patch_size
    grid = tuple(side // stride for side in settings["image_shapes"])
    layout = guidance_contexts([Text(settings["prompt"])])
    return read_contexts(model, [layout], [grid], guidance_of(settings, norm_scope="row"))


def variant(settings):
    """Step, schedule and window of the run; one process is one row."""
    schedule = bagel_schedule(settings["num_timesteps"], settings["timestep_shift"])
    bounds = tuple(settings["sde_window_range"])
    window = draw_window(settings["sde_window_size"], bounds, random.Random(settings["process_index"]))
    return step_rule("bagel", settings["noise_level"]), schedule, window


def test_flow_grpo_rollout_of_bagel(golden, close, tiny_model):
    case = golden("bagel_rollout")
    rule, schedule, window = variant(case.settings)
    assert window.start == int(case["out.rollout.window_start"])
    asked = []

    def noise(step):
        asked.append(step)
        return case["in.step_noise"][step][None]

    start = case["in.init_noise"][None]
    model = tiny_model().eval()
    velocity = Denoiser(model, conditions(model, case.settings))
    latents = [case["in.init_noise"], *case["out.rollout.all_prev_samples"]]
    for x, t, expected in zip(latents, schedule.levels, case["out.rollout.velocities"], strict=False):
        close(velocity(x[None], t), expected)
    run = roll_out(velocity, start, schedule, rule, window, noise, keep_means=True)
    assert asked == list(window.steps)
    close(schedule.levels[window.start : window.start + window.size], case["out.rollout.timesteps"])
    close(run.latents[0], case["out.rollout.latents_in_window"], 1e-4)
    close(run.log_probs[0], case["out.rollout.log_probs"], 1e-4)
    close(run.means[0], case["out.rollout.all_prev_sample_means"][window.start :][: window.size], 1e-4)
    close(run.final[0], case["out.rollout.final_latent"], 1e-4)


def test_flow_grpo_update_of_bagel(golden, close, tiny_model):
    case = golden("bagel_rollout")
    settings = case.settings
    rule, schedule, window = variant(settings)
    policy, reference = tiny_model().eval(), tiny_model().eval()
    with torch.no_grad():
        for parameter in reference.language_model.parameters():
            parameter.mul_(settings["ref_weight_factor"])
    trained = {name: p for name, p in policy.language_model.named_parameters() if "moe_gen" in name}
    policy.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_()

    stored, value = case["out.rollout.latents_in_window"][:-1], case["out.rollout.latents_in_window"][1:]
    steps = torch.tensor(list(window.steps))
    levels = schedule.levels[steps]
    # Read once, by the policy: only the weights that draw differ between policy and reference in a real run.
    read = conditions(policy, settings).repeat(len(steps))
    with torch.no_grad():
        velocity = Denoiser(reference, read)(stored, levels)
        close(velocity, case["out.update.velocity_ref"], 1e-4)
        reference_mean = rule.transition(stored, velocity, schedule, steps).mean
        close(reference_mean, case["out.update.prev_sample_mean_ref"], 1e-4)
    velocity = Denoiser(policy, read)(stored, levels)  # all steps at their noise levels, in one batch
    close(velocity, case["out.update.velocity"])
    new = rule.transition(stored, velocity, schedule, steps)
    old = case["out.rollout.log_probs"] + torch.tensor(settings["old_log_prob_shift"])
    close(old, case["out.update.old_log_probs"])
    close(new.log_prob(value), case["out.update.log_probs"], 1e-4)
    close(new.mean, case["out.update.prev_sample_mean"], 1e-4)
    close(new.diffusion, case["out.update.std_dev_t"])

    # The released code goes backward step by step: every row by itself, gradients of each apart.
    policies, kls, advantage = [], [], torch.tensor(settings["advantages"])
    limits = {"clip_low": settings["clip_range_lt"], "clip_high": settings["clip_range_gt"]}
    limits["advantage_clip"] = settings["adv_clip_max"]
    for row in range(len(steps)):
        policies.append(grpo_loss(new.log_prob(value)[[row]], old[[row]], advantage, **limits))
        kls.append(new.kl(reference_mean)[row])
        loss = policies[-1].loss + settings["beta"] * kls[-1]
        found = torch.autograd.grad(loss, trained.values(), retain_graph=True, allow_unused=True)
        gradients = {name: grad for name, grad in zip(trained, found, strict=True) if grad is not None}
        for key in [key for key in case.tensors if key.startswith(f"out.update.grad.{row}.")]:
            close(gradients[key.removeprefix(f"out.update.grad.{row}.")], case[key], 1e-4, key)
        norm = torch.stack([grad.norm() for grad in gradients.values()]).norm()
        close(norm, case["out.update.grad_norm_per_step"][row], 1e-4)
    for name, ours in (
        ("policy_loss", torch.stack([one.loss for one in policies]).mean()),
        ("kl_loss", torch.stack(kls).mean()),
        ("loss", torch.stack([one.loss for one in policies]).mean() + settings["beta"] * torch.stack(kls).mean()),
        ("clipfrac_gt_one", torch.stack([one.clipped_high for one in policies]).mean()),
        ("clipfrac_lt_one", torch.stack([one.clipped_low for one in policies]).mean()),
    ):
        close(ours, case[f"out.update.{name}"].squeeze(), 1e-4, name)
