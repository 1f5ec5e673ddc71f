"""Our two-stream batch against the official packed index tensors and masks."""

from __future__ import annotations

import pytest
import torch

from uni_train.flow.schedule import inference_timesteps, train_timestep
from uni_train.models.bagel.masks import TokenMask
from uni_train.models.bagel.packing import Text, encode, pack
from uni_train.models.bagel.positions import grid_position_ids, patchify, rope_tables, sincos_table, timestep_sinusoid

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


@pytest.mark.golden
@pytest.mark.parametrize("name", (*PACKED, "train_packed", "train_interleaved"))
def test_bagel_packing(name, golden, tiny_config, plan):
    case, config = golden("packing" if name in PACKED else name), tiny_config()
    about, prefix = (case.settings["cases"][name], f"{name}.") if name in PACKED else (case.settings, "pack.")
    batch = pack([[encode(sample, config) for sample in plan(about, case.tensors, config)]], config)
    compare(case, prefix, batch)
    assert torch.equal(packed_mask(batch), block_diagonal(case, prefix))


@pytest.mark.golden
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
    assert modes == case.results["flex_attn_modes"]["flex_padded"]
    assert torch.equal(packed_mask(batch), case["flex_padded.dense_mask"].bool())


@pytest.mark.golden
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


@pytest.mark.golden
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


@pytest.mark.golden
def test_bagel_utils_schedule_and_weights(golden, close):
    case = golden("utils")
    logits = torch.tensor([-torch.inf, -3, -1, 0, 0.7, 2.5, torch.inf])
    for shift in (1.0, 3.0, 4.0):
        close(train_timestep(logits, shift), case[f"shift.{shift}.train"])
        for n in (8, 24, 50):
            close(inference_timesteps(n, shift), case[f"shift.{shift}.schedule{n}"])
    for n, theirs in zip((1, 4, 10), case["len2weight.square"][1:].tolist(), strict=True):
        assert abs(n**-0.5 - theirs) < 1e-7
