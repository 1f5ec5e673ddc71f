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


def test_a_checkpoint_and_its_export_are_described(bagel: Path, tmp_path: Path) -> None:
    result = run("models", "inspect", str(bagel))
    assert result.exit_code == 0, result.output
    for part in ("BAGEL, official layout", "ema.safetensors", "float32", "generation", "VAE", "complete"):
        assert part in result.output
    out = tmp_path / "out"
    assert run("export", str(bagel), str(out), "--dtype", "bfloat16").exit_code == 0
    found, exported = (json.loads(run("models", "inspect", str(one), "--json").output) for one in (bagel, out))
    assert found["loads"] and found["total"] == sum(found["parameters"].values())
    assert exported["loads"] and exported["weights"]["ema.safetensors"] == ["bfloat16"]


def test_names_stand_for_their_checkpoints_and_what_is_none_ends_with_an_error(bagel: Path, tmp_path: Path) -> None:
    (bagel / "ae.safetensors").unlink()
    (tmp_path / "model.pt").write_bytes(b"")
    for words, code, *said in (
        ("models", 0, "nano", "bagel_7b"),
        ("models inspect nano", 0, "complete"),
        ("models inspect bagel_7b", 1, "14,691,079,811"),
        ("models inspect bagel7b", 2, "Did you mean bagel_7b?"),
        (f"models inspect {bagel}", 1, "ae.safetensors is missing"),
        (f"models inspect {tmp_path}/model.pt", 1, "pickle"),
    ):
        result = run(*words.split())
        assert result.exit_code == code and all(part in result.output for part in said), result.output
