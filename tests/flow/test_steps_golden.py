"""Steps, schedules and guidance against the stored outputs of Flow-GRPO, Flow-Factory and DanceGRPO."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch

from uni_train.flow.guidance import true_cfg
from uni_train.flow.schedule import DynamicShift, Schedule, bagel_schedule, shift_timestep
from uni_train.flow.steps import DanceSDE, FlowCPS, FlowSDE, step_rule
from uni_train.flow.window import draw_window

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


@pytest.mark.golden
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


@pytest.mark.golden
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


@pytest.mark.golden
def test_flow_grpo_true_cfg_of_qwen_image(golden, close):
    case = golden("qwen_true_cfg")
    for scale in case.settings["true_cfg_scale"]:
        close(true_cfg(case["in.cond"], case["in.uncond"], scale), case[f"out.scale{scale}"])


@pytest.mark.golden
def test_flow_grpo_window_of_a_process(golden):
    """The published rule: each process seeds Python's generator with its number."""
    case = golden("sde_window")
    for number, about in enumerate(case.settings["cases"]):
        drawn = [random.Random(index) for index in case.settings["process_indices"]]
        windows = [draw_window(about["size"], tuple(about["range"]), one) for one in drawn]
        assert [window.start for window in windows] == case[f"out.start.{number}"].tolist()


def test_schedules_refuse_what_does_not_fall():
    with pytest.raises(ValueError, match="must fall"):
        Schedule(torch.tensor([1.0, 1.0, 0.0]))
    with pytest.raises(ValueError, match="at least two"):
        Schedule(torch.tensor([1.0]))
    assert math.isclose(float(DynamicShift(terminal=None).schedule(4, 256).levels[0]), 1)
