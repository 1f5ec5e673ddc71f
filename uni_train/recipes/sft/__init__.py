"""Supervised fine-tuning on rows of text and images (docs/training.md).

`config` has the keys and their rules, `kind` the stages, `training` what is done.
"""

from uni_train.recipes.sft.kind import Sft

__all__ = ["Sft"]
