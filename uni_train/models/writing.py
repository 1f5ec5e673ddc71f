"""The next token, and text that a transformers model goes on to write; each row's choices from its own seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from uni_train.models.base import OnStep


def perturbed(logits_BV: Tensor, temperature: float, generators: Sequence[torch.Generator] | None) -> Tensor:
    """Scores [B, V] whose argmax is the next token: logits, or above temperature 0 a draw by the Gumbel-max trick.

    ``argmax(logits / T - log(-log u))`` is a draw from softmax(logits / T); u is from each row's own generator.
    """
    if temperature <= 0 or generators is None:
        return logits_BV
    words, device = logits_BV.shape[-1], logits_BV.device
    uniform = torch.stack([torch.rand(words, generator=generator, device=device) for generator in generators])
    gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
    return logits_BV.float() / temperature + gumbel


def write(
    generate: Callable[..., Tensor],
    tokenizer: Any,
    inputs: Mapping[str, Tensor],
    *,
    end: int,
    max_tokens: int,
    temperature: float,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> list[str]:
    """What a model writes behind each row of `inputs`, up to the token `end`.

    Args:
        generate: transformers' `generate` of the model. inputs: padded on the left, on the model's device.
    """
    from transformers import GenerationConfig, LogitsProcessorList

    generators = [torch.Generator(inputs["input_ids"].device).manual_seed(seed) for seed in seeds]
    done = iter(range(1, max_tokens + 1))

    def scores(ids: Tensor, logits: Tensor) -> Tensor:
        if on_step is not None:
            on_step(next(done), max_tokens)
        return perturbed(logits, temperature, generators)

    # A whole configuration, because that of the folder may hold penalties and a temperature of its own.
    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=end, pad_token_id=tokenizer.pad_token_id
    )
    ids = generate(**inputs, logits_processor=LogitsProcessorList([scores]), generation_config=config)
    written = ids[:, inputs["input_ids"].shape[1] :].tolist()
    return [tokenizer.decode(row, skip_special_tokens=True).strip() for row in written]
