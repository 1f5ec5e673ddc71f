"""The tasks of ViGoR: which domain they belong to, which judge templates they have, how their folders may be called.

The abstract counts 20 tasks; section 3.1 names 7 physical, 7 knowledge and 7 symbolic ones, which are 21. The published
files have Sorting and Categorization in one folder, which makes 20.
"""

from __future__ import annotations

import re

DOMAINS = {
    "physical": (
        "sorting_and_categorization", "spatial_reasoning", "attribute_recognition", "object_assembly",
        "measurement_verification", "situational_decision_making",
    ),
    "knowledge": ("biology", "physics", "chemistry", "geography", "history", "sports", "common_sense"),
    "symbolic": (
        "block_building", "klotski_puzzle", "algebraic_calculation", "function_plotting", "jigsaw_puzzle",
        "maze_navigation", "sudoku",
    ),
}  # fmt: skip
TASKS = tuple(task for tasks in DOMAINS.values() for task in tasks)
MAZE, ALGEBRA = "maze_navigation", "algebraic_calculation"
JIGSAW, SUDOKU, PLOT = "jigsaw_puzzle", "sudoku", "function_plotting"

# What a folder may be called besides, without its case and signs.
_ALIASES = {
    "maze": MAZE, "algebra": ALGEBRA, "algebraiccalculations": ALGEBRA, "jigsaw": "jigsaw_puzzle",
    "klotski": "klotski_puzzle", "function": "function_plotting", "functionplot": "function_plotting",
    "lego": "block_building", "blocks": "block_building", "commonsense": "common_sense", "sport": "sports",
    "sorting": "sorting_and_categorization", "categorization": "sorting_and_categorization",
    "measurement": "measurement_verification",
    "measurementandverification": "measurement_verification", "decisionmaking": "situational_decision_making",
    "assembly": "object_assembly", "attribute": "attribute_recognition", "spatial": "spatial_reasoning",
}  # fmt: skip


def task_named(folder: str) -> str | None:
    """The task whose folder is called so: "Maze_Navigation", "maze navigation", "Maze"."""
    plain = re.sub(r"[^a-z]", "", folder.lower())
    return {task.replace("_", ""): task for task in TASKS}.get(plain) or _ALIASES.get(plain)


def domain_of(task: str) -> str:
    return next(domain for domain, tasks in DOMAINS.items() if task in tasks)


def family_of(task: str) -> str:
    """Whose judge templates it has: each symbolic task has its own, physical and knowledge tasks share theirs."""
    domain = domain_of(task)
    return task if domain == "symbolic" else domain


def title(task: str) -> str:
    return task.replace("_", " ").capitalize()
