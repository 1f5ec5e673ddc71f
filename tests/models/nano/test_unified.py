"""nano as a UnifiedModel: requests are answered as if asked alone, and a batch's sums are those of its parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.models.nano.conftest import last_state
from uni_train.eval.task_benchmark import verification_prompt
from uni_train.flow.schedule import shift_timestep
from uni_train.models.bagel.generation import Branch, prefill
from uni_train.models.bagel.images import patches
from uni_train.models.bagel.packing import Text, VitImage
from uni_train.models.base import Example, Request
from uni_train.models.nano import corpus, language
from uni_train.models.nano.nano import Nano


def examples(count: int, draws: int = 2) -> list[Example]:
    makers = list(corpus.sources(draws).values())
    return [replace(makers[i % len(makers)](random.Random(i)), seed=70 + i) for i in range(count)]


def numbers(nano: Nano, batch: Sequence[Example], seed: int = 0) -> tuple[float, float, float, float]:
    """Sums and counts of the loss; the counts are known before the forward pass."""
    batches = nano.collate(batch, seed=seed)
    with torch.no_grad():
        loss = nano.supervised_loss(batches)
    assert nano.token_counts(batches) == (int(loss.ce_tokens), int(loss.mse_tokens))
    return float(loss.ce_sum), float(loss.ce_tokens), float(loss.mse_sum), float(loss.mse_tokens)


def test_asking_leaves_the_global_random_numbers_alone(nano: Nano) -> None:
    asked, numbers = [Request("a", "Draw 3 apples .", seed=5)], []
    for calls in ([], [lambda: nano.think(asked, temperature=1.0), lambda: nano.draw(asked)]):
        torch.manual_seed(5)
        np.random.seed(5)
        for call in calls:
            call()
            nano.collate(examples(14), seed=0)
        numbers.append((float(torch.rand(())), np.random.random()))
    assert numbers[0] == numbers[1]


def test_how_nano_wants_to_be_asked_is_what_it_was_taught(nano: Nano) -> None:
    row = corpus.sources(1)["verify"](random.Random(0))
    question = row.prompt.removeprefix("Question : ").removesuffix(" Is the image right ?")
    assert verification_prompt(nano.family, question) == row.prompt
    assert verification_prompt(nano.family, "Draw {x} .") == language.VERIFY_PROMPT.replace("{question}", "Draw {x} .")


def test_the_seed_of_the_batch_does_not_matter_and_those_of_examples_do(nano: Nano) -> None:
    batch = examples(14)
    first, second = (numbers(nano, batch, seed) for seed in (1, 2))
    assert first == second
    reseeded = numbers(nano, [replace(one, seed=one.seed + 1) for one in batch])
    assert reseeded[0] == pytest.approx(first[0], rel=1e-6) and reseeded[2] != pytest.approx(first[2], rel=1e-4)


@pytest.mark.parametrize("parts", [3, 14])
def test_the_parts_of_a_batch_add_up(nano: Nano, parts: int) -> None:
    """As micro-batches and ranks take them, every n-th example; and each example alone."""
    batch = examples(14)
    split = [numbers(nano, batch[i::parts]) for i in range(parts)]
    assert [sum(column) for column in zip(*split, strict=True)] == pytest.approx(numbers(nano, batch), rel=1e-5)


def by_hand(nano: Nano, example: Example) -> tuple[float, float]:
    """CE and velocity error of one example, from the path that thinks and draws, one token and one image at a time."""
    model, tokenizer = nano.bagel, nano.tokenizer
    marks = model.config.tokens
    side = nano.image_size // nano.vae.downsample
    context = []
    for image in example.images:
        context.append(VitImage((side, side), patches(image, nano.bagel.config.vit.patch_size)))
    if example.thought is not None:
        context.append(Text(tokenizer.encode(language.THINK_SYSTEM)))
    context.append(Text(tokenizer.encode(example.prompt)))
    ce = 0.0
    for text in (example.thought, example.answer):
        if text is None:
            continue
        ids = tokenizer.encode(text)
        for i, following in enumerate([*ids, marks.eos]):
            hidden = last_state(nano, context, [marks.bos, *ids[:i]])
            ce += float(F.cross_entropy(model.language_model.lm_head(hidden)[None], torch.tensor([following])))
        context.append(Text(ids))
    mse = 0.0
    if example.target is not None:
        generator = np.random.default_rng(example.seed)
        channels = nano.vae.channels
        posterior = torch.from_numpy(generator.standard_normal((channels, side, side), np.float32))
        pixels = torch.from_numpy(example.target).permute(2, 0, 1)[None].float() / 127.5 - 1
        mean, logvar = nano.vae.moments(pixels)
        latent = nano.vae.scale * (mean + torch.exp(logvar / 2) * posterior - nano.vae.shift)
        clean = latent[0].permute(1, 2, 0).reshape(side * side, channels)
        uniform = torch.sigmoid(torch.from_numpy(generator.logistic(size=example.noise_draws).astype(np.float32)))
        levels = shift_timestep(uniform, model.config.timestep_shift)
        noise = torch.from_numpy(generator.standard_normal((len(levels) * side * side, channels), np.float32))
        branch = Branch(model, prefill(model, [context]), [(side, side)])
        for t, e in zip(levels, noise.view(len(levels), side * side, channels), strict=True):
            velocity = branch(((1 - t) * clean + t * e)[None], float(t))[0]
            mse += float((velocity - (e - clean)).square().mean(1).sum())
    return ce, mse


@pytest.mark.parametrize(
    ("kind", "shift"), [("text_to_image", 1.0), ("cot_image", 3.0), ("cot_text", 3.0), ("verify", 3.0)]
)
def test_the_loss_is_that_of_thinking_and_drawing(nano: Nano, kind: str, shift: float) -> None:
    nano.prepare_training(timestep_shift=shift, text_dropout=0.0)
    example = replace(corpus.sources(noise_draws=3)[kind](random.Random(2)), seed=9)
    ce_sum, ce_tokens, mse_sum, mse_tokens = numbers(nano, [example])
    with torch.no_grad():
        ce, mse = by_hand(nano, example)
    assert ce_sum == pytest.approx(ce, rel=1e-4, abs=1e-5)
    assert mse_sum == pytest.approx(mse, rel=1e-4, abs=1e-5)
    said = [text for text in (example.thought, example.answer) if text is not None]
    assert ce_tokens == sum(len(nano.tokenizer.encode(text)) + 1 for text in said)
    side = nano.image_size // nano.vae.downsample
    assert mse_tokens == (3 * side * side if example.target is not None else 0)


def test_a_thought_can_be_shown_without_being_learned(nano: Nano) -> None:
    example = replace(corpus.sources(noise_draws=1)["cot_image"](random.Random(0)), seed=1)
    shown = numbers(nano, [replace(example, learn_thought=False)])
    learned = numbers(nano, [example])
    assert shown[:2] == (0, 0) and learned[1] > 0
    assert shown[2:] == pytest.approx(learned[2:], rel=1e-5)


def test_text_dropout_takes_the_text_of_pictures_and_of_nothing_else(nano: Nano) -> None:
    batch = examples(28)
    never, always = 1e-12, 1.0
    nano.prepare_training(timestep_shift=1.0, text_dropout=always)
    dropped = numbers(nano, batch)
    nano.prepare_training(timestep_shift=1.0, text_dropout=never)  # draws the same random numbers
    bare = [replace(one, prompt="", thought=None) if one.target is not None else one for one in batch]
    assert dropped == pytest.approx(numbers(nano, bare), rel=1e-5)
    assert dropped[2] != pytest.approx(numbers(nano, batch)[2], rel=1e-4)


def test_gradients_reach_everything_but_the_vae_and_the_position_tables(nano: Nano) -> None:
    nano.train()
    loss = nano.supervised_loss(nano.collate(examples(14), seed=0))
    (loss.ce_sum + loss.mse_sum).backward()
    still = {name for name, p in nano.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    assert {name.split(".")[0] for name in still if "pos_embed" not in name} <= {"vae"}
