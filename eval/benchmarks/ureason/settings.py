"""The settings of UReason, and what they are called."""

from __future__ import annotations

DIRECT, GUIDED, BARE = "direct", "reasoning_guided", "decontextualized"
FOUR_TIMES, EIGHT_TIMES = "decontextualized_4x", "decontextualized_8x"
LENGTHS = {BARE: 1, FOUR_TIMES: 4, EIGHT_TIMES: 8}
CHAIN, EXTERNAL = "reasoning_chain", "external_prompt"
HEADLINE = (DIRECT, GUIDED, BARE)
SETTINGS = (*HEADLINE, FOUR_TIMES, EIGHT_TIMES, CHAIN, EXTERNAL)
TITLES = {
    DIRECT: "1 Direct", GUIDED: "2 Reasoning-guided", BARE: "3 De-contextualized", CHAIN: "Reasoning chain",
    FOUR_TIMES: "4 x refined prompt", EIGHT_TIMES: "8 x refined prompt", EXTERNAL: "External prompt model",
}  # fmt: skip
REASONING = "reasoning"  # the check of a thought
