"""The numbers that UReason prints (Yang et al. 2026, arXiv 2602.08336), per cent; tasks in the order of TASKS, then
the overall accuracy as printed."""

from __future__ import annotations

from uni_train.eval.benchmarks.ureason.settings import BARE, DIRECT, EIGHT_TIMES, FOUR_TIMES, GUIDED

Row = tuple[float, ...]

# Table 2: testmini.
TABLE_2: dict[str, dict[str, Row]] = {
    "Bagel": {
        DIRECT: (10, 5, 3, 6, 9, 6.6),
        GUIDED: (30, 14, 15, 19, 11, 17.8),
        BARE: (58, 51, 58, 60, 86, 62.6),
    },
    "UniCoT-v2": {
        DIRECT: (9, 2, 2, 5, 3, 4.2),
        GUIDED: (27, 19, 29, 21, 21, 23.4),
        BARE: (65, 45, 46, 67, 87, 62),
    },
    "SRUM": {
        DIRECT: (11, 4, 3, 6, 7, 6.2),
        GUIDED: (25, 8, 20, 24, 6, 16.6),
        BARE: (67, 50, 50, 50, 82, 59.8),
    },
    "Bagel-Zebra-CoT": {
        DIRECT: (7, 7, 2, 10, 5, 6.2),
        GUIDED: (14, 10, 15, 23, 10, 14.4),
        BARE: (50, 43, 33, 48, 85, 51.8),
    },
    "ThinkMorph": {
        DIRECT: (9, 1, 4, 3, 10, 5.4),
        GUIDED: (19, 12, 15, 26, 5, 15.4),
        BARE: (49, 37, 45, 55, 71, 51.4),
    },
    "UniCoT": {
        DIRECT: (12, 3, 6, 12, 8, 8.2),
        GUIDED: (33, 18, 26, 21, 12, 22),
        BARE: (57, 42, 50, 42, 52, 48.6),
    },
    "T2I-R1": {
        DIRECT: (3, 6, 4, 9, 2, 4.8),
        GUIDED: (6, 4, 2, 11, 3, 5.2),
        BARE: (20, 15, 12, 27, 47, 24.2),
    },
    "UniMoE2": {
        DIRECT: (5, 4, 2, 10, 4, 5),
        GUIDED: (10, 3, 3, 12, 6, 6.8),
        BARE: (17, 13, 8, 21, 13, 14.4),
    },
}
# Table 3: reasoning chains.
TABLE_3: dict[str, Row] = {
    "Bagel": (93, 94, 88, 96, 96, 93.4),
    "SRUM": (91, 91, 88, 93, 95, 91.6),
    "UniCoT": (84, 70, 84, 99, 95, 86.4),
    "ThinkMorph": (83, 82, 85, 96, 91, 87.4),
    "Bagel-Zebra-CoT": (75, 89, 79, 94, 92, 85.8),
}
# Table 4: the refined prompt once, four and eight times.
TABLE_4: dict[str, dict[str, Row]] = {
    "Bagel": {
        BARE: (58, 51, 58, 60, 86, 62.6),
        FOUR_TIMES: (63, 49, 52, 53, 85, 60.4),
        EIGHT_TIMES: (58, 46, 48, 47, 84, 56.6),
    },
    "ThinkMorph": {
        BARE: (49, 37, 45, 55, 71, 51.4),
        FOUR_TIMES: (46, 34, 37, 55, 73, 49),
        EIGHT_TIMES: (44, 33, 34, 51, 73, 47),
    },
    "Bagel-Zebra-CoT": {
        BARE: (50, 43, 33, 48, 85, 51.8),
        FOUR_TIMES: (53, 38, 30, 42, 77, 48),
        EIGHT_TIMES: (49, 36, 25, 38, 74, 44.4),
    },
}
# Section 5, error analysis of Bagel in setting 2: shares of its wrong images, by people.
ERRORS: dict[str, float] = {
    "reasoning error": 5.8, "instruction misinterpretation": 10.6, "concept hallucination": 8.2,
    "task-specific error": 75.4,
}  # fmt: skip
# Table 7: the full test set of 2,000; its testmini rows are those of Table 2.
TABLE_7: dict[str, dict[str, Row]] = {
    "Bagel": {
        DIRECT: (12, 8, 6, 5, 10, 8.2),
        GUIDED: (33, 18, 16, 21, 13, 20.2),
        BARE: (60, 54, 59, 63, 87, 64.6),
    },
    "UniCoT": {
        DIRECT: (13, 5, 9, 13, 9, 9.8),
        GUIDED: (37, 18, 31, 24, 15, 25),
        BARE: (57, 46, 54, 42, 57, 51.2),
    },
    "SRUM": {
        DIRECT: (10, 5, 6, 10, 9, 8),
        GUIDED: (27, 10, 23, 28, 10, 19.6),
        BARE: (69, 49, 53, 55, 85, 62.2),
    },
    "ThinkMorph": {
        DIRECT: (12, 3, 5, 5, 13, 7.6),
        GUIDED: (23, 16, 18, 27, 9, 18.6),
        BARE: (48, 35, 46, 53, 68, 50),
    },
}
# Table 8: tokens of Qwen3-8B, mean and standard deviation, of the training data and of what UReason draws from.
TABLE_8: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "ThinkMorph": ((490.8, 276.7), (316.3, 154.8)),
    "Bagel-Zebra-CoT": ((476.4, 474.4), (256.7, 123.4)),
}
# Table 11: the images of UniCoT, scored by three evaluators.
TABLE_11: dict[str, dict[str, Row]] = {
    "Qwen3-VL-235B-A22B": {
        DIRECT: (12, 3, 6, 12, 8, 8.2),
        GUIDED: (33, 18, 26, 21, 12, 22),
        BARE: (57, 42, 50, 42, 52, 48.6),
    },
    "Gemini-2.5-Pro": {
        DIRECT: (10, 4, 7, 10, 9, 8),
        GUIDED: (30, 18, 23, 17, 9, 19.4),
        BARE: (53, 40, 47, 43, 48, 46.2),
    },
    "Gemini-3.1-Pro": {
        DIRECT: (10, 3, 6, 10, 8, 7.4),
        GUIDED: (31, 16, 23, 15, 10, 19),
        BARE: (52, 41, 48, 40, 45, 45.2),
    },
}
