"""Interleaved answers: equal to reading everything again for each part, whatever the batch; where they end; refusals.

The reference reads a whole history for every text and every image, by functions that test_golden.py holds to the
released code.
"""

# ruff: noqa: F811  (the fixture `vae`)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from tests.models.bagel.conftest import vae  # noqa: F401
from tests.models.bagel.test_unified import SAMPLING, Numbers, apart, picture, unified
from uni_train.cli.numbers import INTERLEAVING
from uni_train.config.compose import compose
from uni_train.config.schema import SamplingConfig
from uni_train.core.errors import SkillMissing, UsageError, UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.puzzle import END, MARK
from uni_train.models.bagel import interleaving
from uni_train.models.bagel.generation import Contexts, generate_text, prefill
from uni_train.models.bagel.interleaving import STYLES
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request
from uni_train.models.load import expect_keys


class Talking(Numbers):
    """Numbers, and behind them what a checkpoint would say: three texts of four are followed by an image."""

    def decode(self, ids: Sequence[int]) -> str:
        return f"{super().decode(ids)} {'<answer>' if sum(ids) % 4 == 0 else '<image_start>'}"

    def encode(self, text: str) -> list[int]:
        if text in {style.system for style in STYLES.values()}:
            return [201, 202, 203]
        return [int(word) for word in text.split() if word.isdigit()]


@pytest.fixture(scope="module")
def talking(tiny_model, vae) -> BagelUnified:
    return unified(tiny_model(), vae, Talking())


def asked() -> list[Request]:
    return [
        Request("a", "5 6 7", (picture(0, 48, 64),), seed=1),
        Request("b", "8 9", seed=2, size=(32, 48)),
        Request("c", "10 11 12 13", (picture(1, 32, 32), picture(2, 64, 48)), seed=3),
        Request("d", "14 15 16", (picture(3, 48, 48),), seed=4),
    ]


@pytest.fixture
def style(request, talking):
    talking.sampling = replace(SAMPLING, interleaving=request.param, max_images=2, temperature=1.0, edit_img_scale=1.5)
    yield STYLES[request.param]
    talking.sampling = SAMPLING


def again(model: BagelUnified, request: Request, style: interleaving.Style) -> list[Any]:
    """An answer by the released loops: every text and every image behind a history that is read anew."""
    size = model.picture_size(request)
    given = list(zip(model.latents([request])[0], model.seen(request), strict=True))
    prompt, system = (model.text(request.prompt),), [model.text(style.system)] if style.system else []
    history: list[tuple[Any, ...]] = [prompt, *given] if style.prompt_first else [*given, prompt]
    inputs, parts = len(history), []
    for number in range(model.sampling.max_images + style.closes):
        now = replace(request, size=size, seed=derive_seed(request.seed, "round", number), images=())

        def read(items: Sequence[tuple[Any, ...]], kinds: slice = slice(None)) -> Any:
            return prefill(model.bagel, [[*system, *(segment for item in items for segment in item[kinds])]])

        to_write = [item if len(item) == 1 or style.writes_behind_latents else item[1:] for item in history]
        generator = [torch.Generator().manual_seed(derive_seed(now.seed, "write"))]
        most = model.sampling.max_think_tokens
        ids, _ = generate_text(model.bagel, read(to_write), most, temperature=1.0, generators=generator)
        parts.append(model.tokenizer.decode(ids[0]))
        before, history = history, [*history, (model.text(parts[-1]),)]
        if not style.goes_on(parts[-1]) or number == model.sampling.max_images:
            break
        of_request = [*given] if style.prompt_first or given else []
        no_text = before if style.guided_by_own_texts else of_request
        texts = [item for item in (history if style.guided_by_own_texts else history[:inputs]) if len(item) == 1]
        contexts = Contexts(read(history), read(no_text), read(texts), (model.grid(size),), model.guidance(images=True))
        (image,) = model.drawn(contexts, model.noise([now]), None)
        parts.append(image)
        shown = replace(now, images=(image,))
        history.append((model.latents([shown])[0][0], model.seen(shown)[0]))
    return parts


def same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    assert [type(part) for part in ours] == [type(part) for part in theirs]
    return all(
        one == two if isinstance(one, str) else apart(one, two) <= 1 for one, two in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("style", STYLES, indirect=True)
def test_answers_are_those_of_histories_that_are_read_anew_in_any_batch(style, talking):
    requests = asked()
    together = talking.compose(requests)
    assert len({len(parts) for parts in together}) > 1  # some are cut, others have ended
    assert all(same(ours, again(talking, request, style)) for ours, request in zip(together, requests, strict=True))
    assert all(same(ours, talking.compose([one])[0]) for ours, one in zip(together, requests, strict=True))
    assert talking.compose([]) == []


@pytest.mark.parametrize("style", ["chain", "thinkmorph"], indirect=True)
def test_an_answer_ends_behind_the_most_images_and_those_cut_are_counted(style, talking, capfd):
    plain, _, _, other = asked()
    talking.sampling = replace(talking.sampling, max_images=1)
    answers = talking.compose([replace(plain, seed=seed) for seed in range(8)])
    kinds = [[type(part) for part in parts] for parts in answers]
    longest = [str, np.ndarray, str] if style.closes else [str, np.ndarray]
    assert all(kind in ([str], longest) for kind in kinds) and len({*map(len, kinds)}) == 2
    cut = [parts for parts in answers if len(parts) == len(longest) and not (style.closes and "<answer>" in parts[-1])]
    assert f"{len(cut)} of 8 interleaved answers were cut behind 1 images" in capfd.readouterr().err
    one, two = (talking.compose([replace(other, seed=seed)])[0] for seed in (5, 6))
    assert one[0] != two[0]


@pytest.mark.parametrize("style", ["zebra_cot"], indirect=True)
def test_without_guidance_and_without_a_place_for_a_token(style, talking, monkeypatch):
    talking.sampling = replace(talking.sampling, edit_text_scale=1.0, edit_img_scale=1.0, max_images=1)
    assert [type(part) for part in talking.compose(asked()[:1])[0]] in ([str], [str, np.ndarray, str])
    monkeypatch.setattr(BagelUnified, "_limits", lambda self, cache: [0] * cache.rows)
    monkeypatch.setattr(Talking, "decode", lambda self, ids: "")
    assert talking.compose(asked()) == [[]] * 4


def test_options_keys_and_rows_name_the_styles_alike():
    allowed, _ = get_args(get_type_hints(SamplingConfig)["interleaving"])
    assert tuple(STYLES) == INTERLEAVING == get_args(allowed)
    assert STYLES["chain"].goes_on(f"Slide 3 {MARK}") and not STYLES["chain"].goes_on(END)


def test_what_cannot_be_asked(talking):
    other = compose("sft_maze", ["model=qwen_image_edit_2511", "model.sampling.interleaving=chain"]).model
    with pytest.raises(UsageError, match=r"Add sampling\.interleaving"):
        expect_keys(compose("sft_maze", ["model.sampling.max_images=2"]).model)
    with pytest.raises(UsageError, match=r"sampling\.interleaving has no meaning for model=qwen_image_edit_2511"):
        expect_keys(other)
    with pytest.raises(SkillMissing, match=r"in one pass\nSay .*=chain, thinkmorph or zebra_cot") as error:
        talking.compose(asked())
    assert error.value.note.endswith("in one pass. " + str(error.value.hint)), "reports say what to set"
    talking.sampling = replace(SAMPLING, interleaving="chain")
    try:
        with pytest.raises(UserError, match="request a has an empty prompt"):
            talking.compose([replace(asked()[0], prompt=" ")])
        with pytest.raises(UserError, match="request a, image 1: an image must be uint8"):
            talking.compose([replace(asked()[0], images=(np.zeros((8, 8, 3)),))])
        with pytest.raises(UserError, match="reads 512"):
            talking.compose([replace(asked()[0], prompt="5 " * 600)])
    finally:
        talking.sampling = SAMPLING
