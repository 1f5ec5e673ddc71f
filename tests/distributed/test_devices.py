"""GPUs that torch cannot use are told, and asked for in vain are an error; deterministic kernels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.tiny import QUICK, finish
from uni_train import fitting
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.distributed import devices
from uni_train.distributed.devices import deterministic_kernels, unused_gpus
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


def test_an_operation_without_a_deterministic_kernel_is_named() -> None:
    with pytest.raises(UserError, match="put_ does not have a deterministic"), deterministic_kernels(True):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
def test_a_deterministic_run_has_the_same_numbers_on_cpus(
    finished: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen, run = [], fitting._run

    def look(*given: Any) -> None:
        seen.append((torch.are_deterministic_algorithms_enabled(), os.environ["CUBLAS_WORKSPACE_CONFIG"]))
        run(*given)

    monkeypatch.setattr(fitting, "_run", look)
    first = "rounds=[{task:mapping,level:1,replay:{pretrain:${pretrain_replay}}}]"
    again = finish(tmp_path, *QUICK, "strategy.deterministic=true", first)
    assert seen == [(True, ":4096:8")]
    (file,) = again.glob("stages/*/model/*.safetensors")
    assert (finished / file.relative_to(again)).read_bytes() == file.read_bytes()
