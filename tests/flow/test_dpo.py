"""Flow-DPO's loss beside its equation written out, and where its gradients lead."""

from __future__ import annotations

import math

import torch

from uni_train.flow.dpo import dpo_loss, implicit_reward

BETA = 7.0


def errors(seed: int) -> torch.Tensor:
    """Of the chosen and rejected image by the model, then by the reference; [4, pairs]."""
    return torch.rand(4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_is_the_published_equation() -> None:
    v_w, v_l, ref_w, ref_l = errors(0)
    found = dpo_loss(implicit_reward(v_w, ref_w, BETA), implicit_reward(v_l, ref_l, BETA))
    for pair in range(5):
        inside = (float(v_w[pair]) - float(ref_w[pair])) - (float(v_l[pair]) - float(ref_l[pair]))
        assert math.isclose(float(found[pair]), -math.log(1 / (1 + math.exp(BETA / 2 * inside))), rel_tol=1e-12)


def test_gradients_lower_the_chosen_error_and_raise_the_rejected_one_most_where_the_order_is_wrong() -> None:
    v_w, v_l, ref_w, ref_l = (part.clone().requires_grad_() for part in errors(1))
    chosen, rejected = implicit_reward(v_w, ref_w, BETA), implicit_reward(v_l, ref_l, BETA)
    dpo_loss(chosen, rejected).sum().backward()
    weight = BETA / 2 * torch.sigmoid(rejected - chosen).detach()
    torch.testing.assert_close(v_w.grad, weight)
    torch.testing.assert_close(v_l.grad, -weight)
    assert ref_w.grad is None and ref_l.grad is None, "the reference is a constant"


def test_a_model_that_is_its_reference_starts_at_log_two() -> None:
    v_w, v_l, _, _ = errors(2)
    loss = dpo_loss(implicit_reward(v_w, v_w, BETA), implicit_reward(v_l, v_l, BETA))
    torch.testing.assert_close(loss, torch.full_like(loss, math.log(2)))
