"""`uni_train models inspect` and `uni_train export`: what they print, and with which exit code they end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.models.bagel.published import published
from uni_train.cli.main import uni_train

GOLDEN = Path(os.environ.get("UNI_TRAIN_GOLDEN", Path(__file__).parents[1] / "data" / "golden")) / "bagel"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(uni_train, arguments, catch_exceptions=False)


@pytest.fixture
def bagel(tmp_path: Path) -> Path:
    return published(GOLDEN, tmp_path / "BAGEL")


def test_the_models_are_still_listed() -> None:
    result = run("models")
    assert result.exit_code == 0 and "nano" in result.output and "bagel_7b" in result.output


def test_a_checkpoint_is_described(bagel: Path) -> None:
    result = run("models", "inspect", str(bagel))
    assert result.exit_code == 0, result.output
    for part in ("BAGEL, official layout", "ema.safetensors", "float32", "generation", "VAE", "complete"):
        assert part in result.output
    found = json.loads(run("models", "inspect", str(bagel), "--json").output)
    assert found["loads"] and found["total"] == sum(found["parameters"].values())


def test_what_is_incomplete_or_something_else_ends_with_1(bagel: Path, tmp_path: Path) -> None:
    (bagel / "ae.safetensors").unlink()
    result = run("models", "inspect", str(bagel))
    assert result.exit_code == 1 and "ae.safetensors is missing" in result.output
    (tmp_path / "model.pt").write_bytes(b"")
    result = run("models", "inspect", str(tmp_path / "model.pt"))
    assert result.exit_code == 1 and "pickle" in result.output


def test_names_stand_for_their_checkpoints() -> None:
    assert "complete" in run("models", "inspect", "nano").output
    result = run("models", "inspect", "bagel_7b")
    assert "14,691,079,811" in result.output
    result = run("models", "inspect", "bagel7b")
    assert result.exit_code == 2 and "Did you mean bagel_7b?" in result.output


def test_an_export_can_be_inspected(bagel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("export", str(bagel), str(out), "--dtype", "bfloat16")
    assert result.exit_code == 0, result.output
    found = json.loads(run("models", "inspect", str(out), "--json").output)
    assert found["loads"] and found["weights"]["ema.safetensors"] == ["bfloat16"]
    result = run("export", str(tmp_path / "nowhere"), str(out))
    assert result.exit_code == 1 and "nothing at" in result.output
