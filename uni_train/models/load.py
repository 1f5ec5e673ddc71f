"""From a model's configuration to the model, and its weights to and from a folder of safetensors + JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import ModelConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.models.checkpoint import find, model_config, source_of, stored_model
from uni_train.models.family import CONFIG, WEIGHTS, Checkpoint, family_of
from uni_train.models.saved_step import model_before, put_weights, run_config

if TYPE_CHECKING:
    import torch

    from uni_train.models.base import UnifiedModel
    from uni_train.models.weights import Format, Start

__all__ = ["CONFIG", "WEIGHTS", "build_model", "export_model", "load_weights", "model_config", "save_model"]


def build_model(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> UnifiedModel:
    """The model of a recipe, with the weights that its `checkpoint` names (null: random ones from `seed`, nano only),
    adapters merged, quantised as its `weights` says.

    Quantised layers are made one by one on `device`, which never holds the plain model. Host memory holds it in three
    cases: transformers or diffusers read it, adapters are merged, or it is a step of a run.

    Args:
        dtype: of the weights; None: float32 (nano), or one that is near the stored ones (`Weights.compute_dtype`).

    Raises:
        UserError: weights that are missing, damaged or of another shape; a folder that is something else. UsageError:
            a key that the model's family does not take (`expect_keys`).
    """
    import torch

    expect_keys(config)
    if config.weights is not None:
        from uni_train.models.quantised import need_torchao, quantise

        need_torchao(f"model.weights={config.weights}")
    # TF32 for products of float32 on GPUs, in this process: a model may move to its GPU later.
    torch.backends.cuda.matmul.allow_tf32 = family_of(config.family).tf32
    source = None if config.checkpoint is None else source_of(config.checkpoint)
    if source is None or not source.adapters:
        model = _stored(config, seed, dtype, device).eval()
    else:
        from uni_train.models.adapters import merge

        model = _stored(replace(config, checkpoint=source.base, weights=None), seed, dtype, "cpu").eval()
        for adapter in source.adapters:
            merge(model, Path(adapter))
    if config.weights is not None:
        quantise(model, config.weights, device)
    model = model.to(device)
    if config.vae_tile is not None:
        _tile(getattr(model, "vae", None), config.vae_tile // 32 * 32, config.name)
    if config.compile:
        compile_steps(model, True)
    return model


def compile_steps(model: Any, on: bool) -> None:
    """Whether torch.compile makes what repeats while the model writes and draws (`model.compile`)."""
    if hasattr(model, "bagel"):
        model.bagel.compile_steps(on)
    elif not getattr(getattr(model, "transformer", None), "_repeated_blocks", None):
        raise UsageError(f"{model.name} has no blocks that diffusers compiles", "Leave model.compile out.")
    elif on:
        model.transformer.compile_repeated_blocks()
    else:
        for module in model.transformer.modules():
            module._compiled_call_impl = None


def _tile(vae: Any, side: int, name: str) -> None:
    """Have a VAE take images in tiles that overlap by a quarter of their side, in pixels."""
    if not hasattr(vae, "enable_tiling"):
        raise UsageError(f"the VAE of model={name} takes no tiles", "Leave model.vae_tile out.")
    if hasattr(vae, "tile_sample_min_size"):  # of diffusers' AutoencoderKL, which has sizes in place of arguments
        factor = vae.tile_sample_min_size / vae.tile_latent_min_size
        vae.tile_sample_min_size, vae.tile_latent_min_size = side, int(side / factor)
        vae.tile_overlap_factor = 0.25
        vae.enable_tiling()
    else:
        stride = 3 * side // 4
        vae.enable_tiling(side, side, stride, stride)


def _stored(config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str) -> UnifiedModel:
    """The model without adapters, its layers quantised where they were read one by one."""
    family = family_of(config.family)
    if config.checkpoint is None or config.checkpoint == "shipped":
        return family.build(config, seed, dtype, device)
    path = stored_model(config).path
    if source_of(path).kind != "step":
        return family.build(replace(config, checkpoint=str(path)), seed, dtype, device)
    from uni_train.models.quantised import dequantise, quantise

    run = run_config(path)
    start = replace(config, checkpoint=run.model.checkpoint, weights=run.model.weights)
    model, before = build_model(start, run.seed, dtype_for(run.strategy.precision)), model_before(path)
    if before is not None:
        load_weights(model, before)
        quantise(model, run.model.weights)  # adapters were trained on that
    dequantise(model)
    put_weights(model, path)
    return model if dtype is None else model.to(dtype)


def dtype_for(precision: str) -> torch.dtype | None:
    """What `build_model` takes for weights to be trained: float32, also where `bf16-mixed` computes in bfloat16.
    None for `bf16-true`, which casts them itself (uni_train/training/precision.py)."""
    import torch

    return None if precision == "bf16-true" else torch.float32


def expect_keys(config: ModelConfig) -> None:
    """Raises UsageError where a key is given that the model's family does not take."""
    family = family_of(config.family)
    values: dict[str, Any] = {
        "vae_tile": config.vae_tile,
        "editing": config.editing,
        "puzzles": config.puzzles or None,
        "compile": config.compile or None,
        "sampling.first_block_cache": config.sampling.first_block_cache,
        "sampling.interleaving": config.sampling.interleaving,
    }
    for key, value in values.items():
        takes = key in family.optional_keys and (key != "puzzles" or config.edits)
        if value is not None and not takes:
            raise UsageError(f"model.{key} has no meaning for model={config.name}", f"Leave model.{key} out.")
    if config.sampling.max_images is not None and config.sampling.interleaving is None:
        raise UsageError("sampling.max_images is of interleaved answers", "Add sampling.interleaving, or leave it out.")
    if config.compile and config.sampling.first_block_cache is not None:
        raise UsageError(
            "model.compile and sampling.first_block_cache exclude each other: what is compiled skips no layers",
            "Leave one of them out.",
        )


def expect_precision(config: ModelConfig, precision: str) -> None:
    """Raises UsageError where `weights` are quantised for a model whose products stay float32, and training is not."""
    if config.weights is not None and precision == "bf16-true" and not family_of(config.family).bfloat16:
        raise UsageError(
            f"model.weights={config.weights} keeps the float32 products of {config.name}, and strategy.precision is "
            f"{precision}",
            "strategy.precision=32-true or bf16-mixed.",
        )


def save_model(model: UnifiedModel, folder: Path, form: Format | None = None) -> None:
    """Write a folder that `build_model` and `load_weights` read.

    nano: `model.safetensors` and `config.json`. BAGEL: the official layout, with the autoencoder and the tokenizer of
    the folder it came from. Qwen-Image-Edit: diffusers' layout, with all other parts of that folder. Each file is
    written atomically.

    Raises:
        UserError, OSError: the disk is full or the folder cannot be written; an older checkpoint there is untouched.
    """
    from uni_train.models.weights import Format

    family_of(model.family).save(model, folder, form or Format())


def load_weights(model: UnifiedModel, folder: Path) -> None:
    """Load what `save_model` wrote into a model of the same sizes, whose weights are not quantised afterwards.

    Raises:
        UserError: a missing or damaged file, or tensors that do not fit (at most ten are named).
    """
    from uni_train.models.weights import is_quantised

    if any(map(is_quantised, model.parameters())):
        from uni_train.models.quantised import dequantise

        dequantise(model)
    family_of(model.family).load(model, folder)


def export_model(
    source: str | Path,
    out: Path,
    start: Start,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
    force: bool = False,
) -> Checkpoint:
    """Write the model at `source` (whatever `model_config` takes) to the folder `out`. Returns what it was.

    Each family writes its own layout, complete: tensor by tensor, without building the model. A model with adapters and
    a step of a training are built first.

    Args:
        dtype: of floating-point weights that are trained; None keeps each one's.
        shard_bytes: split the weights into files of at most this size.
        force: write into a folder that holds other files.

    Raises:
        UserError, OSError: `source` holds no model, `out` holds one already or, without `force`, anything, or the disk
            is full.
    """
    from uni_train.models.weights import Format

    form = Format(dtype, shard_bytes)
    typed = source_of(source)
    checkpoint = find(typed.base)
    taken = sorted(out.glob("*.safetensors")) if out.is_dir() else []
    if (out / "model_index.json").is_file() or any(
        file.stem.split("-")[0] in ("ema", "model", "model_bf16") for file in taken
    ):
        raise UserError(f"{out} holds a model already", "Give another folder, or remove that one.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UserError(f"{out} is not empty", "Give a new folder, or --force to write beside what is there.")
    if typed.adapters or source_of(checkpoint.path).kind == "step":
        save_model(build_model(model_config(str(source))), out, form)
    else:
        family_of(checkpoint.kind).export(checkpoint.path, out, start, form)
    return checkpoint
