"""LoRA files as five trainers write them, merged into each family; and what is no plain LoRA of this model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.models.bagel.published import published
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.models.adapters import adapter_file, merge, open_adapter
from uni_train.models.base import UnifiedModel
from uni_train.models.checkpoint import inspect, model_config, recognise
from uni_train.models.identity import identify
from uni_train.models.load import build_model
from uni_train.models.nano.family import ASSETS

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "bagel"
RANK, ALPHA = 2, 6.0
Layers = Mapping[str, tuple[Tensor, Tensor]]
"""Layer -> down [rank, in], up [out, rank]."""


def bagel(folder: Path) -> Path:
    return published(GOLDEN, folder)


def editor(folder: Path) -> Path:
    pytest.importorskip("diffusers")
    from tests.models.qwen_image_edit import tiny

    return tiny.published(folder)


def nano(folder: Path) -> Path:
    return Path(shutil.copytree(ASSETS, folder))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], Path]], Path]:
    """The folder of a family, which is made when it is asked for."""
    place = tmp_path_factory.mktemp("models")

    def made(family: Callable[[Path], Path]) -> Path:
        folder = place / family.__name__
        return folder if folder.is_dir() else family(folder)

    return made


def layers_of(model: UnifiedModel) -> Layers:
    """Random matrices for a decoder's linear layers, by their names without the first part."""
    draws, pattern = torch.Generator().manual_seed(0), model.adapter_layers["both"]
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear) and re.fullmatch(pattern, n)]
    return {
        name.partition(".")[2]: (
            torch.randn(RANK, layer.in_features, generator=draws) * 0.1,
            torch.randn(layer.out_features, RANK, generator=draws) * 0.1,
        )
        for name, layer in found
    }


def peft(folder: Path, layers: Layers) -> float:
    named = {f"base_model.model.{name}.lora_A.weight": down for name, (down, _) in layers.items()}
    named |= {f"base_model.model.{name}.lora_B.weight": up for name, (_, up) in layers.items()}
    save_file(named, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": ALPHA, "use_rslora": True}))
    return ALPHA / RANK**0.5


def diffusers(folder: Path, layers: Layers) -> float:
    named = {f"transformer.{name}.lora_A.weight": down for name, (down, _) in layers.items()}
    named |= {f"transformer.{name}.lora_B.weight": up for name, (_, up) in layers.items()}
    settings = json.dumps({"transformer.r": RANK, "transformer.lora_alpha": ALPHA})
    save_file(named, folder / "pytorch_lora_weights.safetensors", {"lora_adapter_metadata": settings})
    return ALPHA / RANK


def diffsynth(folder: Path, layers: Layers) -> float:
    named = {f"{name}.lora_A.default.weight": down for name, (down, _) in layers.items()}
    named |= {f"{name}.lora_B.default.weight": up for name, (_, up) in layers.items()}
    save_file(named, folder / "step-500.safetensors")
    return 1.0


def kohya(folder: Path, layers: Layers) -> float:
    flat = {f"lora_unet_{name.replace('.', '_')}": both for name, both in layers.items()}
    named = {f"{name}.lora_down.weight": down for name, (down, _) in flat.items()}
    named |= {f"{name}.lora_up.weight": up for name, (_, up) in flat.items()}
    save_file(named | {f"{name}.alpha": torch.tensor(ALPHA) for name in flat}, folder / "mine.safetensors")
    return ALPHA / RANK


def comfyui(folder: Path, layers: Layers) -> float:
    named = {f"diffusion_model.{name}.lora_down.weight": down for name, (down, _) in layers.items()}
    named |= {f"diffusion_model.{name}.lora_up.weight": up for name, (_, up) in layers.items()}
    alphas = {f"diffusion_model.{name}.alpha": torch.tensor(ALPHA) for name in layers}
    save_file(named | alphas, folder / "mine.safetensors")
    return ALPHA / RANK


@pytest.mark.parametrize(
    ("family", "trainer"),
    [
        *((nano, trainer) for trainer in (peft, diffusers, diffsynth, kohya, comfyui)),
        *(
            (family, trainer) for family in (bagel, editor) for trainer in (diffusers, kohya)
        ),  # names with dots, and flat
    ],
)
def test_an_adapter_of_any_trainer_is_merged_by_its_scale(
    family: Callable[[Path], Path],
    trainer: Callable[[Path, Layers], float],
    checkpoint: Callable[[Callable[[Path], Path]], Path],
    tmp_path: Path,
) -> None:
    folder = checkpoint(family)
    before = build_model(model_config(str(folder)))
    layers = layers_of(before)
    scale = trainer(tmp_path, layers)
    assert recognise(tmp_path).kind == "other"  # for its base is unknown
    assert inspect(f"{folder}+{tmp_path}").loads
    after = dict(build_model(model_config(f"{folder}+{tmp_path}")).named_parameters())
    changed = {f"{name}.weight": scale * (up @ down) for name, (down, up) in layers.items()}
    for name, weight in before.named_parameters():
        delta = changed.pop(name.partition(".")[2], torch.zeros(()))
        assert torch.allclose(after[name], weight + delta, atol=1e-6), name
    assert not changed


def test_other_adapters_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    model = build_model(model_config("nano"))
    layers = layers_of(model)
    name, (down, up) = next(iter(layers.items()))
    comfyui(tmp_path, layers)
    good = load_file(tmp_path / "mine.safetensors")
    start, untouched = f"diffusion_model.{name}", {n: w.clone() for n, w in model.state_dict().items()}
    wrong: dict[str, dict[str, Tensor]] = {
        "is not part of the model": good | {"x.lora_down.weight": down, "x.lora_up.weight": up},
        f"has {len(up) + 1} x": good | {f"{start}.lora_up.weight": torch.cat([up, up[:1]])},
        "no plain LoRA": good | {f"{start}.dora_scale": torch.ones(1)},
        "holds several adapters": good | {f"{start}.lora_down.other.weight": down},
        "is no product of two matrices": good | {f"{start}.lora_down.weight": down[:, :, None]},
        "and one number": good | {f"{start}.alpha": torch.ones(2)},
        r"as I8, which cannot be read": good | {f"{start}.lora_up.weight": up.to(torch.int8)},
        "lacks one of its two matrices": {k: v for k, v in good.items() if k != f"{start}.lora_up.weight"},
    }
    for number, (told, tensors) in enumerate(wrong.items()):
        save_file(tensors, tmp_path / f"{number}.safetensors")
        with pytest.raises(UserError, match=told):
            merge(model, tmp_path / f"{number}.safetensors")
    peft(tmp_path, layers)
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(UserError, match=r"no adapter_config\.json beside it"):
        open_adapter(tmp_path / "adapter_model.safetensors")
    assert all(weight.equal(untouched[name]) for name, weight in model.state_dict().items())
    assert adapter_file(ASSETS) is None


REFUSED: dict[str, object] = {
    "use_dora": True,  # without its magnitudes, which have a tensor's name
    "fan_in_fan_out": True,
    "bias": "all",
    "lora_bias": True,
    "modules_to_save": ["lm_head"],
    "trainable_token_indices": [1],
    "target_parameters": ["experts.down_proj"],
    "layer_replication": [[0, 2]],
    "alora_invocation_tokens": [1],
    "megatron_config": {"a": 1},
    "use_qalora": True,
    "velora_config": {"a": 1},
    "monteclora_config": {"a": 1},
    "use_bdlora": {"a": 1},
    "arrow_config": {"a": 1},
    "kasa_config": {"a": 1},
    "ensure_weight_tying": True,
    "peft_type": "ADALORA",
    "a_setting_of_2027": 3,
    **{f"init_lora_weights {kind}": kind for kind in ("pissa", "pissa_niter_4", "olora", "corda", "lora_ga", "loftq")},
}


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(6, 4), "b": nn.Linear(4, 5)})


def adapter_of(folder: Path, settings: Mapping[str, object], prefix: str = "base_model.model.") -> Path:
    """A LoRA of peft for `linear`, of rank 2 for a and 3 for b."""
    named = {}
    for name, (out, inner), rank in (("a", (4, 6), 2), ("b", (5, 4), 3)):
        named[f"{prefix}{name}.lora_A.weight"] = torch.ones(rank, inner)
        named[f"{prefix}{name}.lora_B.weight"] = torch.ones(out, rank)
    told = {"r": 2, "lora_alpha": 4, "rank_pattern": {"^b": 3}, **settings}
    if prefix == "base_model.model.":
        (folder / "adapter_config.json").write_text(json.dumps(told))
        save_file(named, folder / "adapter_model.safetensors")
    else:
        header = json.dumps({f"{prefix}{key}": value for key, value in told.items()} | {"other.lora_alpha": 77})
        save_file(named, folder / "pytorch_lora_weights.safetensors", {"lora_adapter_metadata": header})
    return folder


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("prefix", ["base_model.model.", "transformer."])
def test_a_setting_of_peft_that_is_more_than_a_product_is_refused_by_name(
    tmp_path: Path, name: str, prefix: str
) -> None:
    key = name.split()[0]
    with pytest.raises(UserError, match=rf"is no plain LoRA: its settings say {key}=") as error:
        open_adapter(adapter_of(tmp_path, {key: REFUSED[name]}, prefix))
    converts = key == "init_lora_weights" and name.split()[1] != "loftq"
    assert ("path_initial_model_for_weight_conversion" if converts else "merge_and_unload") in (error.value.hint or "")


def test_every_setting_of_the_installed_peft_is_known(tmp_path: Path) -> None:
    from peft import LoraConfig

    settings = json.loads(json.dumps(LoraConfig().to_dict(), default=str)) | {"peft_type": "LORA"}
    assert open_adapter(adapter_of(tmp_path, settings | {"r": 2, "rank_pattern": {"b": 3}}))
    for key in settings.keys() - {"r", "lora_alpha", "rank_pattern", "alpha_pattern", "init_lora_weights"} - {*REFUSED}:
        assert open_adapter(adapter_of(tmp_path, {key: settings[key] or ["x"]})), "without an effect on the product"
    for kind in ("gaussian", "orthogonal", "eva", "mica", False):
        assert open_adapter(adapter_of(tmp_path, {"init_lora_weights": kind}))


@pytest.mark.parametrize("prefix", ["base_model.model.", "transformer.", "unet."])
def test_ranks_and_alphas_of_single_layers_are_read_and_compared(tmp_path: Path, prefix: str) -> None:
    adapter = open_adapter(adapter_of(tmp_path, {"alpha_pattern": {"^b": 9}}, prefix))
    assert [adapter.scale(f"{prefix}a", 2, None), adapter.scale(f"{prefix}b", 3, None)] == [2, 3]
    for wrong in ({"r": 4}, {"rank_pattern": {"b": 4}}, {"rank_pattern": {}}):
        with pytest.raises(UserError, match=r"[ab] has rank \d, and its settings say \d"):
            open_adapter(adapter_of(tmp_path, wrong, prefix))
    for damaged in ({"r": "2"}, {"lora_alpha": 0}, {"alpha_pattern": {"(": 1}}, {"rank_pattern": {"b": None}}):
        with pytest.raises(UserError, match="are damaged"):
            open_adapter(adapter_of(tmp_path, damaged, prefix))


def test_pissa_is_merged_as_peft_merges_it_once_it_is_converted_by_the_hint(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(linear(), LoraConfig(r=2, target_modules=["a", "b"], init_lora_weights="pissa"))
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(str(tmp_path / "before"))
    model.peft_config["default"].init_lora_weights = "pissa"
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.add_(0.1)
    model.save_pretrained(str(tmp_path / "raw"))
    with pytest.raises(UserError, match="init_lora_weights='pissa'"):
        merge(linear(), tmp_path / "raw")
    model.save_pretrained(str(tmp_path / "plain"), path_initial_model_for_weight_conversion=str(tmp_path / "before"))
    ours, theirs = linear(), model.merge_and_unload()
    assert merge(ours, tmp_path / "plain") == 2
    for name, weight in theirs.named_parameters():
        assert torch.allclose(weight, ours.get_parameter(name), atol=1e-5), name


def test_a_checkpoint_with_an_adapter_goes_through_every_door(tmp_path: Path) -> None:
    comfyui(tmp_path, layers_of(build_model(model_config("nano"))))
    both = f"nano+{tmp_path / 'mine.safetensors'}"
    one, other = identify(model_config("nano")), identify(model_config(both))
    assert one.key != other.key and other.name == "nano+mine"

    def done(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(uni_train, [str(one) for one in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    assert re.search(r"ok +adapters .*a LoRA of ComfyUI, \d+ layers, merged", done("doctor", both))
    hint = done("doctor", tmp_path / "mine.safetensors", code=1)
    assert "a LoRA of ComfyUI" in hint and "MODEL+ADAPTER" in hint
    done("export", both, tmp_path / "out")
    merged = build_model(model_config(str(tmp_path / "out"))).state_dict()
    assert all(weight.equal(merged[name]) for name, weight in build_model(model_config(both)).state_dict().items())
    assert "there is nothing at" in done("export", "nano+missing", tmp_path / "no", code=1)
    done("fit", "sft_nano", f"model.checkpoint=shipped+{tmp_path / 'mine.safetensors'}", "--dry-run")
