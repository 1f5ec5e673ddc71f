"""Think-distillation: the model after its own thought teaches the model without it (docs/distillation.md).

`config` has the keys and their rules, `kind` the stages. `thinking` samples and filters thoughts, `drawing` makes the
teacher's images, `training` learns from them. The loss: `uni_train.training.distillation`.
"""

from uni_train.recipes.distil.kind import Distil

__all__ = ["Distil"]
