"""Janus in transformers' layout: asked with tiny random weights, measured at full size without any."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tests.models.janus.tiny import SIDE, published
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.models.base import FlowPolicy, InterleavedGenerator, Request, SkillMissing, expect_skill
from uni_train.models.checkpoint import inspect, recognise
from uni_train.models.family import family_of
from uni_train.models.janus.unified import BEGIN, IMAGE, Janus, chat
from uni_train.models.load import build_model, export_model, model_config

IMAGES = [np.full((SIDE, SIDE * 2, 3), value, np.uint8) for value in (0, 200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("checkpoints") / "janus")


@pytest.fixture(scope="module")
def model(folder: Path) -> Janus:
    config = model_config(str(folder))
    built = build_model(replace(config, sampling=replace(config.sampling, max_think_tokens=6)))
    assert isinstance(built, Janus)
    return built


def test_an_image_depends_on_its_own_seed_prompt_and_thought(model: Janus) -> None:
    asked = [
        Request("a", "Draw a cup.", seed=1),
        Request("b", "Draw a cup.", seed=2),
        Request("c", "Draw as many apples as 1 + 2.", seed=1),
        Request("d", "Draw a cup.", seed=1, thought="So draw 3 cups."),
    ]
    steps: list[tuple[int, int]] = []
    together = model.draw(asked, on_step=lambda done, total: steps.append((done, total)))
    assert all(image.shape == (SIDE, SIDE, 3) and image.dtype == np.uint8 for image in together)
    assert steps[-1] == (16, 16) and len(steps) == 16
    assert len({image.tobytes() for image in together}) == 4
    for one, image in zip(asked, together, strict=True):
        assert np.array_equal(model.draw([one])[0], image), "whatever its company"


def test_tokens_are_those_of_a_decoder_that_reads_everything_anew_under_guidance(
    model: Janus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out: no cache, no padding, one row at a time; twice the guidance, then none."""
    monkeypatch.setattr(model, "sampling", replace(model.sampling, cfg_text_scale=2.0))
    inner, rows = model.janus.model, ["Draw a cup.", "Draw as many apples as 1 + 2."]
    inputs = model._read([f"{chat(words)}{BEGIN}" for words in rows])
    for scale in (2.0, 1.0):
        model.sampling = replace(model.sampling, cfg_text_scale=scale)
        found = model._image_tokens(inputs, [3, 4], None)
        for row, words in enumerate(rows):
            ids = model.tokenizer(f"{chat(words)}{BEGIN}", return_tensors="pt")["input_ids"]
            blank = ids.clone()
            blank[:, 1:-1] = model.tokenizer.pad_token_id
            noise = torch.Generator().manual_seed(3 + row)
            for step in range(4):
                seen = []
                for given in (ids, blank):
                    embedded = inner.get_input_embeddings()(given)
                    drawn = model.janus.prepare_embeddings_for_image_generation(found[row : row + 1, :step])
                    states = inner.language_model(inputs_embeds=torch.cat([embedded, drawn], 1)).last_hidden_state
                    seen.append(inner.generation_head(states[:, -1]))
                logits = seen[1] + scale * (seen[0] - seen[1])
                uniform = torch.rand(logits.shape[-1], generator=noise)
                assert int((logits - (-uniform.log()).log()).argmax()) == int(found[row, step])


def test_words_are_those_of_greedy_decoding_and_of_ones_own_seed(model: Janus, monkeypatch) -> None:
    asked = [Request("a", "Is it dark?", (IMAGES[0],)), Request("b", "Is it?", (IMAGES[1],)), Request("c", "What?")]
    said = model.answer(asked[:2])
    inputs = model._read([chat(asked[0].prompt, 1, "S")], [IMAGES[0]])
    assert int((inputs["input_ids"] == model.janus.config.image_token_id).sum()) == 16
    assert said[0] == model.answer(asked[:1])[0]
    assert said[0] != model.answer([replace(asked[0], images=(IMAGES[1],))])[0], "it looks"
    assert model.think([asked[2]]) != model.answer([asked[2]]), "another system prompt"
    monkeypatch.setattr(model, "sampling", replace(model.sampling, temperature=5.0))
    first, second = (replace(asked[2], seed=seed) for seed in (1, 2))
    alone = [model.answer([one])[0] for one in (first, second)]
    assert alone[0] != alone[1] and model.answer([first, second]) == alone


def test_what_it_lacks_is_named(model: Janus) -> None:
    shown = Request("a", "Make it blue.", (IMAGES[0],))
    for ask, skill in (
        (lambda: model.draw([shown]), "draw from images"),
        (lambda: model.answer([shown], think=True), "think before it answers"),
        (lambda: expect_skill(model, InterleavedGenerator), "answer with text and images"),
        (lambda: expect_skill(model, FlowPolicy), "be trained by reinforcement"),
    ):
        with pytest.raises(SkillMissing, match=f"cannot {skill}"):
            ask()
    for ask, request, message in (
        (model.draw, Request("a", "Draw a cup.", size=(64, 64)), "cannot draw 64 x 64 pixels"),
        (model.answer, Request("a", f"Look: {IMAGE}"), f"has the marker {IMAGE} in it"),
        (model.draw, Request("a", "Draw a cup.", thought=IMAGE), f"its thought has the marker {IMAGE} in it"),
    ):
        with pytest.raises(UserError, match=message):
            ask([request])
    assert model.draw([]) == [] and model.answer([]) == []


def test_a_folder_is_recognised_inspected_exported_and_read_again(folder: Path, model: Janus, tmp_path: Path) -> None:
    assert recognise(folder).model == "janus_pro_7b"
    found = inspect(str(folder))
    assert found.loads and tuple(found.parameters) == family_of("janus").parts
    assert found.total == sum(value.numel() for value in model.janus.state_dict().values())
    export_model(folder, tmp_path / "out", lambda count: lambda: None, torch.bfloat16, 100_000)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    again = build_model(model_config(str(tmp_path / "out")))
    assert again.janus.dtype == torch.bfloat16 and inspect(str(tmp_path / "out")).loads  # type: ignore[union-attr]
    assert again.draw([Request("a", "Draw a cup.")])[0].shape == (SIDE, SIDE, 3)


def test_deepseeks_own_layout_and_damaged_folders_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "multi_modality"}))
    with pytest.raises(UserError, match="a Janus in DeepSeek's own layout"):
        model_config(str(tmp_path))
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(UserError, match=r"none of model\.safetensors"):
        build_model(model_config(str(tmp_path)))
    with pytest.raises(UserError, match="no random weights"):
        build_model(replace(model_config("janus_pro_7b"), checkpoint=None))


@pytest.mark.parametrize(("name", "total", "layers", "width"), [("7b", 7.42e9, 30, 4096), ("1b", 2.09e9, 24, 2048)])
def test_full_size_names_and_shapes(name: str, total: float, layers: int, width: int) -> None:
    """Names as DeepSeek's weights are converted to them (transformers, convert_janus_weights_to_hf.py)."""
    built, guessed = family_of("janus").skeleton(model_config(f"janus_pro_{name}"))
    assert guessed and isinstance(built, Janus)
    state: dict[str, Any] = built.janus.state_dict()
    assert sum(value.numel() for value in state.values()) == pytest.approx(total, rel=0.01)
    assert all(value.is_meta for value in built.janus.parameters())
    assert built.picture_size(Request("a", "b")) == (384, 384) and built._grid**2 == 576
    for key, shape in {
        "lm_head.weight": (102_400, width),
        f"model.language_model.layers.{layers - 1}.self_attn.q_proj.weight": (width, width),
        "model.vision_model.encoder.layers.23.self_attn.projection_layer.weight": (1024, 1024),
        "model.vision_model.embeddings.position_embedding.weight": (576, 1024),
        "model.aligner.fc1.weight": (width, 1024),
        "model.aligner.hidden_layers.0.weight": (width, width),
        "model.generation_embeddings.weight": (16_384, 8),
        "model.generation_aligner.fc1.weight": (width, 8),
        "model.generation_head.vision_head.weight": (16_384, width),
        "model.vqmodel.quantize.embedding.weight": (16_384, 8),
        "model.vqmodel.decoder.mid.attn_1.q.weight": (512, 512, 1, 1),
    }.items():
        assert tuple(state[key].shape) == shape, key
    assert f"model.language_model.layers.{layers}.self_attn.q_proj.weight" not in state


def test_commands_take_it(folder: Path, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(uni_train, [*words, *few])
        assert found.exit_code == code, found.output
        return found.output

    few: list[str] = []
    run("generate", "-m", str(folder), "-p", "Draw 2 cups .", "--out", str(tmp_path / "cups.png"))
    assert (tmp_path / "cups.png").is_file()
    few = ["--out", str(tmp_path / "out"), "sampling.max_think_tokens=4"]
    said = run("insight", "links", "-c", str(folder), "--task", "mapping", "--world", "nano", "--n", "2")
    assert "Draws it by its thought" in said
    links = json.loads((tmp_path / "out" / "links.json").read_text())
    assert len(links["units"]) == 4 and set(links["settings"]) == {"said", "thought", "told", "normal", "cot"}
    few[1] = str(tmp_path / "evals")
    asked = ("eval", "-c", str(folder), "-b", "vigor", "world=nano", "--n", "1", "--sets", "maze_navigation")
    shown = " ".join(run(*asked, code=1).split())
    assert "janus_pro_7b cannot draw from images, and all settings asked of ViGoR-Bench need more" in shown
