"""BAGEL as a UnifiedModel, on the tiny official weights: batches, editing, sizes, one reading, hooks, errors."""

# ruff: noqa: F811  (the fixture `vae` is imported for those who import it from here)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.models.bagel.conftest import vae  # noqa: F401
from uni_train.config.compose import compose
from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import UserError
from uni_train.flow.euler import euler_step
from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import inference_timesteps
from uni_train.models.bagel.caches import KVCache
from uni_train.models.bagel.unified import BagelUnified, Speech
from uni_train.models.base import Request, SkillMissing

SYSTEM = "201 202 203"
SAMPLING = SamplingConfig(
    steps=4, timestep_shift=3.0, cfg_text_scale=4.0, edit_text_scale=4.0, edit_img_scale=2.0, max_think_tokens=9
)
EDITING = Guidance(text_scale=4.0, img_scale=2.0, interval=(0.0, 1.0), renorm="text_channel")


class Numbers:
    """Token ids as text: "5 6" is [5, 6]."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


@pytest.fixture(scope="module")
def bagel(tiny_model, vae) -> BagelUnified:
    return unified(tiny_model(), vae)


def unified(model, vae, tokenizer=None) -> BagelUnified:
    speech = Speech(SYSTEM, answer_system="204 205")
    return BagelUnified("tiny", model, vae, tokenizer or Numbers(), speech, SAMPLING, image_size=48).eval()


def picture(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def mixed() -> list[Request]:
    """Prompts of many lengths; pictures of several sizes; with and without input images, one or two."""
    return [
        Request("a", "5 6 7", seed=1),
        Request("b", "8 9 10 11 12 13", seed=2, size=(32, 64)),
        Request("c", "14 15", (picture(0, 48, 64),), seed=3),
        Request("d", "16 17 18 19", (picture(1, 90, 30), picture(2, 20, 50)), seed=4),
        Request("e", "20", seed=5, size=(64, 32)),
        Request("f", "21 22 23", (picture(3, 48, 64),), seed=6, size=(48, 48)),
    ]


def apart(ours: np.ndarray, theirs: np.ndarray) -> int:
    assert ours.shape == theirs.shape
    return int(np.abs(ours.astype(int) - theirs).max())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_do_not_depend_on_the_batch(bagel, temperature):
    asked = mixed()
    together = bagel.think(asked, temperature)
    assert len(set(together)) == len(asked)
    assert [bagel.think([one], temperature)[0] for one in asked] == together
    assert bagel.think(asked[::-1], temperature) == together[::-1]
    words = [one for one in asked if not one.images]  # latents of images are sampled, also at temperature 0
    other = bagel.think([replace(one, seed=one.seed + 100) for one in words], temperature)
    assert (other == bagel.think(words, temperature)) == (temperature == 0)
    answers = bagel.answer(asked)
    assert [bagel.answer([one])[0] for one in asked] == answers


def test_pictures_do_not_depend_on_the_batch_and_have_the_right_sizes(bagel):
    asked = [replace(one, thought="30 31" if i % 2 else None) for i, one in enumerate(mixed())]
    together = bagel.draw(asked)
    # The last image decides where nobody asks: 20 x 50 is enlarged to 48 on its long side.
    assert [image.shape[:2] for image in together] == [(48, 48), (32, 64), (32, 48), (16, 48), (64, 32), (48, 48)]
    for one, image, again in zip(asked, together, bagel.draw(asked[::-1])[::-1], strict=True):
        assert image.dtype == np.uint8 and apart(image, again) <= 1
        assert apart(bagel.draw([one])[0], image) <= 1


def test_a_picture_depends_on_all_of_its_request_and_on_nothing_else(bagel):
    one = mixed()[2]
    first = bagel.draw([one])[0]
    torch.manual_seed(7)
    assert (bagel.draw([replace(one, id="other")])[0] == first).all()
    for changed in (
        replace(one, prompt="14 16"),
        replace(one, images=(picture(9, 48, 64),)),
        replace(one, thought="30"),
        replace(one, seed=4),
    ):
        assert apart(bagel.draw([changed])[0], first) > 1


class Lossy(Numbers):
    """Does not give back the ids that a text was decoded from, as BPE does not always."""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(i) for i in ids if i % 2)


@pytest.mark.parametrize("tokenizer", [Numbers(), Lossy()])
def test_thinking_then_drawing_is_the_same_in_one_go(tokenizer, tiny_model, vae):
    """A thought that reads differently from how it was written is read again."""
    bagel, asked = unified(tiny_model(), vae, tokenizer), mixed()
    thoughts, images = bagel.think_and_draw(asked)
    assert thoughts == bagel.think(asked)
    drawn = bagel.draw([replace(one, thought=text) for one, text in zip(asked, thoughts, strict=True)])
    assert max(apart(a, b) for a, b in zip(images, drawn, strict=True)) <= 1


def test_nothing_is_read_twice(bagel):
    asked = mixed()
    for request, thought in zip(asked, bagel.think(asked), strict=True):
        read = texts = 3 + 2 + len(request.prompt.split()) + 2
        for image in request.images:
            height, width = bagel.vae_transform.target_size(*image.shape[:2])
            vit = bagel.vit_transform.target_size(height, width)
            read += height * width // 16**2 + 2 + vit[0] * vit[1] // 14**2 + 2
        read += len(thought.split()) + 2
        read += texts if request.images else 0  # guidance by images needs the texts without them
        thoughtful = replace(request, thought=thought)
        for ask in (lambda one=request: bagel.think_and_draw([one]), lambda one=thoughtful: bagel.encode([one])):
            assert tokens_read(bagel, ask) == read


def tokens_read(bagel, ask) -> int:
    """Tokens that went through the decoder to be remembered, not to be denoised."""
    remembered = []
    commit = KVCache.commit

    def counting(self, valid, *more):
        remembered.append(valid.shape[1])
        commit(self, valid, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KVCache, "commit", counting)
        ask()
    return sum(remembered)


@pytest.mark.parametrize("rows", [(0, 1, 4), (2, 3, 5)])
def test_the_hooks_draw_what_draw_draws(bagel, rows):
    asked = [replace(mixed()[row], thought="30 31") for row in rows]
    condition, x = bagel.encode(asked), bagel.noise(asked)
    times = inference_timesteps(bagel.sampling.steps + 1, bagel.sampling.timestep_shift).tolist()
    with torch.no_grad():
        for t, t_next in pairwise(times):
            x = euler_step(x, bagel.velocity(x, t, condition), t, t_next)
    for ours, theirs in zip(bagel.decode(x, condition), bagel.draw(asked), strict=True):
        assert apart(ours, theirs) <= 1


def test_a_group_shares_its_reading_and_every_row_has_its_own_noise_level(bagel):
    asked = mixed()[2:4]
    condition = bagel.encode(asked).repeat(3)
    assert len(condition) == 6 and condition.grids[:3] == (condition.grids[0],) * 3
    noise = torch.cat([bagel.noise([replace(one, seed=s) for s in range(3)]) for one in asked[:1]])
    x = torch.cat([noise, noise])
    t = torch.tensor([1.0, 0.7, 0.3, 0.9, 0.5, 0.1])
    guided = replace(condition, guidance=replace(EDITING, interval=(0.4, 1.0)))
    with torch.no_grad():
        together = bagel.velocity(x, t, guided)
        for row in range(6):
            alone = bagel.velocity(x[row : row + 1], float(t[row]), guided.select([row]))
            torch.testing.assert_close(alone, together[row : row + 1, : alone.shape[1]], rtol=1e-4, atol=1e-4)


def test_gradients_reach_the_drawing_weights_and_the_latents(tiny_model, vae):
    bagel = unified(tiny_model(), vae)
    condition = bagel.encode(mixed()[2:3])
    x = bagel.noise(mixed()[2:3]).requires_grad_()
    v = bagel.velocity(x, 0.8, condition)
    with torch.no_grad():
        torch.testing.assert_close(bagel.velocity(x, 0.8, condition), v.detach(), rtol=1e-5, atol=1e-5)
    v.square().sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    weights = {name for name, p in bagel.bagel.named_parameters() if p.grad is not None and p.grad.abs().sum()}
    assert "language_model.model.layers.0.self_attn.q_proj_moe_gen.weight" in weights
    assert not any(name.startswith(("vit_model", "connector")) for name in weights)  # read without gradients
    assert all(not cache.requires_grad for cache in condition.full.keys)


def test_image_guidance_does_nothing_without_text_guidance(bagel, tiny_model, vae):
    one = mixed()[2]
    plain, odd = unified(tiny_model(), vae), unified(tiny_model(), vae)
    plain.sampling = replace(plain.sampling, edit_text_scale=1.0, edit_img_scale=1.0)
    odd.sampling = replace(odd.sampling, edit_text_scale=0.5, edit_img_scale=3.0)
    assert (plain.draw([one])[0] == odd.draw([one])[0]).all()


def test_the_settings_of_bagel_7b_are_those_of_the_released_notebook(tiny_model, vae):
    model = unified(tiny_model(), vae)
    model.sampling = sampling = compose("stars_curriculum", ["model=bagel_7b"]).model.sampling
    assert len(inference_timesteps(sampling.steps + 1, sampling.timestep_shift)) == 50
    assert model.guidance(images=False) == Guidance(4.0, 1.0, (0.4, 1.0), "global", 0.0)
    assert model.guidance(images=True) == Guidance(4.0, 2.0, (0.0, 1.0), "text_channel", 0.0)
    assert sampling.max_think_tokens + 1 == 1000 and sampling.timestep_shift == 3.0


def test_input_images_are_read_by_vae_and_vit_to_draw_and_by_the_vit_alone_to_answer(bagel):
    one = mixed()[2]
    (full, no_text, no_images) = bagel._contexts([one], think=True)[0]
    assert [type(segment).__name__ for segment in full] == ["Text", "VaeImage", "VitImage", "Text"]
    assert [list(t.ids) for t in full[::3]] == [[201, 202, 203], [14, 15]]
    assert no_text == full[:3] and no_images == [full[0], full[3]]
    assert bagel.answer([one]) != bagel.answer([replace(one, images=())])
    assert bagel.answer([one], think=True) != bagel.answer([one])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prompt": " \n"}, "request x has an empty prompt"),
        ({"prompt": " ".join(["5"] * 511)}, "tokens, but tiny reads 512"),
        ({"size": (40, 48)}, "request x: tiny cannot draw 40 x 48"),
        ({"size": (48, 1024)}, "the nearest is 48 x 128"),
        ({"images": (np.zeros((4, 4), np.uint8),)}, "request x, image 1"),
        ({"images": (np.broadcast_to(np.uint8(0), (20_000, 20_000, 3)),)}, "20000 x 20000 pixels"),
    ],
)
def test_requests_that_cannot_be_meant_are_named(bagel, changes, says):
    request = replace(Request("x", "5 6"), **changes)
    for ask in (bagel.draw, bagel.think, bagel.encode, bagel.answer, bagel.think_and_draw):
        with pytest.raises(UserError) as error:
            ask([Request("fine", "5"), request] if not request.images else [request])
        assert says in str(error.value) and "request x" in str(error.value)


def test_texts_stop_where_the_context_ends(bagel):
    most = bagel.bagel.config.llm.max_position_embeddings
    long = Request("long", " ".join(["5"] * (most - 8)))
    assert len(bagel.answer([long])[0].split()) <= 4
    assert bagel.answer([long, mixed()[0]])[1] == bagel.answer(mixed()[:1])[0]


def test_requests_that_cannot_go_together_and_none(bagel, tiny_model, vae):
    with pytest.raises(UserError, match="input images"):
        bagel.encode(mixed()[1:3])
    silent = unified(tiny_model(), vae)
    silent.speech = replace(silent.speech, answer_system=None)
    with pytest.raises(SkillMissing, match="think before it answers"):
        silent.answer(mixed()[:1], think=True)
    assert bagel.draw([]) == [] and bagel.think_and_draw([]) == ([], [])
    assert bagel.think([]) == [] and bagel.answer([]) == []
