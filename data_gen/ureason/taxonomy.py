"""The names of UReason's tasks and subcategories (Yang et al. 2026, section 2.1, Appendix B.1 and Figure 4)."""

from __future__ import annotations

SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "code": ("Python", "C#", "C++", "Java", "HTML", "CSS", "JavaScript", "SQL"),
    "arithmetic": ("Single-Type", "Multi-Type", "Add", "Subtract", "Multiply", "Divide", "Transfer"),
    "spatial": ("Horizontal", "Vertical", "Grid", "Absolute", "Relative", "Constraint"),
    "attribute": ("Color", "Shape", "Texture", "Presence", "Position"),
    "text": ("Character", "Word", "Number", "Symbol"),
}
TASKS = tuple(SUBCATEGORIES)

# What can be said in nano's words and drawn with its sprites; it has no words for places, no sprites of another colour
# or shape, and no letters to draw.
NANO_SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "code": ("Python",),
    "arithmetic": ("Single-Type", "Multi-Type", "Add", "Subtract", "Multiply", "Divide"),
}


def subcategories(world: str) -> dict[str, tuple[str, ...]]:
    """Task -> subcategories that the world ("everyday" or "nano") has."""
    return NANO_SUBCATEGORIES if world == "nano" else SUBCATEGORIES
