"""A whole Flow-GRPO iteration of BAGEL with the tiny weights: rollout, ratio, penalty, gradients."""

from __future__ import annotations

import copy
import json
import random

import pytest
import torch
from safetensors.torch import load_file

from tests.models.bagel.conftest import MARKERS
from uni_train.flow.grpo import grpo_loss
from uni_train.flow.guidance import Guidance
from uni_train.flow.rollout import roll_out
from uni_train.flow.schedule import bagel_schedule
from uni_train.flow.steps import step_rule
from uni_train.flow.window import draw_window
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, SpecialTokens
from uni_train.models.bagel.generation import Denoiser, guidance_contexts, read_contexts
from uni_train.models.bagel.packing import Text


@pytest.fixture(scope="module")
def tiny(golden_folder):
    folder = golden_folder / "bagel"
    llm, vit, about = (json.loads((folder / f"{name}_config.json").read_text()) for name in ("llm", "vit", "tiny"))
    names = ("latent_patch_size", "max_latent_size", "vit_max_num_patch_per_side", "timestep_shift")
    sizes = {name: about["bagel"][name] for name in names} | {"latent_channels": about["vae"]["z_channels"]}
    model = Bagel(
        BagelConfig.from_official(llm, vit, SpecialTokens(*map(about["new_token_ids"].get, MARKERS)), **sizes)
    )
    model.load_state_dict(load_file(folder / "ema.safetensors"))
    return model.eval()


def conditions(model, settings):
    """The prompt as `model` has read it."""
    guidance = Guidance(
        text_scale=settings["cfg_text_scale"],
        img_scale=settings["cfg_img_scale"],
        interval=tuple(settings["cfg_interval"]),
        renorm=settings["cfg_renorm_type"],
        renorm_min=settings["cfg_renorm_min"],
    )
    stride = 8 * model.config.latent_patch_size
    grid = tuple(side // stride for side in settings["image_shapes"])
    return read_contexts(model, [guidance_contexts([Text(settings["prompt"])])], [grid], guidance)


def variant(settings):
    """Step, schedule and window of the run; one process is one row."""
    schedule = bagel_schedule(settings["num_timesteps"], settings["timestep_shift"])
    bounds = tuple(settings["sde_window_range"])
    window = draw_window(settings["sde_window_size"], bounds, random.Random(settings["process_index"]))
    return step_rule("bagel", settings["noise_level"]), schedule, window


@pytest.mark.golden
def test_flow_grpo_rollout_of_bagel(golden, close, tiny):
    case = golden("bagel_rollout")
    rule, schedule, window = variant(case.settings)
    assert window.start == int(case["out.rollout.window_start"])
    asked = []

    def noise(step):
        asked.append(step)
        return case["in.step_noise"][step][None]

    start = case["in.init_noise"][None]
    velocity = Denoiser(tiny, conditions(tiny, case.settings))
    run = roll_out(velocity, start, schedule, rule, window, noise, keep_means=True)
    assert asked == list(window.steps)
    close(schedule.levels[window.start : window.start + window.size], case["out.rollout.timesteps"])
    close(run.latents[0], case["out.rollout.latents_in_window"], 1e-4)
    close(run.log_probs[0], case["out.rollout.log_probs"], 1e-4)
    close(run.means[0], case["out.rollout.all_prev_sample_means"][window.start :][: window.size], 1e-4)
    close(run.final[0], case["out.rollout.final_latent"], 1e-4)


@pytest.mark.golden
def test_flow_grpo_update_of_bagel(golden, close, tiny):
    case = golden("bagel_rollout")
    settings = case.settings
    rule, schedule, window = variant(settings)
    policy, reference = copy.deepcopy(tiny), copy.deepcopy(tiny)
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
    new = rule.transition(stored, Denoiser(policy, read)(stored, levels), schedule, steps)
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
