"""Rectified flow as pure functions on tensors, one idea a file; docs/flow.md is the map.

Sampling: `schedule`, `euler`, `guidance`. Supervised training: `objective`. Reinforcement: `steps` (with `transition`),
`window`, `rollout`, `advantages`, `grpo`, `nft`.

Throughout, t = 1 is noise, t = 0 the image, a velocity is noise - image, B counts rows (samples).
"""
