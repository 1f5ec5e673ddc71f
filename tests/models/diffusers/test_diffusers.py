"""Pipelines of diffusers as models: seven classes with tiny random weights, drawn from, evaluated and inspected."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from tests.models.diffusers import tiny
from tests.models.diffusers.conftest import build
from tests.models.qwen_image_edit.tiny import pipeline as qwen
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.models import doctor
from uni_train.models.base import FlowPolicy, InterleavedGenerator, Request, SkillMissing, TextGenerator, expect_skill
from uni_train.models.checkpoint import inspect, recognise
from uni_train.models.diffusers.flow import FlowModel
from uni_train.models.diffusers.interface import interface
from uni_train.models.family import family_of
from uni_train.models.load import build_model, model_config

SIDE = 32
PICTURES = [np.random.default_rng(i).integers(0, 256, (64, 64, 3), np.uint8) for i in range(2)]


def close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.abs(one.astype(int) - other.astype(int)).max() <= 1


@pytest.mark.parametrize("name", tiny.PIPELINES)
def test_an_image_is_the_pipelines_own_whatever_its_batch(name: str, folder: Callable[[str], Path]) -> None:
    model = build(folder(name))
    shown = (PICTURES[0],) if model.takes.needs_image else ()
    size = (SIDE, SIDE) if "height" in model.takes.parameters else None
    asked = [Request(str(i), "Draw a cup. " * (i + 1), shown, seed=i, size=size) for i in range(2)]
    steps: list[tuple[int, int]] = []
    together = model.draw(asked, on_step=lambda done, total: steps.append((done, total)))
    if "callback_on_step_end" in model.takes.parameters:
        assert steps[-1][0] == steps[-1][1] >= 2
    assert len({image.tobytes() for image in together}) == 2 and together[0].dtype == np.uint8
    own = type(tiny.pipeline(name)).from_pretrained(folder(name))
    words = {"negative_prompt": " "} if name == "qwen_image" else {}
    for request, image in zip(asked, together, strict=True):
        assert close(model.draw([request])[0], image)
        direct = own(
            prompt=request.prompt,
            generator=torch.Generator().manual_seed(derive_seed(request.seed, "draw")),
            num_inference_steps=2,
            **words,
            **({"image": Image.fromarray(shown[0])} if shown else {}),
            **({"height": SIDE, "width": SIDE} if size else {}),
        )
        assert close(np.asarray(direct.images[0]), image)


def test_it_draws_from_as_many_images_as_its_class_takes(folder: Callable[[str], Path]) -> None:
    several, one, none = (build(folder(name)) for name in ("flux2_klein", "instruct_pix2pix", "stable_diffusion"))
    asked = [Request("a", "Swap them.", tuple(PICTURES[:count]), size=(SIDE, SIDE)) for count in range(3)]
    assert len({image.tobytes() for image in several.draw(asked)}) == 3
    for model, request, skill in (
        (one, asked[0], "draw without an image"),
        (one, asked[2], "draw from several images"),
        (none, asked[1], "draw from images"),
    ):
        with pytest.raises(SkillMissing, match=f"{model.takes.name} cannot {skill}"):
            model.draw([request])
    for kind, skill in (
        (TextGenerator, "write text"),
        (InterleavedGenerator, "answer with text and images in one pass"),
        (FlowPolicy, "be trained here"),
    ):
        with pytest.raises(SkillMissing, match=f"StableDiffusionPipeline cannot {skill}"):
            expect_skill(none, kind)
    with pytest.raises(SkillMissing, match="StableDiffusionPipeline cannot write text"):
        none.think_and_draw(asked[:1])


def test_sampling_is_the_classes_own_and_every_key_changes_the_image(folder: Callable[[str], Path]) -> None:
    own = model_config(str(folder("stable_diffusion"))).sampling
    assert (own.steps, own.cfg_text_scale) == (50, 7.5)
    request, edit = Request("a", "Draw a cup."), Request("a", "Draw a cup.", (PICTURES[0],))
    changed = [{}, {"steps": 3}, {"cfg_text_scale": 1.0}]
    assert len({build(folder("stable_diffusion"), **keys).draw([request])[0].tobytes() for keys in changed}) == 3
    changed = [{}, {"edit_text_scale": 1.0}, {"edit_img_scale": 4.0}]
    assert len({build(folder("instruct_pix2pix"), **keys).draw([edit])[0].tobytes() for keys in changed}) == 3
    model = build(folder("stable_diffusion"))
    thought = replace(request, thought="It is red.")
    assert not np.array_equal(*model.draw([request, thought]))
    with model.guided_at(1.0):
        plain = model.draw([request])[0]
    assert np.array_equal(plain, build(folder("stable_diffusion"), cfg_text_scale=1.0).draw([request])[0])


def test_sizes_that_it_cannot_draw_and_requests_that_it_refuses_are_named(folder: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match=r"request a: StableDiffusionPipeline refuses it .*divisible by 8"):
        build(folder("stable_diffusion")).draw([Request("a", "Draw a cup.", size=(30, 32))])
    with pytest.raises(UserError, match="FluxPipeline cannot draw 34 x 33 pixels"):
        build(folder("flux")).draw([Request("a", "Draw a cup.", size=(34, 33))])


def test_tiles_of_the_vae(folder: Callable[[str], Path]) -> None:
    config = model_config(str(folder("stable_diffusion_3")))
    config = replace(config, sampling=replace(config.sampling, steps=2))
    asked = [Request("a", "Draw a cup.", size=(96, 96))]
    whole, tiled = (build_model(replace(config, vae_tile=tile)).draw(asked)[0] for tile in (None, 64))
    assert tiled.shape == whole.shape and not np.array_equal(tiled, whole)


def test_an_evaluation_scores_what_it_draws_and_names_what_it_was_not_asked(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def evaluate(name: str, *keys: str) -> tuple[str, str]:
        options = ["--out", str(tmp_path / name), "--subset", "1", "world=nano", "sampling.steps=1", *keys]
        done = CliRunner(env={"COLUMNS": "200"}).invoke(uni_train, ["eval", str(folder(name)), *options])
        assert done.exit_code == 0, done.output
        (scores,) = (tmp_path / name).rglob("scores.json")
        return " ".join(done.output.split()), scores.read_text()

    shown, scores = evaluate("stable_diffusion", "-b", "ureason")
    assert "no such skill: StableDiffusionPipeline cannot write text" in shown and '"direct"' in scores
    shown, scores = evaluate("instruct_pix2pix", "-b", "vigor", "--sets", "maze_navigation", "--settings", "direct")
    assert "PixPipeline cannot" not in shown and '"maze_navigation"' in scores


def test_an_evaluation_without_any_number_is_an_error_and_so_is_what_is_made_of_it(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner(env={"COLUMNS": "200"}).invoke(uni_train, ["eval", *arguments])
        return done.exit_code, done.output

    asked = [str(folder("stable_diffusion")), "--subset", "1", "sampling.steps=1", "--out", str(tmp_path)]
    text, drawn = "StableDiffusionPipeline cannot write text", "images that no program can check"
    neither = f"nothing has a score: {text} (unisandbox, wise); {drawn} (unisandbox"
    for name, keys, code, message in (
        ("neither", ["-b", "unisandbox,wise"], 1, neither),
        ("unjudged", ["-b", "wise", "--settings", "direct"], 1, f"nothing has a score: {drawn} (wise)"),
        ("some", ["-b", "unisandbox", "world=nano"], 0, f"no such skill: {text}"),
    ):
        assert run(*asked, *keys, "--name", name)[0] == code
        again, shown = run(*asked, *keys, "--name", name)  # and so it stays
        assert again == code and message in shown, shown
        assert ("Add judge.model=MODEL: nothing is drawn again" in shown) == (code == 1)
    shutil.copytree(tmp_path / "unjudged", tmp_path / "copy")
    for arguments, said in (
        (["compare", str(tmp_path / "unjudged"), str(tmp_path / "copy")], "have no score in common"),
        (["leaderboard", str(tmp_path / "unjudged"), "--out", str(tmp_path / "board")], "no score in"),
    ):
        code, shown = run(*arguments)
        assert code == 1 and said in shown, shown


def test_a_folder_is_recognised_inspected_and_examined(folder: Callable[[str], Path]) -> None:
    place = folder("stable_diffusion_3")
    assert recognise(place).what == "a diffusers pipeline (StableDiffusion3Pipeline)"
    found = inspect(str(place))
    assert found.loads and found.weights["text_encoder_2"] == ("float32",)
    transformer = build(place).pipeline.transformer
    assert found.parameters["denoiser"] == sum(value.numel() for value in transformer.state_dict().values())
    shown = CliRunner().invoke(uni_train, ["doctor", str(place)])  # its loss is of the image alone
    assert shown.exit_code == 0 and "ok    image" in shown.output, shown.output
    assert re.search(r"ok    first loss +image \d\.\d\d \(saying nothing: about 2\)\n", shown.output), shown.output
    shown = CliRunner().invoke(uni_train, ["doctor", str(folder("instruct_pix2pix"))])
    assert shown.exit_code == 0 and "ok    image" in shown.output, shown.output


@pytest.mark.parametrize("name", ["flux", "qwen_image"])
def test_the_first_loss_that_doctor_shows_is_of_the_image_alone(name: str, folder: Callable[[str], Path]) -> None:
    """By its own function: the images of these classes are too large to be drawn here."""
    model = build(folder(name))
    assert isinstance(model, FlowModel)
    model.side = SIDE
    loss = doctor._loss(model, doctor._item(model), edits=False)
    assert loss.verdict == "ok" and re.fullmatch(r"image \d\.\d\d \(saying nothing: about 2\)", loss.detail)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"_class_name": "AudioLDM2Pipeline"}, "makes no images from a prompt"),
        ({"_class_name": "StableDiffusionInpaintPipeline"}, "it needs mask_image"),
        ({"_class_name": "DDPMPipeline"}, "makes no images from a prompt"),
        ({"_class_name": "NoSuchPipeline"}, "has no pipeline NoSuchPipeline"),
        ({"_class_name": ["mine", "MyPipeline"]}, "with code of its own"),
        ({"unet": ["my_unet", "MyUnet"]}, "with code of its own"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(
    change: dict[str, Any], reason: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder("stable_diffusion"), tmp_path / "copy"))
    (copy / "unet" / "my_unet.py").write_text("raise SystemExit('was run')")
    index = json.loads((copy / "model_index.json").read_text())
    (copy / "model_index.json").write_text(json.dumps(index | change))
    with pytest.raises(UserError, match=reason):
        build_model(model_config(str(copy)))


def test_what_is_missing_and_what_does_not_fit_is_named(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(uni_train, ["models", "inspect", "diffusers"])
    assert shown.exit_code == 1 and "checkpoints/FLUX.1-dev holds no model_index.json" in shown.output
    copy = Path(shutil.copytree(folder("flux"), tmp_path / "copy"))
    config = json.loads((copy / "transformer" / "config.json").read_text())
    (copy / "transformer" / "config.json").write_text(json.dumps(config | {"joint_attention_dim": 8}))
    assert inspect(str(copy)).problems == ("transformer: context_embedder.weight has shape [32, 32], not [32, 8]",)


def test_parts_of_other_modules_are_left_out_without_weights(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Stable Diffusion's safety checker is a class of the pipeline's own module."""
    copy = Path(shutil.copytree(folder("stable_diffusion"), tmp_path / "copy"))
    index = json.loads((copy / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    (copy / "model_index.json").write_text(json.dumps(index))
    (copy / "safety_checker").mkdir()
    model, _ = family_of("diffusers").skeleton(model_config(str(copy)))
    assert all(weight.is_meta for weight in model.parameters())


@pytest.mark.slow
def test_an_editor_that_reads_images_by_qwen_needs_no_torchvision(tmp_path: Path) -> None:
    from diffusers import LongCatImageEditPipeline, LongCatImageTransformer2DModel

    parts = qwen().components
    transformer = LongCatImageTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    reader = parts["processor"]
    made = LongCatImageEditPipeline(
        tiny._flow(), tiny._vae(4, 16), parts["text_encoder"], parts["tokenizer"], reader, transformer
    )
    made.save_pretrained(tmp_path)
    reader.image_processor.save_pretrained(tmp_path / "text_processor")
    index = json.loads((tmp_path / "model_index.json").read_text())
    index["text_processor"] = ["transformers", "Qwen2VLProcessor"]
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    assert inspect(str(tmp_path)).problems == () and family_of("diffusers").skeleton(model_config(str(tmp_path)))
    (image,) = build(tmp_path, steps=1).draw([Request("a", "a red cat", (np.zeros((16, 64, 3), np.uint8),))])
    assert image.shape[1] == 4 * image.shape[0]


def test_pickles_are_never_read(folder: Callable[[str], Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder("stable_diffusion"), tmp_path / "copy"))
    weights = copy / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    assert inspect(str(copy)).problems == ("unet has no safetensors",)
    with pytest.raises(UserError, match="cannot be loaded"):
        build_model(model_config(str(copy)))
    for file in copy.glob("*/*.safetensors"):
        file.unlink()
    with pytest.raises(UserError, match="whose weights are pickles"):
        model_config(str(copy))


@pytest.mark.parametrize(
    ("name", "image", "needs", "several", "guidance"),
    [
        ("FluxPipeline", None, False, False, "guidance_scale"),
        ("FluxKontextPipeline", "image", False, False, "guidance_scale"),
        ("FluxImg2ImgPipeline", "image", True, False, "guidance_scale"),
        ("FluxFillPipeline", "image", True, False, "guidance_scale"),
        ("Flux2Pipeline", "image", False, True, "guidance_scale"),
        ("QwenImagePipeline", None, False, False, "true_cfg_scale"),
        ("LongCatImageEditPipeline", "image", True, False, "guidance_scale"),
        ("SanaPipeline", None, False, False, "guidance_scale"),
    ],
)
def test_what_a_class_takes(name: str, image: str | None, needs: bool, several: bool, guidance: str) -> None:
    takes = interface(name)
    assert (takes.image, takes.needs_image, takes.several, takes.guidance) == (image, needs, several, guidance)
