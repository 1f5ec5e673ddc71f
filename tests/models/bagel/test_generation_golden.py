"""Prefill, text generation, image sampling and whole inferencer calls against the official implementation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.models.bagel.conftest import FOLDER, packed_order
from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import inference_timesteps
from uni_train.models.bagel.generation import (
    Branch,
    Denoiser,
    generate_text,
    guidance_contexts,
    prefill,
    read_contexts,
    sample_latents,
)
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import patchify, unpatchify

BRANCHES = ("cond", "cfg_text", "cfg_img")
TEXTS, CALLS = (
    list(json.loads((FOLDER / f"{case}.json").read_text())["settings"]["cases"]) for case in ("gen_text", "inferencer")
)


def vit_segment(image, config):
    p = config.vit.patch_size
    return VitImage((image.shape[1] // p, image.shape[2] // p), patchify(image, p).numpy())


@torch.no_grad()
def vae_segment(image, noise, vae, config):
    """A condition image [3, H, W] in [-1, 1] as clean latents."""
    p = config.latent_patch_size
    latent = vae.encode(image[None], noise)[0]
    return VaeImage((latent.shape[1] // p, latent.shape[2] // p), patchify(latent, p))


@torch.no_grad()
def decoded(latent, grid, vae, config):
    """[3, H, W] of latent tokens [tokens, C], and the pixels that are stored."""
    raw = vae.decode(unpatchify(latent, grid, config.latent_patch_size)[None])[0]
    return raw, ((raw * 0.5 + 0.5).clamp(0, 1) * 255).to(torch.uint8).permute(1, 2, 0)


def same_pixels(ours, theirs):
    assert ours.shape == theirs.shape
    assert int((ours.int() - theirs.int()).abs().max()) <= 1


def guidance_of(values, norm_scope="batch"):
    names = ("cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min")
    text, image, interval, renorm, least = (values[name] for name in names)
    return Guidance(text, image, tuple(interval), renorm, least, norm_scope)


EVERYTHING = Guidance(text_scale=2.0, img_scale=2.0)  # asks for all three contexts


def padded_rows(packed, counts):
    """[sum of counts, C] -> [B, longest, C], zeros behind."""
    return torch.nn.utils.rnn.pad_sequence(list(packed.split(counts)), batch_first=True)


def cached(cache, layer, row=0):
    keep, n = cache.valid[row], cache.length
    return [all_[layer][row, :, :n][:, keep].transpose(0, 1) for all_ in (cache.keys, cache.values)]


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
        "stage3_vae": VaeImage(grid, latent),
        "stage4_text": Text(case.settings["text2"]),
    }
    cache = None
    for name, segment in stages.items():
        order = pack([[encode([segment], config)]], config)
        cache = prefill(model, [[segment]], cache)
        close(packed_order(order, *seen["embeds"]), case[f"out.{name}.input_embeds"], what=name)
        hidden = packed_order(order, *seen["hidden"])
        close(hidden, case[f"out.{name}.last_hidden"], what=name)
        assert cache.valid.sum(1).tolist() == case[f"out.{name}.kv_len"].tolist()
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
@pytest.mark.parametrize("name", TEXTS)
def test_bagel_greedy_text(name, golden, tiny_model, vae, close):
    case, model = golden("gen_text"), tiny_model()
    plans = case.settings["cases"][name]["contexts"]
    image = {"vit": vit_segment(case["in.image_vit"], model.config)}
    image["vae"] = vae_segment(case["in.image_vae"], case["in.vae_noise"], vae, model.config)
    contexts = [
        [
            segment
            for item in plan
            for segment in ([Text(item[1])] if item[0] == "text" else [image[kind] for kind in item[0].split("+")])
        ]
        for plan in plans
    ]
    cache = prefill(model, contexts)
    assert cache.valid.sum(1).tolist() == case[f"out.{name}.kv_len_before"].tolist()
    assert cache.next_rope.tolist() == case[f"out.{name}.rope_before"].tolist()

    logits = []
    hook = model.language_model.lm_head.register_forward_hook(lambda m, i, o: logits.append(o))
    never = model.config.llm.vocab_size
    steps = case.settings["max_length"]
    ids, _ = generate_text(model, cache, steps, stop=never, close=False)
    hook.remove()
    theirs = case[f"out.{name}.ids"].T.tolist()
    bos = model.config.tokens.bos
    assert [[bos, *row[:-1]] for row in ids] == theirs
    close(torch.stack(logits), case[f"out.{name}.logits"], 2e-5)

    if f"out.{name}.stop_id" in case.tensors:
        ids, _ = generate_text(model, cache, steps - 1, stop=int(case[f"out.{name}.stop_id"]))
        assert [[bos, *ids[0]]] == case[f"out.{name}.ids_with_stop"].T.tolist()


@pytest.mark.golden
@pytest.mark.parametrize("name", ("gen_text2image", "gen_batch", "gen_edit"))
def test_bagel_image_sampling(name, golden, tiny_model, vae, close):
    case, model = golden(name), tiny_model()
    settings, config = case.settings, model.config
    prompts = settings.get("prompts") or [settings["prompt"]]
    images = []
    if "in.image_vae" in case.tensors:
        images.append(vae_segment(case["in.image_vae"], case["in.vae_noise"], vae, config))
        images.append(vit_segment(case["in.image_vit"], config))
    stride = vae.downsample * config.latent_patch_size
    grids = [(h // stride, w // stride) for h, w in settings["image_sizes"]]
    layouts = [guidance_contexts([*images, Text(prompt)]) for prompt in prompts]
    contexts = read_contexts(model, layouts, grids, EVERYTHING)
    caches = dict(zip(BRANCHES, (contexts.full, contexts.no_text, contexts.no_images), strict=True))
    for branch, cache in caches.items():
        assert cache.valid.sum(1).tolist() == case[f"out.cache_{branch}.kv_len"].tolist()
        assert cache.next_rope.tolist() == case[f"out.cache_{branch}.rope"].tolist()
        for layer in range(config.llm.num_hidden_layers if cache.length else 0):
            compare_cache(cache, layer, case, branch, close)

    counts = [h * w for h, w in grids]
    noise = padded_rows(case["in.init_noise"], counts)

    def flat(x):
        return torch.cat([row[:n] for row, n in zip(x, counts, strict=True)])

    positions = Branch(model, contexts.full, grids).position_BG
    assert flat(positions).tolist() == case["index.packed_vae_position_ids"].tolist()
    with torch.no_grad():
        for branch, cache in zip(("cond", "text", "img"), caches.values(), strict=True):
            close(flat(Branch(model, cache, grids)(noise, 1.0)), case[f"out.step0_branch_{branch}"], what=branch)
    run = {"num_timesteps": settings["num_timesteps"], "timestep_shift": settings["timestep_shift"]}
    times = inference_timesteps(run["num_timesteps"], run["timestep_shift"])
    close(times[:-1], case["out.timesteps"])

    for variant, values in settings["variants"].items():
        guidance = guidance_of(values)
        scale_on = max(guidance.text_scale, guidance.img_scale) > 1
        inside = [scale_on and guidance.interval[0] < t <= guidance.interval[1] for t in times[:-1].tolist()]
        assert inside == case[f"out.{variant}.cfg_on"].bool().tolist()
        guided = replace(contexts, guidance=guidance)
        denoiser = Denoiser(model, guided)
        with torch.no_grad():
            velocity = denoiser(noise, 1.0)
            close(flat(velocity), case[f"out.{variant}.velocity_step0"], what=variant)
            after = noise - velocity * (times[0] - times[1])
            close(flat(after), case[f"out.{variant}.x_after_step0"], what=variant)
            close(flat(denoiser(after, float(times[1]))), case[f"out.{variant}.velocity_step1"], what=variant)
        latent = sample_latents(model, guided, noise, **run)
        close(flat(latent), case[f"out.{variant}.latent"], 1e-4, variant)
        for stored in [key for key in case.tensors if key.startswith(f"out.{variant}.decoded_raw")]:
            row = int(stored.partition("decoded_raw.")[2] or 0)  # one image: no number
            raw, uint8 = decoded(latent[row, : counts[row]], grids[row], vae, config)
            close(raw, case[stored], 1e-4, variant)
            same_pixels(uint8, case[stored.replace("raw", "uint8")])


def compare_cache(cache, layer, case, branch, close):
    """Ours holds a row's understanding tokens, then its latents; theirs the order in which they came."""
    keys, values = zip(*(cached(cache, layer, row) for row in range(cache.rows)), strict=True)
    for ours, theirs in ((torch.cat(keys), f"key.{layer}"), (torch.cat(values), f"value.{layer}")):
        theirs = case[f"out.cache_{branch}.{theirs}"]
        if "in.image_vae" in case.tensors and branch != "cfg_img":
            latents = case["out.global.latent"].shape[0]
            theirs = torch.cat([theirs[:1], theirs[latents + 1 :], theirs[1 : latents + 1]])
        close(ours, theirs)


@pytest.mark.golden
@pytest.mark.parametrize("name", CALLS)
def test_bagel_inferencer(name, golden, tiny_model, vae, close):
    """A whole call, from segments to pixels; nothing that was read is read again."""
    case, model = golden("inferencer"), tiny_model()
    values, config = case.settings["cases"][name], model.config
    image = case["in.image_uint8"]
    pixels = image.permute(2, 0, 1).float() / 127.5 - 1
    seen = [vit_segment(case["in.image_vit"], config)]
    size = tuple(image.shape[:2])
    if "understanding_output" not in values:
        seen.insert(0, vae_segment(pixels, case["in.vae_noise"], vae, config))
    inputs = [s for item in values["inputs"] for s in (seen if item == "image" else [Text(item)])]
    system = [Text(values["system"])] if values["think"] else []
    if "understanding_output" in values:
        ids, _ = generate_text(model, prefill(model, [inputs]), values["max_think_token_n"] - 1)
        assert ids[0] == case[f"out.{name}.text_ids"].tolist()
        return

    stride = vae.downsample * config.latent_patch_size
    height, width = values.get("image_shapes") or size
    grid = (height // stride, width // stride)
    contexts = read_contexts(model, [guidance_contexts(inputs, system)], [grid], guidance_of(values))
    if values["think"]:
        ids, full = generate_text(model, contexts.full, values["max_think_token_n"] - 1)
        assert ids[0] == case[f"out.{name}.text_ids"].tolist()
        contexts = replace(contexts, full=full)
    caches = (contexts.full, contexts.no_text, contexts.no_images)
    for branch, cache in zip(BRANCHES, caches, strict=True):
        if cache is None:  # an image scale of 1 needs none
            assert branch == "cfg_img" and values["cfg_img_scale"] <= 1
            continue
        assert cache.valid.sum(1).tolist() == case[f"out.{name}.kv_len_{branch}"].tolist(), branch
        (position,) = set(case[f"out.{name}.position_{branch}"].tolist())
        assert cache.next_rope.tolist() == [position], branch
    noise = case[f"in.init_noise.{name}"][None]
    latent = sample_latents(
        model, contexts, noise, num_timesteps=values["num_timesteps"], timestep_shift=values["timestep_shift"]
    )
    close(latent[0], case[f"out.{name}.latent"], 1e-4, name)
    same_pixels(decoded(latent[0], grid, vae, config)[1], case[f"out.{name}.image_uint8"])


@pytest.mark.golden
def test_flow_grpo_velocities_of_bagel(golden_folder, tiny_model, close):
    """Of the rollout step by step, and of the update with all its steps, at three noise levels, in one batch."""
    case = load_file(golden_folder.parent / "flow_grpo" / "bagel_rollout.safetensors")
    settings = json.loads((golden_folder.parent / "flow_grpo" / "bagel_rollout.json").read_text())["settings"]
    model = tiny_model()
    stride = 8 * model.config.latent_patch_size
    grid = tuple(side // stride for side in settings["image_shapes"])
    layout = guidance_contexts([Text(settings["prompt"])])
    contexts = read_contexts(model, [layout], [grid], guidance_of(settings, norm_scope="row"))
    denoiser = Denoiser(model, contexts)
    times = inference_timesteps(settings["num_timesteps"], settings["timestep_shift"])
    latents = [case["in.init_noise"], *case["out.rollout.all_prev_samples"]]
    for x, t, velocity in zip(latents, times, case["out.rollout.velocities"], strict=False):
        close(denoiser(x[None], t)[0], velocity)
    stored = case["out.rollout.latents_in_window"][:-1]
    velocity = Denoiser(model, contexts.repeat(len(stored)))(stored, case["out.rollout.timesteps"])
    close(velocity, case["out.update.velocity"])
    assert velocity.requires_grad
