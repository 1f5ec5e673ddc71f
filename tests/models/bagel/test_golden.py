"""Packing, training, generation and whole calls of the inferencer against the official implementation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from tests.models.bagel.conftest import FOLDER, guidance_of, packed_order
from uni_train.flow.guidance import Guidance
from uni_train.flow.schedule import inference_timesteps, train_timestep
from uni_train.models.bagel.generation import (
    Branch,
    Denoiser,
    generate_text,
    guidance_contexts,
    prefill,
    read_contexts,
    sample_latents,
)
from uni_train.models.bagel.masks import TokenMask
from uni_train.models.bagel.packing import Text, VaeImage, VitImage, encode, pack
from uni_train.models.bagel.positions import (
    grid_position_ids,
    patchify,
    rope_tables,
    sincos_table,
    timestep_sinusoid,
    unpatchify,
)

pytestmark = pytest.mark.golden
PACKED = ("none", "text_dropped", "vit_dropped", "vae_dropped", "all_dropped", "interleaved", "interleaved_vae_dropped")


def official(batch):
    """The official tensors of a batch whose first row alone has images and losses."""
    n_und, n_gen = int(batch.und_valid[0].sum()), int(batch.gen_valid[0].sum())
    order_und, order_gen = batch.und_mask.order[0, :n_und].long(), batch.gen_mask.order[0, :n_gen].long()
    is_text = torch.ones(n_und, dtype=torch.bool)
    is_text[batch.vit_index] = False
    positions = torch.empty(n_und + n_gen, dtype=torch.long)
    positions[order_und] = batch.und_rope[0, :n_und]
    positions[order_gen] = batch.gen_rope[0, :n_gen]
    tensors = {
        "sequence_length": torch.tensor([n_und + n_gen]),
        "sample_lens": torch.tensor(batch.sample_lengths[0]),
        "packed_text_ids": batch.und_id[0, :n_und][is_text],
        "packed_text_indexes": order_und[is_text],
        "packed_position_ids": positions,
        "ce_loss_indexes": order_und[batch.ce_index],
        "packed_label_ids": batch.ce_label,
        "ce_loss_weights": batch.ce_weight,
        "packed_vit_token_indexes": order_und[batch.vit_index],
        "packed_vit_position_ids": batch.vit_position,
        "packed_vit_tokens": batch.vit_patches,
        "vit_token_seqlens": torch.tensor(batch.vit_lengths),
        "packed_latent_position_ids": batch.gen_position[0, :n_gen],
        "packed_vae_token_indexes": order_gen,
        "packed_timesteps": batch.logit[batch.gen_image[0, :n_gen]],
        "patchified_vae_latent_shapes": torch.tensor(batch.latent_grids),
        "mse_loss_indexes": order_gen[batch.mse_index],
    }
    return tensors


def packed_mask(batch):
    """Dense [L, L] in packed order, padding included."""
    order = batch.mask.order[0].argsort()
    return batch.mask.allowed()[0, 0][order][:, order]


def block_diagonal(case, prefix):
    blocks = [case[key] for key in sorted(case.tensors) if key.startswith(f"{prefix}attn_mask.")]
    return torch.block_diag(*blocks).bool()


def compare(case, prefix, batch):
    ours = official(batch)
    theirs = {k.removeprefix(prefix): v for k, v in case.tensors.items() if k.startswith(prefix)}
    skipped = {"padded_images", "dense_mask", "split_lens"} | {k for k in theirs if k.startswith("attn_mask")}
    assert set(theirs) - skipped <= set(ours)
    for key in set(theirs) - skipped:
        assert torch.equal(ours[key].to(theirs[key].dtype), theirs[key]), key


@pytest.mark.parametrize("name", (*PACKED, "train_packed", "train_interleaved"))
def test_bagel_packing(name, golden, tiny_config, plan):
    case, config = golden("packing" if name in PACKED else name), tiny_config()
    about, prefix = (case.settings["cases"][name], f"{name}.") if name in PACKED else (case.settings, "pack.")
    batch = pack([[encode(sample, config) for sample in plan(about, case.tensors, config)]], config)
    compare(case, prefix, batch)
    assert torch.equal(packed_mask(batch), block_diagonal(case, prefix))


def test_bagel_packing_flex_padded(golden, tiny_config, plan):
    """Padding to the length of another row is one more causal sample."""
    case, config = golden("packing"), tiny_config()
    about = case.settings["cases"]["flex_padded"]
    samples = [encode(sample, config) for sample in plan(about, case.tensors, config)]
    tokens = sum(sample.length for sample in samples)
    padding = about["max_num_tokens"] - tokens
    gen = sum(sample.gen.shape[1] for sample in samples)
    longer = encode([Text([7] * (tokens - gen + padding - 2))], config)
    batch = pack([samples, [longer]], config)
    ours = official(batch)
    for key, value in ours.items():
        theirs = case[f"flex_padded.{key}"] if f"flex_padded.{key}" in case.tensors else None
        if key == "sample_lens":
            value = torch.tensor([*value.tolist(), padding])
        if theirs is not None:
            assert torch.equal(value.to(theirs.dtype), theirs), key
    splits = [n for sample in samples for n in sample.split_lengths] + [padding]
    assert splits == case["flex_padded.split_lens"].tolist()
    modes = [mode for sample in samples for mode in sample.split_modes] + ["causal"]
    assert modes == case.about["results"]["flex_attn_modes"]["flex_padded"]
    assert torch.equal(packed_mask(batch), case["flex_padded.dense_mask"].bool())


def test_bagel_utils_masks(golden):
    case = golden("utils")
    for name, about in case.settings["masks"].items():
        columns = []
        order = 0
        for doc in about["docs"]:
            start = order
            for length, mode in doc:
                last = order + length - 1
                for i in range(order, order + length):
                    columns.append((i, start, i if mode == "causal" else last, order + 1 if mode == "noise" else 0))
                order += length
        mask = TokenMask(*(column[None] for column in torch.tensor(columns, dtype=torch.int32).T))
        assert torch.equal(mask.allowed()[0, 0], case[f"mask.{name}.sparse"].bool()), name


def test_bagel_utils_positions(golden, tiny_model, close):
    case = golden("utils")
    for i, (h, w, patch, side) in enumerate(case.settings["pos"]):
        assert grid_position_ids(h // patch, w // patch, side).tolist() == case[f"pos.{i}.extrapolate"].tolist()
    assert torch.equal(patchify(case["in.patch_img_14"], 14), case["patchify.14"])
    assert torch.equal(patchify(case["in.patch_img_2"], 2), case["patchify.latent2"])
    for dim, side in case.settings["pos_tables"]:
        close(sincos_table(dim, side), case[f"pos_table.{dim}.{side}"])
    close(timestep_sinusoid(case["in.t"]), case["timestep.sinusoid256"])
    embedder = tiny_model().time_embedder
    with torch.no_grad():
        close(embedder(case["in.t"]), case["timestep.embed"])
        close(embedder(torch.zeros(1)), case["timestep.embed_int0"])
    cos, sin = rope_tables(torch.arange(24), 16, 1e6)
    close(torch.cat([cos, cos], -1), case["rope.cos"])
    close(torch.cat([sin, sin], -1), case["rope.sin"])


def test_bagel_utils_schedule_and_weights(golden, close):
    case = golden("utils")
    logits = torch.tensor([-torch.inf, -3, -1, 0, 0.7, 2.5, torch.inf])
    for shift in (1.0, 3.0, 4.0):
        close(train_timestep(logits, shift), case[f"shift.{shift}.train"])
        for n in (8, 24, 50):
            close(inference_timesteps(n, shift), case[f"shift.{shift}.schedule{n}"])
    for n, theirs in zip((1, 4, 10), case["len2weight.square"][1:].tolist(), strict=True):
        assert abs(n**-0.5 - theirs) < 1e-7


CASES = ("train_packed", "train_packed_shift1", "train_interleaved")


@pytest.mark.parametrize("attention", ("eager", "sdpa"))
@pytest.mark.parametrize("name", CASES)
def test_bagel_training_forward_and_backward(name, attention, golden, tiny_model, plan, close):
    case = golden(name)
    model = tiny_model(attention=attention, **({"timestep_shift": 1.0} if name.endswith("shift1") else {}))
    config = model.config
    samples = plan(case.settings, case.tensors, config, case["out.padded_latent"])
    batch = pack([[encode(sample, config) for sample in samples]], config)
    noise = case["in.flow_noise"][None]

    seen = {}
    model.connector.register_forward_hook(lambda m, i, o: seen.update(connector=o, vit_last_hidden=i[0]))
    model.vae2llm.register_forward_hook(lambda m, i, o: seen.update(packed_latent_noisy=i[0][0]))
    layers = model.language_model.model.layers
    layers[0].register_forward_hook(lambda m, i, o: seen.update(input_embeds=i[:2], layer0_hidden=o))
    out = model(batch, noise)

    for key in ("connector", "vit_last_hidden", "packed_latent_noisy"):
        if key in seen:
            close(seen[key], case[f"out.{key}"], what=key)
    for key in ("input_embeds", "layer0_hidden"):
        close(packed_order(batch, *seen[key]), case[f"out.{key}"], what=key)
    close(packed_order(batch, out.hidden_BUD, out.hidden_BGD), case["out.last_hidden_state"], what="hidden")
    close(out.ce, case["out.ce"], what="ce")
    close(out.squared_error, case["out.mse"], what="mse")
    close(out.mse, case["out.mse_per_token"], what="mse per token")
    close(out.ce.mean()[None], case["out.ce_mean"], what="ce mean")
    close(out.mse.mean()[None], case["out.mse_mean"], what="mse mean")
    weighted = (out.ce * out.ce_weight).sum() / out.ce_weight.sum()
    close(weighted[None], case["out.ce_reweighted"], what="ce reweighted")
    loss = case.settings["ce_weight"] * out.ce.mean() + case.settings["mse_weight"] * out.mse.mean()
    close(loss[None], case["out.loss"], what="loss")

    loss.backward()
    parameters = dict(model.named_parameters())
    for key, theirs in case.tensors.items():
        if key.startswith("grad."):
            close(parameters[key.removeprefix("grad.")].grad, theirs, 1e-4, key)
    total = torch.stack([p.grad.norm() for p in parameters.values() if p.grad is not None]).norm()
    close(total[None], case["out.grad_norm"], 1e-4, "total gradient norm")
    largest = max(norm for norm in case.about["results"]["grad_norms"].values() if norm is not None)
    for key, norm in case.about["results"]["grad_norms"].items():
        grad = parameters[key].grad
        if norm is None:
            assert grad is None or not grad.any(), key
        else:
            assert abs(grad.norm() - norm) <= 1e-4 * max(norm, 1e-3 * largest), key


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


EVERYTHING = Guidance(text_scale=2.0, img_scale=2.0)  # asks for all three contexts


def padded_rows(packed, counts):
    """[sum of counts, C] -> [B, longest, C], zeros behind."""
    return torch.nn.utils.rnn.pad_sequence(list(packed.split(counts)), batch_first=True)


def cached(cache, layer, row=0):
    keep, n = cache.valid[row], cache.length
    return [all_[layer][row, :, :n][:, keep].transpose(0, 1) for all_ in (cache.keys, cache.values)]


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
