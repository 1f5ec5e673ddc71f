"""The names of UFO: regimes, tasks, sets and settings."""

from __future__ import annotations

DETERMINATION, RECONSTRUCTION, AUGMENTATION = "determination", "reconstruction", "augmentation"
REGIMES = (DETERMINATION, RECONSTRUCTION, AUGMENTATION)
# In the paper's order; the regime is that of the world state's change (section 3.1).
PAPER_TASKS = {
    "chemistry": DETERMINATION, "multi_table": DETERMINATION, "multi_view": DETERMINATION,
    "hybridisation": DETERMINATION, "inpainting": RECONSTRUCTION, "exo_to_ego": RECONSTRUCTION,
    "jigsaw": RECONSTRUCTION, "geometric": AUGMENTATION, "logical": AUGMENTATION, "physics": AUGMENTATION,
}  # fmt: skip
# And of our own questions; those of inpainting are asked in both.
TASKS = {**PAPER_TASKS, "maths": DETERMINATION, "mapping": AUGMENTATION}
KINDS = ("mcq", "open")
SETS = tuple(f"{task}{'' if kind == 'mcq' else '_open'}" for kind in KINDS for task in TASKS)

DIRECT, TEXTUAL, VISUAL, JOINT = "direct", "textual", "visual", "joint"
ANSWERS = (DIRECT, TEXTUAL, VISUAL, JOINT)  # the paper's four schedules
TEXT_CUE, IMAGE_CUE, DIMENSIONS = "textual_cue", "visual_cue", "cue_dimensions"  # the cue itself is scored
CUES = (TEXT_CUE, IMAGE_CUE, DIMENSIONS)
TEXT_TAKING, IMAGE_TAKING = (TEXTUAL, JOINT, TEXT_CUE), (VISUAL, JOINT, IMAGE_CUE, DIMENSIONS)  # the model's own cue
BLIND = "blind"  # direct, without the images of the question: the check for contamination
INTERLEAVED = "interleaved"  # one answer of texts and images, as the model takes turns (ours)
SCHEDULES = (*ANSWERS, INTERLEAVED)
CUED = (TEXTUAL, VISUAL)
SOURCES = ("true", "other", "blank")  # of a cue in the place of the model's own
SWAPS = tuple(f"{schedule}_{source}" for schedule in CUED for source in SOURCES)
EXTRA = {"blind": (BLIND,), "dimensions": (DIMENSIONS,), "swap": SWAPS, INTERLEAVED: (INTERLEAVED,)}
SETTINGS = (*ANSWERS, TEXT_CUE, IMAGE_CUE, DIMENSIONS, BLIND, *SWAPS, INTERLEAVED)


def set_of(task: str, kind: str) -> str:
    """Under which name the questions of a task count: those with choices and open ones apart."""
    return task if kind == "mcq" else f"{task}_open"


def task_of_set(name: str) -> str:
    return name.removesuffix("_open")


def kind_of_set(name: str) -> str:
    return "open" if name.endswith("_open") else "mcq"


def regime_of(name: str) -> str:
    """Of a set."""
    return TASKS[task_of_set(name)]
