"""Prefill, text generation and image sampling against the official implementation.

Contexts with a VAE image need the autoencoder and are compared where that is tested.
"""

from __future__ import annotations

import pytest
import torch

from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import inference_timesteps
from uni_train.models.bagel.generation import (
    Branch,
    Conditions,
    Denoiser,
    KVCache,
    generate_text,
    guidance_contexts,
    prefill,
    sample_latents,
)
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import patchify


def vit_segment(image, config):
    p = config.vit.patch_size
    return VitImage((image.shape[1] // p, image.shape[2] // p), patchify(image, p).numpy())


def padded_rows(packed, counts):
    """[sum of counts, C] -> [B, longest, C], zeros behind."""
    return torch.nn.utils.rnn.pad_sequence(list(packed.split(counts)), batch_first=True)


def cached(cache, layer, row=0):
    keep = cache.valid[row]
    n = cache.length
    return cache.keys[layer][row, :, :n][:, keep].transpose(0, 1), cache.values[layer][row, :, :n][:, keep].transpose(
        0, 1
    )


@pytest.mark.golden
@pytest.mark.parametrize("attention", ("eager", "sdpa"))
def test_bagel_prefill(attention, golden, tiny_model, close):
    """Stage by stage; the clean VAE latent is recovered from its stored embedding (vae2llm is square here)."""
    case, model = golden("prefill"), tiny_model(attention=attention)
    config = model.config
    seen = {}
    decoder = model.language_model.model
    decoder.layers[0].register_forward_hook(lambda m, i, o: seen.update(embeds=i[:2]))
    decoder.register_forward_hook(lambda m, i, o: seen.update(hidden=o))

    grid = (3, 4)
    with torch.no_grad():
        embeds = case["out.stage3_vae.input_embeds"][1:-1].double()
        rows = torch.arange(3)[:, None] * config.max_latent_size + torch.arange(4)
        added = model.time_embedder(torch.zeros(1)) + model.latent_pos_embed(rows.flatten()) + model.vae2llm.bias
        latent = torch.linalg.solve(model.vae2llm.weight.double(), (embeds - added.double()).T).T.float()
    stages = {
        "stage1_text": Text(case.settings["text1"]),
        "stage2_vit": vit_segment(case["in.image_vit"], config),
        "stage3_vae": VaeImage(grid, latent.numpy()),
        "stage4_text": Text(case.settings["text2"]),
    }
    cache = None
    for name, segment in stages.items():
        order = pack([[encode([segment], config)]], config)
        cache = prefill(model, [[segment]], cache)
        close(order.packed_order(*seen["embeds"]), case[f"out.{name}.input_embeds"], what=name)
        hidden = order.packed_order(*seen["hidden"])
        close(hidden, case[f"out.{name}.last_hidden"], what=name)
        assert cache.lengths.tolist() == case[f"out.{name}.kv_len"].tolist()
        assert cache.next_rope.tolist() == case[f"out.{name}.rope"].tolist()
    close(model.language_model.lm_head(hidden), case["out.final_logits"])

    # our cache holds the VAE segment as start, end, latents; theirs as start, latents, end
    vae = 8 + 14
    index = [*range(vae), vae, *range(vae + 2, vae + 14), vae + 1, *range(vae + 14, 43)]
    for layer in range(2):
        key, value = cached(cache, layer)
        close(key[index], case[f"out.cache.key.{layer}"])
        close(value[index], case[f"out.cache.value.{layer}"])

    at_once = prefill(model, [list(stages.values())])
    assert at_once.next_rope.tolist() == case["out.cache.rope"].tolist()
    theirs, _ = cached(at_once, 1)
    order = pack([[encode(list(stages.values()), config)]], config).mask.order[0]
    close(theirs[order.argsort()], case["out.cache.key.1"])


@pytest.mark.golden
@pytest.mark.parametrize("name", ("text", "vit_text", "batch2_text"))
def test_bagel_greedy_text(name, golden, tiny_model, close):
    case, model = golden("gen_text"), tiny_model()
    contexts = [
        [Text(item[1]) if item[0] == "text" else vit_segment(case["in.image_vit"], model.config) for item in context]
        for context in case.settings["cases"][name]["contexts"]
    ]
    cache = prefill(model, contexts)
    assert cache.lengths.tolist() == case[f"out.{name}.kv_len_before"].tolist()
    assert cache.next_rope.tolist() == case[f"out.{name}.rope_before"].tolist()

    logits = []
    hook = model.language_model.lm_head.register_forward_hook(lambda m, i, o: logits.append(o))
    never = model.config.llm.vocab_size
    steps = case.settings["max_length"]
    ids, _ = generate_text(model, cache, steps, stop=never, close=False)
    hook.remove()
    theirs = case[f"out.{name}.ids"].T.tolist()
    assert [[300, *row[:-1]] for row in ids] == theirs
    close(torch.stack(logits), case[f"out.{name}.logits"], 2e-5)

    if f"out.{name}.stop_id" in case.tensors:
        ids, _ = generate_text(model, cache, steps - 1, stop=int(case[f"out.{name}.stop_id"]))
        assert [[300, *ids[0]]] == case[f"out.{name}.ids_with_stop"].T.tolist()


@pytest.mark.golden
@pytest.mark.parametrize("name", ("gen_text2image", "gen_batch"))
def test_bagel_image_sampling(name, golden, tiny_model, close):
    case, model = golden(name), tiny_model()
    settings = case.settings
    prompts = settings.get("prompts") or [settings["prompt"]]
    contexts = [guidance_contexts([Text(prompt)]) for prompt in prompts]
    conditions = Conditions(*(prefill(model, [row[branch] for row in contexts]) for branch in range(3)))
    for ours, theirs in (
        (conditions.full, "cond"),
        (conditions.no_text, "cfg_text"),
        (conditions.no_images, "cfg_img"),
    ):
        assert ours.lengths.tolist() == case[f"out.cache_{theirs}.kv_len"].tolist()
        assert ours.next_rope.tolist() == case[f"out.cache_{theirs}.rope"].tolist()
        for layer in range(2 * (theirs != "cfg_text")):
            keys, values = zip(*(cached(ours, layer, row) for row in range(ours.rows)), strict=True)
            close(torch.cat(keys), case[f"out.cache_{theirs}.key.{layer}"])
            close(torch.cat(values), case[f"out.cache_{theirs}.value.{layer}"])

    grids = [(h // 16, w // 16) for h, w in settings["image_sizes"]]
    counts = [h * w for h, w in grids]
    noise = padded_rows(case["in.init_noise"], counts)

    def flat(x):
        return torch.cat([row[:n] for row, n in zip(x, counts, strict=True)])

    positions = Branch(model, conditions.full, grids).position_BG
    assert flat(positions).tolist() == case["index.packed_vae_position_ids"].tolist()
    with torch.no_grad():
        for branch, cache in (("cond", conditions.full), ("text", conditions.no_text), ("img", conditions.no_images)):
            close(flat(Branch(model, cache, grids)(noise, 1.0)), case[f"out.step0_branch_{branch}"], what=branch)
    run = {"num_timesteps": settings["num_timesteps"], "timestep_shift": settings["timestep_shift"]}
    times = inference_timesteps(**{"num_timesteps": run["num_timesteps"], "shift": run["timestep_shift"]})
    close(times[:-1], case["out.timesteps"])

    for variant, values in settings["variants"].items():
        guidance = Guidance(
            text_scale=values["cfg_text_scale"],
            img_scale=values["cfg_img_scale"],
            interval=tuple(values["cfg_interval"]),
            renorm=values["cfg_renorm_type"],
            renorm_min=values["cfg_renorm_min"],
            norm_scope="batch",
        )
        scale_on = max(guidance.text_scale, guidance.img_scale) > 1
        inside = [scale_on and guidance.interval[0] < t <= guidance.interval[1] for t in times[:-1].tolist()]
        assert inside == case[f"out.{variant}.cfg_on"].bool().tolist()
        denoiser = Denoiser(model, conditions, grids, guidance)
        with torch.no_grad():
            velocity = denoiser(noise, 1.0)
            close(flat(velocity), case[f"out.{variant}.velocity_step0"], what=variant)
            after = noise - velocity * (times[0] - times[1])
            close(flat(after), case[f"out.{variant}.x_after_step0"], what=variant)
            close(flat(denoiser(after, float(times[1]))), case[f"out.{variant}.velocity_step1"], what=variant)
        latent = sample_latents(model, conditions, noise, grids, guidance=guidance, **run)
        close(flat(latent), case[f"out.{variant}.latent"], 1e-4, variant)


def test_an_empty_context_has_no_tokens(tiny_model):
    model = tiny_model()
    cache = prefill(model, [[], []])
    assert isinstance(cache, KVCache) and cache.length == 0 and cache.next_rope.tolist() == [0, 0]
