"""The held-out loss of a fine-tuning: training is as without it, killed or not, and the best update can be kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from tests.tiny import MODEL, save_drawer
from tests.training.keys import killed_after
from uni_train.cli.main import uni_train
from uni_train.models.pictures import encode_png
from uni_train.run_folder import run_checkpoints
from uni_train.training.metric_log import read_metrics

LOG = "held_out_loss.jsonl"
TALK = {"conversations": [{"from": "human", "value": "Draw 2 apples ."}, {"from": "gpt", "value": "2 apples"}]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny nano that draws; six rows to train on and four others, images and talks."""
    place = tmp_path_factory.mktemp("held_out_loss")
    save_drawer(place / "nano")
    for i in range(7):
        picture = np.random.default_rng(i).integers(0, 256, (24, 24, 3), np.uint8)
        (place / f"{i}.png").write_bytes(encode_png(picture))
    rows = [{"image": f"{i}.png", "text": f"Draw {1 + i % 3} apples ."} for i in range(7)]
    write(place / "rows.jsonl", *rows[:4], TALK, TALK)
    write(place / "others.jsonl", *rows[4:], {**TALK, "id": "another"})
    return place


def write(file: Path, *rows: dict[str, object]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def fit(place: Path, out: Path, *overrides: str) -> Result:
    given = (f"sources={place / 'rows.jsonl'}", *MODEL, f"model.checkpoint={place / 'nano'}", f"out={out}")
    quick = ("updates=4", "checkpoint_every=1", "batch.tokens=null", "batch.rows=2", "evaluate=false", "ema=0.5")
    rates = ("optimizer.lr=1e-2", "optimizer.warmup_updates=0", "held_out_loss.every=2", "strategy.all_cores=false")
    return CliRunner().invoke(uni_train, ["fit", "sft_nano", *given, *quick, *rates, *overrides], terminal_width=200)


def finish(place: Path, out: Path, *overrides: str) -> Path:
    result = fit(place, out, *overrides)
    assert result.exit_code == 0, result.output
    return out / "sft_nano" / "seed0" / "stages" / "00-sft"


def weights(stage: Path) -> dict[str, torch.Tensor]:
    return load_file(stage / "model" / "model.safetensors")


def equal(some: Path, other: Path) -> bool:
    return all(torch.equal(value, weights(other)[name]) for name, value in weights(some).items())


@pytest.fixture(scope="module")
def stage(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(place, tmp_path_factory.mktemp("runs"), f"held_out_loss.path={place / 'others.jsonl'}")


def test_training_is_as_without_it_and_the_result_has_intervals(place: Path, stage: Path, tmp_path: Path) -> None:
    plain = finish(place, tmp_path)
    assert equal(stage, plain) and not (plain / LOG).exists()
    assert (stage / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    lines = read_metrics(stage / LOG)
    assert [line["step"] for line in lines] == [0, 2, 4]
    assert sum(row[0] != row[0] for row in lines[0]["rows"]["held_out"]["mse"]) == 1, "the talk has no image"
    result = json.loads((stage / "manifest.json").read_text())["result"]
    found = result["held_out_loss"]
    assert found["rows"] == {"held_out": 4, "train": 4, "overlap": 1} and result["rows"] == {"rows": 6}
    assert found["parts"]["image, t = 0.5"]["after"]["value"] == pytest.approx(lines[-1]["held_out/mse/0.5"])
    change = found["parts"]["image, mean"]["change"]
    assert change["low"] < change["value"] < change["high"] and change["n"] == 3
    assert found["best_loss"] == min(line["held_out/loss"] for line in lines)
    assert "Held-out loss" in (stage.parents[1] / "report.html").read_text(encoding="utf-8")


def test_view_shows_a_curve_a_part(stage: Path) -> None:
    view = pytest.importorskip("uni_train.view")
    tags = view.read(stage.parents[2]).scalars["seed0/00-sft"]
    named = {tag: points for tag, points in tags.items() if tag.startswith("held_out_loss/")}
    parts = ("loss", "ce", "mse", *(f"mse/{level}" for level in (0.1, 0.3, 0.5, 0.7, 0.9)))
    assert named.keys() == {f"held_out_loss/{rows}/{part}" for rows in ("held_out", "train") for part in parts}
    assert [*named["held_out_loss/train/mse"]] == [0, 2, 4]


def test_a_killed_run_ends_with_the_same_lines(place: Path, stage: Path, tmp_path: Path) -> None:
    asked = f"held_out_loss.path={place / 'others.jsonl'}"
    with killed_after(3):
        fit(place, tmp_path, asked)
    again = finish(place, tmp_path, asked)
    assert (again / LOG).read_bytes() == (stage / LOG).read_bytes() and equal(again, stage)


def test_rows_of_a_share_are_not_trained_on(place: Path, tmp_path: Path) -> None:
    result = fit(place, tmp_path, "held_out_loss.share=0.4", "updates=2")
    assert "of 2 rows that are not trained on, and of 2 of the 4 that are" in result.output, result.output
    stage = tmp_path / "sft_nano" / "seed0" / "stages" / "00-sft"
    ids = read_metrics(stage / LOG)[0]["ids"]
    assert not {*ids["held_out"]} & {*ids["train"]}
    manifest = json.loads((stage / "manifest.json").read_text())
    assert manifest["result"]["rows"] == {"rows": 4}


@pytest.mark.parametrize(("trained", "rate", "updates"), [("all", 0.1, 5), ("lora", 0.03, 2)])
def test_the_best_update_is_kept(place: Path, tmp_path: Path, trained: str, rate: float, updates: int) -> None:
    """The last update does harm; the run is killed after the best one, and when it is extended by what does no good."""
    keys = (f"held_out_loss.path={place / 'others.jsonl'}", "held_out_loss.every=1", f"trained={trained}", "ema=null")
    rates = (f"optimizer.lr={rate}", "lora.rank=2", f"updates={updates}", "held_out_loss.keep=best")
    with killed_after(updates - 1):
        fit(place, tmp_path / "best", *keys, *rates)
    best = finish(place, tmp_path / "best", *keys, *rates)
    found = json.loads((best / "manifest.json").read_text())["result"]["held_out_loss"]
    losses = {line["step"]: line["held_out/loss"] for line in read_metrics(best / LOG) if line["step"]}
    assert found["step"] == min(losses, key=lambda step: losses[step]) == updates - 1, losses
    short = finish(place, tmp_path / "short", *keys, *rates, f"updates={found['step']}", "held_out_loss.keep=last")
    assert equal(best, short)
    places = [(one.path.name, one.updates) for one in run_checkpoints(best.parents[1])]
    assert places == [(f"step={updates:08d}", updates), ("model", updates - 1)]
    more = (*keys, *rates, f"updates={updates + 2}")
    with killed_after(updates + 1):
        fit(place, tmp_path / "best", *more)
    finish(place, tmp_path / "best", *more)
    extended = best.with_name(f"01-sft-from-{updates}")
    assert len([*extended.glob("checkpoints/best-*")]) == 1 and not [*best.glob("checkpoints/*")]
    known, lines = ((folder / LOG).read_text() for folder in (best, extended))
    assert lines.startswith(known) and lines.count("\n") == known.count("\n") + 2
    left = json.loads((extended / "manifest.json").read_text())["result"]["held_out_loss"]
    assert left["step"] != found["step"] or equal(extended, best)
    assert (best.parents[1] / "report.html").read_text(encoding="utf-8").count("<h2>Held-out loss") == 1


BAD = [
    (("held_out_loss.share=0.95",), "leaves no row of sources.rows to train on"),
    (("held_out_loss.share=0.1",), "1 rows can be held out, and an interval needs 2"),
    (("held_out_loss.path={one}",), "1 rows can be held out, and an interval needs 2"),
    (("held_out_loss.path={other}",), "other.jsonl, line 2: has no "),
    (("held_out_loss.path={bad}",), "bad.jsonl, line 3: image: "),
    (("held_out_loss.path=no.jsonl",), "held_out_loss.path: there is nothing at no.jsonl"),
    (("held_out_loss.share=0.4", "held_out_loss.path={one}"), "held_out_loss takes one of share and path"),
    (("held_out_loss.share=0.4", "held_out_loss.levels=[0.5,1.0]"), "held_out_loss.levels"),
    (("held_out_loss.share=0.4", "held_out_loss.levels=[0.5,0.5]"), "names a level twice"),
    (("held_out_loss.share=0.4", "held_out_loss.every=0"), "held_out_loss.every"),
    (("held_out_loss.share=1",), "held_out_loss.share"),
    (("held_out_loss.keep=best",), "held_out_loss.keep=best: nothing is held out"),
    (
        ("held_out_loss.share=0.4", "held_out_loss.keep=best", "strategy=fsdp2"),
        "keep=best cannot be done",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), BAD, ids=[" ".join(overrides) for overrides, _ in BAD])
def test_what_cannot_be_meant_is_refused_before_training(
    place: Path, tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    good = [{"image": str(place / f"{i}.png"), "text": "Draw 2 apples ."} for i in range(2)]
    files = {
        "one": write(tmp_path / "one.jsonl", good[0]),
        "other": write(tmp_path / "other.jsonl", good[0], {"question": "?"}),
        "bad": write(tmp_path / "bad.jsonl", *good, {**good[0], "image": "gone.png"}),
    }
    for dry in ((), ("--dry-run",)):
        result = fit(place, tmp_path / "runs", *(text.format(**files) for text in overrides), *dry)
        assert message in result.output, result.output
        assert result.exit_code in (1, 2) or (dry and f"missing: {message}" in result.output)
        assert "Traceback" not in result.output and not list(tmp_path.rglob("metrics.jsonl"))
