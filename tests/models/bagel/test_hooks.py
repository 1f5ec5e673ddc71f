"""Shares, maps and states against naive implementations that keep whole attention maps and all states."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from uni_train.models.bagel.generation import Branch, generate_text
from uni_train.models.bagel.hooks import GROUPS, columns_of, draw_with_attention, states_of
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request, SkillMissing, UnifiedModel, expect_skill
from uni_train.models.load import build_model, model_config

THOUGHTS = ("A is cup . So draw 1 cup .", "So draw 2 trees .", "A means B . B is fish . So draw 1 fish .")


@pytest.fixture(scope="module")
def nano() -> BagelUnified:
    model = build_model(model_config("shipped"))
    assert isinstance(model, BagelUnified)
    model.sampling = replace(model.sampling, steps=3, cfg_text_scale=2.0, edit_text_scale=2.0)
    return model


@pytest.fixture(scope="module")
def tiny(original: Path) -> BagelUnified:
    model = build_model(model_config(str(original)))
    assert isinstance(model, BagelUnified)
    model.sampling = replace(model.sampling, steps=3)
    return model


def requests_of(sizes: tuple[tuple[int, int] | None, ...] = (None, None, None)) -> list[Request]:
    return [
        Request(str(i), "A is cup . Draw what A is .", thought=thought, seed=i, size=size)
        for i, (thought, size) in enumerate(zip(THOUGHTS, sizes, strict=True))
    ]


def starts(requests: list[Request]) -> list[int]:
    return [(one.thought or "").index("So draw") for one in requests]


def whole_maps(model: BagelUnified, requests: list[Request]) -> list[list[Tensor]]:
    """Step -> layer -> softmax weights [B, H, G, L] of the image tokens, from queries and keys, all kept."""
    contexts = model.encode(requests)
    latents = max(h * w for h, w in contexts.grids)
    valid = torch.zeros(len(requests), latents, dtype=torch.bool)
    for row, (h, w) in enumerate(contexts.grids):
        valid[row, : h * w] = True
    allowed = torch.cat([contexts.full.valid, torch.ones(len(requests), 2, dtype=torch.bool), valid], 1)
    kept: list[list[Tensor]] = []

    def keep(attend: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~allowed[:, None, None], -torch.inf)
        kept[-1].append(scores.softmax(-1)[:, :, 2:])
        return attend(q, k, v)  # type: ignore[no-any-return]

    def before(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*args[:3], partial(keep, args[3]), *args[4:])

    layers = [layer.self_attn for layer in model.bagel.language_model.model.layers]
    x, levels = model.noise(requests), model.schedule(contexts).levels.tolist()
    for t, t_next in pairwise(levels):
        kept.append([])
        handles = [layer.register_forward_pre_hook(before) for layer in layers]
        Branch(model.bagel, contexts.full, contexts.grids, forward_only=True)(x, t)
        for handle in handles:
            handle.remove()
        x = x + (t_next - t) * model.velocity(x, t, contexts)
    return kept


def test_shares_and_maps_are_those_of_whole_attention_maps(tiny: BagelUnified) -> None:
    model, small = tiny, (tiny.stride, 2 * tiny.stride)
    asked = requests_of((None, small, None))
    with torch.inference_mode():
        images, seen = draw_with_attention(model, asked, starts(asked), maps=True)
        naive = whole_maps(model, asked)
    assert (seen.shares.sum(-1) - 1).abs().max() < 1e-5
    columns = columns_of(model, asked, starts(asked))
    for step, layers in enumerate(naive):
        for layer, maps in enumerate(layers):
            for row, (image, map_HGL) in enumerate(zip(images, maps, strict=True)):
                tokens = image.shape[0] * image.shape[1] // model.stride**2
                mean_L = map_HGL[:, :tokens].mean((0, 1))
                context = len(mean_L) - 2 - map_HGL.shape[1]
                share = torch.zeros(len(GROUPS))
                for i, column in enumerate(columns[row]):
                    share[column.group] += mean_L[i] if column.group >= 0 else 0
                share[GROUPS.index("itself")] = mean_L[context:].sum()
                assert torch.allclose(seen.shares[step, layer, row], share, atol=1e-5)
    assert seen.maps is not None
    for row in range(3):
        h, w = seen.maps[row].shape[:2]
        every = torch.stack([maps[row, :, : h * w].mean(0) for layers in naive for maps in layers]).mean(0)
        assert torch.allclose(seen.maps[row].flatten(0, 1), every[:, list(seen.places[row])], atol=1e-5)
    assert [image.shape for image in images][1] == (*small, 3)


def test_watching_changes_no_image_and_leaves_nothing_behind(tiny: BagelUnified) -> None:
    asked = requests_of()
    before = tiny.draw(asked)
    images, seen = draw_with_attention(tiny, asked, starts(asked))
    assert max(int(np.abs(a.astype(int) - b).max()) for a, b in zip(before, images, strict=True)) <= 1
    assert seen.maps is None and len(seen.t) == tiny.sampling.steps and seen.shares.shape[2] == 3
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in tiny.bagel.modules())
    assert all(np.array_equal(a, b) for a, b in zip(before, tiny.draw(asked), strict=True))


def test_every_word_has_its_group(nano: BagelUnified) -> None:
    asked = requests_of()
    (row, *_) = columns_of(nano, asked, starts(asked))
    said = {name: [one.token for one in row if one.group == i and one.token >= 0] for i, name in enumerate(GROUPS)}
    assert nano.tokenizer.decode(said["system"]) == "think"
    assert nano.tokenizer.decode(said["instruction"]) == asked[0].prompt
    assert nano.tokenizer.decode(said["thought"]) == "A is cup ."
    assert nano.tokenizer.decode(said["refined"]) == "So draw 1 cup ."
    assert sum(GROUPS[one.group] == "markers" for one in row) == 6
    (plain, *_) = columns_of(nano, asked, [None] * 3)
    assert "refined" not in {GROUPS[one.group] for one in plain if one.group >= 0}


def test_given_images_are_a_group_of_their_own(tiny: BagelUnified) -> None:
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    asked = [Request(name, text, (image,), seed=1) for name, text in (("a", "red"), ("b", "make it blue"))]
    _, seen = draw_with_attention(tiny, asked, [None, None])
    assert (seen.shares.sum(-1) - 1).abs().max() < 1e-5
    assert (seen.shares[..., GROUPS.index("image")] > 0).all() and (seen.keys[:, GROUPS.index("image")] > 0).all()


def test_the_last_state_of_an_answer_is_what_the_model_says_next(nano: BagelUnified) -> None:
    model = nano
    asked = [Request(str(i), text, seed=i) for i, text in enumerate(("A is cup . Draw what A is .", "Draw 3 cups ."))]
    states = states_of(model, asked)
    head, norm = model.bagel.language_model.lm_head, model.bagel.language_model.model.norm
    with torch.inference_mode():
        said, _ = generate_text(model.bagel, model.encode(asked).full, 2)
        chosen = head(norm(states.answer[:2, -1])).argmax(-1)
        assert chosen[0].tolist() == [ids[0] for ids in said]
        assert model.sampling.temperature == 0 and chosen[1].tolist() == [ids[1] for ids in said]
        alone = states_of(model, asked[:1])
    assert torch.allclose(alone.word[:, 0], states.word[:, 0], atol=1e-4)
    assert torch.allclose(alone.marker[:, :, 0], states.marker[:, :, 0], atol=1e-3)
    assert states.marker.shape[0] == len(states.t) == model.sampling.steps


def test_a_model_of_another_kind_lacks_the_skill() -> None:
    class Other(UnifiedModel):
        name = "qwen"

    with pytest.raises(SkillMissing, match="qwen cannot show its attention"):
        expect_skill(Other(), BagelUnified)
