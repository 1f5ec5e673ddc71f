"""Recipe sft on a published folder: all forms, adapters, killed and unbroken runs, what a person is told."""

from __future__ import annotations

import io
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image
from safetensors.torch import load_file, save_file

from tests import tiny
from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.training.keys import killed_after
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.run_folder import run_checkpoints, stage_folders, stored_config
from uni_train.training.metric_log import read_metrics

QUICK = ("model.threads=1", "updates=4", "checkpoint_every=2", "batch.tokens=600", "batch.example_tokens=400")
QUICK += ("model.architecture.image_size=32", "ema=0.5", "optimizer.warmup_updates=0", "optimizer.lr=1e-3")
QUICK += ("strategy.precision=32-true",)


def png(seed: int, height: int, width: int) -> bytes:
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)).save(data, "PNG")
    return data.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BAGEL folder and rows of all four forms beside it."""
    place = tmp_path_factory.mktemp("sft")
    published(FOLDER, place / "BAGEL")
    images = [png(i, 40, 50) for i in range(4)]
    captions = [json.dumps({"a": f"picture {i}", "b": f"number {i}"}) for i in range(4)]
    pq.write_table(pa.table({"image": images, "captions": captions}), place / "t2i.parquet")
    steps = pa.table({"image_list": [images[:3], images[1:]], "instruction_list": [[["turn"], ["bend"]]] * 2})
    pq.write_table(steps, place / "edit.parquet")
    (place / "a.png").write_bytes(images[0])
    spoken = [{"from": "human", "value": "<image> what?"}, {"from": "gpt", "value": "noise"}]
    bare = [{"from": "human", "value": "what?"}, spoken[1]]
    lines = [{"image": "a.png", "conversations": spoken}, {"conversations": bare}]
    (place / "vlm.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = [{"prompt": f"draw {i}", "thought": "hm", "image": "a.png"} for i in range(3)]
    (place / "items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return place


def sources(place: Path) -> list[str]:
    paths = {"t2i": "t2i.parquet", "editing": "edit.parquet", "vlm": "vlm.jsonl"}
    given = [f"sources.{name}.path={place / path}" for name, path in paths.items()]
    items = f"{{form:items,path:{place / 'items.jsonl'},learn:[thought,image]}}"
    return [*given, f"sources.vlm.images={place}", f"sources.items={items}"]


WORDS = ("sources.t2i=null", "sources.editing=null", "sources.items=null")
"""Text about images is learned, and no image."""


def fit(place: Path, out: Path, *overrides: str) -> Result:
    return tiny.fit(out, f"model.checkpoint={place / 'BAGEL'}", *QUICK, *sources(place), *overrides, recipe="sft")


def finish(place: Path, out: Path, *overrides: str) -> Path:
    result = fit(place, out, *overrides)
    assert result.exit_code == 0, result.output
    return out / "sft" / "seed0" / "stages" / "00-sft"


def changed_by(place: Path, stage: Path) -> set[str]:
    """The tensors that a training has changed; it leaves none out and adds none."""
    before, after = load_file(place / "BAGEL" / "ema.safetensors"), load_file(stage / "model" / "ema.safetensors")
    assert before.keys() == after.keys()
    return {name for name, value in before.items() if not torch.equal(after[name], value)}


@pytest.fixture(scope="module")
def finished(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(place, tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_all_forms_train_and_the_model_is_whole(place: Path, finished: Path) -> None:
    still = load_file(place / "BAGEL" / "ema.safetensors").keys() - changed_by(place, finished)
    # Softmax ignores the ViT's key biases, so these may stay.
    ignored = {name for name in still if name.endswith("k_proj.bias") and name.startswith("vit_model")}
    assert still == {"latent_pos_embed.pos_embed", "vit_pos_embed.pos_embed"} | ignored
    result = json.loads((finished / "manifest.json").read_text())["result"]
    assert result["rows"] == {"t2i": 4, "editing": 2, "vlm": 2, "items": 3} and result["bad_rows"] == 0
    lines = read_metrics(finished / "metrics.jsonl")
    assert len(lines) == 4 and sum(line["ce"] > 0 and line["mse"] > 0 for line in lines) >= 2


@pytest.mark.slow
def test_a_killed_run_ends_in_the_same_numbers_and_its_time_adds_up(
    place: Path, finished: Path, tmp_path: Path
) -> None:
    with killed_after(3):
        fit(place, tmp_path)
    left = tmp_path / "sft" / "seed0" / "stages" / "00-sft"
    half = left / ".model.0a1b2c3d.partial.safetensors"
    half.write_bytes(b"half")
    stage = finish(place, tmp_path)
    assert not half.exists() and not (stage / ".clock.json").exists()
    assert (stage / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    ours, theirs = (load_file(folder / "model" / "ema.safetensors") for folder in (stage, finished))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


@pytest.mark.slow
def test_adapters_are_stored_and_merged(place: Path, tmp_path: Path) -> None:
    with tiny.keeping_steps():
        stage = finish(place, tmp_path, "trained=lora", "lora.rank=2", "lora.targets=generation", "ema=null")
    changed = changed_by(place, stage)
    assert changed and all("proj" in name and "_moe_gen" in name for name in changed)
    adapters = load_file(stage / "adapter" / "adapter_model.safetensors")
    assert len(adapters) == 2 * len(changed)
    checkpoint = max((stage / "checkpoints").iterdir())
    assert all("lora_" in name for name in load_file(checkpoint / "state.safetensors") if "state_dict/model." in name)


@pytest.mark.slow
def test_adapters_on_quantised_weights_resume_and_leave_a_plain_model(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # longer than the run
    keys = ("trained=lora", "lora.rank=16", "ema=null", "model.weights=nf4", "optimizer.state=8bit")
    keys += ("optimizer.lr=1e-2", "updates=2", "checkpoint_every=1")
    straight = finish(place, tmp_path / "straight", *keys)
    with killed_after(1):
        fit(place, tmp_path / "stopped", *keys)
    stopped = finish(place, tmp_path / "stopped", *keys)
    before, ours, theirs = (
        load_file(folder / "ema.safetensors") for folder in (place / "BAGEL", stopped / "model", straight / "model")
    )
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert {name: value.shape for name, value in before.items()} == {name: v.shape for name, v in ours.items()}


@pytest.mark.parametrize(("precision", "trained"), [("bf16-mixed", "float32"), ("bf16-true", "bfloat16")])
def test_weights_are_trained_in_the_dtype_of_the_precision_whatever_is_stored(
    place: Path, tmp_path: Path, precision: str, trained: str
) -> None:
    half = Path(shutil.copytree(place, tmp_path / "place"))
    file = half / "BAGEL" / "ema.safetensors"
    save_file({name: value if "norm" in name else value.half() for name, value in load_file(file).items()}, file)
    stage = finish(half, tmp_path, f"strategy.precision={precision}", "updates=1", "ema=null", *WORDS)
    after = load_file(stage / "model" / "ema.safetensors").values()
    assert {str(value.dtype) for value in after} == {f"torch.{trained}"}


@pytest.mark.parametrize("overrides", [(), pytest.param(("trained=lora", "lora.rank=2"), marks=pytest.mark.slow)])
def test_more_updates_continue_a_finished_run_as_if_they_had_been_asked_at_once(
    place: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    keys = (*WORDS, *overrides)
    whole = finish(place, tmp_path / "whole", *keys, "updates=5")
    run = finish(place, tmp_path / "parts", *keys, "updates=2").parents[1]
    with killed_after(3):
        fit(place, tmp_path / "parts", *keys, "updates=4")
    for updates in ("updates=4", "updates=5", "updates=5"):
        result = fit(place, tmp_path / "parts", *keys, updates)
        assert result.exit_code == 0, result.output
    stages = stage_folders(run)
    assert [stage.name for stage in stages] == ["00-sft", "01-sft-from-2", "02-sft-from-4"]
    assert [[step.name for step in stage.glob("checkpoints/*")] for stage in stages] == [[], [], ["step=00000005"]]
    assert [(place.name, place.updates) for place in run_checkpoints(run)] == [
        ("00-sft", 2), ("01-sft-from-2", 4), ("02-sft-from-4", 5),
    ]  # fmt: skip
    assert load_file(stages[-1] / "model/ema.safetensors").keys() == load_file(whole / "model/ema.safetensors").keys()
    assert (stages[-1] / "model/ema.safetensors").read_bytes() == (whole / "model/ema.safetensors").read_bytes()
    lines = [line for stage in stages for line in read_metrics(stage / "metrics.jsonl")]
    assert lines == read_metrics(whole / "metrics.jsonl")
    assert "over 8 updates" in (run / "report.html").read_text(), "5 updates and a divider behind each stage"
    refused = fit(place, tmp_path / "parts", *keys, "updates=3")
    assert refused.exit_code == 1 and "updates was 5, now 3" in refused.output


def test_without_its_state_a_run_that_is_asked_for_more_says_the_words_that_go_on_from_its_model(
    place: Path, tmp_path: Path
) -> None:
    keys = (*WORDS, "keep_state=false")
    first = finish(place, tmp_path, *WORDS, "updates=1", "ema=null")
    finish(place, tmp_path, *keys, "updates=2", "ema=null")
    stage = first.with_name("01-sft-from-1")
    assert not [*stage.parent.glob("*/checkpoints/*")]
    refused = fit(place, tmp_path, *keys, "updates=3", "ema=null")
    message = " ".join(refused.output.split())
    assert refused.exit_code == 1 and "updates was 2, now 3" in message
    words = shlex.split(message.partition("anew, add: ")[2])
    run = stage.parents[1]
    assert words == ["name=seed0-2", f"model.checkpoint={run}", "updates=1"]
    assert fit(place, tmp_path, *keys, "updates=3", "ema=null", *words).exit_code == 0
    assert stored_config(run.with_name("seed0-2")).model.checkpoint == str(stage / "model")
    for other in (["updates=1", "ema=null"], ["updates=2"]):
        assert fit(place, tmp_path, *keys, *other).output.split()[-1] == f"model.checkpoint={run}"


READS_NOTHING = [
    ("trained=moe_gen",),
    ("trained=lora", "lora.targets=generation"),
    ("frozen=[vit,connector,understanding]",),
]


@pytest.mark.parametrize(("trained", "accumulate"), [*zip(READS_NOTHING, (1, 2, 2), strict=True)])
def test_text_is_skipped_and_counted_where_it_reaches_nothing_that_is_trained(
    place: Path, tmp_path: Path, trained: tuple[str, ...], accumulate: int
) -> None:
    """Updates of images (whose texts are dropped) between updates of text alone; all else stays as it was."""
    some = ("sources.t2i.weight=0.3", "sources.editing=null", "sources.items=null", "text_dropout=1")
    rows = ("batch.tokens=null", f"batch.rows={accumulate}", f"batch.accumulate={accumulate}", "ema=null", "updates=6")
    stage = finish(place, tmp_path, *some, *rows, *trained)
    lines = read_metrics(stage / "metrics.jsonl")
    drawn = [line["mse"] > 0 for line in lines]
    assert any(drawn) and not all(drawn)
    assert [line["grad_norm"] > 0 for line in lines] == drawn
    result = json.loads((stage / "manifest.json").read_text())["result"]
    assert result["updates_without_gradient"] == drawn.count(False)
    drawing = ("vae2llm", "llm2vae", "time_embedder")
    changed = changed_by(place, stage)
    assert changed and all("moe_gen" in name or name.split(".")[0] in drawing for name in changed)


@pytest.mark.parametrize(
    "trained", [*READS_NOTHING, ("ce_weight=0",), ("mse_weight=0", "trained=moe_gen"), ("ce_weight=0", "trained=lora")]
)
def test_what_can_teach_nothing_is_refused_beforehand(place: Path, tmp_path: Path, trained: tuple[str, ...]) -> None:
    for dry in ((), ("--dry-run",)) if trained == READS_NOTHING[0] else ((),):
        refused = fit(place, tmp_path, *WORDS, *trained, *dry)
        assert refused.exit_code == 2 and "nothing would be learned" in refused.output, refused.output
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_bad_rows_stop_the_run_or_are_counted(place: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(place, tmp_path / "place"))
    with open(broken / "items.jsonl", "a") as file:
        file.write('\n{"prompt": ""}\n{"prompt": "x", "thought": "y", "image": "gone.png"}')
    only = ("sources.t2i=null", "sources.editing=null", "sources.vlm=null", "updates=2")
    stopped = fit(broken, tmp_path / "a", *only)
    assert stopped.exit_code == 1 and "items.jsonl, line " in stopped.output and "bad_rows=skip" in stopped.output
    assert not list((tmp_path / "a").rglob("metrics.jsonl")), "before the first update"
    stage = finish(broken, tmp_path / "a", *only, "data.bad_rows=skip")
    result = json.loads((stage / "manifest.json").read_text())["result"]
    assert result["bad_rows"] == len(result["first_bad_rows"]) == 2
    assert any("line 5: " in text and "gone.png: no such file" in text for text in result["first_bad_rows"])


@pytest.mark.slow
def test_data_may_change_until_something_is_trained_and_not_afterwards(place: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(place, tmp_path / "place"))
    keys = ("sources.t2i=null", "sources.editing=null", "updates=1")
    talks, image = moved / "vlm.jsonl", moved / "a.png"
    lines = talks.read_text()
    talks.write_text('{"conversations": []}')
    assert fit(moved, tmp_path, *keys).exit_code == 1
    talks.write_text(lines)
    (finish(moved, tmp_path, *keys) / "manifest.json").unlink()

    def refused() -> str:
        result = fit(moved, tmp_path, *keys)
        assert result.exit_code == 1 and "--fresh" in result.output, result.output
        return result.output

    talks.write_text(f'{lines}\n{{"conversations": []}}')
    assert f"sources.vlm.path: {talks} has changed since this run began: 3 rows now, 2 then" in refused()
    talks.write_text("\n".join(reversed(lines.splitlines())))
    assert f"sources.vlm.path: {talks} has changed since this run began: 2 rows now, 2 then" in refused()
    talks.write_text(lines)
    image.write_bytes(png(9, 40, 50))
    assert f"path: {image} has changed" in refused()


@pytest.mark.slow
def test_dry_run_tells_parameters_tokens_and_shapes_without_weights(place: Path) -> None:
    row = [f"sources.t2i.path={place / 't2i.parquet'}", "sources.editing=null", "sources.vlm=null"]
    row += ["batch.tokens=null", "batch.rows=1", "batch.example_tokens=20000"]
    result = CliRunner().invoke(uni_train, ["fit", "--recipe", "sft", "--dry-run", "model.threads=1", *row])
    assert result.exit_code == 0, result.output
    for expected in ("14,691,079,811 parameters", "trained=all: 14,575,018,464", "one update:", "latents [1, "):
        assert expected in result.output
    missing = CliRunner().invoke(uni_train, ["fit", "--recipe", "sft", "--dry-run"])
    assert missing.exit_code == 0 and "data/bagel_example/t2i: no such file" in missing.output


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("sources.t2i=null", "sources.editing=null", "sources.vlm=null"), "sources is empty"),
        (("batch.rows=4",), "batch needs one of rows and tokens"),
        (("sources.t2i.learn=[answer]",), "sources.t2i.learn belongs to form=items alone"),
        (("sources.editing.form=edit", "sources.editing.augment=symmetries"), "sources.editing.augment belongs to"),
        (("sources.t2i.vit_size=[518,224]",), "sources.t2i.vit_size [518, 224] is not [shortest, longest]"),
        (("sources.t2i.pth=a",), "unknown key sources.t2i.pth"),
        (("sources.t2i.form=text",), "sources.t2i.form must be one of text_to_image, edit, conversations, items"),
        (("frozen=[vae]",), "frozen.0 must be one of vit, connector, understanding, generation"),
        (("model.weights=nf4",), "model.weights=nf4 freezes the decoder, and this recipe trains all"),
        (("optimizer.state=8bit", "strategy=fsdp2"), "optimizer.state=8bit has no meaning for fsdp2"),
        (("ema=null", "strategy.offload_averages=true"), "strategy.offload_averages has no meaning without ema"),
        (
            ("activation_checkpointing=false", "activation_checkpointing_every=2"),
            "activation_checkpointing_every has no meaning without activation_checkpointing",
        ),
        (("lora.targets=decoder",), "lora.targets must be understanding, generation, both or re:PATTERN"),
        (("vit_dropout=1.5",), "vit_dropout must be between 0 and 1"),
        (("held_out.task=maths", "held_out.path=x.txt"), "held_out takes one of task and path"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        compose("sft", overrides)
    assert message in error.value.message
