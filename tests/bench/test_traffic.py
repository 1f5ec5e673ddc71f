"""bench/traffic.py: bytes of an update."""

from __future__ import annotations

from bench.traffic import counted, pefts


def test_an_update_of_adapters_moves_less_memory_than_with_pefts_layer():
    keys = ["flow_grpo_maze", ["trained=lora"]]
    ours, theirs = counted(*keys), pefts(*keys)
    assert ours["aten::addmm_"] and not theirs["aten::addmm_"]
    assert ours["aten::mul"] < 0.8 * theirs["aten::mul"]
    assert sum(ours.values()) < 0.85 * sum(theirs.values())
    assert counted(*keys) == ours, "peft's forward pass was there for one count"
