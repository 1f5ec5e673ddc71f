"""The paper's own numbers, per cent as printed: Tables 2, 3 and 4.

The printed means are those of the four columns, within 0.12, but for Seedream 4.0: its columns give 36.95, printed is
41.5. Bars of Figure 5 have no numbers, so it has no rows here.
"""

from __future__ import annotations

from dataclasses import dataclass

Five = tuple[float, float, float, float, float]
"""BC, RO, VQ, RS (of a process RA), and the printed mean."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model of Table 3. kind: "edit", "unified", "unified, CoT", "video". planner: it lacks interleaved generation,
    and an external planner decomposed its tasks (GPT-5 or Gemini-2.5-Pro)."""

    model: str
    kind: str
    result: Five
    process: Five | None = None
    planner: bool = False


TABLE_3 = (
    Row("FLUX.1-Kontext-dev", "edit", (65.1, 13.1, 75.9, 1.6, 38.9)),
    Row("FLUX.2-dev", "edit", (40.0, 11.5, 63.8, 4.2, 29.9)),
    Row("Qwen-Image-Edit-2509", "edit", (52.4, 14.3, 60.7, 1.4, 32.2)),
    Row("Qwen-Image-Edit-2511", "edit", (42.4, 11.1, 44.6, 4.9, 25.8)),
    Row("LongCat-Image-Edit", "edit", (53.6, 11.4, 60.5, 3.3, 32.2)),
    Row("Step1X-Edit", "edit", (64.6, 8.2, 62.9, 2.8, 34.6)),
    Row("HiDream-E1.1", "edit", (2.8, 2.6, 0.4, 1.0, 1.7)),
    Row("ICEdit", "edit", (34.4, 5.3, 35.7, 0.9, 19.1)),
    Row("Bagel", "unified", (35.5, 8.7, 46.0, 2.2, 23.1)),
    Row("OmniGen2", "unified", (27.7, 6.3, 54.6, 0.8, 22.4)),
    Row("UniWorld-V1", "unified", (49.0, 10.9, 54.1, 1.8, 29.0)),
    Row("UniPic2-M-9B", "unified", (11.7, 4.7, 12.6, 3.1, 8.0)),
    Row("Ovis-U1-3B", "unified", (42.0, 7.0, 46.9, 1.2, 24.3)),
    Row("DiMOO", "unified", (73.3, 13.2, 48.0, 1.4, 34.0)),
    Row("Seedream 4.0", "unified", (50.6, 28.7, 66.6, 1.9, 41.5)),
    Row("GPT-image-1", "unified", (57.5, 29.3, 87.6, 13.4, 46.9)),
    Row("Nano Banana", "unified", (57.0, 30.9, 86.7, 16.3, 47.7)),
    Row("Nano Banana Pro", "unified", (70.2, 62.0, 95.1, 46.4, 68.4)),
    Row("Bagel-Think", "unified, CoT", (8.2, 6.1, 21.3, 2.3, 9.5), (15.2, 4.5, 36.5, 2.2, 14.6)),
    Row("Zebra-CoT", "unified, CoT", (42.1, 13.3, 35.4, 1.6, 23.1), (49.9, 8.9, 57.6, 2.7, 29.8)),
    Row("Uni-CoT", "unified, CoT", (26.3, 9.3, 33.3, 3.1, 18.0), (34.2, 10.1, 47.6, 5.3, 24.3)),
    Row("GPT-image-1", "unified, CoT", (27.8, 25.7, 52.0, 19.7, 31.3), (67.4, 35.8, 80.7, 32.9, 54.2), True),
    Row("Nano Banana", "unified, CoT", (63.8, 36.8, 79.1, 22.3, 50.5), (82.2, 40.7, 92.6, 37.7, 63.3), True),
    Row("Nano Banana Pro", "unified, CoT", (66.3, 54.5, 83.9, 40.2, 61.2), (86.0, 58.6, 90.9, 52.0, 72.0), True),
    Row("Wan 2.2", "video", (31.2, 6.4, 36.7, 1.1, 18.9), (61.5, 11.9, 67.0, 7.4, 37.0)),
    Row("Kling 1.6", "video", (59.5, 6.3, 52.5, 1.6, 30.0), (73.9, 12.4, 77.0, 9.6, 43.2)),
    Row("Seedance 1.0 Pro", "video", (48.0, 14.0, 51.5, 4.8, 29.6), (39.5, 12.1, 63.5, 9.2, 31.1)),
    Row("Veo 3", "video", (33.6, 15.0, 25.0, 8.4, 20.5), (69.6, 36.2, 85.3, 31.9, 55.8)),
    Row("Sora 2 Pro", "video", (24.5, 16.6, 20.0, 10.1, 17.8), (70.5, 38.8, 85.5, 34.8, 57.4)),
)
"""Table 3. The table's flattened copy does not say where edit ends and unified begins: the kinds follow section 4.1."""

TABLE_4: dict[str, Five] = {
    "Qwen-Image-Edit-2509": (0.0, 0.0, 32.0, 0.0, 8.0),
    "Qwen-Image-Edit-2511": (66.0, 3.0, 74.0, 2.0, 36.3),
    "Nano Banana": (38.0, 37.0, 96.0, 3.0, 43.5),
    "GPT-Image-1": (96.0, 23.0, 98.0, 5.0, 55.5),
    "Nano Banana Pro": (93.0, 50.0, 98.0, 11.0, 63.0),
    "Qwen-Image-Edit-2509-SFT, 4 x 4": (65.0, 65.0, 68.0, 27.0, 56.3),
    "Qwen-Image-Edit-2509-RL, 4 x 4": (100.0, 69.0, 96.0, 60.0, 81.3),
    "Qwen-Image-Edit-2511-SFT, 4 x 4": (82.0, 11.0, 65.0, 11.0, 42.3),
    "Qwen-Image-Edit-2511-RL, 4 x 4": (100.0, 67.0, 97.0, 59.0, 80.8),
    "Qwen-Image-Edit-2509-SFT, 6 x 6": (62.0, 87.0, 72.0, 42.0, 65.8),
    "Qwen-Image-Edit-2509-RL, 6 x 6": (100.0, 82.0, 99.0, 80.0, 90.3),
    "Qwen-Image-Edit-2511-SFT, 6 x 6": (63.0, 52.0, 46.0, 43.0, 51.0),
    "Qwen-Image-Edit-2511-RL, 6 x 6": (100.0, 94.0, 97.0, 81.0, 93.0),
    "Qwen-Image-Edit-2509-SFT, 8 x 8": (57.0, 86.0, 74.0, 39.0, 64.0),
    "Qwen-Image-Edit-2509-RL, 8 x 8": (100.0, 84.0, 98.0, 72.0, 88.5),
    "Qwen-Image-Edit-2511-SFT, 8 x 8": (82.0, 49.0, 74.0, 39.0, 61.0),
    "Qwen-Image-Edit-2511-RL, 8 x 8": (100.0, 99.0, 100.0, 97.0, 99.0),
}
"""Table 4: mazes of 2 x 2 to 7 x 7 rooms; the name says on which grid a model was trained."""

DISCREPANCIES = {"Seedream 4.0": (41.5, 36.95)}
"""Model -> the printed mean of Result, and the mean of its printed columns."""


def mean_of(row: Five) -> float:
    """Equations 3 and 6."""
    return sum(row[:4]) / 4
