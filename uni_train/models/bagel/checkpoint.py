"""A released BAGEL folder to a model, and a model to such a folder.

    ema.safetensors                  the model, under our own parameter names
    ae.safetensors                   the autoencoder
    llm_config.json, vit_config.json the sizes
    tokenizer.json, ...              the tokenizer

The model is made on the meta device. Its tensors are loaded one by one, cast and put into place: no second copy ever
exists.

Checkpoints of descendants differ little and load as well. The weights may be `model.safetensors` (ThinkMorph, SRUM),
`model_bf16.safetensors` (Bagel-Zebra-CoT), or shards with an index. The two position tables may be missing: training
code leaves them out because they are computed. The ViT's patch embedding may still be a convolution.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uni_train.config.schema import ModelConfig, Quantised
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path
from uni_train.core.reading_limits import PICKLES
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.config import BagelConfig, SpecialTokens
from uni_train.models.bagel.positions import sincos_table
from uni_train.models.bagel.prompts import THINK_THEN_ANSWER, THINK_THEN_DRAW
from uni_train.models.bagel.tokenizer import FILES as TOKENIZER_FILES
from uni_train.models.bagel.tokenizer import has_tokenizer, read_tokenizer
from uni_train.models.bagel.unified import BagelUnified, Speech
from uni_train.models.bagel.vae import AutoEncoder, VaeConfig
from uni_train.models.family import NEVER_READ
from uni_train.models.meta import without_weights
from uni_train.models.quantised import quantise
from uni_train.models.shapes import Guess
from uni_train.models.weights import (
    Format,
    Start,
    Weights,
    check,
    copy,
    fill,
    problems,
    read_object,
    shapes_of,
    weight_files,
    write_state,
)

WEIGHTS = ("ema.safetensors", "model.safetensors", "model_bf16.safetensors")
"""Names of the model's weights, the first one there is read; each may be `NAME.index.json` and shards instead."""
_STEM = "ema"
VAE = "ae.safetensors"
LLM, VIT = "llm_config.json", "vit_config.json"
CARRIED = (VAE, LLM, VIT, *TOKENIZER_FILES, "config.json", "generation_config.json", "preprocessor_config.json")
"""Files that an export copies as they are. The autoencoder is among them: it is never trained."""

_PATCHES = "vit_model.vision_model.embeddings.patch_embedding.weight"
_TABLES = ("latent_pos_embed.pos_embed", "vit_pos_embed.pos_embed")
_LANDMARKS = ("llm2vae.bias", "language_model.model.embed_tokens.weight", "vit_model.vision_model.post_layernorm.bias")
_VOCABULARY = 152_064  # of the released model; a folder's llm_config.json says its own
_UNKNOWN = SpecialTokens(0, 0, 0, 0)  # where only sizes matter
_LATENTS_PER_SIDE = 64  # what the released loader sets
_VIT_PATCHES_PER_SIDE = 70
_FROM_RELEASE = "Copy it from the folder of BAGEL-7B-MoT, whose sizes it tells."
_HINT = "It must be BAGEL-7B-MoT or fine-tuned from it; `uni_train models inspect` shows what it is."


class PublishedBagel(BagelUnified):
    """A BagelUnified with the official autoencoder, read from a folder.

    Attributes:
        source: the folder; its autoencoder, tokenizer and JSON files go into every export.
    """

    family = "bagel"
    source: Path
    bagel: Bagel
    vae: AutoEncoder


@dataclass(frozen=True, slots=True)
class BagelFolder:
    """A folder in the official layout: its JSON files and the headers of its weights."""

    path: Path
    weights: Weights
    vae: Weights | None
    llm: Mapping[str, Any]
    vit: Mapping[str, Any]

    @property
    def file(self) -> str:
        """The weights' name, for messages."""
        return str(self.weights.files[0] if len(self.weights.files) == 1 else self.path)

    def config(self, tokens: SpecialTokens = _UNKNOWN) -> BagelConfig:
        """Sizes from the JSON files; those that the released loader sets in code are read off the weights.

        Raises:
            UserError: a size is missing or impossible.
        """
        shapes = self.weights.shapes
        vae = self.vae_config() if self.vae is not None else VaeConfig()
        try:
            sides = [_LATENTS_PER_SIDE, int(self.vit["image_size"]) // int(self.vit["patch_size"])]
            sides = [math.isqrt(shapes[t][0]) if t in shapes else side for t, side in zip(_TABLES, sides, strict=True)]
            return BagelConfig.from_official(
                self.llm,
                self.vit,
                tokens,
                latent_channels=vae.latent_channels,
                latent_patch_size=math.isqrt(shapes["llm2vae.bias"][0] // vae.latent_channels),
                max_latent_size=sides[0],
                vit_max_num_patch_per_side=sides[1],
            )
        except KeyError as error:
            raise UserError(f"{self.path} is no BAGEL checkpoint: it lacks {error}", _HINT) from error
        except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
            raise UserError(f"{self.path} is no BAGEL checkpoint: {error}", _HINT) from error

    def autoencoder(self) -> Weights:
        """The tensors of `ae.safetensors`. Raises UserError if there is none."""
        if self.vae is None:
            raise UserError(
                f"{self.path} holds no {VAE}", "Copy it from the folder of BAGEL-7B-MoT: its descendants share it."
            )
        return self.vae

    def vae_config(self) -> VaeConfig:
        """The autoencoder's sizes. Raises UserError if there is none, or something else."""
        vae = self.autoencoder()
        try:
            return VaeConfig.from_shapes(vae.shapes)
        except KeyError as error:
            raise UserError(f"{vae.files[0]} is not BAGEL's autoencoder: it lacks {error}", _HINT) from error


def open_folder(path: Path) -> BagelFolder:
    """Open a folder, or one weight file in it (`FOLDER/model_bf16.safetensors`, where several lie side by side).

    Raises:
        UserError: files that are missing or damaged.
    """
    folder = path.parent if path.suffix == ".safetensors" else path
    files = [path] if path.suffix == ".safetensors" else _weight_files(folder)
    vae = folder / VAE
    return BagelFolder(
        folder,
        Weights(files).fitted(_LANDMARKS),
        Weights([vae]) if vae.is_file() else None,
        read_object(folder / LLM, _FROM_RELEASE),
        read_object(folder / VIT, _FROM_RELEASE),
    )


def _weight_files(folder: Path) -> list[Path]:
    try:
        return weight_files(folder, WEIGHTS, _HINT, others=(VAE,))
    except UserError:
        pickles = sorted(file.name for file in folder.glob("*") if file.suffix in PICKLES)
        if not pickles:
            raise
        raise UserError(f"{folder} holds its weights as a pickle ({pickles[0]})", NEVER_READ) from None


# --- building ---------------------------------------------------------------------------------------------------------


def skeleton(config: ModelConfig) -> tuple[BagelUnified, bool]:
    """The model without weights, and whether its tokenizer is a guess.

    Sizes are those of the folder `config.checkpoint`; where there is none, those of the recipe.
    """
    folder = Path(config.checkpoint or "")
    here = config.checkpoint is not None and folder.exists()
    if here:
        opened = open_folder(folder)
        bagel, vae = _meta(opened.config(), opened.vae_config() if opened.vae is not None else VaeConfig())
    else:
        sizes = config.architecture
        values = BagelConfig.from_sizes(sizes, _VOCABULARY, _UNKNOWN, vit_patches_per_side=_VIT_PATCHES_PER_SIDE)
        bagel, vae = _meta(values, VaeConfig(latent_channels=sizes.latent_channels))
    known = here and folder.is_dir() and has_tokenizer(folder)
    tokenizer = read_tokenizer(folder) if known else Guess()
    side = _side(config, bagel, vae)
    model = BagelUnified(config.name, bagel, vae, tokenizer, Speech(THINK_THEN_DRAW), config.sampling, side)
    return model, not known


def _side(config: ModelConfig, bagel: Bagel, vae: AutoEncoder) -> int:
    """Pixels a side of what it draws: as configured, as far as it has positions."""
    sizes = bagel.config
    return min(config.architecture.image_size, sizes.max_latent_size * sizes.latent_patch_size * vae.downsample)


def _meta(config: BagelConfig, vae: VaeConfig) -> tuple[Bagel, AutoEncoder]:
    with without_weights():
        return Bagel(config), AutoEncoder(vae)


def build(config: ModelConfig, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> PublishedBagel:
    """The model of the folder `config.checkpoint`, made on the meta device, with its weights.

    Args:
        dtype: of the model's weights; None: `Weights.compute_dtype`, as the autoencoder always has its own (float32).
    """
    path = Path(config.checkpoint or "")
    opened = open_folder(path)
    tokenizer = read_tokenizer(opened.path)
    sizes = opened.config(tokenizer.tokens)
    if max(tokenizer.tokens.bos, tokenizer.tokens.eos, tokenizer.tokens.end_of_image) >= sizes.llm.vocab_size:
        raise UserError(
            f"the tokenizer of {opened.path} has more tokens than {LLM} has embeddings ({sizes.llm.vocab_size})",
            "The folder mixes files of two models: copy the tokenizer of the right one.",
        )
    bagel, vae = _meta(sizes, opened.vae_config())
    speech, side = Speech(THINK_THEN_DRAW, answer_system=THINK_THEN_ANSWER), _side(config, bagel, vae)
    model = PublishedBagel(config.name, bagel, vae, tokenizer, speech, config.sampling, side)
    load(model, opened.path if path.is_dir() else path, dtype, device, config.weights)
    return model


# --- reading ----------------------------------------------------------------------------------------------------------


def load(
    model: PublishedBagel,
    path: Path,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    weights: Quantised | None = None,
) -> None:
    """Read the weights of a folder into a model of the same sizes.

    Meta parameters are replaced by what is read, in `dtype` (None: `Weights.compute_dtype`) on `device`, those of the
    decoder's layers as `weights` says; others are overwritten in place, in theirs. Nothing is loaded if anything does
    not fit.

    Raises:
        UserError: names and shapes that do not fit (at most ten), files that are missing or damaged.
    """
    opened = open_folder(path)
    reader = _checked(opened, model.bagel, model.vae)
    vae = opened.autoencoder()
    dtype = dtype or opened.weights.compute_dtype
    quantise(model.bagel, weights, read=lambda name: reader.read(name).to(device, dtype))
    fill(model.bagel, reader.read, dtype, device)
    fill(model.vae, vae.read, vae.compute_dtype, device)
    model.source = path


class _Reader:
    """The model's tensors as they must be: tables computed where the file lacks them, the patch embedding linear."""

    def __init__(self, weights: Weights, expected: Mapping[str, Sequence[int]]) -> None:
        self.weights = weights
        self.expected = expected
        conv = weights[_PATCHES].shape if _PATCHES in weights else ()
        self.convolution = len(conv) == 4
        self.shapes: dict[str, Sequence[int]] = {
            name: shape for name, shape in weights.shapes.items() if not name.endswith(".rotary_emb.inv_freq")
        }
        if self.convolution:
            self.shapes[_PATCHES] = (conv[0], math.prod(conv[1:]))
        for name in _TABLES:
            if name not in weights and name in expected:
                self.shapes[name] = expected[name]

    def read(self, name: str) -> Tensor:
        """The whole tensor."""
        if name not in self.weights:
            places, width = self.expected[name]
            return sincos_table(width, math.isqrt(places))
        value = self.weights.read(name)
        # A patch vector is ordered (row, column, channel), a convolution's kernel (channel, row, column).
        return value.permute(0, 2, 3, 1).flatten(1) if name == _PATCHES and self.convolution else value

    def dtype(self, name: str) -> torch.dtype:
        """As stored; a computed table has the dtype of most weights."""
        return self.weights[name].dtype if name in self.weights else self.weights.dtypes[0]


def _checked(opened: BagelFolder, bagel: Bagel, vae: AutoEncoder) -> _Reader:
    """A reader of the folder's model. Raises UserError if its names and shapes, or the autoencoder's, do not fit."""
    reader = _Reader(opened.weights, shapes_of(bagel))
    check(reader.shapes, reader.expected, opened.file, _HINT)
    check(opened.autoencoder().shapes, shapes_of(vae), str(opened.autoencoder().files[0]), _HINT)
    return reader


def compare(folder: BagelFolder) -> tuple[dict[str, Sequence[int]], list[str]]:
    """Shapes by name of what a folder's weights amount to; and what keeps them from fitting its sizes, in phrases."""
    bagel, vae = _meta(folder.config(), folder.vae_config() if folder.vae is not None else VaeConfig())
    reader = _Reader(folder.weights, shapes_of(bagel))
    phrases = list(problems(reader.shapes, reader.expected))
    if folder.vae is not None:
        phrases += [f"{VAE}: {problem}" for problem in problems(folder.vae.shapes, shapes_of(vae))]
    return reader.shapes, phrases


# --- writing ----------------------------------------------------------------------------------------------------------


def save(model: PublishedBagel, folder: Path, form: Format) -> None:
    """Write the official layout. The weights are written last: a folder with weights is complete."""
    _carry(model.source, folder)
    write_state(model.bagel.state_dict(), folder, _STEM, form)


def export(source: Path, folder: Path, start: Start, form: Format) -> None:
    """Copy a folder to the official layout. Raises UserError: its weights do not fit its JSON files."""
    opened = open_folder(source)
    reader = _checked(opened, *_meta(opened.config(), opened.vae_config()))
    _carry(source, folder)
    tensors = {name: (reader.dtype(name), shape) for name, shape in reader.expected.items()}
    copy(reader.read, tensors, folder, _STEM, start, form)


def _carry(source: Path, folder: Path) -> None:
    """Copy everything but the model's weights."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = source if source.is_dir() else source.parent
    for name in CARRIED:
        if (origin / name).is_file() and origin.resolve() != folder.resolve():
            with atomic_path(folder / name) as temporary:
                shutil.copyfile(origin / name, temporary)


# --- parts ------------------------------------------------------------------------------------------------------------

_PART_OF = {
    "language_model.model.embed_tokens.": "text embeddings",
    "language_model.lm_head.": "text head",
    "language_model.": "understanding",
    "vit_model.": "ViT",
    "connector.": "connector",
    "latent_pos_embed.": "positions",
    "vit_pos_embed.": "positions",
}


def part_of(name: str) -> str:
    """Which of `BagelFamily.parts` a parameter belongs to, by its official name; "latents" are layers around them."""
    if "moe_gen" in name:
        return "generation"
    return next((part for prefix, part in _PART_OF.items() if name.startswith(prefix)), "latents")
