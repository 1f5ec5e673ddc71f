"""Direct preference optimisation on right and wrong images of one prompt (docs/dpo.md).

`config` has the keys and their rules, `kind` the stages, `training` the pairs and what is learned from them. Sampling
and filtering are those of STARS. The loss: `uni_train.training.dpo`.
"""

from uni_train.recipes.dpo.kind import Dpo

__all__ = ["Dpo"]
