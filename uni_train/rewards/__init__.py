"""Rewards: what a drawn image is worth. The contract is trl's, so rewards written for it work; docs/flow_grpo.md."""
