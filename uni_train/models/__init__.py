"""Unified multimodal models: what all can be asked (`base`), how they are found and loaded, and a folder a family."""

import logging

# torchao, which transformers, diffusers and peft import where it is installed, tells of each kernel that this machine
# lacks and of PyTorch's plans; its errors still come through.
for _name in ("torchao", "torch.utils._pytree", "diffusers.quantizers.torchao"):
    logging.getLogger(_name).setLevel(logging.ERROR)
