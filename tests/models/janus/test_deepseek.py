"""Janus in DeepSeek's own layout: the same model as in transformers', at a tiny size and by its names at full size."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from tests.models.janus import deepseek as written
from tests.models.janus.tiny import SIDE
from tests.models.janus.tiny import published as published_by_transformers
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.models.base import Request
from uni_train.models.checkpoint import inspect
from uni_train.models.family import family_of
from uni_train.models.janus import deepseek
from uni_train.models.janus.checkpoint import on_meta, shapes
from uni_train.models.janus.unified import IMAGE, Janus
from uni_train.models.load import build_model, export_model, model_config
from uni_train.models.weights import Stored, Weights

SHARD = "model-00001-of-00002.safetensors"
IMAGES = tuple(np.full((SIDE, SIDE * 2, 3), value, np.uint8) for value in (0, 200))


def built(folder: Path) -> Janus:
    config = model_config(str(folder))
    model = build_model(replace(config, sampling=replace(config.sampling, max_think_tokens=6)))
    assert isinstance(model, Janus)
    return model


@pytest.fixture(scope="module", autouse=True)
def _sizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, values in written.SIZES.items():
            patch.setitem(deepseek.SIZES, name, values)
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Janus:
    folder = published_by_transformers(tmp_path_factory.mktemp("transformers") / "janus")
    saved = json.loads((folder / "preprocessor_config.json").read_text())
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps({**saved, **half}))
    return built(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, expected: Janus) -> Path:
    return written.published(tmp_path_factory.mktemp("deepseek") / "janus", expected)


def asked(model: Janus) -> list[Any]:
    shown = [Request("a", "Is it dark?", IMAGES[:1]), Request("b", "What?", IMAGES)]
    drawn = [Request("a", "Draw a cup.", seed=1), Request("b", "Draw.", seed=2, thought="So draw 3 cups.")]
    return [model.answer(shown), model.think(drawn), *map(np.ndarray.tolist, model.draw(drawn))]


def test_it_answers_thinks_and_draws_as_in_transformers_layout(folder: Path, expected: Janus, tmp_path: Path) -> None:
    model = built(folder)
    assert asked(model) == asked(expected)
    assert all(
        torch.equal(value, expected.janus.state_dict()[name]) for name, value in model.janus.state_dict().items()
    )
    assert model.janus.config.image_token_id == model.tokenizer.convert_tokens_to_ids(IMAGE)
    found = inspect(str(folder))
    assert found.loads and "DeepSeek" in found.what
    assert found.total == sum(value.numel() for value in expected.janus.state_dict().values())
    out = tmp_path / "out"
    export_model(folder, out, lambda count: lambda: None)
    copied = load_file(out / "model.safetensors")
    source = {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}
    assert copied.keys() == source.keys() and all(torch.equal(copied[name], source[name]) for name in source)
    assert asked(built(out)) == asked(expected)


def test_a_command_draws_from_it(folder: Path, tmp_path: Path) -> None:
    words = ["generate", "-m", str(folder), "-p", "Draw 2 cups .", "--out", str(tmp_path / "cups.png")]
    found = CliRunner().invoke(uni_train, words)
    assert found.exit_code == 0 and (tmp_path / "cups.png").is_file(), found.output


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("7b", {"num_hidden_layers": 30}),
        ("1b", {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 24}),
    ],
)
def test_published_names_are_all_of_the_module_at_full_size(
    name: str, language: dict[str, int], tmp_path: Path
) -> None:
    """Sizes as DeepSeek publishes them: what a LlamaConfig has by default is left out."""
    model, _ = family_of("janus").skeleton(model_config(f"janus_pro_{name}"))
    assert isinstance(model, Janus)
    with torch.device("meta"):
        theirs = {key: tuple(value.shape) for key, value in written.state(model.janus).items()}
    assert theirs["vision_model.vision_tower.blocks.23.attn.qkv.weight"] == (3072, 1024)
    assert theirs["vision_model.vision_tower.pos_embed"] == (1, 576, 1024)
    assert theirs["gen_vision_model.decoder.conv_blocks.4.res.2.conv2.weight"] == (128, 128, 3, 3)
    assert theirs["gen_vision_model.encoder.conv_blocks.3.downsample.conv.weight"] == (256, 256, 3, 3)
    assert theirs["gen_vision_model.decoder.mid.1.q.weight"] == (512, 512, 1, 1)
    weights = Weights(())
    weights.update({key: Stored(tmp_path, key, torch.bfloat16, shape) for key, shape in theirs.items()})
    values = written.sizes(
        model.janus, "siglip_large_patch16_384", "VQ-16", max_position_embeddings=16384, vocab_size=102_400, **language
    )
    (tmp_path / "config.json").write_text(json.dumps(values))
    ours, read = shapes(on_meta(tmp_path)), deepseek.DeepSeekWeights(weights)
    assert read.shapes == ours == shapes(model.janus)
    assert read.bytes == sum(value.numel() * 2 for value in model.janus.state_dict().values())


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / SHARD)
        change(tensors)
        save_file(tensors, folder / SHARD, {"format": "pt"})

    return damage


def configured(part: str, key: str, value: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        values[part].pop(key) if not value else values[part]["params"].update({key: value})
        (folder / "config.json").write_text(json.dumps(values))

    return damage


def unmarked(folder: Path) -> None:
    for file in folder.glob("tokenizer*.json"):
        file.write_text(file.read_text().replace("image_placeholder", "picture"))


def pickled(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "message", "hint"),
    [
        (changed(lambda held: held.pop(min(held))), r"model\.aligner\.fc1\.bias is missing", "deepseek-community"),
        (
            changed(lambda held: held.update({"gen_vision_model.x": torch.zeros(1)})),
            "vqmodel.x is not part of the model",
            "deepseek-community",
        ),
        (pickled, "a Janus in DeepSeek's own layout without safetensors", "deepseek-community/Janus-Pro-7B"),
        (configured("gen_vision_config", "params", ""), "'params' is missing or unknown", "VQ-16"),
        (
            configured("vision_config", "model_name", "sam_b"),
            "'sam_b' is missing or unknown",
            "siglip_large_patch16_384",
        ),
        (
            lambda folder: (folder / "preprocessor_config.json").unlink(),
            "preprocessor_config.json",
            "deepseek-community",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), "cannot be loaded", "deepseek-community"),
        (unmarked, "its tokenizer has no <image_placeholder>", "deepseek-community"),
        (configured("gen_vision_config", "image_token_size", "x"), "are those of no Janus", "deepseek-community"),
    ],
)
def test_a_damaged_folder_is_named(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], message: str, hint: str
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    damage(copied)
    with pytest.raises(UserError, match=message) as error:
        build_model(model_config(str(copied)))
    assert hint in (error.value.hint or "")
