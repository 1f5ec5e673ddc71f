"""uni_train: train unified multimodal models to internalise their own reasoning, and measure what got better."""

__version__ = "0.1.0"
