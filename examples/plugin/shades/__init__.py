"""An example plug-in: each module registers one thing (see the entry points in pyproject.toml)."""
