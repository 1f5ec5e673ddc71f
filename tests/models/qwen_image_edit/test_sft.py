"""Recipe sft with an editor: trained, used from the command line, told beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import load_file

from tests.models.qwen_image_edit import tiny
from tests.models.qwen_image_edit.conftest import picture
from tests.tiny import finish, fit
from uni_train.cli.main import uni_train
from uni_train.plan import before_run
from uni_train.training.metric_log import read_metrics

QUICK = (
    *tiny.KEYS,
    *(f"sources.{name}=null" for name in ("t2i", "editing", "vlm")),
    *("trained=all", "updates=2", "batch.tokens=null", "batch.rows=4", "batch.accumulate=2"),
    *("optimizer.warmup_updates=0", "optimizer.lr=1e-3"),
)
ENDS = ("attn.to_add_out", "txt_mlp.net.0.proj", "txt_mlp.net.2")
WEIGHTS = Path("model") / "transformer" / "diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    lines = []
    for i, (height, width) in enumerate([(50, 80), (64, 64), (90, 40), (50, 80)]):
        for name in ("in", "out"):
            Image.fromarray(picture(i, height, width)).save(place / f"{name}{i}.png")
        lines.append({"prompt": f"change it {i}", "images": [f"in{i}.png"], "image": f"out{i}.png"})
    (place / "items.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return place


@pytest.fixture
def given(folder: Path, rows: Path) -> list[str]:
    source = f"sources.items={{form:items,path:{rows / 'items.jsonl'},learn:[image]}}"
    return [*QUICK, f"model.checkpoint={folder}", source]


@pytest.mark.slow
def test_it_trains_and_draws(folder: Path, rows: Path, given: list[str], tmp_path: Path) -> None:
    run = finish(tmp_path / "whole", *given, recipe="sft")
    stage = run / "stages" / "00-sft"
    before = load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors")
    after = load_file(stage / WEIGHTS)
    still = {name for name, value in before.items() if torch.equal(after[name], value)}
    last = "transformer_blocks.1"
    assert before.keys() == after.keys() and still == {  # its text stream ends there: nothing asks for these
        *(f"{last}.{name}.weight" for name in (*ENDS, "attn.add_q_proj", "attn.norm_added_q")),
        *(f"{last}.{name}.bias" for name in (*ENDS, "attn.add_q_proj")),
    }
    assert all(line["mse"] > 0 and line["ce"] == 0 for line in read_metrics(stage / "metrics.jsonl"))

    out = tmp_path / "it.png"
    asked = ["generate", "-m", str(run), "-p", "make it red", "--image", str(rows / "in0.png"), "--out", str(out)]
    drawn = CliRunner().invoke(uni_train, [*asked, "--steps", "2"])
    assert drawn.exit_code == 0, drawn.output
    assert Image.open(out).size == (96, 64)
    words = ["generate", "-m", str(run), "-p", "a cat", "--out", str(out), "--steps", "2"]
    alone = CliRunner().invoke(uni_train, words)
    assert alone.exit_code == 0 and Image.open(out).size == (64, 64), alone.output


def test_rows_that_are_no_edits_and_dry_runs(
    rows: Path, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"prompt": "say a cat", "completion": "a cat"}))
    result = fit(tmp_path, *given, f"sources.bad={{path:{bad}}}", recipe="sft")
    assert result.exit_code == 1 and "bad.jsonl, line 1: it has texts to be learned" in " ".join(result.output.split())
    monkeypatch.setattr(before_run, "memory", lambda: 100_000)
    plan = fit(tmp_path, *given, "strategy.accelerator=cpu", "--dry-run", recipe="sft")
    assert plan.exit_code == 0, plan.output
    for line in (
        "88,800",
        "79,392 parameters, 41.1 %",  # the transformer without its last text stream, which reaches nothing
        "one update: 4 edits",
        "2 micro-batches",
        "latents [1, 24 + 24 shown, 16]",
        "on one h100-80gb with ",
    ):
        assert line in plan.output
