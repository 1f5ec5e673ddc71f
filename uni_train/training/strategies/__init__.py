"""How the ranks of a run share weights, gradients and the optimizer's state: DDP, DeepSpeed ZeRO, FSDP2."""
