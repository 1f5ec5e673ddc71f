"""CLIP and PickScore: their formulas on a tiny model that transformers has written, and folders that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from uni_train.core.errors import UserError
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.registry import Trained, implementation_of

IMAGES = [np.random.default_rng(i).integers(0, 256, (20 + i, 30, 3), np.uint8) for i in range(3)]
PROMPTS = ["a cab", "b", "abc " * 30]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP of random weights whose words are letters, with a limit of 12 tokens."""
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    vocabulary = {
        name: i for i, name in enumerate(["!", "a", "b", "c", "a</w>", "b</w>", "c</w>", "<|start|>", "<|end|>"])
    }
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": 7, "eos_token_id": 8, "pad_token_id": 0}
    text = {**tower, **ends, "vocab_size": 9, "max_position_embeddings": 12}
    config = CLIPConfig(text_config=text, vision_config={**tower, "image_size": 16, "patch_size": 8}, projection_dim=8)
    CLIPModel(config).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    special = {"bos_token": "<|start|>", "eos_token": "<|end|>", "unk_token": "<|end|>", "pad_token": "!"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer", **special}))
    return folder


def made(function: str, model: Path, batch: int = 2) -> Any:
    config = RewardConfig(function=function, model=str(model), batch=batch)
    return implementation_of(config)(config, Trained(None, None, 1, name="liked"))  # type: ignore[arg-type]


def test_values_are_those_of_the_papers_whatever_the_batch_and_long_prompts_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = CLIPModel.from_pretrained(folder)
    reward = made("clip_score", folder)
    cosines = []
    for prompt, image in zip(PROMPTS, IMAGES, strict=True):
        ids = reward.tokenizer(prompt, truncation=True, max_length=12, return_tensors="pt").input_ids
        pixels = CLIPImageProcessorPil.from_pretrained(folder)(image, return_tensors="pt").pixel_values
        with torch.no_grad():
            out = model(input_ids=ids, pixel_values=pixels)
        cosines.append(float(torch.nn.functional.cosine_similarity(out.text_embeds, out.image_embeds)))
    assert len({round(value, 4) for value in cosines}) == 3
    scale = float(model.logit_scale.detach().exp())
    for batch in (1, 2, 3):
        score = made("clip_score", folder, batch)(prompts=PROMPTS, completions=IMAGES, id=["a"] * 3)
        pick = made("pickscore", folder, batch)(prompts=PROMPTS, completions=IMAGES)
        assert score == pytest.approx([2.5 * max(value, 0) for value in cosines], abs=1e-5)
        assert pick == pytest.approx([scale * value for value in cosines], abs=1e-4)
    capsys.readouterr()
    reward(PROMPTS, IMAGES), reward(PROMPTS, IMAGES)
    said = "the reward liked: 1 prompts so far have more than 12 tokens and are cut\n"
    assert capsys.readouterr().err == said


def test_what_is_no_whole_clip_is_refused_and_no_pickle_is_read(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    del weights["text_projection.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"rewards.liked.model=.* cannot be loaded: it lacks text_projection.weight"):
        made("clip_score", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(load_file(folder / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"cannot be loaded: .*safetensors"):
        made("pickscore", tmp_path)
    with pytest.raises(UserError, match=r"rewards.liked.model=.*nothing cannot be loaded"):
        made("pickscore", tmp_path / "nothing")
