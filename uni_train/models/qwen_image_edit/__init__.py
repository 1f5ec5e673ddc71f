"""Qwen-Image-Edit (and its Plus form: 2509, 2511) over the parts of diffusers and transformers."""
