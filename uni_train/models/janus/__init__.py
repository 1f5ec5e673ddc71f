"""Janus and Janus-Pro (Chen et al. 2025, arXiv 2501.17811), in the layouts of transformers and of DeepSeek."""

DEEPSEEK = "multi_modality"
"""The `model_type` of DeepSeek's layout; transformers' is "janus"."""
