"""Texts that frozen weights have read are kept: the same losses, gradients and bits, whatever was read before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.bagel.conftest import noised
from tests.models.bagel.test_model import fresh, picture, toy
from tests.training.keys import given, killed_after
from uni_train.config.compose import compose
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.config import GENERATION_NAMES
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack, read_first
from uni_train.models.bagel.prefixes import PrefixStore
from uni_train.models.base import Example, Request, States
from uni_train.models.load import build_model
from uni_train.training.curriculum import Constant
from uni_train.training.distillation import Lesson
from uni_train.training.fit import fit_supervised

IMAGE = picture(VaeImage, 0, noised=True, logit=0.3)
SHORT, LONG, SYSTEM = Text([5, 6, 7]), Text([8] * 20, loss=True), Text([9, 10])


def frozen():
    """A small model of which the generation weights alone are trained."""
    model = fresh()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(part in name for part in GENERATION_NAMES))
    return model


def packed(*rows):
    """A batch; each row has samples, each of them texts before a noised image."""
    encoded = [[encode([*texts, IMAGE], toy()) for texts in row] for row in rows]
    return noised(pack(encoded, toy()))


def learned(model, batch):
    """Losses of a batch, and the gradients of them."""
    model.zero_grad()
    out = model(batch)
    (out.mse.sum() + out.ce.sum()).backward()
    return {"mse": out.mse, "ce": out.ce} | {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def calls_of(model):
    """Of each call of the decoder from now on: rows, understanding tokens, latent tokens."""
    calls = []
    model.language_model.model.register_forward_pre_hook(
        lambda _, inputs: calls.append((*inputs[0].shape[:2], inputs[1].shape[1]))
    )
    return calls


def kept(model, texts, **bound):
    """A store of these texts for a model."""
    return PrefixStore(model.language_model.model, "auto", map(read_first, texts), **bound)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_kept_texts_give_the_losses_and_gradients_of_one_pass(recompute, autocast):
    """Rows of several samples, without text, with a text that is supervised; a text that is kept is read once.

    Without a store, the text is read apart from the latents: here before two noised images and behind a ViT image.
    """
    images = [picture(VaeImage, seed, noised=True, logit=0.3) for seed in (1, 2)]
    samples = [[SHORT, *images], [LONG, *images], [picture(VitImage, 4), SYSTEM, *images]]
    batches = [
        packed([[SHORT], [SYSTEM, LONG]], [[], [SHORT]]),
        packed([[LONG]], [[SYSTEM, LONG]], [[]], [[SHORT]]),
        noised(pack([[encode(sample, toy())] for sample in samples], toy())),
    ]
    assert batches[2].prefix_split is not None and batches[2].prefix_split[1].shape == (3, 4)
    model, apart, whole = frozen(), frozen(), frozen()
    model.prefixes = kept(model, [encode([SHORT], toy()), encode([SYSTEM, LONG], toy())])
    calls = calls_of(model)
    for one in (model, apart, whole):
        one.checkpoint_layers(recompute)
    whole.use_all_weights(True)
    assert apart.reads_frozen() and not whole.reads_frozen()
    close = {"rtol": 0.1, "atol": 0.05} if autocast else {"rtol": 1e-4, "atol": 1e-5}
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            expected = learned(whole, batch)
            results = [learned(one, batch) for one in (model, apart)]
        for result in results:
            assert result.keys() == expected.keys()
            for name, value in expected.items():
                torch.testing.assert_close(result[name], value, **close, msg=lambda m, n=name: f"{n}: {m}")
    assert calls[:4] == [(2, 26, 0), (2, 4, 18), (1, 22, 0), (4, 2, 9)], "texts, then markers and latents"


def test_what_other_weights_have_read_is_forgotten():
    other = frozen()
    other.init_weights(3)
    batch, model = packed([[SHORT]]), frozen()
    expected = learned(other, batch)
    model.prefixes = kept(model, [encode([SHORT], toy())])
    learned(model, batch)
    model.load_state_dict(other.state_dict())
    found = learned(model, batch)
    assert all(torch.allclose(found[name], value, rtol=1e-4, atol=1e-5) for name, value in expected.items())


def test_a_bound_keeps_the_first_texts():
    model = frozen()
    a, b, c = (Text([word] * 3) for word in (5, 6, 7))
    text = 2 * 5 * 2 * 2 * 8 * 4 + 5 * 32 * 4  # bytes of five tokens: keys and values of two layers, hidden states
    model.prefixes = kept(model, [encode([one], toy()) for one in (a, b, a, c)], most_bytes=2 * text)
    calls = calls_of(model)
    for one in (a, b, c, a, b, c):
        model(packed([[one]]))
    assert [call[:2] for call in calls if not call[2]] == [(2, 5), (1, 5), (1, 5)], "a and b together, c twice"


def test_a_text_is_kept_only_where_no_image_is_shown():
    clean = [picture(VaeImage, 0), SHORT, IMAGE]
    seen = [picture(VitImage, 0), SHORT, IMAGE]
    assert all(pack([[encode(sample, toy())]], toy()).prefixes is None for sample in (clean, seen, [IMAGE], [SHORT]))


def test_the_text_of_an_example_is_what_its_batch_reads():
    model = build_model(compose("stars_mapping").model)
    (item, *_) = get_task("mapping", "nano").generate(2, 2, "train", 0)
    told = Request(item.id, item.prompt, thought=item.thought)
    zeros = np.zeros((1, 9, 8), np.float32)
    states = States(np.array([0.5]), zeros, zeros, (24, 24))
    image = np.zeros((24, 24, 3), np.uint8)
    examples = [Example(item.prompt, target=image), Example(item.prompt, thought=item.thought, target=image)]
    examples += [Lesson(told, None, 1, thinks=thinks).example(states) for thinks in (False, True)]
    texts = [model.examples.prefix(example) for example in examples]
    assert texts == [model.collate([example], 0)[0].prefixes[0][0] for example in examples]
    assert texts[:2] == texts[2:] and texts[0] != texts[1]


def test_a_training_that_continues_has_the_bits_of_one_that_never_stopped(tmp_path):
    """Its texts are read anew, in the same groups."""
    items = get_task("mapping", "nano").generate(6, 2, "train", 0)
    blank = np.zeros((24, 24, 3), np.uint8)
    rows = [Example(item.prompt, target=blank, noise_draws=2) for item in items]

    def train(name):
        model = build_model(compose("stars_mapping").model)
        model.prepare_training(timestep_shift=4.0, text_dropout=0.3)
        calls = calls_of(model.bagel)
        asked = given(progress=False, trained="moe_gen", updates=4, rows=5, checkpoint_every=2)
        fit_supervised(model, {"a": rows}, Constant({"a": 1}), directory=tmp_path / name, **asked)
        assert model.bagel.prefixes is None and [call[0] for call in calls if not call[2]] == [12], "all at once"
        return model.state_dict()

    whole = train("whole")
    with killed_after(2):
        train("parts")
    parts = train("parts")
    assert all(torch.equal(whole[name], value) for name, value in parts.items())
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "parts/metrics.jsonl").read_bytes()
