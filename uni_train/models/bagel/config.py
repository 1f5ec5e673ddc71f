"""Sizes of a BAGEL model: dataclasses, and how to read the JSON files of a released checkpoint.

Left out on purpose: options of the released files that BAGEL itself never varies (dropout, sliding window, tied
embeddings, layers without q/k norm).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from uni_train.config.schema import ArchitectureConfig

AttentionImpl = Literal["auto", "eager", "sdpa", "flex"]
Prediction = Literal["velocity", "clean"]
T = TypeVar("T")

GENERATION_NAMES = ("_moe_gen", "vae2llm", "llm2vae", "time_embedder")
"""What the names of generation weights contain."""
PARTS = {
    "vit": r"\bvit_model\.",
    "connector": r"\bconnector\.",
    "understanding": r"\blanguage_model\.(?!.*_moe_gen)",
    "generation": "|".join(GENERATION_NAMES),
}
"""Parts that may be frozen, by what is searched in a parameter's name. `understanding`: the decoder's weights for text
and ViT tokens, its embeddings and its head."""
_LAYER = r"(.*\.)?language_model\.model\.layers\.\d+\."
_LINEAR = r"(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
_GENERATION = r"(self_attn\.[qkvo]_proj_moe_gen|mlp_moe_gen\.(gate|up|down)_proj)"
ADAPTER_LAYERS = {
    "generation": _LAYER + _GENERATION,
    "understanding": _LAYER + _LINEAR,
    "both": f"{_LAYER}({_LINEAR}|{_GENERATION})",
}
"""Whole names of linear layers that adapters are put on."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the four markers; every text is bos + ids + eos, every image start + patches + end."""

    bos: int
    eos: int
    start_of_image: int
    end_of_image: int


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """`max_position_embeddings`: positions that a context may have; longer prompts are refused."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    max_position_embeddings: int = 32768

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def __post_init__(self) -> None:
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be an even multiple of num_attention_heads "
                f"{self.num_attention_heads} (rope turns pairs of channels)"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} must be a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}"
            )


@dataclass(frozen=True, slots=True)
class VitConfig:
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    image_size: int
    num_channels: int = 3
    layer_norm_eps: float = 1e-6

    @property
    def max_per_side(self) -> int:
        return self.image_size // self.patch_size

    @property
    def patch_dim(self) -> int:
        return self.patch_size**2 * self.num_channels


@dataclass(frozen=True, slots=True)
class BagelConfig:
    """`vit` None: a model without understanding images. `latent_channels`: channels of the VAE latent.

    `prediction` is what the generation head puts out and is trained on: BAGEL's velocity, or the clean latent (drawing
    then takes the velocity from it).
    """

    llm: LlmConfig
    vit: VitConfig | None
    tokens: SpecialTokens
    latent_channels: int = 16
    latent_patch_size: int = 2
    max_latent_size: int = 64
    vit_max_num_patch_per_side: int = 70
    timestep_shift: float = 1.0
    attention: AttentionImpl = "auto"
    prediction: Prediction = "velocity"

    @property
    def latent_dim(self) -> int:
        """Numbers in one latent token."""
        return self.latent_patch_size**2 * self.latent_channels

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BagelConfig:
        """Inverse of `to_dict`. Unknown keys are errors that name the key."""
        values = dict(values)
        values["llm"] = _build(LlmConfig, values["llm"], "llm")
        values["vit"] = None if values.get("vit") is None else _build(VitConfig, values["vit"], "vit")
        values["tokens"] = _build(SpecialTokens, values["tokens"], "tokens")
        return _build(cls, values, "model")

    @classmethod
    def from_sizes(
        cls,
        sizes: ArchitectureConfig,
        vocab_size: int,
        tokens: SpecialTokens,
        vit_patches_per_side: int,
        prediction: Prediction = "velocity",
    ) -> BagelConfig:
        """From `model.architecture` of a recipe."""
        return cls(
            llm=LlmConfig(
                vocab_size=vocab_size,
                hidden_size=sizes.hidden_size,
                intermediate_size=sizes.intermediate_size,
                num_hidden_layers=sizes.layers,
                num_attention_heads=sizes.heads,
                num_key_value_heads=sizes.kv_heads,
                rope_theta=sizes.rope_theta,
            ),
            vit=VitConfig(
                hidden_size=sizes.vit_hidden_size,
                intermediate_size=sizes.vit_intermediate_size,
                num_hidden_layers=sizes.vit_layers,
                num_attention_heads=sizes.vit_heads,
                patch_size=sizes.vit_patch,
                image_size=vit_patches_per_side * sizes.vit_patch,
            ),
            tokens=tokens,
            latent_channels=sizes.latent_channels,
            latent_patch_size=sizes.latent_patch,
            max_latent_size=sizes.image_size // (sizes.latent_downsample * sizes.latent_patch),
            vit_max_num_patch_per_side=vit_patches_per_side,
            prediction=prediction,
        )

    @classmethod
    def from_official(
        cls, llm: Mapping[str, Any], vit: Mapping[str, Any], tokens: SpecialTokens, **bagel: Any
    ) -> BagelConfig:
        """From `llm_config.json`, `vit_config.json`, the marker ids and what the released loader hard-codes.

        The released loader builds one ViT layer fewer than the file says (the last one is unused); so does this.
        Keys of the two files that this model does not vary are ignored.
        """
        vit_values = _known(VitConfig, vit) | {"num_hidden_layers": int(vit["num_hidden_layers"]) - 1}
        return cls(LlmConfig(**_known(LlmConfig, llm)), VitConfig(**vit_values), tokens, **bagel)


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(kind)}
    return {key: value for key, value in values.items() if key in names}


def _build(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    unknown = sorted(set(values) - {f.name for f in fields(kind)})  # type: ignore[arg-type]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in the {where} part of a BAGEL config")
    return kind(**values)
