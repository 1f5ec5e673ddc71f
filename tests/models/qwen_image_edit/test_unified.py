"""Drawing equals diffusers' own pipelines; batches, groups and seeds; training; what cannot be meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import config_of, picture
from uni_train.core.errors import UserError
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.models.base import Example, Request, SkillMissing, Turn
from uni_train.models.diffusers import latents
from uni_train.models.load import build_model
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.training.trained import select_parameters

REQUESTS = [
    Request("tall", "make it red", (picture(0, 90, 40),), seed=1),
    Request("two", "put the first into the second, then turn it", (picture(1), picture(2, 64, 64)), seed=2),
    Request("sized", "bend", (picture(3),), seed=3, size=(32, 48), thought="a bent thing"),
    Request("wide", "erase the walls", (picture(4),), seed=4),
    Request("alike", "x", (picture(5),), seed=5),
    Request("words alone", "a red cat", seed=6),
]


@pytest.mark.parametrize(
    ("name", "positions", "scale", "images"),
    [
        ("qwen_image_edit", "sequential", 4.0, 1),
        ("qwen_image_edit_2509", "sequential", 4.0, 2),
        ("qwen_image_edit_2511", "sequential", 1.0, 1),
        ("qwen_image_edit_2511", "spatial", 4.0, 2),
    ],
)
def test_a_picture_equals_that_of_the_diffusers_pipeline(
    name, positions, scale, images, build, folder, two_others, small, monkeypatch
) -> None:
    plus, late = name != "qwen_image_edit", name.endswith("2511")
    model = build(folder if late else two_others[0 if plus else 1], name, positions=positions)
    model.sampling = replace(model.sampling, edit_text_scale=scale)
    pipeline = tiny.pipeline(plus, zero_cond_t=late)
    if positions == "spatial":  # what the pipelines do not tell: which tokens are images
        own, token = pipeline.text_encoder.forward, pipeline.processor.image_token
        told = lambda input_ids, **rest: own(input_ids, mm_token_type_ids=(input_ids == token).int(), **rest)  # noqa: E731
        monkeypatch.setattr(pipeline.text_encoder, "forward", told)
    request = Request("it", "make it red", tuple(picture(i, 50 + 20 * i, 80) for i in range(images)), seed=3)
    noise = model.noise([request])
    height, width = latents.fit_area(tiny.SIDE, *request.images[-1].shape[:2])
    asked = {
        "image": [Image.fromarray(image) for image in request.images] if plus else Image.fromarray(request.images[0]),
        "prompt": request.prompt,
        "negative_prompt": " " if scale > 1 else None,
        "true_cfg_scale": scale,
        "num_inference_steps": 3,
        "height": height,
        "width": width,
    }
    theirs = pipeline(**asked, latents=noise.clone(), output_type="latent").images
    assert torch.allclose(drawn(model, [request]), theirs, atol=1e-4, rtol=0)
    shown = np.asarray(pipeline(**asked, latents=noise.clone()).images[0])
    assert np.abs(model.draw([request])[0].astype(int) - shown).max() <= 1


@pytest.mark.parametrize(("name", "scale"), [("qwen_image_edit", 1.0), ("qwen_image_edit_2511", 4.0)])
def test_without_images_a_picture_equals_that_of_the_pipeline_of_qwen_image(
    name: str, scale: float, build, folder, two_others
) -> None:
    from diffusers import QwenImagePipeline

    late = name.endswith("2511")
    model = build(folder if late else two_others[1], name)
    model.sampling = replace(model.sampling, edit_text_scale=scale)
    parts = tiny.pipeline(late, zero_cond_t=late).components
    pipeline = QwenImagePipeline(**{part: value for part, value in parts.items() if part != "processor"})
    pipeline.set_progress_bar_config(disable=True)
    request = Request("it", "a red cat", seed=3)
    noise = model.noise([request])
    asked = {"prompt": request.prompt, "negative_prompt": " " if scale > 1 else None, "true_cfg_scale": scale}
    asked |= {"num_inference_steps": 3, "height": tiny.SIDE, "width": tiny.SIDE}
    theirs = pipeline(**asked, latents=noise.clone(), output_type="latent").images
    assert torch.allclose(drawn(model, [request]), theirs, atol=1e-4, rtol=0)


def drawn(model: QwenImageEdit, requests: list[Request]) -> torch.Tensor:
    """Latents before they are decoded."""
    found: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "decode", lambda x, condition: found.append(x) or [])
        model.draw(requests)
    return found[0]


def test_results_do_not_depend_on_the_batch(model: QwenImageEdit) -> None:
    together = drawn(model, REQUESTS)
    for row, request in enumerate(REQUESTS):
        alone = drawn(model, [request])[0]
        assert torch.allclose(together[row, : len(alone)], alone, atol=1e-4 * float(alone.abs().max()), rtol=0)
        assert not together[row, len(alone) :].any()
    pictures = model.draw(REQUESTS)
    assert [one.shape[:2] for one in pictures] == [(96, 32), (64, 64), (32, 48), (64, 96), (64, 96), (64, 64)]
    texts = model.think(REQUESTS[:2], temperature=1.0)
    assert texts == [model.think([request], temperature=1.0)[0] for request in REQUESTS[:2]]
    assert texts[0] != texts[1] and len(set(model.think(REQUESTS[:1] * 2, temperature=0.0))) == 1
    question = Request("q", "what is this?")
    assert model.answer([question, REQUESTS[0]])[0] == model.answer([question])[0]


def test_a_group_is_read_once_and_its_velocity_is_that_of_single_requests(model: QwenImageEdit) -> None:
    calls: Counter[str] = Counter()
    names = ("text_encoder.model.language_model", "text_encoder.model.visual", "vae.encoder")
    handles = [
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: calls.update([name])) for name in names
    ]
    condition = model.encode(REQUESTS[:2]).repeat(4)
    x = model.noise([request for request in REQUESTS[:2] for _ in range(4)])
    velocity = model.velocity(x, torch.linspace(0.9, 0.2, 8), condition)
    for handle in handles:
        handle.remove()
    assert [calls[name] for name in names] == [2, 2, 3], "sizes of images"
    assert len(condition) == 8 and len(condition.words) == 2
    part = model.velocity(x[5:6], torch.linspace(0.9, 0.2, 8)[5:6], condition.select([5]))
    assert torch.allclose(velocity[5:6], part, atol=1e-5)
    levels = Schedule.together([model.schedule(condition, row, steps=4) for row in range(8)]).levels
    assert levels.shape == (5, 8) and torch.equal(levels[:, 5], model.schedule(condition, 5, steps=4).levels)
    assert levels[0].eq(1).all() and levels[-1].eq(0).all()
    x.requires_grad_()
    model.velocity(x, 0.5, condition).square().mean().backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    assert x.grad is not None and x.grad.any()
    assert reached == set(select_parameters(model, "all")), "and none of these is without gradient"
    assert all(name.startswith("transformer.") for name in reached)


TURNS = (Turn(image=picture(2, 64, 64)), Turn("turn"), Turn(image=picture(3, 90, 40), learn=True))
EDITS = [
    Example("make it red", (picture(0),), target=picture(1), seed=1, noise_draws=2),
    Example(turns=(*TURNS, Turn("bend"), Turn(image=picture(4), learn=True)), seed=2),
]


def test_the_loss_is_the_error_of_the_velocity_on_noised_targets(model: QwenImageEdit) -> None:
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    both = model.supervised_loss(model.collate(EDITS, 0))
    parts = [model.supervised_loss(model.collate([one], 7)) for one in EDITS]
    assert both.mse_tokens == sum(part.mse_tokens for part in parts) == 2 * 24 + 12 + 24
    assert model.token_counts(model.collate(EDITS, 0)) == (0, 84) and both.ce_tokens == 0
    assert both.mse_sum.item() == pytest.approx(sum(part.mse_sum.item() for part in parts), rel=1e-5)
    again = model.collate(EDITS, 0)
    assert model.passes(again) == 3  # the three edits are of different sizes
    assert model.supervised_loss(again, passes=5).mse_sum.item() == both.mse_sum.item()

    batch = model.collate(EDITS[:1], 0)
    clean = model.latents.encode([latents.pixels(latents.resize(EDITS[0].target, (64, 96)))])[0]
    expected = 0.0
    condition = model.encode([Request("it", "make it red", EDITS[0].images)])
    unguided = replace(condition, empty=None)
    for noise, t in zip(batch.noise, batch.levels, strict=True):
        x_t = interpolate(clean, noise, t)[None]
        expected += (model.velocity(x_t, t, unguided)[0] - (noise - clean)).square().mean(-1).sum().item()
    assert parts[0].mse_sum.item() == pytest.approx(expected, rel=1e-5)
    assert model.example_tokens(EDITS[0]) == 2 * (24 + 24 + 6 + len("make it red"))


def test_words_alone_are_learned_as_they_are_drawn_and_beside_edits(model: QwenImageEdit) -> None:
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    alone = Example("a red cat", target=picture(1, 64, 64), seed=4)
    batch = model.collate([alone], 0)
    (noise,), (t,) = batch.noise, batch.levels
    clean = model.latents.encode([latents.pixels(picture(1, 64, 64))])[0]
    condition = replace(model.encode([Request("it", "a red cat")]), empty=None)
    error = model.velocity(interpolate(clean, noise, t)[None], t, condition)[0] - (noise - clean)
    loss = model.supervised_loss(batch)
    assert loss.mse_sum.item() == pytest.approx(error.square().mean(-1).sum().item(), rel=1e-5)
    both = model.supervised_loss(model.collate([EDITS[0], alone, EDITS[1]], 0)).mse_sum.item()
    edits = model.supervised_loss(model.collate(EDITS, 0)).mse_sum.item()
    assert both == pytest.approx(edits + loss.mse_sum.item(), rel=1e-5)
    talk = Example(turns=(Turn("a red cat"), Turn(image=picture(1, 64, 64), learn=True)), seed=4)
    assert model.supervised_loss(model.collate([talk], 0)).mse_sum.item() == loss.mse_sum.item()
    assert model.example_tokens(alone) == 16 + len("a red cat")


def test_what_is_left_out_depends_on_the_example_alone(build: Callable[..., QwenImageEdit]) -> None:
    many, model = [replace(EDITS[0], seed=seed, noise_draws=1) for seed in range(12)], build()
    model.prepare_training(timestep_shift=1.0, text_dropout=0.5, vit_dropout=0.5, vae_dropout=0.5)
    batch, again = model.collate(many, 0), model.collate(many[::-1], 0)
    assert {len(shown) for shown in batch.shown} == {0, 1} == {len(shape) - 1 for shape in batch.shapes}
    assert len({int(n) for n in batch.inputs["attention_mask"].sum(-1)}) == 4, "with words or not, seen or not"
    assert batch.shapes == again.shapes[::-1] and torch.equal(batch.levels, again.levels.flip(0))
    losses = [model.supervised_loss(one).mse_sum.item() for one in (batch, again)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_recomputed_activations_give_the_same_gradients(build: Callable[..., QwenImageEdit]) -> None:
    model = build()
    model.train()
    gradients = []
    for recomputed in (0, 1, 2):
        model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=recomputed)
        model.zero_grad()
        model.supervised_loss(model.collate(EDITS, 0)).mse_sum.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert gradients[0] and all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("r", " ", (picture(0),)), "request r has an empty prompt"),
        (Request("r", "<|image_pad|>", (picture(0),)), r"its prompt has the marker <\|image_pad\|> in it"),
        (Request("r", "x", (picture(0),), thought="a<|im_end|>"), r"its thought has the marker <\|im_end\|> in it"),
        (Request("r", "x", (picture(0, 1, 20_000),)), "an image of 1 x 20000 pixels .*, which is too long"),
        (Request("r", "x", (picture(0).astype(float),)), "request r, image 1: an image must be uint8"),
        (Request("r", "x", (picture(0),), size=(40, 50)), "cannot draw 40 x 50 pixels"),
    ],
)
def test_requests_that_cannot_be_meant_are_named(request_: Request, message: str, model: QwenImageEdit) -> None:
    for ask in (model.draw, model.encode):
        with pytest.raises(UserError, match=message) as caught:
            ask([REQUESTS[0], request_])
        assert caught.value.hint


def test_examples_skills_and_images_that_a_form_lacks(model: QwenImageEdit, build, two_others) -> None:
    shown = (picture(0),)
    for example, message in (
        (Example(" ", target=shown[0]), "there is no instruction"),
        (Example("x", shown, answer="y"), "there is no image to learn"),
        (Example("x", shown, target=shown[0], thought="y"), "its thought is to be learned"),
        (Example(turns=(Turn(image=shown[0]), Turn(image=shown[0], learn=True))), "there is no instruction"),
        (Example(turns=(Turn(image=shown[0]), Turn("t", learn=True))), "texts to be learned"),
        (Example("x", (picture(0, 20_000, 1),), target=shown[0]), "an image of 20000 x 1 pixels .*, which is too long"),
        *(
            (example, re.escape(f"its text has the marker {marker} in it"))
            for marker in tiny.MARKERS
            for example in (
                Example(f"a {marker}", shown, target=shown[0]),
                Example("x", shown, target=shown[0], thought=f"{marker} b", learn_thought=False),
                Example(turns=(Turn(image=shown[0]), Turn(f"a{marker}b"), Turn(image=shown[0], learn=True))),
            )
        ),
    ):
        with pytest.raises(UserError, match=message):
            model.example_tokens(example)
    with pytest.raises(SkillMissing, match="think before it answers"):
        model.answer(REQUESTS, think=True)
    with pytest.raises(UserError, match="request two shows 2 images, but qwen_image_edit takes one"):
        build(two_others[1], "qwen_image_edit").draw(REQUESTS)


@torch.no_grad()
def test_larger_images_go_through_the_vae_in_tiles(model: QwenImageEdit, folder: Path) -> None:
    """diffusers' own tiling: images of one tile are the same, larger ones nearly."""
    tiled = build_model(replace(config_of(folder), vae_tile=64))
    stride = model.latents.stride
    for side, same in ((64, True), (128, False)):
        image = torch.from_numpy(picture(0, side, side)).permute(2, 0, 1)
        (whole,), (parts,) = (one.latents.encode([image]) for one in (model, tiled))
        assert whole.shape == parts.shape == ((side // stride) ** 2, model.latents.channels)
        assert torch.equal(whole, parts) == same
        grid = side // stride, side // stride
        drawn, again = (one.latents.decode(whole[None], [grid])[0].astype(int) for one in (model, tiled))
        assert drawn.shape == again.shape == (side, side, 3) and (abs(drawn - again).max() == 0) == same
