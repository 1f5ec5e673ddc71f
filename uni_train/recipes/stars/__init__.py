"""STARS, self-training with rejection sampling (UniSandbox 3.4): sample with thoughts, filter, fine-tune without them.

`config` has the keys and their rules, `kind` the stages, `rounds` how much a round samples and trains. What the stages
do: `sampling`, `filtering` (by one of `filters`), `finetune`.
"""

from uni_train.recipes.stars.kind import Stars

__all__ = ["Stars"]
