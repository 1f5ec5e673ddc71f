"""Recipes: YAML files composed by hydra into typed, checked dataclasses. Importing this package is cheap."""

from uni_train.config.schema import Config, PretrainConfig, RunConfig, StarsConfig

__all__ = ["Config", "PretrainConfig", "RunConfig", "StarsConfig"]
