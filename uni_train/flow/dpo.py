"""Flow-DPO: a chosen image of a prompt against a rejected one, by how well a flow predicts each of them.

Diffusion-DPO (Wallace et al. 2023, arXiv 2311.12908) for rectified flow (Liu et al. 2025, arXiv 2501.13918, L_FD with a
constant beta). Both images w and l of a pair have one noise and noise level:

    loss = -log sigmoid(-beta/2 ((|v*_w - v_w|^2 - |v*_w - v_ref,w|^2) - (|v*_l - v_l|^2 - |v*_l - v_ref,l|^2)))

``|.|^2`` is a mean over the latent, as in Diffusion-DPO's released code.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid


def implicit_reward(error: Tensor, reference_error: Tensor, beta: float) -> Tensor:
    """``-beta/2 (error - reference_error)``, of any shape, from mean squared errors; the reference is a constant."""
    return -beta / 2 * (error - reference_error.detach())


def dpo_loss(chosen_reward: Tensor, rejected_reward: Tensor) -> Tensor:
    """The loss of each pair, from the `implicit_reward` of its images; log 2 where they are equal."""
    return -logsigmoid(chosen_reward - rejected_reward)
