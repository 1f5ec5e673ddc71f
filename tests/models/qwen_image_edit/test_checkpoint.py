"""Folders: what we write diffusers reads, adapters too; sizes without weights; damaged and foreign ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import config_of, picture
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UserError
from uni_train.models.base import Request
from uni_train.models.checkpoint import inspect
from uni_train.models.family import family_of
from uni_train.models.load import build_model, load_weights, model_config, save_model
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.training.lora import adapted, count_adapters, pattern, save_adapters

REQUEST = Request("it", "make it red", (picture(0),), seed=1)


def shake(model: QwenImageEdit, part: str = "") -> None:
    """Other numbers in the transformer's weights whose names contain `part`."""
    with torch.no_grad():
        for i, (name, weight) in enumerate(model.transformer.named_parameters()):
            if part in name:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(i)) * 0.05)


def velocity(model: QwenImageEdit) -> torch.Tensor:
    with torch.no_grad():
        return model.velocity(model.noise([REQUEST]), 0.7, model.encode([REQUEST]))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_what_is_written_is_read_by_diffusers_and_by_us(
    build: Callable[..., QwenImageEdit], folder: Path, tmp_path: Path
) -> None:
    from diffusers import QwenImageEditPlusPipeline

    model = build()
    shake(model)
    save_model(model, tmp_path / "model")
    pipeline = QwenImageEditPlusPipeline.from_pretrained(tmp_path / "model", processor=None)
    pipeline.register_modules(processor=model.processor)
    seen = [Image.fromarray(REQUEST.images[0])]
    made = pipeline(seen, "x", height=32, width=32, true_cfg_scale=1.0, num_inference_steps=2)
    assert made.images[0].size == (32, 32)
    theirs = pipeline.transformer.state_dict()
    assert all(torch.equal(theirs[name], value) for name, value in model.transformer.state_dict().items())
    other, expected = build(), velocity(model)
    assert not torch.allclose(velocity(other), expected, atol=1e-3)
    load_weights(other, tmp_path / "model")
    assert torch.equal(velocity(other), expected) and torch.equal(velocity(build(tmp_path / "model")), expected)
    weights = "text_encoder/model.safetensors"
    assert (folder / weights).stat().st_ino == (tmp_path / "model" / weights).stat().st_ino, "no room taken twice"

    out = tmp_path / "out"
    more = ["--dtype", "bfloat16", "--shard-gb", "1e-4"]
    told = CliRunner().invoke(uni_train, ["export", str(tmp_path / "model"), str(out), *more])
    assert told.exit_code == 0, told.output
    assert inspect(str(out)).weights["transformer"] == ("bfloat16",)
    QwenImageEditPlusPipeline.from_pretrained(out, processor=None)
    assert (out / "transformer" / "diffusion_pytorch_model.safetensors.index.json").is_file()


def comfyui(stored: dict[str, Tensor], layer: str) -> Tensor:
    """What is added to a weight: LoRAAdapter of comfy/weight_adapter/lora.py, by the keys of comfy/lora.py."""
    down, up, alpha = (stored[f"{layer}.{part}"] for part in ("lora_down.weight", "lora_up.weight", "alpha"))
    return alpha.item() / len(down) * up @ down


def sglang(stored: dict[str, Tensor], layer: str) -> Tensor:
    """The same of sglang: multimodal_gen/runtime/pipelines_core/lora/pipeline.py and format_adapter.py."""
    renamed = {name.replace("lora_down", "lora_A").replace("lora_up", "lora_B"): x for name, x in stored.items()}
    a, b = (renamed[f"{layer}.{part}.weight"] for part in ("lora_A", "lora_B"))
    return int(renamed[f"{layer}.alpha"].item()) / len(a) * b @ a


def test_adapters_are_merged_alike_by_diffusers_comfyui_and_sglang(
    build: Callable[..., QwenImageEdit], tmp_path: Path
) -> None:
    model, settings = build(), LoraConfig(rank=2, alpha=6.5, targets="both")
    names, before = list(model.state_dict()), {k: v.clone() for k, v in model.transformer.state_dict().items()}
    expected = count_adapters(model, settings)
    with adapted(model, settings, seed=1):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        adapters = [name for name, _ in model.named_parameters() if "lora_" in name]
        shake(model, "lora_")
        save_adapters(model, settings, tmp_path)
    assert sum(parameter.numel() for parameter in trained) == expected
    assert len(adapters) == 2 * (12 * 2) and all("transformer.transformer_blocks." in name for name in adapters)
    assert list(model.state_dict()) == names
    after = model.transformer.state_dict()

    pipeline = tiny.pipeline(zero_cond_t=True)
    pipeline.load_lora_weights(tmp_path)
    pipeline.fuse_lora()
    pipeline.unload_lora_weights()
    fused = pipeline.transformer.state_dict()
    assert fused.keys() == after.keys()
    assert all(torch.allclose(fused[name], after[name], atol=1e-6) for name in after)

    stored = load_file(tmp_path / "pytorch_lora_weights.safetensors")
    layers = {name.removesuffix(".alpha") for name in stored if name.endswith(".alpha")}
    assert len(stored) == 3 * len(layers) == 3 * 2 * 12
    for layer in layers:
        added = after[f"{layer}.weight"] - before[f"{layer}.weight"]
        assert added.abs().max() > 1e-3
        assert all(torch.allclose(added, rule(stored, layer), atol=1e-6) for rule in (comfyui, sglang))


@pytest.mark.parametrize(("targets", "stream"), [("generation", "img_mlp"), ("understanding", "txt_mlp")])
def test_targets_name_a_stream(model: QwenImageEdit, targets: str, stream: str) -> None:
    layers = {name for name, _ in model.named_modules() if re.fullmatch(pattern(model, targets), name)}
    assert len(layers) == 2 * 6 and any(stream in name for name in layers)
    assert all(name.startswith("transformer.") for name in layers)


def test_sizes_without_weights() -> None:
    found = inspect("qwen_image_edit_2511")
    assert found.parameters == {"transformer": 20_430_401_088, "text encoder": 8_292_166_656, "VAE": 126_892_531}
    assert found.kind == "qwen_image_edit" and tuple(found.parameters) == family_of(found.kind).parts
    assert not found.loads and "checkpoints/Qwen-Image-Edit-2511" in found.problems[0]
    forms = [compose("sft", [f"model=qwen_image_edit{form}"]).model for form in ("_2511", "_2509", "")]
    assert all(form.architecture == forms[0].architecture for form in forms)


@pytest.mark.parametrize(("stored", "dtype"), [(torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)])
def test_each_part_has_one_dtype_whatever_is_stored(build: Callable, folder: Path, tmp_path: Path, stored, dtype):
    half = Path(shutil.copytree(folder, tmp_path / "half"))
    for file in half.glob("*/*.safetensors"):
        state = load_file(file).items()
        save_file({n: v if "norm" in n or "bias" in n else v.to(stored) for n, v in state}, file, {"format": "pt"})
    model = build(half)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert torch.isfinite(velocity(model)).all()


def test_a_folder_tells_what_it_is(folder: Path, two_others: tuple[Path, Path]) -> None:
    names = [model_config(str(place)).name for place in (folder, *two_others)]
    assert names == ["qwen_image_edit_2511", "qwen_image_edit_2509", "qwen_image_edit"]
    found = inspect(str(folder))
    assert found.loads and found.total == sum(found.parameters.values()) == 193_207
    assert found.weights == {part: ("float32",) for part in ("transformer", "text_encoder", "vae")}


def test_folders_that_cannot_be_loaded_are_told_apart(folder: Path, tmp_path: Path) -> None:
    def refused(change: Callable[[Path], object]) -> str:
        broken = Path(shutil.copytree(folder, tmp_path / str(len(list(tmp_path.iterdir())))))
        change(broken)
        with pytest.raises(UserError) as caught:
            build_model(config_of(broken))
        assert caught.value.hint
        return caught.value.message

    def narrower(at: Path) -> None:
        config = json.loads((at / "transformer" / "config.json").read_text())
        (at / "transformer" / "config.json").write_text(json.dumps(config | {"joint_attention_dim": 8}))

    weights = Path("transformer") / "diffusion_pytorch_model.safetensors"
    foreign = json.dumps({"_class_name": "StableDiffusion3Pipeline"})
    for says, change in (
        ("damaged", lambda at: (at / weights).write_bytes((folder / weights).read_bytes()[:-9])),
        ("none of diffusion_pytorch_model.safetensors", lambda at: (at / weights).unlink()),
        ("holds no tokenizer", lambda at: shutil.rmtree(at / "tokenizer")),
        ("config.json is damaged", lambda at: (at / "scheduler" / "scheduler_config.json").write_text("{")),
        ("(StableDiffusion3Pipeline)", lambda at: (at / "model_index.json").write_text(foreign)),
        ("txt_in.weight has shape [32, 16], not [32, 8]", narrower),
    ):
        assert says in refused(change)
    with pytest.raises(UserError, match="no random weights to start from"):
        build_model(replace(config_of(folder), checkpoint=None))
    with pytest.raises(UserError, match=r"model=bagel_7b cannot be loaded from .*: it is Qwen-Image-Edit"):
        build_model(replace(compose("sft").model, checkpoint=str(folder)))
