"""Reinforcement of a flow by rewards on its images: Flow-GRPO and its relatives (docs/flow_grpo.md).

`config` has the keys and their rules, `kind` the stages. What is done: `training`.
"""

from uni_train.recipes.flow_grpo.kind import FlowGrpo

__all__ = ["FlowGrpo"]
