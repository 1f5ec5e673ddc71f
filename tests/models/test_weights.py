"""Weights that stay in their files, and those that are no weights or are not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.models.test_adapters import bagel, editor, nano
from uni_train.core.errors import UserError
from uni_train.models.checkpoint import inspect, model_config
from uni_train.models.load import build_model, export_model
from uni_train.models.weights import Format, Weights, fill, mapped, write_state


def test_mapped_weights_are_private_views_of_the_files_dtype(tmp_path: Path) -> None:
    stored, model = nn.Linear(3, 2), nn.Linear(3, 2).bfloat16()
    write_state(stored.state_dict(), tmp_path, "model", Format())
    weights = Weights([tmp_path / "model.safetensors"])
    kept = model.weight
    with mapped():
        fill(model, weights.read)
    assert model.weight is kept and model.weight.dtype == torch.float32
    spans = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line
    ]
    assert any(int(first, 16) <= model.weight.data_ptr() < int(last, 16) for first, last in spans)
    assert torch.equal(model.weight, stored.weight) and torch.equal(model.bias, stored.bias)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(weights.read("weight"), stored.weight)


def janus(folder: Path) -> None:
    from tests.models.janus import tiny

    tiny.published(folder)


def pipeline(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from tests.models.diffusers import tiny

        tiny.pipeline(name).save_pretrained(folder)

    write.__name__ = name
    return write


DIFFUSERS = "diffusion_pytorch_model.safetensors"
FILES = [
    (nano, "model.safetensors"),
    (bagel, "ema.safetensors"),
    (bagel, "ae.safetensors"),
    (janus, "model.safetensors"),
    (editor, f"transformer/{DIFFUSERS}"),
    (editor, f"vae/{DIFFUSERS}"),
    (editor, "text_encoder/model.safetensors"),
    (pipeline("flux"), f"transformer/{DIFFUSERS}"),
    (pipeline("flux"), "text_encoder/model.safetensors"),
    (pipeline("flux"), "text_encoder_2/model.safetensors"),
    (pipeline("stable_diffusion"), f"unet/{DIFFUSERS}"),
    (pipeline("stable_diffusion"), f"vae/{DIFFUSERS}"),
    (pipeline("stable_diffusion"), "text_encoder/model.safetensors"),
]


@pytest.mark.parametrize(("write", "file"), FILES, ids=[f"{write.__name__} {file}" for write, file in FILES])
def test_a_weight_that_is_quantised_or_missing_is_named_at_every_door(
    write: Callable[[Path], None], file: str, tmp_path: Path
) -> None:
    if write not in (nano, bagel):
        pytest.importorskip("diffusers")
    folder = tmp_path / "model"
    write(folder)
    whole = load_file(folder / file)
    skipped = ("norm", "lm_head")  # the head of a text encoder may be missing
    name = next(name for name in whole if name.endswith(".weight") and not any(part in name for part in skipped))
    dtypes = {"I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
    if write is nano:
        dtypes |= {"U8": torch.uint8, "I64": torch.int64, "BOOL": torch.bool, "F8_E8M0": torch.float8_e8m0fnu}
    stem = name.removesuffix("weight")  # scales as ComfyUI, compressed-tensors and DeepSeek name them
    scales = {"scale_weight": torch.ones(3), "weight_scale": torch.ones(()), "weight_scale_inv": torch.ones(1, 1)}
    broken: dict[str, dict[str, torch.Tensor]] = {
        f"holds {name} as {kind}, which": whole | {name: torch.zeros(whole[name].shape, dtype=dtype)}
        for kind, dtype in dtypes.items()
    }
    broken |= {f"holds {stem}{scale} as F32, which": whole | {stem + scale: value} for scale, value in scales.items()}
    broken[f"{name} is missing"] = {one: value for one, value in whole.items() if one != name}
    for said, tensors in broken.items():
        save_file(tensors, folder / file, {"format": "pt"})
        doors = [lambda: build_model(model_config(str(folder))), lambda: inspect(str(folder))]
        if "missing" in said:
            seen = inspect(str(folder))
            assert not seen.loads and any(said in problem for problem in seen.problems)
            doors.pop()
        elif file.split("/")[0] in ("model.safetensors", "ema.safetensors", "transformer"):
            doors.append(lambda: export_model(folder, tmp_path / "out", lambda count: lambda: None, force=True))
        for door in doors:
            with pytest.raises(UserError, match=said):
                door()
