"""Pipelines that make videos: three families of diffusers, tiny, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tests.models.diffusers.conftest import build
from tests.models.diffusers.tiny import _flow, _t5, _t5_tokenizer
from uni_train.cli.main import uni_train
from uni_train.core.errors import SkillMissing
from uni_train.models.base import Request
from uni_train.models.diffusers.interface import interface
from uni_train.models.diffusers.video import VideoModel

SQUARE = np.full((40, 40, 3), 200, np.uint8)


def wan() -> Any:
    from diffusers import AutoencoderKLWan, WanImageToVideoPipeline, WanTransformer3DModel
    from transformers import UMT5Config, UMT5EncoderModel

    words = _t5_tokenizer()
    config = UMT5Config(vocab_size=len(words), d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2)
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    transformer = WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, in_channels=36, out_channels=16, text_dim=32, freq_dim=32,
        ffn_dim=32, num_layers=1, cross_attn_norm=True, rope_max_seq_len=32,
    )  # fmt: skip
    return WanImageToVideoPipeline(words, UMT5EncoderModel(config), vae, _flow(), None, None, transformer, None)


def ltx() -> Any:
    from diffusers import AutoencoderKLLTXVideo, LTXImageToVideoPipeline, LTXVideoTransformer3DModel

    vae = AutoencoderKLLTXVideo(
        latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1),
    )  # fmt: skip
    transformer = LTXVideoTransformer3DModel(
        in_channels=8, out_channels=8, num_attention_heads=4, attention_head_dim=8, cross_attention_dim=32,
        num_layers=1, caption_channels=32,
    )  # fmt: skip
    return LTXImageToVideoPipeline(_flow(), vae, _t5(), _t5_tokenizer(), transformer)


def cogvideox() -> Any:
    """From words alone."""
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel

    vae = AutoencoderKLCogVideoX(
        block_out_channels=(8, 8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=2,
        down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4,
    )  # fmt: skip
    transformer = CogVideoXTransformer3DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=4, time_embed_dim=2,
        text_embed_dim=32, num_layers=1, sample_width=4, sample_height=4, sample_frames=9, max_text_seq_length=226,
    )  # fmt: skip
    return CogVideoXPipeline(_t5_tokenizer(), _t5(), vae, transformer, CogVideoXDDIMScheduler())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("videos")
    torch.manual_seed(0)
    for made in (wan, ltx, cogvideox):
        made().save_pretrained(place / made.__name__)
    return {made.__name__: place / made.__name__ for made in (wan, ltx, cogvideox)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "images"), [("wan", (SQUARE,)), ("ltx", (SQUARE,)), ("cogvideox", ())])
def test_frames_of_a_video(name: str, images: tuple[np.ndarray, ...], folders: dict[str, Path]) -> None:
    model = build(folders[name])
    assert isinstance(model, VideoModel)
    size = None if images else (32, 32)
    request = Request("a", "a cat", images, seed=1, size=size)
    first, again = model.compose([request, request])
    assert len(first) == 8 and {frame.shape for frame in first} == {(32, 32, 3)}  # type: ignore[union-attr]
    assert all(np.array_equal(frame, same) for frame, same in zip(first, again, strict=True))
    assert np.array_equal(model.draw([request])[0], first[-1])
    with pytest.raises(SkillMissing, match="draw without an image" if images else "draw from images"):
        model.compose([Request("b", "a cat", () if images else (SQUARE,))])


@pytest.mark.slow
def test_vigor_asks_a_video_model_for_a_video(folders: dict[str, Path], tmp_path: Path) -> None:
    words = ["eval", str(folders["ltx"]), "-b", "vigor", "--n", "1", "sets=[maze_navigation]", "sampling.steps=1"]
    done = CliRunner().invoke(uni_train, [*words, "options.vigor.video=yes", f"out={tmp_path}", "name=it"])
    assert done.exit_code == 0, done.output
    (scores,) = json.loads((tmp_path / "it/scores.json").read_text())["results"]
    assert {setting: sum(sets["maze_navigation"].values()) for setting, sets in scores["outcomes"].items()} == {
        "video": 1, "process": 1,
    }  # fmt: skip
    assert scores["outcomes"]["video"]["maze_navigation"] == {"fail": 1}


@pytest.mark.parametrize(
    ("name", "image", "needs"),
    [
        ("WanPipeline", None, False), ("WanImageToVideoPipeline", "image", True), ("LTXPipeline", None, False),
        ("CogVideoXImageToVideoPipeline", "image", True), ("HunyuanVideoPipeline", None, False),
    ],
)  # fmt: skip
def test_what_a_class_takes(name: str, image: str | None, needs: bool) -> None:
    takes = interface(name)
    assert takes.video and (takes.image, takes.needs_image) == (image, needs)
