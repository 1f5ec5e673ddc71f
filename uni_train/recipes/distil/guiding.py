"""Which guidance the teacher's velocity has: as it draws, and as it is learned."""

from __future__ import annotations

from dataclasses import asdict

from uni_train.flow.guidance import Guidance
from uni_train.recipes.distil.config import DistilConfig


def of_drawing(config: DistilConfig) -> Guidance | None:
    """Of the teacher's images: the recipe's, else (None) the model's own."""
    return None if config.guidance is None else Guidance(**asdict(config.guidance))


def of_target(config: DistilConfig) -> Guidance:
    """Of what the student learns: the recipe's, else none."""
    return of_drawing(config) or Guidance()


def reusable(config: DistilConfig) -> bool:
    """Whether the velocities that the teacher drew by are those to be learned."""
    alike = config.guidance is not None or config.model.sampling.cfg_text_scale <= 1
    return config.states == "teacher" and config.teacher == "start" and alike
