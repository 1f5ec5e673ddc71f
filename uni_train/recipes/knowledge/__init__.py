"""Knowledge injected in text, asked for in images (UniSandbox 4).

`config` has the keys and their rules, `kind` the stages, `injection` what is done.
"""

from uni_train.recipes.knowledge.kind import Knowledge

__all__ = ["Knowledge"]
