"""Rewards from CLIP: how well an image suits its prompt, by their embeddings u and v of length 1.

    pickscore    exp(logit scale) u . v, about 15 to 25                   Kirstain et al. 2023, arXiv 2305.01569
    clip_score   2.5 max(u . v, 0), in [0, 2.5]                           Hessel et al. 2021, arXiv 2104.08718

A prompt is cut at the model's number of tokens, 77 for published ones. Images are read by the processor that works
without torchvision.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from uni_train.core.errors import UserError
from uni_train.core.hub import local
from uni_train.rewards.config import RewardConfig
from uni_train.rewards.registry import Trained, reward


@reward("clip_score")
class ClipScore:
    """The reward of a CLIP of transformers, in a folder with its tokenizer, or on the Hub.

    Raises:
        UserError: it cannot be had or loaded, or lacks weights; only safetensors are read.
    """

    tried = True
    published, processor = "openai/clip-vit-large-patch14", ""  # the second has the tokenizer where the first has none

    def __init__(self, config: RewardConfig, trained: Trained) -> None:
        self.name, self.batch, self.device = trained.name, config.batch, trained.device
        self.long: set[str] = set()
        given = config.model or self.published
        folder = local(given)
        try:
            from transformers import AutoTokenizer, CLIPModel
            from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

            model, report = CLIPModel.from_pretrained(
                folder, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
            if report["missing_keys"]:  # which were drawn at random
                raise ValueError(f"it lacks {', '.join(sorted(report['missing_keys'])[:3])}")
            if self.processor and not (folder / "preprocessor_config.json").exists():
                folder = local(self.processor, files=("*.json", "*.txt"))
            self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            self.read = CLIPImageProcessorPil.from_pretrained(folder, local_files_only=True)
        except ImportError as error:
            raise UserError(
                f"the reward {self.name} needs transformers ({error})", "pip install -e '.[hf]'."
            ) from error
        except (OSError, ValueError, RuntimeError) as error:
            hint = f"rewards.{self.name}.model names a CLIP with safetensors, tokenizer and preprocessor_config.json."
            raise UserError(f"rewards.{self.name}.model={given} cannot be loaded: {error}", hint) from error
        self.model = model.eval().requires_grad_(False).to(self.device)
        self.tokens = model.config.text_config.max_position_embeddings

    def value(self, cosine: torch.Tensor) -> torch.Tensor:
        """float [N] of the embeddings' cosines [N]."""
        return 2.5 * cosine.clamp(min=0)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str], completions: Sequence[np.ndarray], **_: Any) -> list[float]:
        """One number an image."""
        before, values = len(self.long), list[float]()
        self.long |= {text for text in set(prompts) if len(self.tokenizer(text).input_ids) > self.tokens}
        if len(self.long) > before:
            cut = f"{len(self.long)} prompts so far have more than {self.tokens} tokens and are cut"
            print(f"the reward {self.name}: {cut}", file=sys.stderr)
        for at in range(0, len(prompts), self.batch):
            some = slice(at, at + self.batch)
            texts = self.tokenizer(
                list(prompts[some]), padding=True, truncation=True, max_length=self.tokens, return_tensors="pt"
            )
            pixels = self.read(list(completions[some]), input_data_format="channels_last", return_tensors="pt")
            both = self.model(**texts.to(self.device), pixel_values=pixels.pixel_values.to(self.device))
            values += self.value((both.text_embeds * both.image_embeds).sum(-1)).tolist()
        return values


@reward("pickscore")
class PickScore(ClipScore):
    """What people prefer, as PickScore has learned it from pairs of images."""

    published, processor = "yuvalkirstain/PickScore_v1", "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"

    def value(self, cosine: torch.Tensor) -> torch.Tensor:
        """float [N] of the embeddings' cosines [N]."""
        return self.model.logit_scale.exp() * cosine
