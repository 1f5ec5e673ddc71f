"""Examples as packed batches, on the tiny official weights: layout, dropout, batches, what is learned, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.models.bagel.test_unified import picture, unified
from uni_train.flow.schedule import train_timestep
from uni_train.models.bagel import mot
from uni_train.models.bagel.config import GENERATION_NAMES
from uni_train.models.bagel.examples import ExamplePacker, _buckets
from uni_train.models.bagel.packing import encode, pack
from uni_train.models.base import Dropout, Example, ImageSizes, Turn

TWO = (picture(5, 20, 50), picture(6, 48, 48))
EDIT = Example(turns=(Turn(image=TWO[0]), Turn("5 6 7"), Turn(image=TWO[1], learn=True)), seed=3)
LEARNED = (Turn("7 8 9", learn=True), Turn(image=TWO[1], learn=True), Turn("10", learn=True))
CHAIN = Example(turns=(Turn(image=TWO[0]), Turn("5 6"), *LEARNED), noise_draws=2, seed=4)
ASKED = Example("11 12", images=TWO, answer="13 14 15", seed=5)
DRAWN = Example("16 17 18", target=TWO[1], noise_draws=3, seed=6)
THOUGHT = Example("19 20", thought="21 22", target=TWO[0], seed=7)
WORDS = Example("23", thought="24 25 26", seed=8)
KINDS = [EDIT, CHAIN, ASKED, DRAWN, THOUGHT, WORDS]


@pytest.fixture(scope="module")
def bagel(tiny_model, vae):
    return unified(tiny_model(), vae)


@pytest.fixture
def packer(bagel) -> ExamplePacker:
    bagel.examples.dropout = Dropout()
    yield bagel.examples
    bagel.examples.dropout = Dropout()


def sums(model, batches):
    with torch.no_grad():
        loss = model.supervised_loss(batches)
    return [float(value) for value in (loss.ce_sum, loss.ce_tokens, loss.mse_sum, loss.mse_tokens)]


@dataclass
class Sizes:
    """The golden plans show the VAE and the ViT different pictures; here one picture is resized to both."""

    sizes: dict[tuple[int, int], tuple[int, int]]

    def target_size(self, height, width, images=1):
        return self.sizes[height, width]


@pytest.mark.golden
@pytest.mark.parametrize("name", ["none", "vit_dropped", "vae_dropped"])
def test_bagel_examples_are_laid_out_as_the_released_code_does(name, golden, tiny_config, plan, packer, monkeypatch):
    case, config = golden("packing"), tiny_config()
    about = case.settings["cases"][name]
    shape = {key.split(".")[-1]: value.shape for key, value in case.tensors.items() if key.startswith("in.image.")}
    vae_sizes, vit_sizes, examples = {}, {}, []
    for sample in about["samples"]:
        turns, height = [], 1000 + len(examples)
        for item, following in zip(sample, [*sample[1:], None], strict=True):
            if item["type"] == "text":
                turns.append(Turn(" ".join(map(str, item["text_ids"])), learn=bool(item["loss"])))
            elif item["type"] == "vae_image":
                size = (height, len(turns) + 1)
                vae_sizes[size] = shape[item["image"]][-2:]
                seen = following if following is not None and following["type"] == "vit_image" else item
                vit_sizes[size] = shape[seen["image"]][-2:]
                turns.append(Turn(image=np.zeros((*size, 3), np.uint8), learn=bool(item["loss"])))
        examples.append(Example(turns=tuple(turns)))
    monkeypatch.setattr(packer, "vae_transform", Sizes(vae_sizes))
    monkeypatch.setattr(packer, "vit_transform", Sizes(vit_sizes))
    text, vit, vae_share = about["drop"]
    packer.dropout = Dropout(text, vit, vae_share)
    ours = pack([[packer._layout(packer._draft(example)) for example in examples]], config)
    theirs = pack([[encode(sample, config) for sample in plan(about, case.tensors, config)]], config)
    for field in ("und_id", "und_rope", "gen_position", "gen_rope", "gen_image", "ce_index", "ce_label", "mse_index"):
        assert torch.equal(getattr(ours, field), getattr(theirs, field)), field
    assert torch.equal(ours.mask.allowed(), theirs.mask.allowed())
    assert ours.latent_grids == theirs.latent_grids and ours.vit_lengths == theirs.vit_lengths


def tokens(batches):
    return sum(int(batch.und_valid.sum() + batch.gen_valid.sum()) for batch in batches)


def test_tokens_of_each_kind_are_known_before_it_is_made_and_those_that_are_learned_counted(packer, bagel):
    height, width = packer.vae_transform.target_size(20, 50)
    other, square = height * width // 16**2, 48 * 48 // 16**2
    expected = [(0, square), (4 + 2, 2 * square), (4, 0), (0, 3 * square), (3, other), (4, 0)]
    for example, learned in zip(KINDS, expected, strict=True):
        batches = packer.pack([example])
        assert packer.length(example) == tokens(batches) and bagel.token_counts(batches) == learned


def test_an_example_does_not_depend_on_its_batch_nor_on_being_packed_in_one_row(packer, bagel):
    packer.dropout = Dropout(0.3, 0.3, 0.3)
    examples = [replace(one, seed=one.seed + 10 * k) for k in range(3) for one in KINDS]
    alone = np.sum([sums(bagel, packer.pack([one])) for one in examples], axis=0)
    assert sums(bagel, packer.pack(examples)) == pytest.approx(alone.tolist(), rel=1e-5)
    drafts = [packer._draft(one) for one in examples]
    rows = [packer._row(draft, of) for draft, of in zip(drafts, packer._latents(drafts), strict=True)]
    assert sums(bagel, [packer._batch([rows])]) == pytest.approx(alone.tolist(), rel=1e-5)


def test_dropped_texts_leave_nothing_and_dropped_images_their_position(packer):
    packer.dropout = Dropout(text=1.0)
    (batch,) = packer.pack([EDIT])
    assert batch.und_id[0].unique().numel() <= 2 and not len(batch.ce_index), "no text, only markers of images"
    assert int(batch.gen_rope.max()) == 2, "two views of the shown image, then the target"
    packer.dropout = Dropout(vit=1.0, vae=1.0)
    (bare,) = packer.pack([EDIT])
    assert len(bare.latent_grids) == 1 and not bare.vit_lengths
    assert int(bare.gen_rope.max()) == 2 + 5, "both views count, and the five text tokens"
    packer.dropout = Dropout(1.0, 1.0, 1.0)
    for kept in (ASKED, WORDS):
        assert tokens(packer.blank([kept])) == packer.length(kept), "nothing to draw, nothing dropped"
    assert tokens(packer.blank([DRAWN])) == 3 * (9 + 2), "a plain example loses all its texts at once"


@pytest.mark.parametrize("dropout", [Dropout(text=1.0), Dropout(1.0, 1.0, 1.0)])
@pytest.mark.parametrize("examples", [[THOUGHT], [EDIT], [DRAWN, DRAWN], KINDS])
def test_frozen_text_that_is_dropped_leaves_the_loss_and_gradients_of_all_trained(packer, bagel, dropout, examples):
    packer.dropout = dropout
    batches = packer.pack(examples)
    assert any(int(batch.und_id.unique().numel()) <= 2 for batch in batches), "one of markers alone"
    named = {name: parameter for name, parameter in bagel.named_parameters() if parameter.requires_grad}
    generation = [p for n, p in named.items() if any(part in n for part in GENERATION_NAMES)]
    found = []
    for frozen in (False, True):
        for name, parameter in named.items():
            parameter.requires_grad_(not frozen or any(part in name for part in GENERATION_NAMES))
        loss = bagel.supervised_loss(batches)
        (loss.ce_sum + loss.mse_sum).backward()
        found.append([loss.mse_sum.item(), *(p.grad.norm().item() for p in generation if p.grad is not None)])
        bagel.zero_grad()
    for parameter in named.values():
        parameter.requires_grad_()
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_each_condition_is_dropped_as_often_as_asked(packer):
    packer.dropout = Dropout(0.1, 0.3, 0.5)
    seen = Counter()
    for seed in range(1500):
        draft = packer._draft(replace(EDIT, seed=seed))
        seen["text"] += all(part.kind != "text" for part in draft.parts)
        seen.update(part.kind for part in draft.parts if part.dropped)
    for kind, share in (("text", 0.1), ("vit", 0.3), ("vae", 0.5)):
        assert abs(seen[kind] / 1500 - share) < 4 * (share * (1 - share) / 1500) ** 0.5, kind


def test_an_image_that_is_learned_is_shown_to_what_follows(packer, bagel):
    """The text behind the learned image of a chain sees its clean latents and its patches, not the noised ones."""
    (batch,) = packer.pack([CHAIN])
    assert len(batch.latent_grids) == 1 + 2 + 1 and len(batch.vit_lengths) == 2
    assert torch.isfinite(batch.logit).tolist() == [False, True, True, False]
    order = batch.und_mask.order[0]
    last = int(order[batch.ce_index[-1]])
    allowed = batch.mask.allowed()[0, 0][batch.ce_index[-1]]
    gen = allowed[len(order) :]
    sees = {int(image): bool(gen[batch.gen_image[0] == image].all()) for image in range(4)}
    assert sees == {0: True, 1: False, 2: False, 3: True} and last == int(batch.mask.order.max()) - 1


def test_activation_checkpointing_changes_no_gradient(packer, bagel, monkeypatch):
    batches = packer.pack(KINDS)
    recomputed = Mock(side_effect=mot.checkpoint)
    monkeypatch.setattr(mot, "checkpoint", recomputed)

    def gradients(every: int) -> dict[str, torch.Tensor]:
        recomputed.reset_mock()
        bagel.bagel.checkpoint_layers(every)
        loss = bagel.supervised_loss(batches)
        bagel.zero_grad()
        (loss.ce_sum + loss.mse_sum).backward()
        bagel.bagel.checkpoint_layers(0)
        return {name: p.grad.clone() for name, p in bagel.named_parameters() if p.grad is not None}

    kept, layers = gradients(0), bagel.bagel.config.llm.num_hidden_layers
    assert not recomputed.called and any("vit_model" in name for name in kept)
    for every in (1, 2):
        again = gradients(every)
        assert recomputed.call_count == len(batches) * len(range(0, layers, every))
        assert kept.keys() == again.keys() and all(torch.equal(kept[name], again[name]) for name in kept)


def test_rows_are_cut_into_passes_at_least_cost():
    """A pass costs as much as so many empty places; every cut of the sorted rows is tried beside it."""
    draw = np.random.default_rng(0)

    def cost(lengths: list[int], buckets: Sequence[Sequence[int]], most: int) -> int:
        return sum(most + sum(max(lengths[i] for i in some) - lengths[k] for k in some) for some in buckets)

    for most in (3, 30):
        lengths = draw.integers(1, 30, 9).tolist()
        rows = [(SimpleNamespace(gen=np.empty((6, 0)), und=np.empty((6, n))), None) for n in lengths]
        order = sorted(range(9), key=lengths.__getitem__)
        cuts = [[0, *(i for i in range(1, 9) if chosen >> i - 1 & 1), 9] for chosen in range(2**8)]
        ways = [[order[a:b] for a, b in pairwise(cut)] for cut in cuts]
        buckets = _buckets(rows, most)
        assert sorted(i for some in buckets for i in some) == list(range(9))
        assert cost(lengths, buckets, most) == min(cost(lengths, way, most) for way in ways)


def test_images_of_a_source_have_its_sizes_as_far_as_the_model_has_positions(packer) -> None:
    """The tiny model: latents of 16 pixels, patches of 14; its tables reach 128 and 140 pixels."""

    def seen(sizes: ImageSizes, example: Example = EDIT) -> tuple[int, int, int]:
        (batch,) = packer.blank([replace(example, sizes=sizes)])
        assert packer.length(replace(example, sizes=sizes)) == tokens([batch])
        return batch.gen_rope.shape[1], len(batch.vit_index), len(batch.mse_index)

    config = packer.bagel.config
    reach = config.max_latent_size * 16, config.vit_max_num_patch_per_side * config.vit.patch_size
    square = picture(6, 48, 48)
    edit = Example(turns=(Turn(image=square), Turn("5"), Turn(image=square, learn=True)))
    large, small = ImageSizes((64, 96), (56, 70)), ImageSizes((32, 32), (28, 28))
    assert seen(large, edit) == (2 * 4 * 4, 4 * 4, 4 * 4)
    assert seen(small, edit) == (2 * 2 * 2, 2 * 2, 2 * 2)
    beyond = ImageSizes((4096, 4096), (4096, 4096), seen_pixels=10**8)
    assert seen(beyond, edit) == (2 * (reach[0] // 16) ** 2, (reach[1] // 14) ** 2, (reach[0] // 16) ** 2)
    assert seen(ImageSizes(seen=(56, 70), seen_pixels=56 * 56), edit)[1] == 2 * 2
    batches = packer.pack([replace(edit, sizes=large), replace(edit, sizes=small), edit])
    assert sum(len(batch.mse_index) for batch in batches) == 16 + 4 + seen(ImageSizes(), edit)[2]


def test_a_blank_batch_has_the_layout_of_the_packed_one_and_no_pictures(packer):
    def layout(batch):
        shapes = {name: np.shape(getattr(batch, name)) for name in ("clean_BGC", "noise_BGC", "vit_patches", "logit")}
        ids = [getattr(batch, name).tolist() for name in ("und_id", "gen_rope", "ce_index", "mse_index", "vit_index")]
        return shapes, ids, batch.vit_lengths, batch.noise_BGC is None

    blank = packer.blank(KINDS)
    assert [layout(batch) for batch in blank] == [layout(batch) for batch in packer.pack(KINDS)]
    assert not any(batch.clean_BGC.any() for batch in blank)


@pytest.mark.parametrize("example", KINDS)
def test_a_fixed_noise_level_holds_for_all_copies_and_leaves_nothing_out(bagel, packer, example: Example) -> None:
    fixed = replace(example, noise_level=0.3)
    whole = sums(bagel, packer.pack([fixed]))
    packer.dropout = Dropout(1.0, 1.0, 1.0)
    (batch,) = packer.pack([fixed])
    levels = train_timestep(batch.logit[batch.logit.isfinite()], bagel.bagel.config.timestep_shift)
    torch.testing.assert_close(levels, torch.full_like(levels, 0.3))
    assert sums(bagel, [batch]) == whole
