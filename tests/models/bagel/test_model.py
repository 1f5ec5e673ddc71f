"""What must hold for any BAGEL, checked on small random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.bagel.conftest import noised
from uni_train.flow.guidance import Guidance
from uni_train.models.bagel import generation
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, LlmConfig, SpecialTokens, VitConfig
from uni_train.models.bagel.generation import guidance_contexts, prefill, read_contexts, sample_latents
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import sincos_table


def toy(**changes):
    return BagelConfig(
        llm=LlmConfig(40, 32, 64, 2, 4, 2),
        vit=VitConfig(16, 32, 1, 2, patch_size=8, image_size=24),
        tokens=SpecialTokens(0, 1, 2, 3),
        latent_patch_size=1,
        max_latent_size=3,
        vit_max_num_patch_per_side=3,
        **changes,
    )


def fresh(**changes):
    model = Bagel(toy(**changes))
    model.init_weights(0)
    torch.nn.init.normal_(model.llm2vae.weight, std=0.2, generator=torch.Generator().manual_seed(1))
    return model


def picture(kind, seed, **about):
    draw = np.random.default_rng(seed)
    if kind is VitImage:
        return VitImage((3, 3), draw.standard_normal((9, 192), np.float32), **about)
    return VaeImage((3, 3), torch.from_numpy(draw.standard_normal((9, 16), np.float32)), **about)


@pytest.mark.parametrize("attention", ("eager", "sdpa"))
@pytest.mark.parametrize("img_scale", (1.0, 2.0))
def test_one_pass_of_guidance_equals_separate_ones(monkeypatch, attention, img_scale):
    """Contexts of different lengths, images of different sizes, guidance at some of the noise levels."""
    model = fresh(attention=attention).eval()
    guidance = Guidance(text_scale=3.0, img_scale=img_scale, interval=(0.4, 1.0))
    text, image = Text([5, 6, 7]), picture(VitImage, 1)
    contexts = read_contexts(
        model, [guidance_contexts([image, text]), guidance_contexts([text, Text([9] * 5)])], [(3, 3), (2, 3)], guidance
    )
    noise = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
    noise[1, 6:] = 0
    passes, drawn = {}, {}
    for name, limit in (("one", 18), ("separate", 17)):
        monkeypatch.setattr(generation, "ONE_PASS", limit)
        calls = []
        hook = model.language_model.model.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        drawn[name] = sample_latents(model, contexts, noise, num_timesteps=5, timestep_shift=1.0)
        hook.remove()
        passes[name] = len(calls)
    assert passes == {"one": 4, "separate": 4 + 3 * (1 if img_scale == 1 else 2)}
    torch.testing.assert_close(drawn["one"], drawn["separate"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ("text", "image"))
def test_weights_without_tokens_cost_nothing_and_the_others_all_learn(kind):
    """Text alone skips the generation weights; an image has markers, which are understanding tokens."""
    model = fresh()
    sample = [Text([5, 6], loss=True)] if kind == "text" else [picture(VaeImage, 0, noised=True)]
    out = model(noised(pack([[encode(sample, model.config)]], model.config)))
    (out.ce.sum() + out.mse.sum()).backward()
    for name, parameter in model.language_model.model.layers.named_parameters():
        skipped = kind == "text" and "moe_gen" in name
        assert (parameter.grad is None) == skipped, name


def test_built_on_the_meta_device():
    with torch.device("meta"):
        model = Bagel(toy())
    model.to_empty(device="cpu")
    model.init_weights(5)
    again = Bagel(toy())
    again.init_weights(5)
    for (name, ours), theirs in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    assert torch.equal(model.latent_pos_embed.pos_embed, sincos_table(32, 3))


def test_keys_and_images_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="unknown key 'layers'"):
        BagelConfig.from_dict(toy().to_dict() | {"layers": 3})
    with pytest.raises(ValueError, match="does not fit the position table"):
        encode([VaeImage((4, 3))], toy())
    with pytest.raises(ValueError, match="grid asks for"):
        encode([VaeImage((2, 3), torch.zeros(5, 16))], toy())
    with pytest.raises(ValueError, match="noised"):
        prefill(fresh(), [[picture(VaeImage, 0, noised=True)]])


def test_text_is_not_read_apart_where_latents_reach_it():
    clean = [picture(VaeImage, 0), Text([5]), picture(VaeImage, 1, noised=True)]
    unequal = [[Text([5]), picture(VaeImage, 0, noised=True)], [Text([6])]]
    assert pack([[encode(clean, toy())]], toy()).prefix_split is None
    assert pack([[encode(sample, toy())] for sample in unequal], toy()).prefix_split is None
    model = fresh()
    assert not model.reads_frozen()  # all weights are trained
