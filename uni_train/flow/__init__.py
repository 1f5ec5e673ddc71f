"""Rectified flow as pure functions on tensors: schedule, objective, guidance, Euler step. One idea a file."""
