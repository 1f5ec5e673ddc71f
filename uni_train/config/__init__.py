"""Recipes: YAML files composed by hydra into typed, checked dataclasses. Importing this package is cheap."""

from uni_train.config.schema import RunConfig

__all__ = ["RunConfig"]
