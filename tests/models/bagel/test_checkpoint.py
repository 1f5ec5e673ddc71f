"""Published BAGEL folders: read as they come, refused with reasons, written bit for bit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.models.bagel.checkpoint import PublishedBagel, skeleton
from uni_train.models.bagel.positions import patchify
from uni_train.models.bagel.vae import VaeConfig
from uni_train.models.base import Example, Request
from uni_train.models.checkpoint import inspect
from uni_train.models.family import family_of
from uni_train.models.load import build_model, export_model, load_weights, model_config, save_model
from uni_train.models.weights import Weights, write

PATCHES = "vit_model.vision_model.embeddings.patch_embedding.weight"
TABLES = ("latent_pos_embed.pos_embed", "vit_pos_embed.pos_embed")
EMA = "ema.safetensors"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(original, tmp_path / "BAGEL"))


def build(folder: Path, dtype: torch.dtype | None = None) -> PublishedBagel:
    model = build_model(model_config(str(folder)), dtype=dtype)
    assert isinstance(model, PublishedBagel)
    return model


def refused(folder: Path) -> str:
    """The message with which a folder is refused."""
    with pytest.raises(UserError) as caught:
        build(folder)
    assert caught.value.hint
    return caught.value.message


def rewrite(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    state = load_file(file)
    change(state)
    save_file({name: value.contiguous() for name, value in state.items()}, file)


def same(model: PublishedBagel, file: Path) -> bool:
    state, stored = model.bagel.state_dict(), load_file(file)
    return state.keys() == stored.keys() and all(torch.equal(state[name], stored[name]) for name in stored)


@pytest.mark.golden
def test_bagel_at_full_size_has_the_released_names_shapes_and_counts(golden_folder: Path) -> None:
    full = json.loads((golden_folder / "full_state_dict.json").read_text())
    model, _ = skeleton(compose("stars_curriculum", ["model=bagel_7b"]).model)
    bagel, vae = model.bagel, model.vae
    shapes = {name: list(value.shape) for name, value in bagel.state_dict().items()}
    assert len(shapes) == full["num_keys"]
    assert sum(value.numel() for value in bagel.parameters()) == full["total_params"]
    assert {name: shapes.get(name) for name in full["shapes"]} == full["shapes"]
    for name, shape in shapes.items():  # the file lists the first and the last layers
        first = ".".join("0" if part.isdigit() else part for part in name.split("."))
        assert name in full["shapes"] or shape == full["shapes"][first]
    counts, known = family_of("bagel").by_part(shapes), full["language_model_params"]
    assert counts["generation"] == known["generation_branch_moe_gen"]
    text = counts["understanding"] + counts["text embeddings"] + counts["text head"]
    assert text == known["understanding_branch_and_shared"]
    modules = full["params_by_module"]
    assert counts["ViT"] == modules["vit_model."] and counts["connector"] == modules["connector."]
    assert sorted(n for n, p in bagel.named_parameters() if not p.requires_grad) == full["frozen_params"]
    sizes = {name: list(value.shape) for name, value in vae.state_dict().items()}
    assert sizes == full["vae_shapes"] and VaeConfig.from_shapes(sizes) == vae.config
    assert sum(value.numel() for value in vae.parameters()) == full["vae_total_params"]


@pytest.mark.golden
def test_bagel_is_read_from_its_folder_alone(original: Path, golden_folder: Path, tiny_config: Callable) -> None:
    model = build(original)
    assert same(model, golden_folder / EMA)
    stored = load_file(golden_folder / "ae.safetensors")
    assert all(torch.equal(value, stored[name]) for name, value in model.vae.state_dict().items())
    tiny = json.loads((golden_folder / "tiny_config.json").read_text())
    wanted = tiny_config(timestep_shift=model.bagel.config.timestep_shift)
    assert model.bagel.config == wanted and not model.training
    assert model.image_size == wanted.max_latent_size * wanted.latent_patch_size * tiny["vae"]["downsample"]
    asked = [Request("a", "a cat", seed=3)]
    assert model.draw(asked)[0].shape == (model.image_size, model.image_size, 3)
    assert isinstance(model.answer(asked)[0], str)


def split(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Write the weights as shards of these names; the weight map of their index."""
    state, place = load_file(folder / EMA), dict[str, str]()
    for i, name in enumerate(names):
        part = sorted(state)[i :: len(names)]
        save_file({key: state[key] for key in part}, folder / name)
        place |= dict.fromkeys(part, name)
    return place


def test_weights_under_other_names_in_shards_or_chosen_by_file(folder: Path, original: Path) -> None:
    place = split(folder, ["model-0.safetensors", "model-1.safetensors"])
    rewrite(folder / EMA, lambda state: state["llm2vae.bias"].fill_(9))
    (folder / EMA).rename(folder / "model_bf16.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": place}))
    assert same(build(folder), original / EMA)
    assert build(folder / "model_bf16.safetensors").bagel.llm2vae.bias.eq(9).all()
    (folder / "model-1.safetensors").unlink()
    assert "model-1.safetensors is missing" in refused(folder)
    for file in ("model.safetensors.index.json", "model-0.safetensors"):
        (folder / file).unlink()
    assert build(folder).bagel.llm2vae.bias.eq(9).all()


def test_shards_without_an_index_and_an_index_that_lists_the_autoencoder(folder: Path, original: Path) -> None:
    place = split(folder, [f"ema-0000{part}-of-00002.safetensors" for part in (1, 2)])
    (folder / EMA).unlink()
    assert same(build(folder), original / EMA)
    index = folder / f"{EMA}.index.json"
    index.write_text(json.dumps({"weight_map": place | {"decoder.conv_in.bias": "ae.safetensors"}}))
    assert same(build(folder), original / EMA)
    index.unlink()
    (folder / "ema-00001-of-00002.safetensors").unlink()
    assert "holds 1 of 2 shards" in refused(folder)


def test_names_that_wrappers_changed_counters_and_averages(folder: Path, original: Path) -> None:
    reference = load_file(original / EMA)
    zeros = {f"model.{name}": torch.zeros_like(value) for name, value in reference.items()}
    for prefix, more in (
        ("module._orig_mod.", {}),
        ("model.", {"model.step": torch.tensor(3)}),
        ("ema_model.module.", {"ema_model.module.initted": torch.tensor(True)}),
        ("ema.", zeros),
    ):
        save_file({f"{prefix}{name}": value for name, value in reference.items()} | more, folder / EMA)
        assert inspect(str(folder)).loads and same(build(folder), original / EMA)


@pytest.mark.parametrize("kinds", ["float16 float32", "bfloat16 float16", "float32 bfloat16"])
def test_a_model_has_one_dtype_whatever_is_stored(folder: Path, kinds: str) -> None:
    """Norms, heads and what draws in another dtype than the rest; the autoencoder too."""
    stored, others = (getattr(torch, kind) for kind in kinds.split())

    def change(state: dict[str, torch.Tensor]) -> None:
        other = ("norm", "lm_head", "vae2llm", "conv_in", "connector")
        state.update({n: v.to(others if any(part in n for part in other) else stored) for n, v in state.items()})

    for file in (EMA, "ae.safetensors"):
        rewrite(folder / file, change)
    model = build(folder)
    expected = stored if stored == torch.bfloat16 else torch.float32
    assert {value.dtype for value in model.bagel.state_dict().values()} == {expected}
    image = np.zeros((32, 48, 3), np.uint8)
    model.sampling = replace(model.sampling, steps=2, max_think_tokens=3)
    model.think_and_draw([Request("a", "12", images=(image,), seed=1)])
    loss = model.supervised_loss(model.collate([Example("1 2", target=image, answer="5", seed=0)], 0))
    (loss.ce_sum + loss.mse_sum).backward()
    assert torch.isfinite(loss.mse_sum)


def test_tables_that_training_left_out_are_computed(folder: Path, original: Path) -> None:
    config = json.loads((original / "vit_config.json").read_text())
    side = config["image_size"] // config["patch_size"]
    table = load_file(original / EMA)[TABLES[1]]
    assert len(table) == side**2
    rewrite(folder / EMA, lambda state: [state.pop(name) for name in TABLES])
    model = build(folder)
    assert torch.allclose(model.bagel.vit_pos_embed.pos_embed, table, atol=1e-6)
    assert model.bagel.latent_pos_embed.side == 64  # what the released loader sets
    assert inspect(str(folder)).loads


def test_a_patch_embedding_that_is_still_a_convolution(folder: Path, original: Path) -> None:
    patch = json.loads((original / "vit_config.json").read_text())["patch_size"]
    linear = load_file(original / EMA)[PATCHES]
    kernel = linear.unflatten(1, (patch, patch, 3)).permute(0, 3, 1, 2)
    rewrite(folder / EMA, lambda state: state.update({PATCHES: kernel}))
    assert same(build(folder), original / EMA)
    pixels = torch.randn(1, 3, patch, patch)
    ours = patchify(pixels, patch)[0, 0] @ linear.T
    assert torch.allclose(ours, torch.nn.functional.conv2d(pixels, kernel)[0, :, 0, 0], atol=1e-4)


def test_missing_extra_and_misshapen_tensors_are_listed_ten_at_most_and_nothing_is_loaded(
    folder: Path, original: Path
) -> None:
    def change(state: dict[str, torch.Tensor]) -> None:
        state["llm2vae.more"] = state.pop("vae2llm.bias")
        state["connector.fc1.bias"] = torch.zeros(7)

    rewrite(folder / EMA, change)
    message, report = refused(folder), inspect(str(folder))
    for part in (EMA, "vae2llm.bias is missing", "llm2vae.more is not part", "connector.fc1.bias has shape [7]"):
        assert part in message
    assert not report.loads and len(report.problems) == 3
    model = build(original)
    with pytest.raises(UserError):
        load_weights(model, folder)
    assert same(model, original / EMA)

    rewrite(folder / EMA, lambda state: [state.pop(name) for name in sorted(state) if ".layers." in name])
    message = refused(folder)
    assert message.count(" is missing") == 10 and "more)" in message


def test_files_that_are_missing_or_damaged_are_named(folder: Path) -> None:
    for name, missing in (
        ("ae.safetensors", "holds no ae.safetensors"),
        ("tokenizer.json", "holds no tokenizer"),
        ("vit_config.json", "holds no vit_config.json"),
        (EMA, "holds no weights"),
    ):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert missing in refused(folder)
        if name.endswith(".safetensors"):
            for broken in (content[:-100], content[:9] + b"?" + content[10:], b"\xff" * 8 + content[8:], b""):
                (folder / name).write_bytes(broken)
                message = refused(folder)
                assert str(folder / name) in message and "damaged" in message
        (folder / name).write_bytes(content)
    (folder / EMA).rename(folder / "pytorch_model.bin")
    assert "as a pickle (pytorch_model.bin)" in refused(folder)
    (folder / EMA).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 29\n")
    assert "the note that git leaves" in refused(folder)
    (folder / "llm_config.json").write_text('{"hidden_size": 64}')
    assert str(folder) in refused(folder)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"model_index.json": '{"_class_name": "StableDiffusion3Pipeline"}'}, "pipeline (StableDiffusion3Pipeline)"),
        ({"config.json": '{"architectures": ["Qwen2ForCausalLM"]}'}, "a transformers model (Qwen2ForCausalLM)"),
        ({"pytorch_model.bin": "", "README.md": ""}, "a pickle (pytorch_model.bin)"),
        ({"last.ckpt": ""}, "a pickle (last.ckpt)"),
        ({"ema.safetensors": ""}, "safetensors without llm_config.json"),
        ({"config.json": '{"model": "nano"}', "model.safetensors": ""}, "it is nano"),
        ({}, "an empty folder"),
        (None, "nothing at"),
    ],
)
def test_what_is_not_bagel_is_told_by_its_name(files: dict | None, told: str, original: Path, tmp_path: Path) -> None:
    for name, text in (files or {}).items():
        (tmp_path / name).write_text(text)
    place = tmp_path / "missing" if files is None else tmp_path
    with pytest.raises(UserError) as caught:
        build_model(replace(model_config(str(original)), checkpoint=str(place)))
    assert told in caught.value.message and str(place) in caught.value.message and caught.value.hint


def test_a_trained_model_is_saved_complete_and_loads_back_bit_for_bit(original: Path, tmp_path: Path) -> None:
    model = build(original)
    with torch.no_grad():
        model.bagel.llm2vae.weight.add_(0.5)
    save_model(model, tmp_path / "model")
    assert {file.name for file in original.iterdir()} == {file.name for file in (tmp_path / "model").iterdir()}
    assert same(model, tmp_path / "model" / EMA)
    assert (tmp_path / "model" / "ae.safetensors").read_bytes() == (original / "ae.safetensors").read_bytes()
    again = build(tmp_path / "model")
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    load_weights(again, original)
    assert same(again, original / EMA)


def test_an_export_keeps_dtypes_or_casts_in_shards_or_one_file(original: Path, tmp_path: Path) -> None:
    counted: list[int] = []

    def start(tensors: int) -> Callable[[], None]:
        return lambda: counted.append(tensors)

    out = tmp_path / "whole"
    export_model(original, out, start)
    stored, before = load_file(out / EMA), load_file(original / EMA)
    assert stored.keys() == before.keys() and all(torch.equal(stored[name], before[name]) for name in before)
    assert counted == [len(before)] * len(before)
    with pytest.raises(UserError, match="holds a model already"):
        export_model(original, out, start)

    export_model(out, tmp_path / "shards", start, torch.bfloat16, shard_bytes=100_000)
    files = sorted((tmp_path / "shards").glob("ema-*"))
    assert len(files) > 3 and all(file.stat().st_size < 110_000 for file in files)
    model = build(tmp_path / "shards")
    assert all(torch.equal(value, before[name].bfloat16()) for name, value in model.bagel.state_dict().items())
    assert next(model.vae.parameters()).dtype == torch.float32
    cast = build(original, dtype=torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(cast.bagel.parameters(), model.bagel.parameters(), strict=True))


def test_a_run_folder_exports_its_last_finished_model(original: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for index, finished in enumerate((True, True, False)):
        stage = run / "stages" / f"{index:02d}-finetune"
        shutil.copytree(original, stage / "model")
        rewrite(stage / "model" / EMA, lambda state, index=index: state["llm2vae.bias"].fill_(index))
        if finished:
            (stage / "manifest.json").write_text("{}")
    (run / "config.yaml").write_text("recipe: x")
    export_model(run, tmp_path / "out", lambda tensors: lambda: None)
    assert float(load_file(tmp_path / "out" / EMA)["llm2vae.bias"][0]) == 1


@pytest.mark.slow
def test_reading_holds_one_copy_and_imports_say_nothing(original: Path, tmp_path: Path) -> None:
    """A model of about 100 MB in float32 is read as bfloat16: the peak stays near the half that is kept.

    What imports torchao prints nothing after our loggers were set: about kernels that a machine lacks, for one.
    """
    folder = Path(shutil.copytree(original, tmp_path / "large"))
    sizes = json.loads((folder / "llm_config.json").read_text()) | {"intermediate_size": 2**15}
    (folder / "llm_config.json").write_text(json.dumps(sizes))
    wanted = skeleton(replace(model_config(str(original)), checkpoint=str(folder)))[0].bagel.state_dict()
    announced = {name: (torch.float32, value.shape) for name, value in wanted.items()}
    write(folder / EMA, announced, lambda name: torch.ones(wanted[name].shape))
    code = (
        "import resource, sys, torch\n"
        "from uni_train.models.load import build_model, model_config\n"
        "build_model(model_config(sys.argv[2]))\n"  # what is imported is no part of the figure
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak()\n"
        "model = build_model(model_config(sys.argv[1]), dtype=torch.bfloat16)\n"
        "print(peak() - before)\n"
        "import torchao, diffusers.quantizers.torchao, peft\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder), str(original)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) < 0.75 * (folder / EMA).stat().st_size


def test_files_are_read_and_written_as_by_the_safetensors_library(tmp_path: Path) -> None:
    file, six = tmp_path / "x.safetensors", torch.arange(6).reshape(3, 2)
    values = {"a": six.bfloat16(), "b": six, "c": torch.tensor(True)}
    write(file, {n: (v.dtype, v.shape) for n, v in values.items()}, values.__getitem__)
    assert all(torch.equal(value, values[name]) for name, value in load_file(file).items())
    assert torch.equal(Weights([file]).read("c"), values["c"])
    with pytest.raises(UserError, match="both in"):
        Weights([file, file])
