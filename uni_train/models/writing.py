"""Text that a transformers model goes on to write, each row's choices from its own seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from uni_train.models.base import OnStep


class Choice:
    """The next token of each row: the likeliest, or at a temperature above 0 one from the row's own generator.

    The largest of logits / temperature + Gumbel noise is a draw from their softmax. The noise is drawn on `device`.
    """

    def __init__(self, temperature: float, seeds: Sequence[int], device: torch.device) -> None:
        self.temperature = temperature
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds] if temperature > 0 else []

    def noised(self, logits: Tensor) -> Tensor:
        """[B, vocabulary] -> scores whose argmax is the choice."""
        if not self.generators:
            return logits
        words, device = logits.shape[-1], logits.device
        uniform = torch.stack([torch.rand(words, generator=one, device=device) for one in self.generators])
        gumbel = -(-uniform.clamp_min(1e-20).log()).log()
        return logits.float() / self.temperature + gumbel


def write(
    generate: Callable[..., Tensor],
    inputs: Mapping[str, Tensor],
    *,
    end: int,
    pad: int,
    max_tokens: int,
    temperature: float,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> list[list[int]]:
    """The token ids behind each row of `inputs`, the end token and what follows it included.

    Args:
        generate: transformers' `generate` of the model. inputs: padded on the left, on the model's device.
    """
    from transformers import GenerationConfig, LogitsProcessorList

    choice = Choice(temperature, seeds, inputs["input_ids"].device)
    done = iter(range(1, max_tokens + 1))

    def scores(ids: Tensor, logits: Tensor) -> Tensor:
        if on_step is not None:
            on_step(next(done), max_tokens)
        return choice.noised(logits)

    found = generate(
        **inputs,
        logits_processor=LogitsProcessorList([scores]),
        # A whole configuration, because that of the folder may hold penalties and a temperature of its own.
        generation_config=GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, eos_token_id=end, pad_token_id=pad
        ),
    )
    rows: list[list[int]] = found[:, inputs["input_ids"].shape[1] :].tolist()
    return rows
