"""GPUs that torch cannot use are told, and asked for in vain are an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.distributed import devices
from uni_train.distributed.devices import unused_gpus
from uni_train.stages.cpu import prepare_cpu


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a GPU, whose torch is built for CPUs."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(devices, "_FILES", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_torch_for_cpus_on_a_machine_with_a_gpu_says_so(
    card: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_cpu(torch.get_num_threads())
    said = capsys.readouterr().err
    assert "is built for CPUs" in said and "pytorch.org" in said
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert unused_gpus() is None, "hidden on purpose"


def test_a_gpu_that_torch_has_not_is_asked_for_in_vain(card: None, tmp_path: Path) -> None:
    command = ["fit", "stars_curriculum", "strategy.accelerator=gpu", f"out={tmp_path / 'runs'}"]
    refused = CliRunner().invoke(uni_train, command)
    assert refused.exit_code == 1 and "strategy.accelerator=gpu: this machine has a GPU" in refused.output
    assert len(refused.output.splitlines()) == 2 and not (tmp_path / "runs").exists()
