"""What `doctor` says of a sound checkpoint, and of the ways in which one commonly is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import load_file, save_file

from uni_train.cli.main import uni_train
from uni_train.models.family import family_of


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    shipped = family_of("nano").shipped
    assert shipped is not None
    return Path(shutil.copytree(shipped, tmp_path / "nano"))


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    edit(weights)
    save_file(weights, file, {"format": "pt"})


def first(weights: dict[str, torch.Tensor], part: str) -> torch.Tensor:
    """The first matrix with `part` in its name."""
    return next(weight for name, weight in weights.items() if part in name and weight.ndim == 2)


def doctor(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(uni_train, ["doctor", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_sound_checkpoint_passes_and_leaves_its_probe(tmp_path: Path) -> None:
    code, said = doctor("nano", "--image", tmp_path / "probe.png")
    assert code == 0 and "nothing wrong was found" in said and len(said.splitlines()) <= 20
    for check in ("layout", "dtypes", "memory", "numbers", "tokenizer", "first loss", "thought", "image"):
        assert f"ok    {check}" in said, said
    assert Image.open(tmp_path / "probe.png").size == (24, 24)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda weights: first(weights, "layers.0.mlp.down_proj").fill_(float("nan")), ["NaN, infinity", "layers.0"]),
        (lambda weights: first(weights, "layers.0.mlp.down_proj").zero_(), ["all zero, so never trained", "layers.0"]),
        (
            lambda weights: first(weights, "lm_head").normal_(std=20, generator=torch.Generator().manual_seed(0)),
            ["wrong first loss"],
        ),
        (lambda weights: weights.pop(next(iter(weights))), ["wrong layout"]),
    ],
)
def test_weights_that_cannot_be_meant_are_named(checkpoint: Path, edit: Callable, told: list[str]) -> None:
    change(checkpoint, edit)
    code, said = doctor(checkpoint)
    assert code == 1 and all(part in said for part in told)


def test_adapters_that_do_nothing_are_told_and_those_that_are_not_merged(checkpoint: Path) -> None:
    name = "language_model.model.layers.0.self_attn.o_proj"
    out, inner = next(
        w.shape for n, w in load_file(checkpoint / "model.safetensors").items() if n.endswith(f"{name}.weight")
    )
    tensors = {f"{name}.lora_A.weight": torch.ones(2, inner), f"{name}.lora_B.weight": torch.zeros(out, 2)}
    (checkpoint / "adapter").mkdir()
    file = checkpoint / "adapter" / "pytorch_lora_weights.safetensors"
    save_file(tensors, file)
    code, said = doctor(f"{checkpoint}+{file}")
    assert code == 1 and "1 of 1 layers do nothing" in said
    code, said = doctor(checkpoint)
    assert code == 0 and f"{file} is not merged: for that, give {checkpoint}+{file}" in said
