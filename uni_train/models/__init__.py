"""Unified multimodal models: what all can be asked (`base`), how they are found and loaded, and a folder a family."""
