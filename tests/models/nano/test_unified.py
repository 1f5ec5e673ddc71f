"""nano as a UnifiedModel: requests are answered as if asked alone, and a batch's sums are those of its parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.flow.schedule import shift_timestep
from uni_train.models.bagel.generation import Branch, prefill
from uni_train.models.bagel.packing import Text, VitImage
from uni_train.models.base import Example, Request, SupervisedLoss
from uni_train.models.nano import corpus, language
from uni_train.models.nano.nano import Nano


def requests(count: int, *, thought: bool = False, image: bool = False) -> list[Request]:
    """Prompts of many lengths: every task and level."""
    found = []
    for i in range(count):
        item = get_task(("maths", "mapping")[i % 2], "nano").sample(i, 1 + i % 3)[0]
        found.append(
            Request(
                item.id,
                item.prompt,
                images=(sprites.render(item.facts["object"], 1 + i % 6, i),) if image else (),
                thought=item.thought if thought else None,
                seed=1000 + i,
            )
        )
    return found


def examples(count: int, draws: int = 2) -> list[Example]:
    makers = list(corpus.sources(draws).values())
    return [replace(makers[i % len(makers)](random.Random(i)), seed=70 + i) for i in range(count)]


def loss_of(nano: Nano, batch: Sequence[Example]) -> SupervisedLoss:
    with torch.no_grad():
        return nano.supervised_loss(nano.collate(batch, seed=0))


def numbers(loss: SupervisedLoss) -> tuple[float, float, float, float]:
    return float(loss.ce_sum), float(loss.ce_tokens), float(loss.mse_sum), float(loss.mse_tokens)


# --- asking ---------------------------------------------------------------------------------------------------------


def test_sampled_thoughts_depend_on_the_seed_and_not_on_the_batch(nano: Nano) -> None:
    asked = [replace(one, seed=i // 2) for i, one in enumerate([requests(1)[0]] * 8)]
    texts = nano.think(asked, temperature=1.0)
    assert texts[::2] == texts[1::2] and len(set(texts)) == 4
    assert [nano.think([one], temperature=1.0)[0] for one in asked] == texts
    assert len(set(nano.think(asked, temperature=0.0))) == 1
    assert len(set(nano.think(asked))) == 1  # nano's own temperature is 0


def test_asking_leaves_the_global_random_numbers_alone(nano: Nano) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    expected = (float(torch.rand(())), np.random.random())
    torch.manual_seed(5)
    np.random.seed(5)
    nano.think(requests(2), temperature=1.0)
    nano.draw(requests(2))
    nano.collate(examples(14), seed=0)
    assert (float(torch.rand(())), np.random.random()) == expected


def test_how_nano_wants_to_be_asked_is_what_it_was_taught(nano: Nano) -> None:
    row = corpus.sources(1)["verify"](random.Random(0))
    question = row.prompt.removeprefix("Question : ").removesuffix(" Is the image right ?")
    assert nano.verification_prompt(question) == row.prompt
    assert nano.verification_prompt("Draw {x} .") == language.VERIFY_PROMPT.replace("{question}", "Draw {x} .")


# --- training -------------------------------------------------------------------------------------------------------


def test_losses_do_not_depend_on_the_order_of_examples(nano: Nano) -> None:
    batch = examples(42)
    shuffled = random.Random(1).sample(batch, len(batch))
    assert numbers(loss_of(nano, shuffled)) == pytest.approx(numbers(loss_of(nano, batch)), rel=1e-5)


def test_the_seed_of_the_batch_does_not_matter_and_those_of_examples_do(nano: Nano) -> None:
    batch = examples(14)
    with torch.no_grad():
        first, second = (numbers(nano.supervised_loss(nano.collate(batch, seed))) for seed in (1, 2))
    assert first == second
    reseeded = numbers(loss_of(nano, [replace(one, seed=one.seed + 1) for one in batch]))
    assert reseeded[0] == pytest.approx(first[0], rel=1e-6) and reseeded[2] != pytest.approx(first[2], rel=1e-4)


@pytest.mark.parametrize("parts", [3, 14])
def test_the_parts_of_a_batch_add_up(nano: Nano, parts: int) -> None:
    """As micro-batches and ranks take them, every n-th example; and each example alone."""
    batch = examples(14)
    split = [numbers(loss_of(nano, batch[i::parts])) for i in range(parts)]
    assert [sum(column) for column in zip(*split, strict=True)] == pytest.approx(
        numbers(loss_of(nano, batch)), rel=1e-5
    )


def test_tokens_are_counted_before_the_forward_pass_as_after_it(nano: Nano) -> None:
    batch = nano.collate(examples(21), seed=0)
    with torch.no_grad():
        loss = nano.supervised_loss(batch)
    assert nano.token_counts(batch) == (int(loss.ce_tokens), int(loss.mse_tokens))


def by_hand(nano: Nano, example: Example) -> tuple[float, float]:
    """CE and velocity error of one example, from the path that thinks and draws, one token and one image at a time."""
    model, tokenizer = nano.bagel, nano.tokenizer
    marks = model.config.tokens
    side = nano.image_size // nano.vae.downsample
    context = []
    for image in example.images:
        context.append(VitImage((side, side), nano._patches(image)))
    if example.thought is not None:
        context.append(Text(tokenizer.encode(language.THINK_SYSTEM)))
    context.append(Text(tokenizer.encode(example.prompt)))
    ce = 0.0
    for text in (example.thought, example.answer):
        if text is None:
            continue
        ids = tokenizer.encode(text)
        for i, following in enumerate([*ids, marks.eos]):
            hidden = prefill_hidden(nano, context, [marks.bos, *ids[:i]])
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
        noise = torch.from_numpy(
            generator.standard_normal((example.noise_draws * side * side, channels), np.float32)
        ).view(example.noise_draws, side * side, channels)
        branch = Branch(model, prefill(model, [context]), [(side, side)])
        for t, e in zip(levels, noise, strict=True):
            velocity = branch(((1 - t) * clean + t * e)[None], float(t))[0]
            mse += float((velocity - (e - clean)).square().mean(1).sum())
    return ce, mse


def prefill_hidden(nano: Nano, context: list, ids: list[int]) -> torch.Tensor:
    """The last hidden state after the context and an unfinished text."""
    model = nano.bagel
    cache = prefill(model, [context]).grown(len(ids))
    x = model.language_model.model.embed_tokens(torch.tensor([ids]))
    rope = cache.next_rope[:, None] + torch.arange(len(ids))
    allowed = torch.cat([cache.valid[:, None].expand(1, len(ids), -1), torch.ones(1, len(ids), len(ids)).tril() > 0], 2)
    from uni_train.models.bagel.attention import prepare_bool

    attend = prepare_bool(allowed[:, None], model.config.attention, x.dtype)
    hidden, _ = model.language_model.model(x, x[:, :0], rope, rope[:, :0], attend, cache)
    return hidden[0, -1]


@pytest.mark.parametrize("kind", ["text_to_image", "cot_image", "cot_text", "maths_answer", "caption", "verify"])
@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_the_loss_is_that_of_thinking_and_drawing(nano: Nano, kind: str, shift: float) -> None:
    nano.prepare_training(timestep_shift=shift, text_dropout=0.0)
    example = replace(corpus.sources(noise_draws=3)[kind](random.Random(2)), seed=9)
    ce_sum, ce_tokens, mse_sum, mse_tokens = numbers(loss_of(nano, [example]))
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
    shown = numbers(loss_of(nano, [replace(example, learn_thought=False)]))
    learned = numbers(loss_of(nano, [example]))
    assert shown[:2] == (0, 0) and learned[1] > 0
    assert shown[2:] == pytest.approx(learned[2:], rel=1e-5)


def test_noise_draws_share_the_text_and_have_levels_of_their_own(nano: Nano) -> None:
    example = replace(corpus.sources(noise_draws=5)["cot_image"](random.Random(0)), seed=1)
    (batch,) = nano.collate([example], seed=0)
    side = nano.image_size // nano.vae.downsample
    assert len(batch.mse_index) == 5 * side * side and batch.rows == 1
    assert len(set(batch.logit.tolist())) == 5
    assert batch.noise_BGC is not None
    assert len(torch.unique(batch.noise_BGC[0], dim=0)) == 5 * side * side
    assert len(torch.unique(batch.clean_BGC[0], dim=0)) <= side * side
    once = numbers(loss_of(nano, [replace(example, noise_draws=1)]))
    assert numbers(loss_of(nano, [example]))[:2] == pytest.approx(once[:2], rel=1e-5)


def test_text_dropout_takes_the_text_of_pictures_and_of_nothing_else(nano: Nano) -> None:
    batch = examples(28)
    never, always = 1e-12, 1.0
    nano.prepare_training(timestep_shift=1.0, text_dropout=always)
    dropped = numbers(loss_of(nano, batch))
    nano.prepare_training(timestep_shift=1.0, text_dropout=never)  # draws the same random numbers
    bare = [replace(one, prompt="", thought=None) if one.target is not None else one for one in batch]
    assert dropped == pytest.approx(numbers(loss_of(nano, bare)), rel=1e-5)
    assert dropped[2] != pytest.approx(numbers(loss_of(nano, batch))[2], rel=1e-4)


def test_text_dropout_takes_the_share_that_was_asked_for(nano: Nano) -> None:
    nano.prepare_training(timestep_shift=1.0, text_dropout=0.3)
    row = corpus.sources(noise_draws=1)["text_to_image"](random.Random(0))
    batch = nano.collate([replace(row, seed=seed) for seed in range(1000)], seed=0)
    lengths = torch.cat([part.und_valid.sum(1) for part in batch])
    assert 0.25 < float((lengths == lengths.min()).float().mean()) < 0.35
    assert len(set(lengths.tolist())) == 2


def test_gradients_reach_everything_but_the_vae_and_the_position_tables(nano: Nano) -> None:
    nano.train()
    loss = nano.supervised_loss(nano.collate(examples(14), seed=0))
    (loss.ce_sum + loss.mse_sum).backward()
    still = {name for name, p in nano.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    assert {name.split(".")[0] for name in still if "pos_embed" not in name} <= {"vae"}
