"""What `doctor` says of a sound checkpoint, and of the ways in which one commonly is not."""

from __future__ import annotations

import shutil
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


def change(folder: Path, part: str, value: float) -> str:
    """Fill the first matrix with `part` in its name; returns that name."""
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    name = next(name for name, weight in weights.items() if part in name and weight.ndim == 2)
    weights[name].fill_(value)
    save_file(weights, file, {"format": "pt"})
    return name


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


@pytest.mark.parametrize(("value", "told"), [(float("nan"), "NaN or infinity"), (0.0, "all zero, so never trained")])
def test_weights_that_cannot_be_meant_are_named_by_layer(checkpoint: Path, value: float, told: str) -> None:
    name = change(checkpoint, "down_proj", value)
    code, said = doctor(checkpoint)
    assert code == 1 and f"{told}" in said and name.removeprefix("bagel.") in said


def test_a_head_that_knows_nothing_has_a_first_loss_out_of_range(checkpoint: Path) -> None:
    change(checkpoint, "lm_head", 50.0)
    (file,) = checkpoint.glob("*.safetensors")
    weights = load_file(file)
    head = next(name for name in weights if "lm_head" in name)
    weights[head] = torch.randn(weights[head].shape, generator=torch.Generator().manual_seed(0)) * 20
    save_file(weights, file, {"format": "pt"})
    code, said = doctor(checkpoint)
    assert code == 1 and "wrong first loss" in said


def test_adapters_that_do_nothing_are_told(checkpoint: Path) -> None:
    (checkpoint / "adapter").mkdir()
    tensors = {"a.lora_A.weight": torch.ones(2, 4), "a.lora_B.weight": torch.zeros(4, 2)}
    save_file(tensors, checkpoint / "adapter" / "adapter_model.safetensors")
    code, said = doctor(checkpoint)
    assert code == 1 and "1 of 1 do nothing" in said


def test_a_checkpoint_that_is_cut_short_is_wrong_by_its_layout(checkpoint: Path) -> None:
    (file,) = checkpoint.glob("*.safetensors")
    weights = load_file(file)
    weights.pop(next(iter(weights)))
    save_file(weights, file, {"format": "pt"})
    code, said = doctor(checkpoint)
    assert code == 1 and "wrong layout" in said
