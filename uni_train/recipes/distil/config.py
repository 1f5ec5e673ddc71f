"""The keys of think-distillation, and their rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from uni_train.config.messages import Where, check_rules, check_thinks
from uni_train.config.schema import SHARDED, Decay, Positive, Scale
from uni_train.data_gen.registry import TASKS
from uni_train.recipes.stars.config import THOUGHTS, OtherModel, RoundsConfig, check_rounds


@dataclass(frozen=True, kw_only=True)
class WeightedModel(OtherModel):
    weight: Positive = 1.0  # of its velocity in the mean that is learned


@dataclass(frozen=True, kw_only=True)
class DistilConfig(RoundsConfig):
    """Velocities under prompt and thought, learned under the prompt alone. `candidates` are thoughts of a prompt."""

    kind: Literal["distil"] = "distil"
    # the teacher's own, each item's reference (a maze's steps), or none: it draws from the prompt alone
    thoughts: Literal["model", "reference", "none"] = "model"
    filter: Literal["none", "agreement", "self", "verifier"] = "none"  # of thoughts
    # the weights that the run starts from, an average of the student's, or another model, by its checkpoint
    teacher: Literal["start", "ema"] | OtherModel = "start"
    teachers: dict[str, WeightedModel] = field(default_factory=dict)  # several other models, in place of `teacher`
    teacher_decay: Decay = 0.99  # of that average, an update
    # where velocities are compared: on noised images of the teacher, on its trajectories, on the student's own
    states: Literal["noised", "teacher", "student"] = "teacher"
    # how likely each step of a trajectory is: as the levels of training, or by the divergence of a random step
    weighting: Literal["shift", "kl"] = "shift"
    guidance: Scale | None = None  # of the teacher by text, for a student that draws without; null = none

    @property
    def reused(self) -> bool:
        """Whether the velocities by which the teacher draws beforehand are those to be learned."""
        alike = self.guidance is not None or not self.guided
        return self.states == "teacher" and self.teacher != "ema" and alike

    @property
    def other_teachers(self) -> dict[str, OtherModel]:
        return super().other_teachers | {f"teachers.{name}": model for name, model in self.teachers.items()}

    @property
    def guided(self) -> tuple[str, ...]:
        """The keys by which the rounds' images are drawn with guidance."""
        edits = {TASKS.get(round_.task).edits for round_ in self.rounds}
        keys = [name for name, edit in (("cfg_text_scale", False), ("edit_text_scale", True)) if edit in edits]
        return tuple(f"model.sampling.{name}" for name in keys if getattr(self.model.sampling, name) > 1)


def check(config: DistilConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    check_rounds(config, where)
    others, thoughtless = config.other_teachers, config.thoughts == "none"
    if THOUGHTS in config.replays or not (others or thoughtless):
        check_thinks(config.model, "kind=distil", "model", where)
    temperature = config.model.sampling.temperature if config.temperature is None else config.temperature
    several, averaged = config.candidates > 1, config.teacher == "ema"
    key, guided = "candidates" if several else "filter", config.guided[0] if config.guided else ""
    scale = getattr(config.model.sampling, guided.rpartition(".")[2]) if guided else 1.0
    check_rules([
        (key, config.thoughts != "model" and (several or config.filter != "none"),
         f"thoughts={config.thoughts}: each prompt has {'no' if thoughtless else 'one'} thought, and "
         f"{key}={getattr(config, key)}", "candidates=1 filter=none, or thoughts=model."),
        ("thoughts", thoughtless and not others and config.guidance is None,
         f"thoughts=none: teacher={config.teacher} and the student would be one model with one prompt",
         "teacher=CHECKPOINT, or guidance=4."),
        ("thoughts", thoughtless and THOUGHTS in config.replays, "thoughts=none leaves no thoughts to replay",
         "thoughts_replay=0."),
        ("teachers", config.teachers and config.teacher != "start",
         "teachers and teacher both say who teaches", "teacher=start, or leave teachers out."),
        ("teachers", len(others) > 1 and (config.states != "student" or config.thoughts == "model"),
         f"states={config.states} thoughts={config.thoughts}: of {len(others)} teachers none thinks or draws for all",
         "states=student thoughts=none."),
        ("weighting", config.weighting == "kl" and config.states == "noised",
         "weighting=kl weighs the steps of a trajectory, and states=noised has none", "states=student, or teacher."),
        ("candidates", several and temperature == 0,
         f"candidates={config.candidates}: at temperature 0 all thoughts of a prompt are the same",
         "temperature=0.7, or candidates=1."),
        ("filter", config.filter == "agreement" and config.candidates < 3,
         f"filter=agreement: candidates={config.candidates} thoughts of a prompt have no majority",
         "candidates=4 temperature=0.7."),
        ("teacher", averaged and config.trained == "lora",
         "teacher=ema averages weights, and trained=lora trains adapters", "teacher=start."),
        ("teacher", averaged and config.strategy.kind in SHARDED,
         f"teacher=ema averages whole weights, and strategy={config.strategy.kind} shards them",
         "teacher=start, or strategy=ddp."),
        ("guidance", config.guidance is not None and guided,
         f"guidance is learned by the student, and {guided}={scale:g} would guide it once more",
         f"{guided}=1, or guidance=null."),
    ], where)  # fmt: skip
