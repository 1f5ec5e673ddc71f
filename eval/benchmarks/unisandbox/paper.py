"""What UniSandbox's paper prints (its Tables 1 to 5), for standing below our own rows."""

from __future__ import annotations

from dataclasses import dataclass

# The size of the published sets (section 3.1).
PAPER_PAIRS = 100


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of the paper's tables: accuracies of levels 1 to 3 asked both ways, and the average as printed there."""

    name: str
    normal: tuple[float, float, float]
    cot: tuple[float, float, float]
    average: float


@dataclass(frozen=True, slots=True)
class PaperModel:
    """A row of Table 1: Math1 to Math3, Mapping1 to Mapping3, and the average as printed there."""

    name: str
    accuracies: tuple[float, float, float, float, float, float]
    average: float


PAPER_TABLE_1 = (
    PaperModel("Janus-Pro-7B", (0.04, 0.03, 0.03, 0.0, 0.0, 0.0), 0.0167),
    PaperModel("Blip3o", (0.03, 0.02, 0.02, 0.03, 0.0, 0.0), 0.0167),
    PaperModel("Qwen-Image", (0.13, 0.07, 0.10, 0.0, 0.0, 0.0), 0.05),
    PaperModel("BAGEL", (0.07, 0.06, 0.04, 0.0, 0.0, 0.0), 0.0283),
    PaperModel("BAGEL + CoT", (0.60, 0.44, 0.23, 0.74, 0.60, 0.45), 0.51),
    PaperModel("gpt-image-1", (0.66, 0.36, 0.19, 0.75, 0.53, 0.36), 0.475),
    PaperModel("nano-banana", (0.66, 0.64, 0.42, 0.44, 0.44, 0.50), 0.5167),
)
PAPER_TABLE_2 = (
    PaperRow("BAGEL", (0.07, 0.06, 0.04), (0.60, 0.44, 0.23), 0.24),
    PaperRow("BAGEL + STARS on Math1", (0.29, 0.27, 0.16), (0.60, 0.42, 0.27), 0.34),
    PaperRow("BAGEL + STARS on Math2", (0.17, 0.26, 0.12), (0.57, 0.41, 0.25), 0.30),
    PaperRow("BAGEL + STARS on Math3", (0.26, 0.26, 0.16), (0.55, 0.43, 0.29), 0.33),
)
# Tables 3 and 5. The rows "on M2" and "on M3" are left out: cells are missing in the copy of the paper that we have.
PAPER_TABLE_3 = (
    PaperRow("BAGEL", (0.0, 0.0, 0.0), (0.75, 0.57, 0.46), 0.30),
    PaperRow("BAGEL + STARS with CL, round 1", (0.69, 0.10, 0.10), (0.66, 0.39, 0.38), 0.39),
    PaperRow("BAGEL + STARS with CL, round 2", (0.61, 0.47, 0.22), (0.68, 0.62, 0.40), 0.50),
    PaperRow("BAGEL + STARS with CL, round 3", (0.64, 0.46, 0.27), (0.75, 0.65, 0.50), 0.55),
    PaperRow("BAGEL + STARS with Mix", (0.63, 0.37, 0.25), (0.70, 0.45, 0.35), 0.46),
)

# Table 4: Forward Retrieval, Inverse Search, Overall.
PAPER_TABLE_4: dict[str, tuple[float, float, float]] = {
    "Blip3o": (0.20, 0.10, 0.16),
    "QwenImage": (0.13, 0.00, 0.08),
    "JanusPro": (0.03, 0.05, 0.04),
    "BAGEL": (0.10, 0.00, 0.06),
    "BAGEL + CoT": (0.63, 0.15, 0.44),
}
