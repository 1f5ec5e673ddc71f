"""STARS, self-training with rejection sampling (UniSandbox 3.4): sample with thoughts, filter, fine-tune without them.

`config` has the keys and their rules, `kind` the stages, `rounds` how much a round samples and trains, `finetune` what
a training does. What is sampled and kept: `uni_train.stages.sample` and `uni_train.stages.filter`.
"""

from uni_train.recipes.stars.kind import Stars

__all__ = ["Stars"]
