"""Rewards: what a drawn picture is worth. The contract is trl's, so rewards written for it work; docs/flow_grpo.md."""
