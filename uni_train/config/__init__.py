"""Recipes: YAML files composed by hydra into typed, checked dataclasses. Importing this package is cheap."""
